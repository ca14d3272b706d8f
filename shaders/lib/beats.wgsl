// Whether another bin comes before this one: it has more power, or the same power and a lower number. NaN comes last.
fn beats(other: f32, j: u32, mine: f32, bin: u32) -> bool {
    // By bits: a driver may assume that there is no NaN.
    let mine_nan = (bitcast<u32>(mine) & 0x7fffffffu) > 0x7f800000u;
    let other_nan = (bitcast<u32>(other) & 0x7fffffffu) > 0x7f800000u;
    if (mine_nan) { return !other_nan || j < bin; }
    if (other_nan) { return false; }
    return other > mine || (other == mine && j < bin);
}
