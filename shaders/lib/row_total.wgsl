// The maximum and the sum over the {{ lanes }} lanes of a row, for every lane: by exchanges within subgroups where their
// size fits, which is known at run time only, otherwise through workgroup memory.
{% set second = 0 if lanes <= 16 else 8 if lanes == 32 else 16 if lanes <= 256 else 32 %}
{% set each = lanes // second if second else lanes %}
{% if subgroups and lanes > 32 %}
// Results of subgroups. Two calls use it in turn, so that no lane writes what others still read.
var<workgroup> totals: array<f32, {{ threads // 4 }}>;
var<private> turn: u32;
{% endif %}
var<workgroup> edge: array<vec4<f32>, {{ threads // 4 }}>;
{% if second %}
var<workgroup> inner_edge: array<vec4<f32>, {{ threads // lanes * second // 4 }}>;
{% endif %}
{% for name, joined, start in (("row_max", "all = max(all, {});", "max(max({0}.x, {0}.y), max({0}.z, {0}.w))"),
                               ("row_sum", "all += {};", "dot({0}, vec4<f32>(1.0))"))
   if name == "row_sum" or extreme %}

{% if subgroups %}
// `together`: lanes of a subgroup, 1 where they do not divide the workgroup. As a parameter it is seen to be uniform.
fn {{ name }}(value: f32, lane: u32, together: u32) -> f32 {
{% if lanes <= 32 %}
    if (together >= {{ lanes }}u) {
        var all = value;
{% for level in range(5) if 2 ** level < lanes %}
        {{ joined.format("subgroupShuffleXor(all, " ~ 2 ** level ~ "u)") }}
{% endfor %}
        return all;
    }
{% else %}
    if (together >= 8u && together <= {{ lanes }}u) {
        let group = subgroup{{ "Max" if name == "row_max" else "Add" }}(value);
        if (lane % together == 0u) { totals[turn + lane / together] = group; }
        workgroupBarrier();
        let first = turn + lane / {{ lanes }}u * ({{ lanes }}u / together);
        var all = totals[first];
        for (var i = 1u; i < {{ lanes }}u / together; i++) { {{ joined.format("totals[first + i]") }} } // trips: {{ lanes }} / 8
        turn = {{ threads // 8 }}u - turn;
        return all;
    }
{% endif %}
    return {{ name }}_in_memory(value, lane);
}
{% endif %}
fn {{ name }}{{ "_in_memory" if subgroups }}(value: f32, lane: u32) -> f32 {
    edge[lane / 4u][lane % 4u] = value;
    workgroupBarrier();
{% if second %}
    if (lane % {{ lanes }}u < {{ second }}u) {
        // These lanes join {{ each }} neighbours each.
        let from_ = lane / {{ lanes }}u * {{ lanes // 4 }}u + lane % {{ lanes }}u * {{ each // 4 }}u;
        var all = edge[from_];
{% for i in range(1, each // 4) %}
        {{ joined.format("edge[from_ + " ~ i ~ "u]") }}
{% endfor %}
        let slot = lane / {{ lanes }}u * {{ second }}u + lane % {{ lanes }}u;
        inner_edge[slot / 4u][slot % 4u] = {{ start.format("all") }};
    }
    workgroupBarrier();
    let base = lane / {{ lanes }}u * {{ second // 4 }}u;
    var all = inner_edge[base];
{% for i in range(1, second // 4) %}
    {{ joined.format("inner_edge[base + " ~ i ~ "u]") }}
{% endfor %}
{% else %}
    let base = lane / {{ lanes }}u * {{ lanes // 4 }}u;
    var all = edge[base];
{% for i in range(1, lanes // 4) %}
    {{ joined.format("edge[base + " ~ i ~ "u]") }}
{% endfor %}
    // All lanes have read them before the memory is used again.
    workgroupBarrier();
{% endif %}
    return {{ start.format("all") }};
}
{% endfor %}
