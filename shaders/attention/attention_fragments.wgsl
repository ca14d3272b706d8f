// softmax(q k^T * scale + mask) v on the matrix units of a GPU, for {{ queries }} queries of one head per workgroup. Operands
// are f16, or f32 that are rounded to f16, or both; scores, weights and sums are f32, and weights are rounded to f16 before they are
// multiplied by the values.
//
// Keys and values are read in blocks of {{ keys }}. A subgroup makes the scores of as many queries as it has threads, as
// fragments (see matmul_fragments.wgsl). Which thread holds which number of a fragment is not known, so the scores go through
// workgroup memory, where each thread finds those of its own query. The softmax is online (Milakov & Gimelshein 2018): weights
// are exp(score - top). `top` follows the largest score only when that is FAR above it, since the sums, which are
// fragments, have to go through workgroup memory to be scaled.
{% set E = "f32" if rounded else "f16" %}
{% set wide = rounded and not kv_format %}
{% set subgroups = queries // lanes %}
{% set threads = queries %}
{% set has_mask = kind >= 3 %}
{% set out = 4 if has_mask else 3 %}
{% import "lib/fragment_loader.wgsl" as loader with context %}
{# Lengths of keys and values in whole fragments; fragments of a subgroup's rows, of a key, of a value, of a block of keys. #}
{% set d_whole, dv_whole = (d + fk - 1) // fk * fk, (dv + fn - 1) // fn * fn %}
{% set ia, kd, jv, jk, ik = lanes // fm, d_whole // fk, dv_whole // fn, keys // fn, keys // fk %}
{# Halves of a line of each tile, with a gap that spreads lines over the banks. #}
{% set k_stride, v_stride, s_stride = d_whole + 8, dv_whole + 8, 2 * (keys + 4) %}
{% set s_at = keys * (k_stride + v_stride) %}
{% set q_at = s_at + queries * s_stride %}
{% set halves = [q_at + (0 if d_whole <= 64 else queries * k_stride), queries * k_stride]|max %}
{% set q_kept = d_whole <= 64 %}
{% set four = dv is divisibleby(4) and o_aligned is divisibleby(4) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> q: array<{{ loader.unit(rounded, q_aligned) }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> k: array<{{ loader.unit(wide, k_aligned) }}>;
@group(0) @binding(2) var<storage, {{ access[2] }}> v: array<{{ loader.unit(wide, v_aligned) }}>;
{% if has_mask %}
@group(0) @binding(3) var<storage, {{ access[3] }}> mask: array<{{ "f16" if kind == 4 and not rounded else type[3] }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<{{ "vec4<" ~ E ~ ">" if four else E }}>;
{% include "lib/attention_mask.wgsl" %}

// How far a score may lie above `top`: the largest weight is exp(FAR), which f16 holds.
const FAR: f32 = 5.0;
alias Left = subgroup_matrix_left<f16, {{ fk }}, {{ fm }}>;
alias Right = subgroup_matrix_right<f16, {{ fn }}, {{ fk }}>;
alias Sums = subgroup_matrix_result<f32, {{ fn }}, {{ fm }}>;
// All of it, since drivers put several variables of the kind at one place.
var<workgroup> shared_memory: buffer<{{ 2 * halves + 16 }}>;

{{ loader.function("load_q", "q", rounded, sq, d, q_steps[2], q_aligned, "along", sq is not known_multiple(queries), d != d_whole) }}
{{ loader.function("load_k", "k", wide, sk, d, k_steps[2], k_aligned, "along", sk is not known_multiple(keys) or kind == 2, d != d_whole) }}
{{ loader.function("load_v", "v", wide, sk, dv, v_steps[2], v_aligned, "across", sk is not known_multiple(keys) or kind == 2, dv != dv_whole) }}
{# Moves `lines` lines of `pieces` pieces each into the tile that begins at half `to`. #}
{% macro move(name, base, line0, lines, pieces, to, stride) %}
{% set all = lines * pieces %}
{% for i in range((all + threads - 1) // threads) %}
        {
            let index = lane + {{ i * threads }}u;
            {{ "if (index < " ~ all ~ "u) " if all % threads }}{ pieces[{{ to // 8 }}u + index / {{ pieces }}u * {{ stride // 8 }}u + index % {{ pieces }}u] = {{ name }}({{ base }}, {{ line0 }} + index / {{ pieces }}u, index % {{ pieces }}u * 8u); }
        }
{% endfor %}
{% endmacro %}
{# Stores fragment columns j0 to j1 of the sums, one beside the other, in the subgroup's rows of the memory of scores. #}
{% macro spill(j0, j1) %}
{% for i in range(ia) %}
{% for j in range(j0, j1) %}
        subgroupMatrixStore(words, {{ s_at // 2 }}u + (own_row + {{ i * fm }}u) * {{ s_stride // 2 }}u + {{ (j - j0) * fn }}u, sum{{ i }}_{{ j }}, false, {{ s_stride // 2 }}u);
{% endfor %}
{% endfor %}
{% endmacro %}
@compute @workgroup_size({{ threads }}){{ " @subgroup_size(" ~ lanes ~ ")" if sized }}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) member: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
{% include "lib/attention_order.wgsl" %}
    // This subgroup's first row of the tile, and this thread's row.
    let own_row = subgroup * {{ lanes }}u;
    let row = row0 + own_row + member;
    // The same memory as pieces, which threads move, as halves and as sums.
    let pieces = bufferView<array<vec4<u32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    let half_words = bufferView<array<f16, {{ halves }}>>(&shared_memory, 0u);
    let words = bufferView<array<f32, {{ halves // 2 }}>>(&shared_memory, 0u);
    let vectors = bufferView<array<vec4<f32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    // Whether any query of the workgroup has a score that is far above its `top`.
    let grown = bufferView<u32>(&shared_memory, {{ 2 * halves }}u);
    // This thread's row of the memory of scores, as vectors.
    let mine = {{ s_at // 8 }}u + (own_row + member) * {{ s_stride // 8 }}u;
{{ move("load_q", "q_base", "row0", queries, d_whole // 8, 0 if q_kept else q_at, k_stride) }}
    workgroupBarrier();
{% if q_kept %}
{% for i in range(ia) %}
{% for x in range(kd) %}
    let q{{ i }}_{{ x }} = subgroupMatrixLoad<Left>(half_words, (own_row + {{ i * fm }}u) * {{ k_stride }}u + {{ x * fk }}u, false, {{ k_stride }}u);
{% endfor %}
{% endfor %}
    workgroupBarrier();
{% endif %}
    var top = LOWEST;
    var total = 0.0;
{% for i in range(ia) %}
{% for j in range(jv) %}
    var sum{{ i }}_{{ j }} = Sums();
{% endfor %}
{% endfor %}
    for (var block = low; block < high; block += {{ keys }}u) { // trips: {{ [sk, window + queries]|min if kind == 2 else sk }} / {{ keys }} + 1
{{ move("load_k", "k_base", "block", keys, d_whole // 8, 0, k_stride) }}
{{- move("load_v", "v_base", "block", keys, dv_whole // 8, keys * k_stride, v_stride) }}
        if (lane == 0u) { *grown = 0u; }
        workgroupBarrier();
        {
{% for i in range(ia) %}
{% for j in range(jk) %}
            var score{{ i }}_{{ j }} = Sums();
{% endfor %}
{% endfor %}
{% for x in range(kd) %}
{% if not q_kept %}
{% for i in range(ia) %}
            let q{{ i }}_{{ x }} = subgroupMatrixLoad<Left>(half_words, {{ q_at }}u + (own_row + {{ i * fm }}u) * {{ k_stride }}u + {{ x * fk }}u, false, {{ k_stride }}u);
{% endfor %}
{% endif %}
{% for j in range(jk) %}
            let k{{ x }}_{{ j }} = subgroupMatrixLoad<Right>(half_words, {{ j * fn * k_stride + x * fk }}u, true, {{ k_stride }}u);
{% for i in range(ia) %}
            score{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(q{{ i }}_{{ x }}, k{{ x }}_{{ j }}, score{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
{% for i in range(ia) %}
{% for j in range(jk) %}
            subgroupMatrixStore(words, {{ s_at // 2 }}u + (own_row + {{ i * fm }}u) * {{ s_stride // 2 }}u + {{ j * fn }}u, score{{ i }}_{{ j }}, false, {{ s_stride // 2 }}u);
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
{% for x in range(keys // 4) %}
        let s{{ x }} = masked(vectors[mine + {{ x }}u] * SCALE, row, block + {{ 4 * x }}u, mask_base);
{% endfor %}
        var best = s0;
{% for x in range(1, keys // 4) %}
        best = max(best, s{{ x }});
{% endfor %}
        let largest = max(max(best.x, best.y), max(best.z, best.w));
        if (block == low) { top = largest; }
        if (largest > top + FAR) { *grown = 1u; }
        if (workgroupUniformLoad(grown) == 1u) {
            let next = max(top, largest);
            let rescale = exp(top - next);
            top = next;
            total *= rescale;
{% for j0 in range(0, jv, jk) %}
{% set j1 = [j0 + jk, jv]|min %}
{{ spill(j0, j1) }}
            workgroupBarrier();
            for (var x = 0u; x < {{ (j1 - j0) * fn // 4 }}u; x++) { // trips: {{ (j1 - j0) * fn // 4 }}
                vectors[mine + x] *= rescale;
            }
            workgroupBarrier();
{% for i in range(ia) %}
{% for j in range(j0, j1) %}
            sum{{ i }}_{{ j }} = subgroupMatrixLoad<Sums>(words, {{ s_at // 2 }}u + (own_row + {{ i * fm }}u) * {{ s_stride // 2 }}u + {{ (j - j0) * fn }}u, false, {{ s_stride // 2 }}u);
{% endfor %}
{% endfor %}
            workgroupBarrier();
{% endfor %}
        }
{% for x in range(keys // 4) %}
        let w{{ x }} = select(exp(s{{ x }} - top), vec4<f32>(0.0), s{{ x }} == vec4<f32>(LOWEST));
{% endfor %}
        total += dot({% for x in range(keys // 4) %}w{{ x }}{{ " + " if not loop.last }}{% endfor %}, vec4<f32>(1.0));
{% for x in range(keys // 8) %}
        pieces[mine + {{ x }}u] = vec4<u32>(pack2x16float(w{{ 2 * x }}.xy), pack2x16float(w{{ 2 * x }}.zw), pack2x16float(w{{ 2 * x + 1 }}.xy), pack2x16float(w{{ 2 * x + 1 }}.zw));
{% endfor %}
        workgroupBarrier();
{% for x in range(ik) %}
        {
{% for i in range(ia) %}
            let w{{ i }} = subgroupMatrixLoad<Left>(half_words, {{ s_at }}u + (own_row + {{ i * fm }}u) * {{ s_stride }}u + {{ x * fk }}u, false, {{ s_stride }}u);
{% endfor %}
{% for j in range(jv) %}
            let v{{ j }} = subgroupMatrixLoad<Right>(half_words, {{ keys * k_stride + x * fk * v_stride + j * fn }}u, false, {{ v_stride }}u);
{% for i in range(ia) %}
            sum{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(w{{ i }}, v{{ j }}, sum{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
    // A query that sees no key gives zeros; a NaN passes.
    var inverse = 0.0;
    if (!(total == 0.0)) { inverse = 1.0 / total; }
    let index = y_base + row * {{ o_steps[2] }}u;
{% for j0 in range(0, jv, jk) %}
{% set j1 = [j0 + jk, jv]|min %}
{{ spill(j0, j1) }}
    workgroupBarrier();
    if (row < SQ) {
        for (var x = 0u; x < {{ (j1 - j0) * fn // 4 }}u; x++) { // trips: {{ (j1 - j0) * fn // 4 }}
            let result = vectors[mine + x] * inverse;
            let column = {{ j0 * fn }}u + 4u * x;
{% if four %}
            {{ "if (column < DV) " if dv != dv_whole }}{ y[(index + column) >> 2u] = vec4<{{ E }}>(result); }
{% else %}
{% for c in range(4) %}
            if (column + {{ c }}u < DV) { y[index + column + {{ c }}u] = {{ E }}(result.{{ "xyzw"[c] }}); }
{% endfor %}
{% endif %}
        }
    }
    workgroupBarrier();
{% endfor %}
}
