// Copies 4-byte elements from one strided walk to another; one element per invocation.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ type[0] }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<{{ type[1] }}>;

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
    y[to_at] = x[from_at];
}
