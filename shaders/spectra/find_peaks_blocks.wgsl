// The least and the largest sample of each block of a row, one thread per block: all the least
// first, then all the largest.
{{ bindings(access, x="f32", extremes="f32") }}

{{ by_element(64, "t", "ROWS * BLOCKS") }}
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
