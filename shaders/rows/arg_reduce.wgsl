// Position of the extreme of n elements that are `inner` apart; one workgroup per result. NaN counts
// as more extreme than any number. For a long line, workgroups first
// find the positions of its partitions; a second call chooses among those.
{% set shared = splits is defined and not listed %}
{% set joins = splits is defined and listed %}
{% set out = 2 if joins else 1 %}
{% set T = type[0] %}
{% set lanes = 64 if n <= 256 else 256 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
{% if joins %}
@group(0) @binding(1) var<storage, {{ access[1] }}> places: array<i32>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<i32>;

var<workgroup> value: array<{{ T }}, {{ lanes }}>;
var<workgroup> place: array<u32, {{ lanes }}>;

{% include "lib/wide_one.wgsl" %}
// Whether element (a, i) is chosen over (b, j).
fn chosen(a: {{ T }}, i: u32, b: {{ T }}, j: u32) -> bool {
{% if T == "f32" %}
    // By bits: a driver may assume that there is no NaN.
    let a_nan = (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u;
    let b_nan = (bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
{% else %}
    let a_nan = false;
    let b_nan = false;
{% endif %}
    let equal = (a_nan && b_nan) || {{ operation(T, "==", "a", "b") }};
    if (equal) { return i {{ ">" if last else "<" }} j; }
    if (a_nan || b_nan) { return a_nan; }
    return {{ operation(T, ">" if largest else "<", "a", "b") }};
}

{{ by_group(lanes) }}
{% if shared %}
    let line = g / SPLITS;
    let base = (line / INNER) * N * INNER + line % INNER;
    let begin = (g % SPLITS) * PARTITION;
    var best = x[base + begin * INNER];
    var index = begin;
    for (var i = begin + lane; i < min(begin + PARTITION, N); i += {{ lanes }}u) { // trips: PARTITION / {{ lanes }}
{% elif joins %}
    let base = (g / INNER) * N * INNER + g % INNER;
    var index = u32(places[g * SPLITS]);
    var best = x[base + index * INNER];
    for (var j = lane; j < SPLITS; j += {{ lanes }}u) { // trips: SPLITS / {{ lanes }}
        let i = u32(places[g * SPLITS + j]);
{% else %}
    let base = (g / INNER) * N * INNER + g % INNER;
    var best = x[base];
    var index = 0u;
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
{% endif %}
        let v = x[base + i * INNER];
        if (chosen(v, i, best, index)) {
            best = v;
            index = i;
        }
    }
    value[lane] = best;
    place[lane] = index;
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ lanes // 2 }})
        if (lane < width && chosen(value[lane + width], place[lane + width], value[lane], place[lane])) {
            value[lane] = value[lane + width];
            place[lane] = place[lane + width];
        }
        workgroupBarrier();
    }
    if (lane == 0u) { y[g] = i32(place[0]); }
}
