// Copies elements of 1 or 2 bytes from one strided walk to another. Elements share words, so a thread
// clears and sets its own bits by atomics; threads never touch each other's.
{% set shift, lanes, bits, mask = (2, 3, 8, 255) if itemsize == 1 else (1, 1, 16, 65535) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<u32>;
{% set out = access|length - 1 %}
{% if out > 1 %}
@group(0) @binding(1) var<storage, {{ access[1] }}> counter: array<i32>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% include "lib/strided_walk.wgsl" %}
    let element = (x[from_at >> {{ shift }}u] >> (u32(from_at & {{ lanes }}) * {{ bits }}u)) & {{ mask }}u;
    let place = u32(to_at & {{ lanes }}) * {{ bits }}u;
    atomicAnd(&y[to_at >> {{ shift }}u], ~({{ mask }}u << place));
    atomicOr(&y[to_at >> {{ shift }}u], element << place);
}
