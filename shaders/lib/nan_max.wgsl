// The larger of two, NaN where either is. A driver may assume that there is no NaN, so its bits tell.
fn nan_max(a: f32, b: f32) -> f32 {
    let nan = max(bitcast<u32>(a) & 0x7fffffffu, bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
    return select(max(a, b), a + b, nan);
}
