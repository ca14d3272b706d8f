// Batched [m, k] @ [k, n], or turned [n, k], with bias and activation, of f32 or of f16 summed in f32. A workgroup of 16 x 16 threads makes a tile of
// 64 x 64, each thread 4 x 4 of it in four named vectors (an indexed array would spill to memory). Several weights make as many results (`parts`), or
// one of two products (`gated`): act(a @ w0) * (a @ w1), whose tiles are made side by side.
{% set wide_a = k > 0 and k % 4 == 0 %}
{% set E = "f16" if half else "f32" %}
{% set V = "vec4<" ~ E ~ ">" %}
{% set ns = namespace(W=[], Y=[], across=0) %}
{% for n in parts %}
{% set ns.W = ns.W + [V if n % 4 == 0 and not turned else E] %}
{% set ns.Y = ns.Y + [V if n % 4 == 0 else E] %}
{% set ns.across = ns.across + (n + 63) // 64 %}
{% endfor %}
{% set W, Y, B = ns.W, ns.Y, E %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ V if wide_a else E }}>;
{% include "lib/parts.wgsl" %}

// Row r of the left tile at r * 5: one vector of padding keeps rows in different banks.
var<workgroup> left: array<vec4<f32>, 320>;
{# What there is for each of the tiles that a workgroup makes. #}
{% set sides = ["", "_up"] if gated else [""] %}
{% for side in sides %}
var<workgroup> right{{ side }}: array<vec4<f32>, 256>;
{% endfor %}

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

{% for i in range(2 if gated else parts|length) %}
{% set n = parts[0 if gated else i] %}
{% set step = "K" if turned else "1u" %}
fn load_w{{ i }}(base: u32, k: u32, column: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
{% if n % 4 == 0 and not turned %}
    if (k < K && column < {{ n }}u) { v = vec4<f32>(w{{ i }}[(base + k * {{ n }}u + column) >> 2u]); }
{% else %}
    if (k < K) {
        let at = base + {{ "column * K + k" if turned else "k * " ~ n ~ "u + column" }};
        if (column < {{ n }}u) { v.x = f32(w{{ i }}[at]); }
        if (column + 1u < {{ n }}u) { v.y = f32(w{{ i }}[at + {{ step }}]); }
        if (column + 2u < {{ n }}u) { v.z = f32(w{{ i }}[at + 2u * {{ step }}]); }
        if (column + 3u < {{ n }}u) { v.w = f32(w{{ i }}[at + 3u * {{ step }}]); }
    }
{% endif %}
    return v;
}
{% endfor %}

{# Four values of a bias that begins at `at`. #}
{% macro four(bias, at, n) %}
vec4<f32>({{ V }}({% for j in range(4) %}{{ bias }}[{{ at }}u + min(column + {{ j }}u, {{ n }}u - 1u)]{{ ", " if j < 3 }}{% endfor %}))
{%- endmacro %}
{% set first = namespace(at=0) %}
{% for n in parts %}
fn store{{ loop.index0 }}(base: u32, row: u32, column: u32, sum: vec4<f32>{{ ", sum_up: vec4<f32>" if gated }}) {
    if (row >= M || column >= {{ n }}u) { return; }
    var v = sum;
{% if has_bias %}
    v += {{ four("bias0", first.at, n) }};
{% endif %}
    v = activate(v);
{% if gated %}
    v *= sum_up{{ " + " ~ four("bias1", 0, n) if has_bias }};
{% endif %}
    let at = base + row * {{ n }}u + column;
{% if n % 4 == 0 %}
    y{{ loop.index0 }}[at >> 2u] = {{ V }}(v);
{% else %}
    y{{ loop.index0 }}[at] = {{ E }}(v.x);
    if (column + 1u < {{ n }}u) { y{{ loop.index0 }}[at + 1u] = {{ E }}(v.y); }
    if (column + 2u < {{ n }}u) { y{{ loop.index0 }}[at + 2u] = {{ E }}(v.z); }
    if (column + 3u < {{ n }}u) { y{{ loop.index0 }}[at + 3u] = {{ E }}(v.w); }
{% endif %}
}
{% set first.at = first.at + n %}
{% endfor %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ ns.across }}u;
    let tiles = {{ ns.across * ((m + 63) // 64) }}u;
    let z = g / tiles;
    let row0 = ((g % tiles) / across) * 64u;
{% include "lib/part.wgsl" %}
    let column0 = piece * 64u;
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * N);
    let tx = lane % 16u;
    let ty = lane / 16u;
{% for side in sides %}
{% for i in range(4) %}
    var acc{{ side }}{{ i }} = vec4<f32>(0.0);
{% endfor %}
{% endfor %}
    for (var k0 = 0u; k0 < K; k0 += 16u) {
        left[(lane / 4u) * 5u + lane % 4u] = load_a(a_base, row0 + lane / 4u, k0 + (lane % 4u) * 4u);
{% if parts|length > 1 %}
        switch part {
{% for n in parts %}
            {{ "default" if loop.last else "case " ~ loop.index0 ~ "u" }}: { right[lane] = load_w{{ loop.index0 }}(b_base, k0 + ty, column0 + tx * 4u); }
{% endfor %}
        }
{% else %}
{% for side in sides %}
        right{{ side }}[lane] = load_w{{ loop.index0 }}(b_base, k0 + ty, column0 + tx * 4u);
{% endfor %}
{% endif %}
        workgroupBarrier();
{% include "lib/tile_product.wgsl" %}
        workgroupBarrier();
    }
    let y_base = z * (M * N);
{% macro stores(part) %}
{% for i in range(4) %}
    store{{ part }}(y_base, row0 + ty * 4u + {{ i }}u, column0 + tx * 4u{% for side in sides %}, acc{{ side }}{{ i }}{% endfor %});
{% endfor %}
{% endmacro %}
{% if parts|length > 1 %}
    switch part {
{% for n in parts %}
    {{ "default" if loop.last else "case " ~ loop.index0 ~ "u" }}: {
{{ stores(loop.index0) }}    }
{% endfor %}
    }
{% else %}
{{ stores(0) }}{% endif %}
}
