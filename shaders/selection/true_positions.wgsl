// The coordinates of elements that are true. Each knows how many there are before it.
{{ bindings(access, ones="i32", before="i32", y="vec2<u32>") }}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (wid.x + wid.y * FOLD) * 256u + lane;
    if (i >= N || ones[i] == 0 || u32(before[i]) >= COUNT) { return; }
    let place = u32(before[i]) * RANK;
    var rest = i;
{% for d in range(rank)|reverse %}
    y[place + {{ d }}u] = vec2<u32>(rest % {{ dims[d] }}u, 0u);
    rest /= {{ dims[d] }}u;
{% endfor %}
}
