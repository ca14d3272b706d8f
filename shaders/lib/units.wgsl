{# Units of 32 weights of a row in blocks, for kernels in which neighbouring threads read neighbouring units. A unit is
   eight fours; those of the formats that end in K lie apart in the row, so that the bits of a byte are all used. Macros take
   the number `p` of the weights, bound as packed{p}, and their `scheme`. #}
{% set few = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4") %}
{% set tables = ("IQ4_NL", "IQ4_XS", "MXFP4") %}
{% set quarters = ("Q4_K", "Q5_K") %}
{% set halves = ("Q2_K", "Q3_K", "Q6_K") %}
{# Weights of 16 bits: so many units have their fours in turns. #}
{% set plain = ("F16", "BF16") %}
{% set turns = 8 if k is divisibleby(256) else 2 if k is divisibleby(64) else 1 %}
{# Formats whose weights have an offset of their own. #}
{% set with_offset = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K") %}
{% set zeros = {"Q4_0": "8.0", "Q5_0": "16.0", "Q8_0": "128.0", "Q8_K": "128.0", "Q3_K": "4.0", "Q6_K": "32.0"} %}

{% macro functions() %}
// Four bytes as numbers without a conversion: a byte in the mantissa of 2^23 is 2^23 + byte * 2^(its first bit); scaling
// by a power of two and taking the rest away is exact.
fn four_codes(word: u32, zero: f32) -> vec4<f32> {
    let next = word >> 16u;
    let bits = vec4<u32>(word, word, next, next) & vec4<u32>(255u, 0xff00u, 255u, 0xff00u);
    return bitcast<vec4<f32>>(bits | vec4<u32>(0x4b000000u)) * vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625) - (vec4<f32>(8388608.0, 32768.0, 8388608.0, 32768.0) + zero);
}

fn half_of(word: u32, late: bool) -> f32 { return from_f16(vec4<u32>(select(word, word >> 16u, late))).x; }

fn four_halves(first: u32, second: u32) -> vec4<f32> { return from_f16(vec4<u32>(first, first >> 16u, second, second >> 16u)); }

fn signed_byte(word: u32, shift: u32) -> f32 { return f32(bitcast<i32>(word << (24u - shift)) >> 24u); }

// Four bits, each at the fifth bit of a byte.
fn fifth_bits(bits: u32) -> u32 { return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4u; }

// Codes of 4 bits are places in a table of 16 signed bytes, four of them to a word.
fn looked_up(codes: u32, values: vec4<u32>) -> vec4<f32> {
    let places = (vec4<u32>(codes) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
    let words = vec4<u32>(values[places.x >> 2u], values[places.y >> 2u], values[places.z >> 2u], values[places.w >> 2u]);
    return vec4<f32>(bitcast<vec4<i32>>(words << (vec4<u32>(24u) - (places & vec4<u32>(3u)) * 8u)) >> vec4<u32>(24u));
}
{% endmacro %}

{# Declares where unit `u` begins: `k4`, the fours of the row before it. #}
{% macro place(scheme, u) %}
{% if scheme in quarters %}
        let part = {{ u }} % 8u;
        let k4 = ({{ u }} / 8u) * 64u + (part / 2u) * 16u + (part % 2u) * 4u;
{%- elif scheme in halves %}
        let part = {{ u }} % 8u;
        let k4 = ({{ u }} / 8u) * 64u + (part / 4u) * 32u + (part % 4u) * 2u;
{%- elif scheme in plain %}
        let k4 = ({{ u }} / {{ turns }}u) * {{ 8 * turns }}u + {{ u }} % {{ turns }}u;
{%- else %}
        let part = {{ u }} % 8u;
        let k4 = {{ u }} * 8u;
{%- endif %}
{% endmacro %}

{# The fours of a row between the first four of a unit and four `q`. #}
{% macro four(scheme, q) %}{{ (q % 4 + q // 4 * 8) if scheme in quarters else (q % 2 + q // 2 * 8) if scheme in halves else q * turns if scheme in plain else q }}{% endmacro %}

{# The fours of a row that lie between two gaps in workgroup memory. Threads that take neighbouring units read fours of the
   same number `q` at the same time; with gaps of one four, eight of these threads read from different banks. A unit lies
   between two gaps as a whole. #}
{% macro spread(scheme) %}{{ 16 if scheme in quarters else 32 if scheme in halves else 8 * turns if scheme in plain else 8 }}{% endmacro %}

{# The type of the elements of bound weights: several words where each unit begins at a multiple of them. #}
{% macro element(scheme) %}{{ "vec4<u32>" if scheme in quarters else "vec2<u32>" if scheme in plain else "u32" }}{% endmacro %}

{# Declares the words name0, name1, name2, name3 from byte `start` on, which is a multiple of 16, of weights bound as vec4<u32>. #}
{% macro four_words(p, name, start) %}
        let {{ name }}_words = packed{{ p }}[({{ start }}) >> 4u];
{% for i in range(4) %}
        let {{ name }}{{ i }} = {{ name }}_words[{{ i }}];
{% endfor %}
{% endmacro %}

{# Declares the words name0, name1 ... from byte `start` on, which is a multiple of `step`: 4, 2 or 1. #}
{% macro words(p, name, start, count, step) %}
        let {{ name }}_start = {{ start }};
        let {{ name }}_word = {{ name }}_start >> 2u;
{% if step == 4 %}
{% for i in range(count) %}
        let {{ name }}{{ i }} = packed{{ p }}[{{ name }}_word + {{ i }}u];
{% endfor %}
{% else %}
{% for i in range(count) %}
        let {{ name }}_raw{{ i }} = packed{{ p }}[{{ name }}_word + {{ i }}u];
{% endfor %}
        let {{ name }}_raw{{ count }} = packed{{ p }}[({{ name }}_start + {{ 4 * count - 1 }}u) >> 2u];
{% if step == 2 %}
        let {{ name }}_late = ({{ name }}_start & 2u) != 0u;
{% for i in range(count) %}
        let {{ name }}{{ i }} = select({{ name }}_raw{{ i }}, ({{ name }}_raw{{ i }} >> 16u) | ({{ name }}_raw{{ i + 1 }} << 16u), {{ name }}_late);
{% endfor %}
{% else %}
        let {{ name }}_shift = ({{ name }}_start & 3u) * 8u;
{% for i in range(count) %}
        let {{ name }}{{ i }} = select(({{ name }}_raw{{ i }} >> {{ name }}_shift) | ({{ name }}_raw{{ i + 1 }} << (32u - {{ name }}_shift)), {{ name }}_raw{{ i }}, {{ name }}_shift == 0u);
{% endfor %}
{% endif %}
{% endif %}
{% endmacro %}

{# Reads unit `u` of the row that begins at byte `row`: words of codes, and what scales them. #}
{% macro read(p, scheme, u, row) %}
{% if scheme in plain %}
        let d = 1.0;
{% for q in range(8) %}
        let pair{{ q }} = packed{{ p }}[({{ row }} >> 3u) + k4 + {{ four(scheme, q) }}u];
        let w{{ 2 * q }} = pair{{ q }}.x;
        let w{{ 2 * q + 1 }} = pair{{ q }}.y;
{% endfor %}
{% elif scheme in few %}
{% set nbytes = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "IQ4_NL": 18, "MXFP4": 17}[scheme] %}
{% set step = 4 if nbytes % 4 == 0 else 2 if nbytes % 2 == 0 else 1 %}
{% if scheme in ("Q4_1", "Q5_1") %}
{{ words(p, "w", row ~ " + " ~ u ~ " * " ~ nbytes ~ "u", nbytes // 4, 4) }}
        let d = half_of(w0, false);
        let least = half_of(w0, true);
{% elif scheme == "MXFP4" %}
{{ words(p, "w", row ~ " + " ~ u ~ " * 17u + 1u", 4, 1) }}
        let e = (packed{{ p }}[(w_start - 1u) >> 2u] >> (((w_start - 1u) & 3u) * 8u)) & 255u;
        // A power of two; the two least ones are subnormal.
        let d = bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u));
{% else %}
{{ words(p, "w", row ~ " + " ~ u ~ " * " ~ nbytes ~ "u + 2u", (nbytes - 2) // 4, 2) }}
        // The half before these words.
        let d = half_of(select(packed{{ p }}[(w_start - 2u) >> 2u], w_raw0, w_late), !w_late);
{% endif %}
{% elif scheme in quarters %}
        let block = {{ row }} + ({{ u }} / 8u) * {{ 144 if scheme == "Q4_K" else 176 }}u;
{{ four_words(p, "h", "block") }}
{{ four_words(p, "w", "block + " ~ (16 if scheme == "Q4_K" else 48) ~ "u + (part / 2u) * 32u + (part % 2u) * 16u") }}
{% if scheme == "Q5_K" %}
{{ four_words(p, "f", "block + 16u + (part % 2u) * 16u") }}
{% endif %}
        let turn = ((part / 2u) & 1u) * 16u;
        let first = h1 >> turn;
        let second = h2 >> turn;
        let rest = h3 >> turn;
        let scales = select(first & 0x3f3fu, (rest & 0x0f0fu) | ((first >> 2u) & 0x3030u), part >= 4u);
        let minima = select(second & 0x3f3fu, ((rest >> 4u) & 0x0f0fu) | ((second >> 2u) & 0x3030u), part >= 4u);
        let whole = half_of(h0, false);
        let lowest = half_of(h0, true);
{% elif scheme in halves %}
{% set nbytes = {"Q2_K": 84, "Q3_K": 110, "Q6_K": 210}[scheme] %}
        let block = {{ row }} + ({{ u }} / 8u) * {{ nbytes }}u;
        let upper = part / 4u;
        let from_ = (part % 4u) * 8u;
{% if scheme == "Q2_K" %}
{{ words(p, "w", "block + 16u + upper * 32u + from_", 2, 4) }}
{{ words(p, "s", "block + upper * 8u", 2, 4) }}
        let d = packed{{ p }}[(block + 80u) >> 2u];
        let whole = half_of(d, false);
        let lowest = half_of(d, true);
{% elif scheme == "Q3_K" %}
{{ words(p, "w", "block + 32u + upper * 32u + from_", 2, 2) }}
{{ words(p, "t", "block + from_", 2, 2) }}
{{ words(p, "s", "block + 96u", 3, 2) }}
        let whole = half_of(packed{{ p }}[(block + 108u) >> 2u], ((block + 108u) & 2u) != 0u);
        // 16 scales of 6 bits: the low halves in 8 bytes, the rest in 4.
        let s_low0 = (s0 >> (upper * 4u)) & 0x0f0f0f0fu;
        let s_low1 = (s1 >> (upper * 4u)) & 0x0f0f0f0fu;
        let s_high = s2 >> (upper * 4u);
        let s_all0 = s_low0 | ((s_high & 0x03030303u) << 4u);
        let s_all1 = s_low1 | (((s_high >> 2u) & 0x03030303u) << 4u);
{% else %}
{{ words(p, "w", "block + upper * 64u + from_", 2, 2) }}
{{ words(p, "v", "block + upper * 64u + 32u + from_", 2, 2) }}
{{ words(p, "t", "block + 128u + upper * 32u + from_", 2, 2) }}
{{ words(p, "s", "block + 192u + upper * 8u", 2, 2) }}
        let whole = half_of(packed{{ p }}[(block + 208u) >> 2u], ((block + 208u) & 2u) != 0u);
{% endif %}
        let odd = (from_ / 16u) * 8u;
{% elif scheme == "IQ4_XS" %}
        let block = {{ row }} + ({{ u }} / 8u) * 136u;
{{ words(p, "w", "block + 8u + part * 16u", 4, 4) }}
        let h0 = packed{{ p }}[block >> 2u];
        let low = (packed{{ p }}[(block + 4u) >> 2u] >> (part * 4u)) & 15u;
        let high = (h0 >> (16u + part * 2u)) & 3u;
        let d = half_of(h0, false) * (f32(low | (high << 4u)) - 32.0);
{% else %}
        let block = {{ row }} + ({{ u }} / 8u) * 292u;
        let d = bitcast<f32>(packed{{ p }}[block >> 2u]);
{{ words(p, "w", "block + 4u + part * 32u", 8, 4) }}
{% endif %}
{% endmacro %}

{# The codes of four `q` of a unit that was read, as numbers. #}
{% macro codes(scheme, q) %}
{% if scheme in plain %}
{% elif scheme in ("Q8_0", "Q8_K") %}
{% set word = "w" ~ q ~ " ^ 0x80808080u" %}
{% elif scheme in halves %}
{% set i, j = q % 2, q // 2 %}
{% if scheme == "Q2_K" %}
{% set word = "(w" ~ i ~ " >> " ~ 2 * j ~ "u) & 0x03030303u" %}
{% elif scheme == "Q3_K" %}
{% set word = "((w" ~ i ~ " >> " ~ 2 * j ~ "u) & 0x03030303u) | (((t" ~ i ~ " >> (upper * 4u + " ~ j ~ "u)) & 0x01010101u) << 2u)" %}
{% else %}
{% set word = "((" ~ "wv"[j % 2] ~ i ~ " >> " ~ j // 2 * 4 ~ "u) & 0x0f0f0f0fu) | (((t" ~ i ~ " >> " ~ 2 * j ~ "u) & 0x03030303u) << 4u)" %}
{% endif %}
{% else %}
{% set front = 1 if scheme in ("Q4_1", "Q5_0") else 2 if scheme == "Q5_1" else 0 %}
{% set word = "(w" ~ (front + q % 4) ~ " >> " ~ q // 4 * 4 ~ "u) & 0x0f0f0f0fu" %}
{% if scheme in ("Q5_0", "Q5_1") %}
{% set word = "(" ~ word ~ ") | fifth_bits(w" ~ (front - 1) ~ " >> " ~ 4 * q ~ "u)" %}
{% elif scheme == "Q5_K" %}
{% set word = "(" ~ word ~ ") | (((f" ~ q % 4 ~ " >> ((part / 2u) * 2u + " ~ q // 4 ~ "u)) & 0x01010101u) << 4u)" %}
{% endif %}
{% endif %}
{% if scheme == "F16" and unpacks %}
vec4<f32>(unpack2x16float(w{{ 2 * q }}), unpack2x16float(w{{ 2 * q + 1 }}))
{%- elif scheme == "F16" %}
four_halves(w{{ 2 * q }}, w{{ 2 * q + 1 }})
{%- elif scheme == "BF16" %}
bitcast<vec4<f32>>(vec4<u32>(w{{ 2 * q }} << 16u, w{{ 2 * q }} & 0xffff0000u, w{{ 2 * q + 1 }} << 16u, w{{ 2 * q + 1 }} & 0xffff0000u))
{%- elif scheme == "MXFP4" %}
looked_up({{ word }}, vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu))
{%- elif scheme in tables %}
looked_up({{ word }}, vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u))
{%- else %}
four_codes({{ word }}, {{ zeros[scheme] if scheme in zeros else "0.0" }})
{%- endif %}
{% endmacro %}

{# The product of a unit that was read with x0 to x7, whose sums of entries are t0 to t7 for formats with offsets. #}
{% macro product(scheme) %}
{% set parts = 4 if scheme in halves else 2 if scheme in quarters else 1 %}
{% set each = 8 // parts %}
{% for j in range(parts) %}
        var sum{{ j }} = {{ codes(scheme, j * each) }} * x{{ j * each }};
{% for q in range(j * each + 1, (j + 1) * each) %}
        sum{{ j }} += {{ codes(scheme, q) }} * x{{ q }};
{% endfor %}
{% endfor %}
{% for j in range(parts) %}
        let dot{{ j }} = dot(sum{{ j }}, vec4<f32>(1.0));
{% if scheme in with_offset %}
        let all{{ j }} = t{{ range(j * each, (j + 1) * each)|join(" + t") }};
{% endif %}
{% endfor %}
{% if scheme in ("Q4_1", "Q5_1") %}
        let unit = d * dot0 + least * all0;
{% elif scheme in quarters %}
        let unit = whole * (f32(scales & 255u) * dot0 + f32(scales >> 8u) * dot1) - lowest * (f32(minima & 255u) * all0 + f32(minima >> 8u) * all1);
{% elif scheme == "Q2_K" %}
        var unit = 0.0;
{% for j in range(4) %}
        let own{{ j }} = s{{ j // 2 }} >> ({{ j % 2 * 16 }}u + odd);
        unit += whole * f32(own{{ j }} & 15u) * dot{{ j }} - lowest * f32((own{{ j }} >> 4u) & 15u) * all{{ j }};
{% endfor %}
{% elif scheme == "Q3_K" %}
        let unit = whole * ({% for j in range(4) %}{{ " + " if j }}(f32((s_all{{ j // 2 }} >> ({{ j % 2 * 16 }}u + odd)) & 255u) - 32.0) * dot{{ j }}{% endfor %});
{% elif scheme == "Q6_K" %}
        let unit = whole * ({% for j in range(4) %}{{ " + " if j }}signed_byte(s{{ j // 2 }}, {{ j % 2 * 16 }}u + odd) * dot{{ j }}{% endfor %});
{% else %}
        let unit = d * dot0;
{% endif %}
{% endmacro %}
