// Block-quantised weights (rlx/ops/block_formats.py): a weight is scale.x * code + scale.y. scale_at
// is the scale of the 16 weights from a multiple of 16, codes_at the codes of the 4 weights from a multiple of 4.
// `packed` is bound as words; the fields of every format but MXFP4, whose blocks have 17 bytes, begin at even bytes, so no
// half spans two words.
// Needs the bindings packed and, for the plain groups, scales and zeros.
{% set grouped = scheme in ("int4", "int8") %}
{% set aligned = block_bytes is divisibleby(4) %}

// The word of a byte; with `in_fours` four words are bound as one.
fn packed_word(index: u32) -> u32 { return packed{{ "[index >> 4u][(index >> 2u) & 3u]" if in_fours is defined and in_fours else "[index >> 2u]" }}; }
fn byte_at(index: u32) -> u32 { return (packed_word(index) >> ((index & 3u) * 8u)) & 255u; }

// Four bytes from an even place, or from any place where blocks have an odd number of bytes. One return: the time that
// SwiftShader takes to compile doubles with each call of a function that returns early, and some kernels call this one
// 64 times.
fn word_at(index: u32) -> u32 {
    var word = packed_word(index);
{% if block_bytes % 2 %}
    let late = (index & 3u) * 8u;
    if (late != 0u) { word = (word >> late) | (packed[(index >> 2u) + 1u] << (32u - late)); }
{% elif not aligned %}
    if ((index & 2u) != 0u) { word = (word >> 16u) | (packed[(index >> 2u) + 1u] << 16u); }
{% endif %}
    return word;
}

{% include "lib/halves.wgsl" %}
fn from_half(word: u32, index: u32) -> f32 { return from_f16(vec4<u32>(word >> ((index & 1u) * 16u))).x; }

fn half_at(index: u32) -> f32 { return from_half(packed_word(index), index >> 1u); }

// The field of {mask} from bit {shift} of each byte.
fn fields(word: u32, shift: u32, mask: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> (vec4<u32>(0u, 8u, 16u, 24u) + shift)) & vec4<u32>(mask);
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

fn block_at(row: u32, k: u32) -> u32 {
    return row * {{ row_bytes }}u + (k / {{ weights }}u) * {{ block_bytes }}u;
}

{% if grouped %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let g = row * {{ k // group }}u + k / {{ group }}u;
    let scale = {{ "from_half(scales[g >> 1u], g)" if scale_bytes == 2 else "bitcast<f32>(scales[g])" }};
{% if zero_bytes == 0 %}
    return vec2<f32>(scale, 0.0);
{% else %}
{% if zero_bytes == 1 %}
    let zero = f32((zeros[g >> 2u] >> ((g & 3u) * 8u)) & 255u);
{% elif zero_bytes == 2 %}
    let zero = from_half(zeros[g >> 1u], g);
{% else %}
    let zero = bitcast<f32>(zeros[g]);
{% endif %}
    return vec2<f32>(scale, -zero * scale);
{% endif %}
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
{% if scheme == "int4" %}
    let index = row * {{ row_bytes }}u + k / 2u;
    let word = packed[index >> 2u] >> ((index & 2u) * 8u);
    let codes = vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u));
{% else %}
    let codes = vec4<f32>(fields(packed[(row * {{ row_bytes }}u + k) >> 2u], 0u, 255u));
{% endif %}
    return codes{{ " - " ~ (8.0 if scheme == "int4" else 128.0) if zero_bytes == 0 }};
}
{% elif scheme in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0") %}
{% set offset = scheme in ("Q4_1", "Q5_1") %}
{% set head = 4 if offset else 2 %}
{% set fifth = scheme in ("Q5_0", "Q5_1") %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
    return vec2<f32>(half_at(b), {{ "half_at(b + 2u)" if offset else "0.0" }});
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let b = block_at(row, k);
    let i = k % 32u;
{% if scheme == "Q8_0" %}
    return signed_bytes(word_at(b + 2u + i));
{% else %}
    var codes = fields(word_at(b + {{ head + 4 if fifth else head }}u + i % 16u), (i / 16u) * 4u, 15u);
{% if fifth %}
    let high = word_at(b + {{ head }}u) >> i;
    codes |= ((vec4<u32>(high) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u);
{% endif %}
    return vec4<f32>(codes){{ " - 8.0" if scheme == "Q4_0" }}{{ " - 16.0" if scheme == "Q5_0" }};
{% endif %}
}
{% elif scheme == "Q2_K" %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
    let s = byte_at(b + (k % 256u) / 16u);
    return vec2<f32>(half_at(b + 80u) * f32(s & 15u), -half_at(b + 82u) * f32(s >> 4u));
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let i = k % 256u;
    let word = word_at(block_at(row, k) + 16u + (i / 128u) * 32u + i % 32u);
    return vec4<f32>(fields(word, ((i / 32u) % 4u) * 2u, 3u));
}
{% elif scheme == "Q3_K" %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
    let s = (k % 256u) / 16u;
    let low = (byte_at(b + 96u + s % 8u) >> ((s / 8u) * 4u)) & 15u;
    let high = (byte_at(b + 104u + s % 4u) >> ((s / 4u) * 2u)) & 3u;
    return vec2<f32>(half_at(b + 108u) * (f32(low | (high << 4u)) - 32.0), 0.0);
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let b = block_at(row, k);
    let i = k % 256u;
    let low = fields(word_at(b + 32u + (i / 128u) * 32u + i % 32u), ((i / 32u) % 4u) * 2u, 3u);
    let third = fields(word_at(b + i % 32u), i / 32u, 1u);
    return vec4<f32>(low + third * 4u) - 4.0;
}
{% elif scheme in ("Q4_K", "Q5_K") %}
// The first 16 bytes of a block: two halves, then 8 scales and 8 minima of 6 bits in 12 bytes.
fn scale_of(head: vec4<u32>, j: u32) -> vec2<f32> {
    let bytes = (head >> vec4<u32>((j % 4u) * 8u)) & vec4<u32>(255u);
    let late = j >= 4u;
    let scale = select(bytes.y & 63u, (bytes.w & 15u) | ((bytes.y >> 6u) << 4u), late);
    let least = select(bytes.z & 63u, (bytes.w >> 4u) | ((bytes.z >> 6u) << 4u), late);
    return vec2<f32>(from_half(head.x, 0u) * f32(scale), -from_half(head.x, 1u) * f32(least));
}

fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
    return scale_of(vec4<u32>(packed_word(b), packed_word(b + 4u), packed_word(b + 8u), packed_word(b + 12u)), (k % 256u) / 32u);
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let b = block_at(row, k);
    let i = k % 256u;
    let index = b + {{ 16 if scheme == "Q4_K" else 48 }}u + (i / 64u) * 32u + i % 32u;
    var codes = fields(word_at(index), ((i / 32u) % 2u) * 4u, 15u);
{% if scheme == "Q5_K" %}
    codes |= fields(word_at(b + 16u + i % 32u), i / 32u, 1u) << vec4<u32>(4u);
{% endif %}
    return vec4<f32>(codes);
}
{% elif scheme == "Q6_K" %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
    let raw = byte_at(b + 192u + (k % 256u) / 16u);
    return vec2<f32>(half_at(b + 208u) * f32(bitcast<i32>(raw << 24u) >> 24u), 0.0);
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let b = block_at(row, k);
    let i = k % 256u;
    let part = (i / 32u) % 4u;
    let low = fields(word_at(b + (i / 128u) * 64u + (part % 2u) * 32u + i % 32u), (part / 2u) * 4u, 15u);
    let high = fields(word_at(b + 128u + (i / 128u) * 32u + i % 32u), part * 2u, 3u);
    return vec4<f32>(low | (high << vec4<u32>(4u))) - 32.0;
}
{% elif scheme in ("IQ4_NL", "IQ4_XS", "MXFP4") %}
// Codes of 4 bits are places in a table of 16 signed bytes, four of them to a word.
fn values_of(codes: vec4<u32>) -> vec4<f32> {
{% if scheme == "MXFP4" %}
    let values = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
{% else %}
    let values = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
{% endif %}
    let words = vec4<u32>(values[codes.x >> 2u], values[codes.y >> 2u], values[codes.z >> 2u], values[codes.w >> 2u]);
    let top = words << (vec4<u32>(24u) - (codes & vec4<u32>(3u)) * 8u);
    return vec4<f32>(bitcast<vec4<i32>>(top) >> vec4<u32>(24u));
}

fn scale_at(row: u32, k: u32) -> vec2<f32> {
    let b = block_at(row, k);
{% if scheme == "IQ4_NL" %}
    return vec2<f32>(half_at(b), 0.0);
{% elif scheme == "MXFP4" %}
    // A power of two; the two least ones are subnormal.
    let e = byte_at(b);
    return vec2<f32>(bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u)), 0.0);
{% else %}
    let j = (k % 256u) / 32u;
    let high = byte_at(b + 2u + j / 4u) >> ((j % 4u) * 2u);
    let low = byte_at(b + 4u + j / 2u) >> ((j % 2u) * 4u);
    return vec2<f32>(half_at(b) * (f32((low & 15u) | ((high & 3u) << 4u)) - 32.0), 0.0);
{% endif %}
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let b = block_at(row, k);
    let i = k % {{ weights }}u;
    let index = b + {{ {"IQ4_NL": 2, "IQ4_XS": 8, "MXFP4": 1}[scheme] }}u + (i / 32u) * 16u + i % 16u;
    return values_of(fields(word_at(index), ((i / 16u) % 2u) * 4u, 15u));
}
{% elif scheme in ("F16", "BF16") %}
// Weights of 16 bits, as "blocks" without a scale.
fn scale_at(row: u32, k: u32) -> vec2<f32> { return vec2<f32>(1.0, 0.0); }

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    let start = row * {{ row_bytes }}u + 2u * k;
    let first = packed_word(start);
    let second = packed_word(start + 4u);
{% if scheme == "F16" and unpacks is defined and unpacks %}
    return vec4<f32>(unpack2x16float(first), unpack2x16float(second));
{% elif scheme == "F16" %}
    return from_f16(vec4<u32>(first, first >> 16u, second, second >> 16u));
{% else %}
    return bitcast<vec4<f32>>(vec4<u32>(first << 16u, first & 0xffff0000u, second << 16u, second & 0xffff0000u));
{% endif %}
}
{% else %}
fn scale_at(row: u32, k: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(packed[block_at(row, k) >> 2u]), 0.0);
}

fn codes_at(row: u32, k: u32) -> vec4<f32> {
    return signed_bytes(packed[(block_at(row, k) + 4u + k % 256u) >> 2u]);
}
{% endif %}
