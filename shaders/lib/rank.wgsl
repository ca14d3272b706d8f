// An order on powers as integers: a power is never negative, so its bits grow with it; NaN is least.
fn key_of(power: f32) -> u32 {
    let bits = bitcast<u32>(power);
    return select(bits + 1u, 0u, bits > 0x7f800000u);
}
