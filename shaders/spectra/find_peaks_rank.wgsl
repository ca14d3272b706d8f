// The order of the undecided peaks of a row: by height, higher first; of equal peaks the later first. Each
// counts the undecided peaks before it, here those among the peaks START to END. The last part writes the order.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> positions: array<i32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> counts: array<i32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> keep: array<i32>;
@group(0) @binding(4) var<storage, {{ access[4] }}> ranks: array<i32>;
@group(0) @binding(5) var<storage, {{ access[5] }}> order: array<i32>;

{{ by_element(64, "t", "ROWS * CANDIDATES") }}
    let row = t / CANDIDATES;
    let peak = t % CANDIDATES;
    let count = u32(counts[row]);
    if (peak >= count || keep[t] != 2) { return; }
    let base = row * CANDIDATES;
    let height = x[row * N + u32(positions[t])];
    var rank = {{ "ranks[t]" if start else "0" }};
    for (var other = START; other < min(END, count); other++) { // trips: END - START
        if (keep[base + other] != 2) { continue; }
        let value = x[row * N + u32(positions[base + other])];
        rank += i32(value > height || (value == height && other > peak));
    }
    ranks[t] = rank;
{% if last %}
    order[base + u32(rank)] = i32(peak);
{% endif %}
}
