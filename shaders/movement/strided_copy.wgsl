// Copies 4-byte elements from one strided walk to another.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ type[0] }}>;
{% set out = access|length - 1 %}
{% if out > 1 %}
@group(0) @binding(1) var<storage, {{ access[1] }}> counter: array<i32>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<{{ type[0] }}>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% include "lib/strided_walk.wgsl" %}
    y[to_at] = x[from_at];
}
