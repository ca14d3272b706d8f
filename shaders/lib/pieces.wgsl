{# Packed weights by pieces of `piece` along k (lib/blocks.wgsl): a piece is asked for with `fetch`, into variables that
   `declare` made, and its fours are decoded later with `quad`, so that loads of several are on their way at once. Formats
   of 32 weights keep their words, and with `in_fours` Q4_K, Q5_K and F16 vectors of these. Others are decoded by codes_at where
   they are asked for, or if `sparing` is set, which leaves registers to many sums, where they are used. #}
{% set fours = in_fours is defined and in_fours %}
{% set raw, quarters = fours and scheme == "F16", fours and scheme != "F16" %}
{% set heads = {"Q4_0": 2, "Q5_0": 2, "Q8_0": 2, "Q4_1": 4, "Q5_1": 4} %}
{% set even = scheme in ("int4", "int8") and group >= 32 and piece == 32 %}
{% set whole_pieces = scheme in heads or even or fours %}
{% set words = (4 if scheme == "int4" else 8) if even else {"Q4_K": 3, "Q5_K": 5, "F16": 4}[scheme] if fours else (block_bytes + 3) // 4 %}
{# Blocks that begin at any even byte are read as whole words: one word more, of which the first may start half a word
   too early, which `at` tells; for Q4_K and Q5_K it is which of its 32 weights a piece is. #}
{% set loose = scheme in heads and block_bytes % 4 != 0 %}
{% set late_codes = sparing is defined and not whole_pieces %}
{% set fifth = scheme in ("Q5_0", "Q5_1") %}

{# Functions for decoding: four fields as numbers without a conversion. A field put into the mantissa of 2^23 is
   2^23 + field * 2^(its first bit); scaling by a power of two and taking the rest away is exact. #}
{% macro functions() %}
{% if whole_pieces %}
fn bits_as_floats(bits: vec4<u32>, unit: vec4<f32>, zero: f32) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits | vec4<u32>(0x4b000000u)) * unit - (unit * 8388608.0 + zero);
}

// The low, or the high, half of each byte.
fn low_halves(word: u32, zero: f32) -> vec4<f32> {
    let next = word >> 16u;
    return bits_as_floats(vec4<u32>(word, word, next, next) & vec4<u32>(15u, 0xf00u, 15u, 0xf00u), vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625), zero);
}

fn high_halves(word: u32, zero: f32) -> vec4<f32> {
    let next = word >> 16u;
    return bits_as_floats(vec4<u32>(word, word, next, next) & vec4<u32>(0xf0u, 0xf000u, 0xf0u, 0xf000u), vec4<f32>(0.0625, 0.000244140625, 0.0625, 0.000244140625), zero);
}

// The four halves of the bytes of half a word.
fn four_halves(word: u32, zero: f32) -> vec4<f32> {
    return bits_as_floats(vec4<u32>(word) & vec4<u32>(15u, 0xf0u, 0xf00u, 0xf000u), vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625), zero);
}

fn four_bytes(word: u32, zero: f32) -> vec4<f32> {
    let next = word >> 16u;
    return bits_as_floats(vec4<u32>(word, word, next, next) & vec4<u32>(255u, 0xff00u, 255u, 0xff00u), vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625), zero);
}

// Halves of a byte with a fifth bit each, from the first of `high` on.
fn five_bits(halves: u32, high: u32, zero: f32) -> vec4<f32> {
    let top = ((vec4<u32>(high) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u);
    return bits_as_floats(fields(halves, 0u, 15u) | top, vec4<f32>(1.0), zero);
}
{% endif %}
{% endmacro %}

{% macro declare(u) %}
{% if whole_pieces %}
{% for j in range(words) %}
    var p{{ u }}_{{ j }}: {{ "vec4<u32>" if fours else "u32" }};
{% endfor %}
{% if loose or quarters %}
    var at{{ u }}: {{ "u32" if quarters else "bool" }};
{% endif %}
{% if even %}
    var scale{{ u }}: vec2<f32>;
{% endif %}
{% elif late_codes %}
    var row{{ u }}: u32;
    var k{{ u }}: u32;
{% else %}
{% for q in range(piece // 4) %}
    var p{{ u }}_{{ q }}: vec4<f32>;
{% endfor %}
{% for half in range(piece // 16) %}
    var scale{{ u }}_{{ half }}: vec2<f32>;
{% endfor %}
{% endif %}
{% endmacro %}

{# Loads the piece from `k` on of row `row`, both within bounds. #}
{% macro fetch(u, row, k) %}
{% if late_codes %}
        row{{ u }} = {{ row }};
        k{{ u }} = {{ k }};
{% else %}
        {
            let row = {{ row }};
            let k = {{ k }};
{% if whole_pieces %}
{% if even %}
            let index = (row * {{ row_bytes }}u + k{{ " / 2u" if scheme == "int4" }}) >> 2u;
            scale{{ u }} = scale_at(row, k);
{% else %}
            let start = block_at(row, k);
            let index = start >> {{ 4 if fours else 2 }}u;
{% endif %}
{% if loose or quarters %}
            at{{ u }} = {{ "(k % 256u) / 32u" if quarters else "(start & 2u) != 0u" }};
{% endif %}
{% for j in range(words) %}
            p{{ u }}_{{ j }} = packed[index + {{ j }}u{{ " + at" ~ u ~ " / 2u * 2u" if quarters and j >= words - 2 }}];
{% endfor %}
{% else %}
{% for q in range(piece // 4) %}
            p{{ u }}_{{ q }} = codes_at(row, k + {{ 4 * q }}u);
{% endfor %}
{% for half in range(piece // 16) %}
            scale{{ u }}_{{ half }} = scale_at(row, k + {{ 16 * half }}u);
{% endfor %}
{% endif %}
        }
{% endif %}
{% endmacro %}

{# Copies a piece to another name, so that the next piece can be loaded. #}
{% macro take(u, name) %}
{% if whole_pieces %}
{% for j in range(words) %}
        let p{{ name }}_{{ j }} = p{{ u }}_{{ j }};
{% endfor %}
{% if even %}
        let scale{{ name }} = scale{{ u }};
{% elif not raw %}
        let scale{{ name }} = {{ scale_of(u) }};
{% endif %}
{% if loose or quarters %}
        let at{{ name }} = at{{ u }};
{% endif %}
{% elif late_codes %}
        let row{{ name }} = row{{ u }};
        let k{{ name }} = k{{ u }};
{% for half in range(piece // 16) %}
        let scale{{ name }}_{{ half }} = scale_at(row{{ name }}, k{{ name }} + {{ 16 * half }}u);
{% endfor %}
{% else %}
{% for q in range(piece // 4) %}
        let p{{ name }}_{{ q }} = p{{ u }}_{{ q }};
{% endfor %}
{% for half in range(piece // 16) %}
        let scale{{ name }}_{{ half }} = scale{{ u }}_{{ half }};
{% endfor %}
{% endif %}
{% endmacro %}

{% macro scale_of(u) %}
{% if loose %}
vec2<f32>(from_half(p{{ u }}_0, select(0u, 1u, at{{ u }})), 0.0)
{%- elif quarters %}
scale_of(p{{ u }}_0, at{{ u }})
{%- else %}
vec2<f32>(from_half(p{{ u }}_0, 0u), from_half(p{{ u }}_0, 1u))
{%- endif %}
{% endmacro %}

{# Word `j` after the scales of a block. #}
{% macro word(u, j) %}
{% if loose %}
select((p{{ u }}_{{ j }} >> 16u) | (p{{ u }}_{{ j + 1 }} << 16u), p{{ u }}_{{ j + 1 }}, at{{ u }})
{%- else %}
p{{ u }}_{{ j + (0 if even else 1) }}
{%- endif %}
{% endmacro %}

{# Weights 4 q to 4 q + 3 of a piece that `take` copied. #}
{% macro quad(u, q) %}
{% if raw %}
vec4<f32>(unpack2x16float(p{{ u }}_{{ q // 2 }}[{{ q % 2 * 2 }}]), unpack2x16float(p{{ u }}_{{ q // 2 }}[{{ q % 2 * 2 + 1 }}]))
{%- elif whole_pieces %}
{% set zero = {"Q4_0": "8.0", "Q5_0": "16.0", "Q8_0": "128.0"}[scheme] if scheme in ("Q4_0", "Q5_0", "Q8_0") else ("0.0" if scheme in heads or quarters or zero_bytes else "8.0" if scheme == "int4" else "128.0") %}
{% if scheme == "int4" %}
{% set codes = "four_halves(" ~ word(u, q // 2) ~ (" >> 16u" if q % 2 else "") ~ ", " ~ zero ~ ")" %}
{% elif scheme == "int8" %}
{% set codes = "four_bytes(" ~ word(u, q) ~ ", " ~ zero ~ ")" %}
{% elif scheme == "Q8_0" %}
{% set codes = "four_bytes(" ~ word(u, q) ~ " ^ 0x80808080u, " ~ zero ~ ")" %}
{% elif quarters %}
{% set fifth_bits = " | (((p" ~ u ~ "_" ~ (1 + q // 4) ~ "[" ~ q % 4 ~ "] >> at" ~ u ~ ") & 0x01010101u) << 4u)" if scheme == "Q5_K" else "" %}
{% set codes = "four_bytes(((p" ~ u ~ "_" ~ (words - 2 + q // 4) ~ "[" ~ q % 4 ~ "] >> ((at" ~ u ~ " & 1u) * 4u)) & 0x0f0f0f0fu)" ~ fifth_bits ~ ", 0.0)" %}
{% elif fifth %}
{% set codes = "five_bits((" ~ word(u, 1 + q % 4) ~ ") >> " ~ q // 4 * 4 ~ "u, (" ~ word(u, 0) ~ ") >> " ~ 4 * q ~ "u, " ~ zero ~ ")" %}
{% else %}
{% set codes = ("low_halves(" if q < 4 else "high_halves(") ~ word(u, q % 4) ~ ", " ~ zero ~ ")" %}
{% endif %}
{{ codes }} * scale{{ u }}.x{{ " + scale" ~ u ~ ".y" if scheme in ("Q4_1", "Q5_1") or quarters or (even and zero_bytes) }}
{%- else %}
{{ ("codes_at(row" ~ u ~ ", k" ~ u ~ " + " ~ 4 * q ~ "u)") if late_codes else "p" ~ u ~ "_" ~ q }} * scale{{ u }}_{{ q // 4 }}.x + scale{{ u }}_{{ q // 4 }}.y
{%- endif %}
{% endmacro %}
