// Sum, mean, product, maximum or minimum over n elements that are `inner` apart, or of {{ splits }} partitions of them.
// {{ parts }} lanes share a result{{ ", neighbours of one result" if inner == 1 else "; neighbouring lanes have neighbouring results" }}. A lane starts
// {{ loads }} loads before it uses the first.
{% set T = type[0] %}
{% set wide = not single and (n if inner == 1 else inner) is divisibleby(4) %}
{% set E = "vec4<" ~ T ~ ">" if wide else T %}
{% set rows = inner == 1 %}
{% set width = 256 // parts %}
{% set units = 1 if rows else inner // 4 if wide else inner %}
{% set m = n // 4 if rows and wide else n %}
{% set results = outer * units %}
{% set P = T if rows else E %}
{% set ragged = m is not known_multiple(partition) or partition is not known_multiple(parts * loads) %}
{% set extreme = kind in ("max", "min") %}
{% set bits = "vec4<u32>" if wide else "u32" %}
{% set neutral = number(E, 1 if kind == "prod" else 0) %}
{{ bindings(access, x=E, y=P) }}

{% if parts > 1 %}
var<workgroup> part: array<{{ P }}, 256>;
{% endif %}

{% macro function(name, type, bits) %}
fn {{ name }}(a: {{ type }}, b: {{ type }}) -> {{ type }} {
{% if kind == "prod" %}
    return {{ operation(type, "*", "a", "b") }};
{% elif not extreme %}
    return {{ operation(type, "+", "a", "b") }};
{% elif T == "f32" %}
    // NaN stays: {{ kind }} alone may return the other operand, and a driver may assume that there is none.
    let nan = max(bitcast<{{ bits }}>(a) & {{ bits }}(0x7fffffffu), bitcast<{{ bits }}>(b) & {{ bits }}(0x7fffffffu)) > {{ bits }}(0x7f800000u);
    return select({{ kind }}(a, b), a + b, nan);
{% else %}
    return {{ operation(type, kind, "a", "b") }};
{% endif %}
}
{% endmacro %}
{% include "lib/wide_one.wgsl" %}
{{ function("combine", E, bits) }}
{% if rows and wide %}
{{ function("combine_one", T, "u32") }}
{% set combine_part = "combine_one" %}
{% else %}
{% set combine_part = "combine" %}
{% endif %}

{{ by_group(256, "group") }}
{% if rows %}
    let mine = lane % {{ parts }}u;
    let result = group / {{ splits }}u * {{ width }}u + lane / {{ parts }}u;
{% else %}
    let mine = lane / {{ width }}u;
    let result = group / {{ splits }}u * {{ width }}u + lane % {{ width }}u;
{% endif %}
    // Lanes past the last result repeat its work, and write nothing.
    let g = min(result, {{ results - 1 }}u);
    let base = g / {{ units }}u * {{ m * units }}u + g % {{ units }}u;
    let start = group % {{ splits }}u * {{ partition }}u;
    let end = {{ "min(start + " ~ partition ~ "u, " ~ m ~ "u)" if m is not known_multiple(partition) else "start + " ~ partition ~ "u" }};
{% if extreme %}
    // Every lane starts from an element: an extreme may count it many times.
    var all = x[base + start * {{ units }}u];
{% else %}
    var all = {{ neutral }};
{% endif %}
    for (var i = start + mine; i < end; i += {{ parts * loads }}u) { // trips: {{ partition }} / {{ parts * loads }}
{% for c in range(loads) %}
{% set index = "i + " ~ c * parts ~ "u" %}
        let v{{ c }} = x[base + {{ "min(" ~ index ~ ", end - 1u)" if ragged else "(" ~ index ~ ")" }} * {{ units }}u];
{% endfor %}
{% for c in range(loads) %}
{% if ragged and not extreme and c %}
        all = combine(all, select({{ neutral }}, v{{ c }}, i + {{ c * parts }}u < end));
{% else %}
        all = combine(all, v{{ c }});
{% endif %}
{% endfor %}
    }
{% if rows and wide %}
    var total = combine_one(combine_one(all.x, all.y), combine_one(all.z, all.w));
{% else %}
    var total = all;
{% endif %}
{% if parts > 1 %}
    part[lane] = total;
    workgroupBarrier();
{% set left = namespace(count=parts) %}
{% for level in range(8) if left.count > 1 %}
{% set by = [left.count, 8]|min %}
{% set left.count = left.count // by %}
{% set apart = left.count * (1 if rows else width) %}
    if (mine < {{ left.count }}u) {
{% for j in range(1, by) %}
        total = {{ combine_part }}(total, part[lane + {{ j * apart }}u]);
{% endfor %}
        part[lane] = total;
    }
    workgroupBarrier();
{% endfor %}
{% endif %}
    if (mine == 0u && result < {{ results }}u) {
        y[{{ "g" if splits is not may_exceed(1) else "(g / " ~ units ~ "u * " ~ splits ~ "u + group % " ~ splits ~ "u) * " ~ units ~ "u + g % " ~ units ~ "u" }}] = total{{ " / " ~ divisor ~ ".0" if kind == "mean" }};
    }
}
