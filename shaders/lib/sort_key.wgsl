{% set KEY = "vec2<u32>" if T == two_words else "u32" %}
// Bits of a value that order as unsigned numbers in the wanted order; NaN and padding come last.
fn sort_key(v: {{ T }}) -> {{ KEY }} {
{% if T == "f32" %}
    let bits = bitcast<u32>(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xfffffffeu; }
    // -0 equals 0.
    let number = select(bits, 0u, bits == 0x80000000u);
    let key = select(number | 0x80000000u, ~number, (number >> 31u) == 1u);
{% elif T == two_words %}
    let key = vec2<u32>(v.x, v.y ^ 0x80000000u);
{% elif T == "i32" %}
    let key = bitcast<u32>(v) ^ 0x80000000u;
{% else %}
    let key = v;
{% endif %}
    return {{ "~key" if largest else "key" }};
}

// Without the branches that || and && would be.
fn comes_before(a: {{ KEY }}, i: u32, b: {{ KEY }}, j: u32) -> bool {
{%- if T == two_words %}

    let less = (a.y < b.y) | ((a.y == b.y) & (a.x < b.x));
    return less | ((a.x == b.x) & (a.y == b.y) & (i < j));
}
{% else %} return (a < b) | ((a == b) & (i < j)); }
{% endif %}
