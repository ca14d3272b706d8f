// Sum, mean or largest of the middle axis of [outer, n, inner]; one workgroup per result.
{% set T = type[0] %}
{% set start = {"sum": T ~ "(0)", "mean": T ~ "(0)", "max": "x[first]"}[kind] %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<{{ T }}>;

var<workgroup> partial: array<{{ T }}, 256>;

fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} {
    return {{ "max(a, b)" if kind == "max" else "a + b" }};
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let first = g / INNER * N * INNER + g % INNER;
    var acc = {{ start }};
    for (var i = lane; i < N; i += 256u) { acc = combine(acc, x[first + i * INNER]); }
    partial[lane] = acc;
    for (var width = 128u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) { partial[lane] = combine(partial[lane], partial[lane + width]); }
    }
    if (lane == 0u) {
{% if kind == "mean" %}
{% if n == 0 %}
        // NaN can't be written as a constant.
        y[g] = bitcast<f32>(0x7fc00000u | lane);
{% else %}
        y[g] = partial[0] / f32(N);
{% endif %}
{% else %}
        y[g] = partial[0];
{% endif %}
    }
}
