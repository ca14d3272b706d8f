// Whether another bin comes before this one: more power, or as much and a lower number; NaN last.
fn beats(other: f32, j: u32, mine: f32, bin: u32) -> bool {
    // Not x != x: naga compiles that to a comparison that is false for NaN.
    if (!(mine == mine)) { return other == other || j < bin; }
    return other > mine || (other == mine && j < bin);
}
