// Where the matrices of product ``item`` of a batch stand, counted in matrices.
fn matrix_at(item: u32) -> vec2<u32> {
    var rest = item;
    var at = vec2<u32>(0u);
{% for axis in range(rank)|reverse %}
    at += (rest % {{ dims[axis] }}u) * vec2<u32>({{ a_steps[axis] }}u, {{ b_steps[axis] }}u);
    rest = rest / {{ dims[axis] }}u;
{% endfor %}
    return at;
}
