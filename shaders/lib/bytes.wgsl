{# Products of bytes, four a word. dot4I8Packed multiplies signed bytes, dot4U8Packed unsigned ones; for one of each kind,
   the unsigned byte is taken as a signed byte plus 128, which adds 128 times the sum of the other operand. #}
{% set dot = "dot4I8Packed" if a_signed or b_signed else "dot4U8Packed" %}
{% set shift_a, shift_b = b_signed and not a_signed, a_signed and not b_signed %}
// One word times each of four.
fn dots(word: u32, others: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(vec4<{{ "i32" if dot == "dot4I8Packed" else "u32" }}>({{ dot }}(word, others.x), {{ dot }}(word, others.y), {{ dot }}(word, others.z), {{ dot }}(word, others.w)));
}

// Rows of four bytes become columns of four.
fn exchanged(rows: vec4<u32>) -> vec4<u32> {
    let low = vec2<u32>((rows.x & 0xff00ffu) | ((rows.y & 0xff00ffu) << 8u), ((rows.x >> 8u) & 0xff00ffu) | (rows.y & 0xff00ff00u));
    let high = vec2<u32>((rows.z & 0xff00ffu) | ((rows.w & 0xff00ffu) << 8u), ((rows.z >> 8u) & 0xff00ffu) | (rows.w & 0xff00ff00u));
    return vec4<u32>((low.x & 0xffffu) | (high.x << 16u), (low.y & 0xffffu) | (high.y << 16u), (low.x >> 16u) | (high.x & 0xffff0000u), (low.y >> 16u) | (high.y & 0xffff0000u));
}
