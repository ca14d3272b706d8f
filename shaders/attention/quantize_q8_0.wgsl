// Numbers in blocks of Q8_0: a scale in f16, and 32 codes of 8 bits. A block has 34 bytes, so a thread makes two.
{{ bindings(access, x="vec4<f32>", y="u32") }}

{% include "lib/halves.wgsl" %}
// Moves codes to the nearest whole number of steps, of two the even one. Products of a code and a scale are exact.
fn nearest(codes: vec4<f32>, numbers: vec4<f32>, scale: f32) -> vec4<f32> {
    let rest = numbers - codes * scale;
    let far = abs(rest) * 2.0;
    let odd = codes - 2.0 * floor(codes * 0.5);
    let other = (far > vec4<f32>(scale)) | ((far == vec4<f32>(scale)) & (odd == vec4<f32>(1.0)));
    return clamp(codes + select(vec4<f32>(0.0), sign(rest), other), vec4<f32>(-127.0), vec4<f32>(127.0));
}

// The scale and the codes of a block, in nine words of which the last has 16 bits.
fn block_of(index: u32) -> array<u32, 9> {
    var top = vec4<u32>(0u);
    for (var i = 0u; i < 8u; i++) { // trips: 8
        top = max(top, bitcast<vec4<u32>>(x[index * 8u + i]) & vec4<u32>(0x7fffffffu));
    }
    let largest = max(max(top.x, top.y), max(top.z, top.w));
    var half = to_f16(vec4<f32>(bitcast<f32>(min(largest, 0x7f7fffffu)) * 0.007874015718698502)).x;
    if (half >= 0x7c00u || largest > 0x7f7fffffu) { half = 0x7e00u; }
    let whole = half > 0u && half < 0x7c00u;
    let scale = select(1.0, from_f16(vec4<u32>(half)).x, whole);
    var words: array<u32, 9>;
    words[0] = half;
    for (var i = 0u; i < 8u; i++) { // trips: 8
        var codes = vec4<f32>(0.0);
        if (whole) { codes = nearest(round(x[index * 8u + i] / scale), x[index * 8u + i], scale); }
        let bytes = bitcast<vec4<u32>>(vec4<i32>(codes)) & vec4<u32>(255u);
        let word = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
        words[i] |= word << 16u;
        words[i + 1u] = word >> 16u;
    }
    return words;
}

{{ by_element(64, "pair", "PAIRS") }}
    let first = pair * 2u;
    let at = pair * 17u;
    var words = block_of(first);
    for (var i = 0u; i < 8u; i++) { y[at + i] = words[i]; } // trips: 8
    if (first + 1u >= COUNT) {
        y[at + 8u] = words[8];
        return;
    }
    let last = words[8];
    words = block_of(first + 1u);
    y[at + 8u] = last | (words[0] << 16u);
    for (var i = 1u; i < 9u; i++) { y[at + 8u + i] = (words[i - 1u] >> 16u) | (words[i] << 16u); } // trips: 8
}
