{# The start of a kernel whose rows have several lanes each (row_total.wgsl): the row, the lane in it, the row's place. #}
@compute @workgroup_size({{ threads }})
{% if subgroups %}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) index: u32,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) within: u32, @builtin(subgroup_size) size: u32) {
    let together = select(1u, size, {{ threads }}u % size == 0u);
    let lane = select(index, subgroup * size + within, together > 1u);
{% else %}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% endif %}
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let own = lane % {{ lanes }}u;
    let row = g * {{ threads // lanes }}u + lane / {{ lanes }}u;
    // Lanes past the last row repeat its work, and write nothing.
    let base = min(row, {{ rows - 1 }}u) * {{ m }}u;
