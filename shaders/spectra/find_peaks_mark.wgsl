// Marks the samples that are local maxima, one thread per sample: the middle of a run of equal
// samples with smaller ones on both sides. Whole blocks of equal samples are jumped over.
{{ bindings(access, x="f32", extremes="f32", marks="i32") }}

fn flat(block: u32, value: f32) -> bool {
    return extremes[block] == value && extremes[ROWS * BLOCKS + block] == value;
}

fn is_peak(row: u32, i: u32) -> bool {
    if (i == 0u || i + 1u >= N) { return false; }
    let base = row * N;
    let value = x[base + i];
    if (x[base + i - 1u] > value || x[base + i + 1u] > value) { return false; }
    // The run of equal samples is first to last.
    var first = i;
    loop { // trips: N / BLOCK + 2 * BLOCK
        if (first == 0u) { return false; }
        if (first % BLOCK == 0u && flat(row * BLOCKS + first / BLOCK - 1u, value)) {
            first -= BLOCK;
            continue;
        }
        if (x[base + first - 1u] != value) { break; }
        first--;
    }
    var last = i;
    loop { // trips: N / BLOCK + 2 * BLOCK
        if (last + 1u >= N) { return false; }
        if ((last + 1u) % BLOCK == 0u && flat(row * BLOCKS + (last + 1u) / BLOCK, value)) {
            last += BLOCK;
            continue;
        }
        if (x[base + last + 1u] != value) { break; }
        last++;
    }
    return x[base + first - 1u] < value && x[base + last + 1u] < value && (first + last) / 2u == i
        {{ "&& value >= f32(%s)" % height_low if height_low }}
        {{ "&& value <= f32(%s)" % height_high if height_high }};
}

{{ by_element(64, "t", "ROWS * N") }}
    marks[t] = i32(is_peak(t / N, t % N));
}
