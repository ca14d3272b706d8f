// Tiled product of matrices on the matrix units of a GPU: [m, k] @ [k, n] in batches, with bias and activation. Operands are
// f16, or f32 that are rounded to f16; sums are f32.
//
// A fragment is a small matrix that a subgroup holds in its registers together, and multiplies by another in one
// instruction. A workgroup makes a tile of BM x BN results, each of its subgroups WM x WN of them as fragments of FM x FN. The
// loop over k goes in steps of BK: all threads bring BK columns of the left operand and BK rows of the weights into
// workgroup memory (lib/fragment_loader.wgsl), from where the subgroups load their fragments.
//
// Weights in blocks (dequant_fragments.wgsl) are decoded on the way. With `picked` the rows of a tile are those of one expert
// (grouped_fragments.wgsl). Several weights make as many results (`parts`), or one: `gated` is act(a @ w0) * (a @ w1). Where the sums over k are split,
// every partition writes to `y0` as a result of its own, and split_sum.wgsl adds.
{% set E = "f32" if rounded else "f16" %}
{% set V = "vec4<" ~ E ~ ">" %}
{% set O = "f32" if splits is may_exceed(1) else E %}
{% set subgroups = (bm // wm) * (bn // wn) %}
{% set threads = subgroups * lanes %}
{% set ia, jb = wm // fm, wn // fn %}
{% import "lib/fragment_loader.wgsl" as loader with context %}
{# Lines of the tiles in pieces, and with the gap behind them. #}
{% set a_line, a_lines = (bm, bk) if transposed_a else (bk, bm) %}
{% set b_line, b_lines = (bk, bn) if transposed_b else (bn, bk) %}
{% set a_stride, b_stride = a_line + 8, b_line + 8 %}
{% set a_loads, b_loads = bm * bk // 8 // threads, bk * bn // 8 // threads %}
{% set a_along, a_rows = (m, k) if transposed_a else (k, m) %}
{% set ragged_k = k is not known_multiple(bk) %}
{% set ns = namespace(W=[], Y=[], across=0) %}
{% for n in parts %}
{% set ns.W = ns.W + [loader.unit(rounded, k if transposed_b else n)] %}
{% set ns.Y = ns.Y + ["vec4<" ~ O ~ ">" if n is divisibleby(4) else O] %}
{% set ns.across = ns.across + (n + bn - 1) // bn %}
{% endfor %}
{% set W, Y, B = ns.W, ns.Y, E %}
{% set in_blocks, joined = scheme is defined, parts|length > 1 %}
{# The next step is fetched while one is multiplied, where few workgroups fill the waits and few sums leave registers for it. #}
{% set ahead = in_blocks and wm * wn <= 1024 %}
{% set in_fours = in_blocks and scheme in ("Q4_K", "Q5_K", "F16") %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ loader.unit(rounded, a_along) }}>;
{% if in_blocks %}
{% set next = namespace(index=2) %}
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<{{ "vec4<u32>" if in_fours else "u32" }}>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> y0: array<{{ ns.Y[0] }}>;
{% include "lib/blocks.wgsl" %}
{% import "lib/packed_loader.wgsl" as weights with context %}
{% else %}
{% include "lib/parts.wgsl" %}
{% endif %}
{% set sides = ["", "_up"] if gated else [""] %}
{# Halves of workgroup memory: the tiles, and later the sums of one row of fragments of each subgroup. #}
{% set a_size, b_size = a_lines * a_stride, b_lines * b_stride %}
{% set sums = subgroups * sides|length * fm * wn %}
{% set halves = [a_size + b_size * sides|length, 2 * sums]|max %}
{% if picked is defined %}
// The places of this tile's rows among all that are listed end here.
var<private> places_end: u32;
{% endif %}
var<workgroup> shared_memory: buffer<{{ 2 * halves }}>;
alias Left = subgroup_matrix_left<f16, {{ fk }}, {{ fm }}>;
alias Right = subgroup_matrix_right<f16, {{ fn }}, {{ fk }}>;
alias Sums = subgroup_matrix_result<f32, {{ fn }}, {{ fm }}>;

{{ loader.function("load_a", "a", rounded, a_rows, a_along, a_along, a_along, "across" if transposed_a else "along",
                   ragged_k if transposed_a else m is not known_multiple(bm) or picked is defined, m is not known_multiple(bm) if transposed_a else ragged_k) }}
{% if in_blocks %}
{{ weights.functions() }}
{% endif %}
{% for i in range(0 if in_blocks else 2 if gated else parts|length) %}
{% set columns = parts[0 if gated else i] %}
{% set along = k if transposed_b else columns %}
{{ loader.function("load_w" ~ i, "w" ~ i, rounded, columns if transposed_b else k, along, along, along,
                   "along" if transposed_b else "across", columns is not known_multiple(bn) if transposed_b else ragged_k,
                   ragged_k if transposed_b else columns is not known_multiple(bn)) }}
{% endfor %}
{% include "lib/epilogue.wgsl" %}

{% include "lib/product_store.wgsl" %}

{# Reads the step that begins at `start` from memory into variables: load number i of a thread is piece i * threads + lane. #}
{% macro fetch(start) %}
{% for i in range(a_loads) %}
{% set piece = "(lane + " ~ i * threads ~ "u)" %}
{% set line, index = piece ~ " / " ~ a_line // 8 ~ "u", piece ~ " % " ~ a_line // 8 ~ "u * 8u" %}
{% set first = "line" ~ i if picked is defined else "row0 + " ~ line %}
        a_next{{ i }} = load_a(a_base, {{ start ~ " + " ~ line ~ ", row0 + " ~ index if transposed_a else first ~ ", " ~ start ~ " + " ~ index }});
{% endfor %}
{% if in_blocks %}
{{ weights.fetch(start) }}
{%- endif %}
{{ "switch part {" if joined }}
{% for number in range(0 if in_blocks else parts|length) %}
{{ ("default: {" if loop.last else "case " ~ number ~ "u: {") if joined }}
{% for i in range(b_loads) %}
{% set piece = "(lane + " ~ i * threads ~ "u)" %}
{% set line, index = piece ~ " / " ~ b_line // 8 ~ "u", piece ~ " % " ~ b_line // 8 ~ "u * 8u" %}
{% for side in sides %}
        b_next{{ side }}{{ i }} = load_w{{ number + loop.index0 }}(b_base, {{ "column0 + " ~ line ~ ", " ~ start ~ " + " ~ index if transposed_b else start ~ " + " ~ line ~ ", column0 + " ~ index }});
{% endfor %}
{% endfor %}
{{ "}" if joined }}
{% endfor %}
{{ "}" if joined }}
{% endmacro %}
@compute @workgroup_size({{ threads }}){{ " @subgroup_size(" ~ lanes ~ ")" if sized }}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) member: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ ns.across }}u;
    let tiles = {{ ns.across * (tiles if picked is defined else (m + bm - 1) // bm) }}u;
    let split = g / tiles / BATCH;
    let z = g / tiles % BATCH;
    // The same memory as pieces, which threads write, and as halves, which fragments are loaded from.
    let pieces = bufferView<array<vec4<u32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    let half_words = bufferView<array<f16, {{ halves }}>>(&shared_memory, 0u);
{% if picked is defined %}
    let tile = M + 3u * ((g % tiles) / across);
    let row0 = u32(listed[tile + 1u]);
    places_end = u32(listed[tile + 2u]);
    // The threads wait for each other below, so they leave together: all go by what one of them says.
    if (lane == 0u) { pieces[0] = vec4<u32>(u32(row0 < places_end)); }
    if (workgroupUniformLoad(&pieces[0]).x == 0u) { return; }
    // The row behind each piece that this thread brings. It stays the same at every step.
{% for i in range(a_loads) %}
    let place{{ i }} = row0 + (lane + {{ i * threads }}u) / {{ a_line // 8 }}u;
    var line{{ i }} = 0u;
    if (place{{ i }} < places_end) { line{{ i }} = u32(listed[place{{ i }}]); }
{% endfor %}
{% else %}
    let row0 = ((g % tiles) / across) * {{ bm }}u;
{% endif %}
{% include "lib/product_place.wgsl" %}
    // This subgroup's part of the tile.
    let sub_row = subgroup / {{ bn // wn }}u * {{ wm }}u;
    let sub_column = subgroup % {{ bn // wn }}u * {{ wn }}u;
{% for side in sides %}
{% for i in range(ia) %}
{% for j in range(jb) %}
    var acc{{ side }}{{ i }}_{{ j }} = Sums();
{% endfor %}
{% endfor %}
{% endfor %}
{% for i in range(a_loads) %}
    var a_next{{ i }}: vec4<u32>;
{% endfor %}
{% if in_blocks %}
{{ weights.variables() }}
{% endif %}
{% for side in sides %}
{% for i in range(0 if in_blocks else b_loads) %}
    var b_next{{ side }}{{ i }}: vec4<u32>;
{% endfor %}
{% endfor %}
{{ fetch("k_begin") if ahead }}
    for (var k0 = k_begin; k0 < k_end; k0 += {{ bk }}u) { // trips: {{ partition_k }} / {{ bk }}
{{ fetch("k0") if not ahead }}
{% for i in range(a_loads) %}
        pieces[(lane + {{ i * threads }}u) / {{ a_line // 8 }}u * {{ a_stride // 8 }}u + (lane + {{ i * threads }}u) % {{ a_line // 8 }}u] = a_next{{ i }};
{% endfor %}
{% if in_blocks %}
{{ weights.write_halves("pieces", a_size // 8, b_stride // 8) }}
{%- endif %}
{% for side in sides %}
{% for i in range(0 if in_blocks else b_loads) %}
        pieces[{{ a_size // 8 }}u{{ " + " ~ b_size // 8 ~ "u" if side }} + (lane + {{ i * threads }}u) / {{ b_line // 8 }}u * {{ b_stride // 8 }}u + (lane + {{ i * threads }}u) % {{ b_line // 8 }}u] = b_next{{ side }}{{ i }};
{% endfor %}
{% endfor %}
        workgroupBarrier();
        {{ "if (k0 + " ~ bk ~ "u < k_end) {\n" ~ fetch("(k0 + " ~ bk ~ "u)") ~ "        }" if ahead }}
{% for kk in range(0, bk, fk) %}
        {
{% for i in range(ia) %}
            let a{{ i }} = subgroupMatrixLoad<Left>(half_words, {{ kk * a_stride ~ "u + sub_row + " ~ i * fm ~ "u" if transposed_a else "(sub_row + " ~ i * fm ~ "u) * " ~ a_stride ~ "u + " ~ kk ~ "u" }}, {{ "true" if transposed_a else "false" }}, {{ a_stride }}u);
{% endfor %}
{% for side in sides %}
{% for j in range(jb) %}
            let b{{ side }}{{ j }} = subgroupMatrixLoad<Right>(half_words, {{ a_size + (b_size if side else 0) }}u + {{ "(sub_column + " ~ j * fn ~ "u) * " ~ b_stride ~ "u + " ~ kk ~ "u" if transposed_b else kk * b_stride ~ "u + sub_column + " ~ j * fn ~ "u" }}, {{ "true" if transposed_b else "false" }}, {{ b_stride }}u);
{% for i in range(ia) %}
            acc{{ side }}{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(a{{ i }}, b{{ side }}{{ j }}, acc{{ side }}{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
    let y_base = (split * BATCH + z) * (M * N);
    // Which thread has which number of a fragment is known to the driver alone, so sums go through workgroup memory.
    let sum_words = bufferView<array<f32, {{ halves // 2 }}>>(&shared_memory, 0u);
    let sum_vectors = bufferView<array<vec4<f32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    let own = subgroup * {{ sides|length * fm * wn }}u;
{% for i in range(ia) %}
{% for side in sides %}
{% for j in range(jb) %}
    subgroupMatrixStore(sum_words, own + {{ (fm * wn if side else 0) + j * fn }}u, acc{{ side }}{{ i }}_{{ j }}, false, {{ wn }}u);
{% endfor %}
{% endfor %}
    workgroupBarrier();
    for (var index = member; index < {{ fm * wn // 4 }}u; index += {{ lanes }}u) { // trips: {{ (fm * wn // 4 + lanes - 1) // lanes }}
        let row = row0 + sub_row + {{ i * fm }}u + index / {{ wn // 4 }}u;
        let column = column0 + sub_column + index % {{ wn // 4 }}u * 4u;
        let sum = sum_vectors[own / 4u + index];
        {{ "let sum_up = sum_vectors[own / 4u + " ~ fm * wn // 4 ~ "u + index];" if gated }}
{{ "switch part {" if joined }}
{% for n in parts %}
{{ ("default: {" if loop.last else "case " ~ loop.index0 ~ "u: {") if joined }} store{{ loop.index0 }}(y_base, row, column, sum{{ ", sum_up" if gated }}); {{ "}" if joined }}
{% endfor %}
{{ "}" if joined }}
    }
    workgroupBarrier();
{% endfor %}
}
