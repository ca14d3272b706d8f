// A registered operation: calls the user's function once for every element of the first result.
{% for name in names %}
@group(0) @binding({{ loop.index0 }}) var<storage, {{ access[loop.index0] }}> {{ name }}: array<{{ type[loop.index0] }}>;
{% endfor %}

{{ text }}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (wid.x + wid.y * FOLD) * 256u + lane;
    if (i >= COUNT) { return; }
    compute(i);
}
