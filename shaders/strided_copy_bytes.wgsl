// Copies 1-byte elements, packed four to a word, from one strided walk to another. Neighbours that
// share a word are written by different invocations, so each changes only its own bits, atomically.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= COUNT) { return; }
    var rest = i;
    var from_at: i32 = {{ source_offset }};
    var to_at: i32 = {{ target_offset }};
{% for axis in range(rank)|reverse %}
    {
        let at = i32(rest % {{ dims[axis] }}u);
        rest = rest / {{ dims[axis] }}u;
        from_at += at * ({{ source_steps[axis] }});
        to_at += at * ({{ target_steps[axis] }});
    }
{% endfor %}
    let s = u32(from_at);
    let t = u32(to_at);
    let value = (x[s / 4u] >> (8u * (s % 4u))) & 0xffu;
    let shift = 8u * (t % 4u);
    atomicAnd(&y[t / 4u], ~(0xffu << shift));
    atomicOr(&y[t / 4u], value << shift);
}
