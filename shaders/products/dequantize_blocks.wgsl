// The weights of packed rows, all of them or those that indices pick; a thread makes four. An index
// out of range takes the nearest row: a shader can't report it.
@group(0) @binding(0) var<storage, {{ access[0] }}> packed: array<u32>;
{% set next = namespace(index=1) %}
{% include "lib/scales.wgsl" %}
{% if index_bytes %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> rows: array<{{ type[next.index] }}>;
{% set R = type[next.index] %}
{% set next.index = next.index + 1 %}
{% endif %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> y: array<vec4<f32>>;

{% include "lib/blocks.wgsl" %}
{% if index_bytes and R == two_words %}

{% include "lib/wide_index.wgsl" %}
{% endif %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    let r = e / {{ k // 4 }}u;
    if (r >= COUNT) { return; }
{% if index_bytes %}
    let asked = {{ index(R, "rows[r]") }};
    let row = u32(clamp(select(asked, asked + {{ table }}, asked < 0), 0, {{ table - 1 }}));
{% else %}
    let row = r;
{% endif %}
    let k = (e % {{ k // 4 }}u) * 4u;
    let scale = scale_at(row, k);
    y[e] = scale.x * codes_at(row, k) + scale.y;
}
