// Copies elements of 1 or 2 bytes from one strided walk to another. Elements share words, so a thread
// clears and sets its own bits by atomics; threads never touch each other's.
{% set shift, lanes, bits, mask = (2, 3, 8, 255) if itemsize == 1 else (1, 1, 16, 65535) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<u32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    if (e >= COUNT) { return; }
    var rest = e;
    var from_at = {{ source_offset }}i;
    var to_at = {{ target_offset }}i;
{% for d in range(rank)|reverse %}
    from_at += i32(rest % {{ dims[d] }}u) * i32({{ source_steps[d] }});
    to_at += i32(rest % {{ dims[d] }}u) * i32({{ target_steps[d] }});
    rest /= {{ dims[d] }}u;
{% endfor %}
    let element = (x[from_at >> {{ shift }}u] >> (u32(from_at & {{ lanes }}) * {{ bits }}u)) & {{ mask }}u;
    let place = u32(to_at & {{ lanes }}) * {{ bits }}u;
    atomicAnd(&y[to_at >> {{ shift }}u], ~({{ mask }}u << place));
    atomicOr(&y[to_at >> {{ shift }}u], element << place);
}
