// Prominence and width of each peak, and whether they are within their bounds, one thread per peak.
// Whole blocks without a sample that would end a walk are jumped over.
{{ bindings(access, x="f32", extremes="f32", positions="i32", counts="i32", keep="i32", prominences="f32") }}

{% set edge = {"left": "(i + 1) % i32(BLOCK) == 0", "right": "i % i32(BLOCK) == 0 && i + i32(BLOCK) <= i32(N)"} %}
{% for side, sign in [("left", "-"), ("right", "+")] %}
// The lowest sample on the way from a peak to a larger one.
fn lowest_{{ side }}(row: u32, peak: i32, top: f32) -> f32 {
    var low = top;
    var i = peak;
    while (i >= 0 && i < i32(N)) { // trips: N / BLOCK + 2 * BLOCK
        if ({{ edge[side] }}) {
            let block = row * BLOCKS + u32(i) / BLOCK;
            if (extremes[ROWS * BLOCKS + block] <= top) {
                low = min(low, extremes[block]);
                i {{ sign }}= i32(BLOCK);
                continue;
            }
        }
        let value = x[row * N + u32(i)];
        if (value > top) { break; }
        low = min(low, value);
        i {{ sign }}= 1;
    }
    return low;
}

{% if widths %}
// Distance from a peak to where the signal crosses a level below it.
fn crossing_{{ side }}(row: u32, peak: i32, level: f32) -> f32 {
    var i = peak;
    while (i {{ sign }} 1 >= 0 && i {{ sign }} 1 < i32(N)) { // trips: N / BLOCK + 2 * BLOCK
        if ({{ edge[side] }} && i {{ sign }} i32(BLOCK) >= 0 && i {{ sign }} i32(BLOCK) < i32(N)) {
            if (extremes[row * BLOCKS + u32(i) / BLOCK] > level) {
                i {{ sign }}= i32(BLOCK);
                continue;
            }
        }
        if (x[row * N + u32(i)] <= level) { break; }
        i {{ sign }}= 1;
    }
    let value = x[row * N + u32(i)];
    let steps = f32(abs(i - peak));
    if (value < level) {
        let before = x[row * N + u32(i {{ "+" if sign == "-" else "-" }} 1)];
        return steps - (level - value) / (before - value);
    }
    return steps;
}

{% endif %}
{% endfor %}
{{ by_element(64, "t", "ROWS * CANDIDATES") }}
    let row = t / CANDIDATES;
    if (t % CANDIDATES >= u32(counts[row])) { return; }
{% if spaced %}
    if (keep[t] == 0) { return; }
{% endif %}
    let peak = positions[t];
    let top = x[row * N + u32(peak)];
    let drop = top - max(lowest_left(row, peak, top), lowest_right(row, peak, top));
    var good = true;
{% if prominence_low %}
    good = good && drop >= f32({{ prominence_low }});
{% endif %}
{% if prominence_high %}
    good = good && drop <= f32({{ prominence_high }});
{% endif %}
{% if widths %}
    let level = top - 0.5 * drop;
    let width = crossing_left(row, peak, level) + crossing_right(row, peak, level);
{% if width_low %}
    good = good && width >= f32({{ width_low }});
{% endif %}
{% if width_high %}
    good = good && width <= f32({{ width_high }});
{% endif %}
{% endif %}
    keep[t] = i32(good);
    prominences[t] = drop;
}
