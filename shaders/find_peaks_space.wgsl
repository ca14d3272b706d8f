// Drops peaks too near to a higher one, one workgroup per row: the peaks START to END in the order of
// their height, each that is still there dropping its neighbours.
@group(0) @binding(0) var<storage, {{ access[0] }}> positions: array<i32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> counts: array<i32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> order: array<i32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> keep: array<i32>;

var<workgroup> shared_count: u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wid.x + wid.y * FOLD;
    if (row >= GROUPS) { return; }
    if (lane == 0u) { shared_count = u32(counts[row]); }
    let count = workgroupUniformLoad(&shared_count);
    let base = row * CANDIDATES;
    for (var rank = START; rank < min(END, count); rank++) {
        let peak = order[base + rank];
        if (keep[base + u32(peak)] == 1) {
            let at = positions[base + u32(peak)];
            for (var k = peak - 1 - i32(lane); k >= 0; k -= 64) {
                if (at - positions[base + u32(k)] >= i32(DISTANCE)) { break; }
                keep[base + u32(k)] = 0;
            }
            for (var k = peak + 1 + i32(lane); k < i32(count); k += 64) {
                if (positions[base + u32(k)] - at >= i32(DISTANCE)) { break; }
                keep[base + u32(k)] = 0;
            }
        }
        storageBarrier();
    }
}
