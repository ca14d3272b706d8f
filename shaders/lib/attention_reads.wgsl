{# Keys and values that are f32, f16 (two to a word), or in blocks of Q8_0 (34 bytes for 32 numbers). Macros take the name
   of an array. #}
{% macro unit(fours) %}{{ "u32" if kv_format == 2 or (kv_format and not fours) else "vec2<u32>" if kv_format else "vec4<f32>" if fours else "f32" }}{% endmacro %}

{# Numbers 4 i to 4 i + 3 of an array of units of four. #}
{% macro four(name, i) %}{{ [name ~ "[" ~ i ~ "]", "widened(" ~ name ~ "[" ~ i ~ "])", "four_of_" ~ name ~ "(" ~ i ~ ")"][kv_format] }}{% endmacro %}

{# Number i of an array of single units. #}
{% macro one(name, i) %}{{ [name ~ "[" ~ i ~ "]", "half_in(" ~ name ~ "[(" ~ i ~ ") >> 1u], " ~ i ~ ")", "four_of_" ~ name ~ "((" ~ i ~ ") >> 2u)[(" ~ i ~ ") & 3u]"][kv_format] }}{% endmacro %}

{% macro functions() %}
{% if kv_format %}
{% include "lib/halves.wgsl" %}
{% endif %}
{% if kv_format == 1 %}
fn widened(words: vec2<u32>) -> vec4<f32> {
{% if unpacks is defined %}
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
{% else %}
    return from_f16(vec4<u32>(words.x, words.x >> 16u, words.y, words.y >> 16u));
{% endif %}
}

// Number i of an array, which lies in this word.
fn half_in(word: u32, i: u32) -> f32 { return from_f16(vec4<u32>(word >> ((i & 1u) * 16u))).x; }
{% elif kv_format == 2 %}
{% for name in ("k", "v") %}
fn four_of_{{ name }}(i: u32) -> vec4<f32> {
    let block = (i >> 3u) * 34u;
    let at = block + (i & 7u) * 4u + 2u;
    let late = (at & 2u) >> 1u;
    let word = select({{ name }}[at >> 2u], ({{ name }}[at >> 2u] >> 16u) | ({{ name }}[(at >> 2u) + late] << 16u), late == 1u);
    let half = {{ name }}[block >> 2u] >> ((1u - late) * 16u);
    let scale = {{ "unpack2x16float(half)" if unpacks is defined else "from_f16(vec4<u32>(half))" }}.x;
    return scale * vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
{% endfor %}
{% endif %}
{% endmacro %}
