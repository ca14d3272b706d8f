// Decides the peaks that are still undecided, one workgroup per row: START to END in the order of their
// height. Each that is still undecided wins, and its neighbours lose.
{{ bindings(access, positions="i32", counts="i32", order="i32", keep="i32") }}

var<workgroup> open: u32;

{{ by_group(64, "row") }}
    let count = counts[row];
    let base = row * CANDIDATES;
    if (lane == 0u) {
        // The undecided peaks come first in the order; the rest is -1.
        var low = 0u;
        var high = u32(count);
        while (low < high) { // trips: bits(CANDIDATES)
            let middle = (low + high) / 2u;
            if (order[base + middle] < 0) { high = middle; } else { low = middle + 1u; }
        }
        open = low;
    }
    let ranks = min(END, workgroupUniformLoad(&open));
    for (var rank = START; rank < ranks; rank++) { // trips: END - START
        let peak = order[base + rank];
        let won = keep[base + u32(peak)] == 2;
        if (won) {
            let index = positions[base + u32(peak)];
            for (var k = peak - 1 - i32(lane); k >= 0; k -= 64) { // trips: min(CANDIDATES / 64 + END - START, (END - START) * (DISTANCE / 128 + 2)) in all
                if (index - positions[base + u32(k)] >= i32(DISTANCE)) { break; }
                keep[base + u32(k)] = 0;
            }
            for (var k = peak + 1 + i32(lane); k < count; k += 64) { // trips: min(CANDIDATES / 64 + END - START, (END - START) * (DISTANCE / 128 + 2)) in all
                if (positions[base + u32(k)] - index >= i32(DISTANCE)) { break; }
                keep[base + u32(k)] = 0;
            }
        }
        // Every lane has read the state of this peak before it changes.
        storageBarrier();
        if (lane == 0u && won) { keep[base + u32(peak)] = 1; }
        storageBarrier();
    }
}
