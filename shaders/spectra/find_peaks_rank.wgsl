// The order of the undecided peaks of a row: by height, higher first; of equal peaks the later first. Each
// counts the undecided peaks before it, here those among the peaks START to END. The last part writes the order.
{{ bindings(access, x="f32", positions="i32", counts="i32", keep="i32", ranks="i32", order="i32") }}

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
