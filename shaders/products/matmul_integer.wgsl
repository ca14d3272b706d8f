// Product of matrices of bytes in i32; a thread makes four columns of one row.
{{ bindings(access, a="u32", b="u32") }}
{% set vectors = false %}
{% include "lib/scaled.wgsl" %}

fn byte_a(index: u32) -> i32 {
    let raw = a[index >> 2u] << (24u - (index & 3u) * 8u);
    return {{ "bitcast<i32>(raw) >> 24u" if a_signed else "bitcast<i32>(raw >> 24u)" }};
}

// Four neighbours, which may lie in two words.
fn bytes_b(index: u32) -> vec4<i32> {
    let shift = (index & 3u) * 8u;
    var word = b[index >> 2u] >> shift;
    // The slot is padded to whole vectors, so reading the next word is within bounds except at its end.
    if (shift > 0u) { word |= b[min((index >> 2u) + 1u, arrayLength(&b) - 1u)] << (32u - shift); }
    let raw = vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u);
    return {{ "bitcast<vec4<i32>>(raw) >> vec4<u32>(24u)" if b_signed else "bitcast<vec4<i32>>(raw >> vec4<u32>(24u))" }};
}

{{ by_group(64) }}
    let across = {{ (n + 255) // 256 }}u;
    let z = g / (across * M);
    let row = (g / across) % M;
    let column = (g % across) * 256u + lane * 4u;
    if (column >= N) { return; }
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * K) + row * K;
    let b_base = b_matrix * (K * N) + column;
    var sum = vec4<i32>(0);
    for (var k = 0u; k < K; k++) { sum += byte_a(a_base + k) * bytes_b(b_base + k * N); } // trips: K
    let index = (z * M + row) * N + column;
    let v = finished(sum, column);
    y[index] = v.x;
    if (column + 1u < N) { y[index + 1u] = v.y; }
    if (column + 2u < N) { y[index + 2u] = v.z; }
    if (column + 3u < N) { y[index + 3u] = v.w; }
}
