// Running sums or products of n neighbours; a workgroup takes 1024 vectors (or numbers, where rows do not divide
// by four) of a row. {{ "`carry` holds the total before each block." if splits is may_exceed(1) else "" }}
{% set T = type[0] %}
{% set wide = not single and n is divisibleby(4) %}
{% set E = "vec4<" ~ T ~ ">" if wide else T %}
{% set m = n // 4 if wide else n %}
{% set op = "*" if product else "+" %}
{% set start = number(T, 1 if product else 0) %}
{# Four totals at once: of i64 as a structure of words. #}
{% set V = "Wide" if single else "vec4<" ~ T ~ ">" %}
{% macro of_four(v, c) %}{{ "vec2<u32>(%s.lo[%s], %s.hi[%s])" | format(v, c, v, c) if single else v ~ "[" ~ c ~ "]" }}{% endmacro %}
{% macro before(c) %}{{ operation(T, op, "b" ~ c, of_four("before", c)) }}{% endmacro %}
{% set ragged = m is not divisibleby(1024) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ E }}>;
{% if splits is may_exceed(1) %}
@group(0) @binding(1) var<storage, {{ access[1] }}> carry: array<{{ T }}>;
{% endif %}
@group(0) @binding({{ 2 if splits is may_exceed(1) else 1 }}) var<storage, {{ access[2 if splits is may_exceed(1) else 1] }}> y: array<{{ E }}>;

// The totals of a lane's four places, so that all four are scanned at once.
{% if single %}
{% include "lib/wide.wgsl" %}

{% endif %}
{% include "lib/wide_one.wgsl" %}
var<workgroup> part: array<{{ V }}, 256>;

// Totals up to each element of a vector.
fn running(v: {{ E }}) -> {{ E }} {
{% if wide %}
    let pair = vec2<{{ T }}>(v.x {{ op }} v.y, v.z {{ op }} v.w);
    return {{ E }}(v.x, pair.x, pair.x {{ op }} v.z, pair.x {{ op }} pair.y);
{% else %}
    return v;
{% endif %}
}

{{ by_group(256) }}
    let block = g % {{ splits }}u * 1024u;
    let base = g / {{ splits }}u * {{ m }}u + block;
    let count = {{ "min(1024u, " ~ m ~ "u - block)" if ragged else "1024u" }};
{% for c in range(4) %}
{% set index = "lane + " ~ c * 256 ~ "u" %}
    let i{{ c }} = {{ "count - 1u - min(" ~ index ~ ", count - 1u)" if reverse else "min(" ~ index ~ ", count - 1u)" if ragged else index }};
    let x{{ c }} = x[base + i{{ c }}]{{ ".wzyx" if reverse and wide }};
{% endfor %}
{% for c in range(4) %}
    let v{{ c }} = running({{ "select(" ~ E ~ "(" ~ start ~ "), x" ~ c ~ ", lane + " ~ c * 256 ~ "u < count)" if ragged else "x" ~ c }});
{% endfor %}
    var own = {{ "wide_four" if single else V }}({% for c in range(4) %}v{{ c }}{{ ".w" if wide }}{{ ", " if c < 3 }}{% endfor %});
    part[lane] = own;
    workgroupBarrier();
    for (var width = 1u; width < 256u; width *= 2u) { // trips: 8
        var below = {{ "wide_all" if single else V }}({{ start }});
        if (lane >= width) { below = part[lane - width]; }
        workgroupBarrier();
        own = {{ "wide_%s(below, own)" % ("mul" if product else "add") if single else "below " ~ op ~ " own" }};
        part[lane] = own;
        workgroupBarrier();
    }
    let all = part[255];
    var before = {{ "wide_all" if single else V }}({{ start }});
    if (lane > 0u) { before = part[lane - 1u]; }
    let b0 = {{ "carry[g]" if splits is may_exceed(1) else start }};
{% for c in range(1, 4) %}
    let b{{ c }} = {{ operation(T, op, "b" ~ (c - 1), of_four("all", c - 1)) }};
{% endfor %}
{% for c in range(4) %}
    {{ "if (lane + " ~ c * 256 ~ "u < count) { " if ragged }}{% if exclusive %}
y[base + i{{ c }}] = {% if wide %}{{ E }}(b{{ c }} {{ op }} before[{{ c }}], (b{{ c }} {{ op }} before[{{ c }}]) {{ op }} v{{ c }}.x, (b{{ c }} {{ op }} before[{{ c }}]) {{ op }} v{{ c }}.y, (b{{ c }} {{ op }} before[{{ c }}]) {{ op }} v{{ c }}.z){{ ".wzyx" if reverse }}{% else %}{{ before(c) }}{% endif %};
{%- else %}
y[base + i{{ c }}] = {{ operation(T, op, before(c), "v" ~ c) if single else "((" ~ before(c) ~ ") " ~ op ~ " v" ~ c ~ ")" }}{{ ".wzyx" if reverse and wide }};
{%- endif %}{{ " }" if ragged }}

{% endfor %}
}
