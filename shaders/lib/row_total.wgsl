// The largest and the sum of what the {{ lanes }} lanes of a row hold, for each of them.
{% set second = 0 if lanes <= 16 else 8 if lanes == 32 else 16 if lanes <= 256 else 32 %}
{% set each = lanes // second if second else lanes %}
var<workgroup> edge: array<vec4<f32>, {{ threads // 4 }}>;
{% if second %}
var<workgroup> inner_edge: array<vec4<f32>, {{ threads // lanes * second // 4 }}>;
{% endif %}
{% for name, joined, start in (("row_max", "all = max(all, {});", "max(max({0}.x, {0}.y), max({0}.z, {0}.w))"),
                               ("row_sum", "all += {};", "dot({0}, vec4<f32>(1.0))"))
   if name == "row_sum" or extreme %}

fn {{ name }}(value: f32, lane: u32) -> f32 {
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
    // Everyone has read them before the memory is used again.
    workgroupBarrier();
{% endif %}
    return {{ start.format("all") }};
}
{% endfor %}
