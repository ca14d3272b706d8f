{# Keys and values that are f16, two to a word; others are read as they are. #}
{% if kv_half %}
{% include "lib/halves.wgsl" %}
fn widened(words: vec2<u32>) -> vec4<f32> {
{% if unpacks is defined %}
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
{% else %}
    return from_f16(vec4<u32>(words.x, words.x >> 16u, words.y, words.y >> 16u));
{% endif %}
}

// Number i of an array, which lies in this word.
fn half_in(word: u32, i: u32) -> f32 { return from_f16(vec4<u32>(word >> ((i & 1u) * 16u))).x; }
{% endif %}
