// Few rows of x times packed weights. A workgroup makes 4 columns; 64 lanes share a column's row of
// weights, 16 of them at a time, and use them for every row of x. Their sums are then added up.
{% set next = namespace(at=2) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<u32>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.at }}) var<storage, {{ access[next.at] }}> y: array<f32>;

var<workgroup> part: array<f32, {{ 256 * m }}>;

{% include "lib/blocks.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let column = g * 4u + lane / 64u;
{% for r in range(m) %}
    var sum{{ r }} = 0.0;
{% endfor %}
    if (column < N) {
        for (var k = (lane % 64u) * 16u; k < K; k += 1024u) {
            let scale = scale_at(column, k);
{% for q in range(4) %}
            let w{{ q }} = scale.x * codes_at(column, k + {{ 4 * q }}u) + scale.y;
{% endfor %}
            let at = k >> 2u;
{% for r in range(m) %}
            sum{{ r }} += {% for q in range(4) %}dot(x[at + {{ r * (k // 4) + q }}u], w{{ q }}){{ " + " if not loop.last }}{% endfor %};
{% endfor %}
        }
    }
{% for r in range(m) %}
    part[lane + {{ 256 * r }}u] = sum{{ r }};
{% endfor %}
    workgroupBarrier();
    for (var width = 32u; width > 0u; width /= 2u) {
        if (lane % 64u < width) {
{% for r in range(m) %}
            part[lane + {{ 256 * r }}u] += part[lane + width + {{ 256 * r }}u];
{% endfor %}
        }
        workgroupBarrier();
    }
    let row = lane % 64u;
    if (row < M && column < N) { y[row * N + column] = part[lane - row + row * 256u]; }
}
