// Tiled product of matrices, [m, k] @ [k, n] in batches, with bias and activation; f32, or f16 summed in f32.
//
// A workgroup makes a tile of BM x BN results, each thread TM x TN of them in named vectors: naga spills arrays that are
// indexed in loops to memory. The loop over k goes in steps of BK. In each, a loader brings BK columns of the left
// operand and another brings BK rows of the weights into workgroup memory; then every thread multiplies. Loaders:
// lib/left_loader.wgsl; lib/right_loader.wgsl, or lib/packed_loader.wgsl for weights in blocks (dequant_matmul.wgsl).
//
// Several weights make as many results (`parts`), or one: `gated` is act(a @ w0) * (a @ w1), whose two tiles are made
// side by side. With `picked` the rows of a tile are those of one expert (grouped_tiles.wgsl). Where the sums over k are
// split, every partition writes to `y0` as a result of its own, and split_sum.wgsl adds.
{# E: an element. V: four of them. O: an element of what is written. #}
{% set E = "f16" if half else "f32" %}
{% set V = "vec4<" ~ E ~ ">" %}
{% set O = "f32" if splits is may_exceed(1) else E %}
{# Threads across and down the tile; vectors of a thread's rows and columns. #}
{% set nx, ny = bn // tn, bm // tm %}
{% set threads = nx * ny %}
{% set ia, jb = tm // 4, tn // 4 %}
{% set quads = bk // 4 %}
{% set wide_k = k > 0 and k is divisibleby(4) %}
{# W, Y: elements of each weight and each result. across: workgroups that make the same rows of all results. #}
{% set ns = namespace(W=[], Y=[], across=0) %}
{% for n in parts %}
{% set ns.W = ns.W + [V if (wide_k if transposed_b else n is divisibleby(4)) else E] %}
{% set ns.Y = ns.Y + ["vec4<" ~ O ~ ">" if n is divisibleby(4) else O] %}
{% set ns.across = ns.across + (n + bn - 1) // bn %}
{% endfor %}
{% set W, Y, B = ns.W, ns.Y, E %}
{% set in_blocks = scheme is defined %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ V if (m is divisibleby(4) if transposed_a else wide_k) else E }}>;
{% if in_blocks %}
{% set next = namespace(index=2) %}
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<u32>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> y0: array<{{ ns.Y[0] }}>;
{% include "lib/blocks.wgsl" %}
{% else %}
{% include "lib/parts.wgsl" %}
{% endif %}
{% if picked is defined %}
// The places of this tile's rows among all that are listed end here.
var<private> places_end: u32;
{% endif %}

{# Suffixes of what a workgroup has one of for each weight that it multiplies by. #}
{% set sides = ["", "_up"] if gated else [""] %}
{% import "lib/tile_vectors.wgsl" as vectors with context %}
{% import "lib/left_loader.wgsl" as left with context %}
{% import ("lib/packed_loader.wgsl" if in_blocks else "lib/right_loader.wgsl") as right with context %}
var<workgroup> left: array<vec4<f32>, {{ bk * bm // 4 }}>;
{% for side in sides %}
var<workgroup> right{{ side }}: array<vec4<f32>, {{ bk * bn // 4 }}>;
{% endfor %}

{{ left.functions() }}
{{ right.functions() }}
{% include "lib/epilogue.wgsl" %}

{% include "lib/product_store.wgsl" %}

{# Products of row k of the tiles, added to the thread's sums; k is a number, or a variable's name. #}
{% macro multiply(k) %}
{% for i in range(ia) %}
            let a{{ i }} = left[{{ "left_at + " if bk > 16 and unrolled }}{{ vectors.index(k, bm, "ty + " ~ i * ny ~ "u", left.swizzled) }}];
{% endfor %}
{% for side in sides %}
{% for j in range(jb) %}
            let b{{ side }}{{ j }} = right{{ side }}[{{ "right_at + " if bk > 16 and unrolled }}{{ vectors.index(k, bn, "tx + " ~ j * nx ~ "u", right.swizzled) }}];
{% endfor %}
{% for i in range(tm) %}
{% for j in range(jb) %}
            acc{{ side }}{{ i }}_{{ j }} += a{{ i // 4 }}.{{ "xyzw"[i % 4] }} * b{{ side }}{{ j }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{# Stores the thread's sums into result `part`. #}
{% macro store_sums(part) %}
{% if act > 1 and splits is not may_exceed(1) %}
    for (var i = 0u; i < {{ tm * jb }}u; i++) { // trips: {{ tm * jb }}
        let row = row0 + (ty + (i / {{ 4 * jb }}u) * {{ ny }}u) * 4u + (i / {{ jb }}u) % 4u;
        store{{ part }}(y_base, row, column0 + (tx + (i % {{ jb }}u) * {{ nx }}u) * 4u{% for side in sides %}, sums{{ side }}[i]{% endfor %});
    }
{% else %}
{% for i in range(tm) %}
{% for j in range(jb) %}
    store{{ part }}(y_base, row0 + (ty + {{ (i // 4) * ny }}u) * 4u + {{ i % 4 }}u, column0 + (tx + {{ j * nx }}u) * 4u{% for side in sides %}, acc{{ side }}{{ i }}_{{ j }}{% endfor %});
{% endfor %}
{% endfor %}
{% endif %}
{% endmacro %}
{{ by_group(threads) }}
    let across = {{ ns.across }}u;
    let tiles = {{ ns.across * (tiles if picked is defined else (m + bm - 1) // bm) }}u;
    let split = g / tiles / BATCH;
    let z = g / tiles % BATCH;
{% if picked is defined %}
    let tile = M + 3u * ((g % tiles) / across);
    let row0 = u32(listed[tile + 1u]);
    places_end = u32(listed[tile + 2u]);
    // The threads wait for each other below, so they leave together: all go by what one of them says.
    if (lane == 0u) { left[0] = vec4<f32>(f32(row0 < places_end)); }
    if (workgroupUniformLoad(&left[0]).x == 0.0) { return; }
{{ left.rows() }}
{%- else %}
    let row0 = ((g % tiles) / across) * {{ bm }}u;
{% endif %}
{% include "lib/product_place.wgsl" %}
    let tx = lane % {{ nx }}u;
    let ty = lane / {{ nx }}u;
{% for side in sides %}
{% for i in range(tm) %}
{% for j in range(jb) %}
    var acc{{ side }}{{ i }}_{{ j }} = vec4<f32>(0.0);
{% endfor %}
{% endfor %}
{% endfor %}
{{ left.variables() }}
{{- right.variables() }}
{%- if ahead %}
    // The next step is on its way from memory while this one is multiplied.
{{ left.fetch("k_begin") }}
{{- right.fetch("k_begin") }}
{% endif %}
    for (var k0 = k_begin; k0 < k_end; k0 += {{ bk }}u) { // trips: {{ partition_k }} / {{ bk }}
{% if not ahead %}
{{ left.fetch("k0") }}
{{- right.fetch("k0") }}
{% endif %}
{{ left.write() }}
{{- right.write() }}
        workgroupBarrier();
{% if ahead %}
        if (k0 + {{ bk }}u < k_end) {
{{ left.fetch("(k0 + " ~ bk ~ "u)") }}
{{- right.fetch("(k0 + " ~ bk ~ "u)") }}
        }
{% endif %}
{% if not unrolled %}
        for (var kk = 0u; kk < {{ bk }}u; kk++) { // trips: {{ bk }}
{{ multiply("kk") }}
        }
{% else %}
{% if bk > 16 %}
        for (var part_k = 0u; part_k < {{ bk }}u; part_k += 16u) { // trips: {{ bk }} / 16
            let left_at = part_k * {{ bm // 4 }}u;
            let right_at = part_k * {{ bn // 4 }}u;
{% endif %}
{% for kk in range([bk, 16]|min) %}
        {
{{ multiply(kk) }}
        }
{% endfor %}
        {{ "}" if bk > 16 }}
{% endif %}
        workgroupBarrier();
    }
    let y_base = (split * BATCH + z) * (M * N);
{% if act > 1 and splits is not may_exceed(1) %}
    // A long epilogue is written once, not once for every vector: its registers would be those of the sums.
{% for side in sides %}
    var sums{{ side }} = array<vec4<f32>, {{ tm * jb }}>({% for i in range(tm) %}{% for j in range(jb) %}acc{{ side }}{{ i }}_{{ j }}, {% endfor %}{% endfor %});
{% endfor %}
{% endif %}
{% if parts|length == 1 %}
{{ store_sums(0) }}
{%- else %}
    switch part {
{% for n in parts %}
    {{ "default" if loop.last else "case " ~ loop.index0 ~ "u" }}: {
{{ store_sums(loop.index0) }}    }
{% endfor %}
    }
{% endif %}
}
