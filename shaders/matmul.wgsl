// Batched [m, k] @ [k, n], or turned [n, k], with bias and activation, of f32 or of f16 summed in f32. A workgroup of 16 x 16 threads makes a tile of
// 64 x 64, each thread 4 x 4 of it in four named vectors (an indexed array would spill to memory).
{% set wide_a = k > 0 and k % 4 == 0 %}
{% set wide_y = n % 4 == 0 %}
{% set wide_b = wide_y and not turned %}
{% set out = 3 if has_bias else 2 %}
{% set E = "f16" if half else "f32" %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ "vec4<" ~ E ~ ">" if wide_a else E }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> b: array<{{ "vec4<" ~ E ~ ">" if wide_b else E }}>;
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<{{ E }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<{{ "vec4<" ~ E ~ ">" if wide_y else E }}>;

// Row r of the left tile at r * 5: one vector of padding keeps rows in different banks.
var<workgroup> left: array<vec4<f32>, 320>;
var<workgroup> right: array<vec4<f32>, 256>;

{% include "lib/epilogue.wgsl" %}

fn load_a(base: u32, row: u32, k: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
{% if wide_a %}
    if (row < M && k < K) { v = vec4<f32>(a[(base + row * K + k) >> 2u]); }
{% else %}
    if (row < M) {
        let at = base + row * K + k;
        if (k < K) { v.x = f32(a[at]); }
        if (k + 1u < K) { v.y = f32(a[at + 1u]); }
        if (k + 2u < K) { v.z = f32(a[at + 2u]); }
        if (k + 3u < K) { v.w = f32(a[at + 3u]); }
    }
{% endif %}
    return v;
}

fn load_b(base: u32, k: u32, column: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
{% if wide_b %}
    if (k < K && column < N) { v = vec4<f32>(b[(base + k * N + column) >> 2u]); }
{% else %}
{% set step = "K" if turned else "1u" %}
    if (k < K) {
        let at = base + {{ "column * K + k" if turned else "k * N + column" }};
        if (column < N) { v.x = f32(b[at]); }
        if (column + 1u < N) { v.y = f32(b[at + {{ step }}]); }
        if (column + 2u < N) { v.z = f32(b[at + 2u * {{ step }}]); }
        if (column + 3u < N) { v.w = f32(b[at + 3u * {{ step }}]); }
    }
{% endif %}
    return v;
}

fn store(base: u32, row: u32, column: u32, sum: vec4<f32>) {
    if (row >= M || column >= N) { return; }
    var v = sum;
{% if has_bias %}
    v += vec4<f32>(vec4<{{ E }}>(bias[column], bias[min(column + 1u, N - 1u)], bias[min(column + 2u, N - 1u)], bias[min(column + 3u, N - 1u)]));
{% endif %}
    v = activate(v);
    let at = base + row * N + column;
{% if wide_y %}
    y[at >> 2u] = vec4<{{ E }}>(v);
{% else %}
    y[at] = {{ E }}(v.x);
    if (column + 1u < N) { y[at + 1u] = {{ E }}(v.y); }
    if (column + 2u < N) { y[at + 2u] = {{ E }}(v.z); }
    if (column + 3u < N) { y[at + 3u] = {{ E }}(v.w); }
{% endif %}
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ (n + 63) // 64 }}u;
    let tiles = {{ ((n + 63) // 64) * ((m + 63) // 64) }}u;
    let z = g / tiles;
    let row0 = ((g % tiles) / across) * 64u;
    let column0 = (g % across) * 64u;
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * N);
    let tx = lane % 16u;
    let ty = lane / 16u;
{% for i in range(4) %}
    var acc{{ i }} = vec4<f32>(0.0);
{% endfor %}
    for (var k0 = 0u; k0 < K; k0 += 16u) {
        left[(lane / 4u) * 5u + lane % 4u] = load_a(a_base, row0 + lane / 4u, k0 + (lane % 4u) * 4u);
        right[lane] = load_b(b_base, k0 + ty, column0 + tx * 4u);
        workgroupBarrier();
{% include "lib/tile_product.wgsl" %}
        workgroupBarrier();
    }
    let y_base = z * (M * N);
{% for i in range(4) %}
    store(y_base, row0 + ty * 4u + {{ i }}u, column0 + tx * 4u, acc{{ i }});
{% endfor %}
}
