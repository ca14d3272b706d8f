// The larger of two, NaN where either is: WGSL's max may return the other one.
fn nan_max(a: f32, b: f32) -> f32 {
    return select(select(max(a, b), b, !(b == b)), a, !(a == a));
}
