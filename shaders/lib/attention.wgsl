{# The common part of attention_tiles.wgsl and attention_wide.wgsl: bindings, loads of four columns, masks. #}
{% set has_mask = kind >= 3 %}
{% set out = 4 if has_mask else 3 %}
{% set aligned = namespace(q=d is divisibleby(4), v=dv is divisibleby(4)) %}
{% for step in q_steps + k_steps if step % 4 %}{% set aligned.q = false %}{% endfor %}
{% for step in v_steps if step % 4 %}{% set aligned.v = false %}{% endfor %}
{% import "lib/attention_reads.wgsl" as reads with context %}
{{ bindings(access, q="vec4<f32>" if aligned.q else "f32", k=reads.unit(aligned.q), v=reads.unit(aligned.v)) }}
{% if has_mask %}
@group(0) @binding(3) var<storage, {{ access[3] }}> mask: array<{{ type[3] }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<f32>;
{% if key_to is defined %}
// State of each query between calls: the largest score and the sum of weights. y holds the sums of values.
@group(0) @binding({{ out + 1 }}) var<storage, {{ access[out + 1] }}> state: array<vec2<f32>>;
{% endif %}

{{ reads.functions() }}
{% macro load(name, rows, columns, wide) %}
fn load_{{ name }}(base: u32, row: u32, step: u32, column: u32) -> vec4<f32> {
    var result = vec4<f32>(0.0);
    if (row < {{ rows }} && column < {{ columns }}) {
        let index = base + row * step + column;
{% if wide %}
        result = {{ name ~ "[index >> 2u]" if name == "q" else reads.four(name, "index >> 2u") }};
{% else %}
{% for c in range(4) %}
        if (column + {{ c }}u < {{ columns }}) { result[{{ c }}] = {{ name ~ "[index + " ~ c ~ "u]" if name == "q" else reads.one(name, "index + " ~ c ~ "u") }}; }
{% endfor %}
{% endif %}
    }
    return result;
}
{% endmacro %}
{{ load("q", "SQ", "D", aligned.q) }}
{{ load("k", "SK", "D", aligned.q) }}
{{ load("v", "SK", "DV", aligned.v) }}
{% include "lib/attention_mask.wgsl" %}
