// Row m times the matrix of its expert; a workgroup makes 64 columns of one row. f32, or f16 summed in f32.
{% set E = "f32" %}
{% import "lib/stored.wgsl" as stored with context %}
{{ bindings(access, x=stored.unit, w=stored.unit, idx=type[2], y=stored.unit) }}

{% if type[2] == two_words %}
{% include "lib/wide_index.wgsl" %}

{% endif %}
{{ by_group(64) }}
    let row = g / {{ (n + 63) // 64 }}u;
    let column = (g % {{ (n + 63) // 64 }}u) * 64u + lane;
    if (column >= N) { return; }
    let expert = u32(clamp({{ index(type[2], "idx[row]") }}, 0, {{ experts - 1 }}));
    let base = expert * (K * N) + column;
    var sum = 0.0;
    for (var k = 0u; k < K; k++) { sum += {{ stored.read("x[row * K + k]") }} * {{ stored.read("w[base + k * N]") }}; } // trips: K
    y[row * N + column] = {{ stored.held_as("sum") }};
}
