// The least and the largest sample of each block of a row, one thread per block: all the least
// first, then all the largest.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> extremes: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = (wid.x + wid.y * FOLD) * 64u + lane;
    if (t >= ROWS * BLOCKS) { return; }
    let first = (t % BLOCKS) * BLOCK;
    let base = (t / BLOCKS) * N;
    var low = x[base + first];
    var high = low;
    for (var i = first + 1u; i < min(first + BLOCK, N); i++) { // trips: BLOCK
        low = min(low, x[base + i]);
        high = max(high, x[base + i]);
    }
    extremes[t] = low;
    extremes[ROWS * BLOCKS + t] = high;
}
