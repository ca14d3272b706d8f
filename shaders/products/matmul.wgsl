// Batched [m, k] @ [k, n], either of them perhaps turned ([k, m], [n, k]), with bias and activation, of f32 or of f16
// summed in f32. A workgroup makes a tile of BM x BN, a thread TM x TN of it in named vectors (an indexed array would
// spill to memory). Both tiles lie in workgroup memory along k, so that one step of k reads whole vectors of rows and
// of columns. Several weights make as many results (`parts`), or one of two products (`gated`): act(a @ w0) *
// (a @ w1), whose tiles are made side by side. Of a sum that is split, each share goes to `y0` as a result of its
// own; split_sum.wgsl adds. dequant_matmul.wgsl is this with weights in blocks.
{% set E = "f16" if half else "f32" %}
{% set V = "vec4<" ~ E ~ ">" %}
{% set O = "f32" if splits > 1 else E %}
{% set nx, ny = bn // tn, bm // tm %}
{% set threads = nx * ny %}
{% set ia, jb = tm // 4, tn // 4 %}
{% set quads = bk // 4 %}
{% set loads_a, loads_b = bm * quads // threads, bn * quads // threads %}
{% set wide_k = k > 0 and k % 4 == 0 %}
{% set ns = namespace(W=[], Y=[], across=0) %}
{% for n in parts %}
{% set ns.W = ns.W + [V if (wide_k if turned else n % 4 == 0) else E] %}
{% set ns.Y = ns.Y + ["vec4<" ~ O ~ ">" if n % 4 == 0 else O] %}
{% set ns.across = ns.across + (n + bn - 1) // bn %}
{% endfor %}
{% set W, Y, B = ns.W, ns.Y, E %}
{# Weights in blocks, [n, k]: bound, read and decoded by the piece. #}
{% set in_blocks = scheme is defined %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ V if (m % 4 == 0 if left_turned else wide_k) else E }}>;
{% if in_blocks %}
{% set next = namespace(at=2) %}
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<u32>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.at }}) var<storage, {{ access[next.at] }}> y0: array<{{ ns.Y[0] }}>;
{% include "lib/blocks.wgsl" %}
{% import "lib/pieces.wgsl" as pieces_of with context %}
{{ pieces_of.functions() }}
{% set loads_b = bn * bk // piece // threads %}
{% else %}
{% include "lib/parts.wgsl" %}
{% endif %}

{# What there is for each of the tiles that a workgroup makes. #}
{% set sides = ["", "_up"] if gated else [""] %}
var<workgroup> left: array<vec4<f32>, {{ bk * bm // 4 }}>;
{% for side in sides %}
var<workgroup> right{{ side }}: array<vec4<f32>, {{ bk * bn // 4 }}>;
{% endfor %}

{% include "lib/epilogue.wgsl" %}

{# Loads of four values, unguarded: rows and columns that are not there are others again, whose results nobody
   stores, and what lies behind the end of the sums counts as 0. #}
{% set ragged_k = k % bk != 0 %}
{# Neighbours along k of row `row` of a matrix with `rows` rows. #}
{% macro along_k(buffer, wide, rows, ragged) %}
    let at = base + {{ "min(row, " ~ rows ~ " - 1u)" if ragged else "row" }} * K;
{% if wide %}
    let v = {{ buffer }}[(at + {{ "min(k, K - 4u)" if ragged_k else "k" }}) >> 2u];
    return {{ "select(" ~ V ~ "(), v, k < K)" if ragged_k else "v" }};
{% else %}
    let v = {{ V }}({% for c in range(4) %}{{ buffer }}[at + min(k + {{ c }}u, K - 1u)]{{ ", " if c < 3 }}{% endfor %});
    return select({{ V }}(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(K));
{% endif %}
{% endmacro %}
{# Neighbours of row `k` of a matrix of K rows of `columns`. #}
{% macro along_row(buffer, columns, ragged) %}
    let at = base + {{ "min(k, K - 1u)" if ragged_k else "k" }} * {{ columns }}u;
{% if columns % 4 == 0 %}
    let v = {{ buffer }}[(at + {{ "min(column, " ~ (columns - 4) ~ "u)" if ragged else "column" }}) >> 2u];
{% else %}
    let v = {{ V }}({% for c in range(4) %}{{ buffer }}[at + min(column + {{ c }}u, {{ columns - 1 }}u)]{{ ", " if c < 3 }}{% endfor %});
{% endif %}
    return {{ "select(" ~ V ~ "(), v, k < K)" if ragged_k else "v" }};
{% endmacro %}
{% if left_turned %}
fn load_a(base: u32, column: u32, k: u32) -> {{ V }} {
{{ along_row("a", m, m % bm) }}}
{% else %}
fn load_a(base: u32, row: u32, k: u32) -> {{ V }} {
{{ along_k("a", wide_k, "M", m % bm or picked is defined) }}}
{% endif %}
{% if picked is defined %}
// The places of this tile's rows among all that are listed end here.
var<private> places_end: u32;
{% endif %}

{% for i in range(0 if in_blocks else 2 if gated else parts|length) %}
{% set n = parts[0 if gated else i] %}
{% if turned %}
fn load_w{{ i }}(base: u32, row: u32, k: u32) -> {{ V }} {
{{ along_k("w" ~ i, wide_k, n ~ "u", n % bn) }}}
{% else %}
fn load_w{{ i }}(base: u32, column: u32, k: u32) -> {{ V }} {
{{ along_row("w" ~ i, n, n % bn) }}}
{% endif %}
{% endfor %}

{# Four values of a bias that begins at `at`. #}
{% macro four(bias, at, n) %}
vec4<f32>({{ V }}({% for j in range(4) %}{{ bias }}[{{ at }}u + min(column + {{ j }}u, {{ n }}u - 1u)]{{ ", " if j < 3 }}{% endfor %}))
{%- endmacro %}
{% set first = namespace(at=0) %}
{% for n in parts %}
fn store{{ loop.index0 }}(base: u32, {{ "place" if picked is defined else "row" }}: u32, column: u32, sum: vec4<f32>{{ ", sum_up: vec4<f32>" if gated }}) {
{% if picked is defined %}
    if (place >= places_end || column >= {{ n }}u) { return; }
    let row = u32(listed[place]);
{% elif m % bm or n % bn %}
    if (row >= M || column >= {{ n }}u) { return; }
{% endif %}
    var v = sum;
{% if splits == 1 %}
{% if has_bias %}
    v += {{ four("bias0", first.at, n) }};
{% endif %}
    v = activate(v);
{% if gated %}
    v *= sum_up{{ " + " ~ four("bias1", 0, n) if has_bias }};
{% endif %}
{% endif %}
    let at = base + row * {{ n }}u + column;
{% if n % 4 == 0 %}
    y{{ loop.index0 }}[at >> 2u] = vec4<{{ O }}>(v);
{% else %}
    y{{ loop.index0 }}[at] = {{ O }}(v.x);
    if (column + 1u < {{ n }}u) { y{{ loop.index0 }}[at + 1u] = {{ O }}(v.y); }
    if (column + 2u < {{ n }}u) { y{{ loop.index0 }}[at + 2u] = {{ O }}(v.z); }
    if (column + 3u < {{ n }}u) { y{{ loop.index0 }}[at + 3u] = {{ O }}(v.w); }
{% endif %}
}
{% set first.at = first.at + n %}
{% endfor %}

{# What a thread brings of a step that begins at `k`: vector number i * threads + lane of each tile. #}
{% macro place(first, k, i, along_k, width) %}
{% set at, size = "(lane + " ~ i * threads ~ "u)", (quads if along_k else width // 4) ~ "u" %}
{% if along_k %}
{{ first }} + {{ at }} / {{ size }}, {{ k }} + ({{ at }} % {{ size }}) * 4u
{%- else %}
{{ first }} + ({{ at }} % {{ size }}) * 4u, {{ k }} + {{ at }} / {{ size }}
{%- endif %}
{% endmacro %}
{# Which piece of a step a thread brings: of which row of the weights, from which k on. #}
{% macro piece_row(i) %}(lane + {{ i * threads }}u) % {{ bn }}u{% endmacro %}
{% macro piece_k(i) %}(lane + {{ i * threads }}u) / {{ bn }}u * {{ piece }}u{% endmacro %}
{% macro load(k) %}
{% for i in range(loads_a) %}
        mine{{ i }} = load_a(a_base, {{ ("line" ~ i ~ ", " ~ k ~ " + ((lane + " ~ i * threads ~ "u) % " ~ quads ~ "u) * 4u") if picked is defined else place("row0", k, i, not left_turned, bm) }});
{% endfor %}
{% macro bring(part) %}
{% for i in range(loads_b) %}
{% for side in sides %}
        other{{ side }}{{ i }} = load_w{{ part + loop.index0 }}(b_base, {{ place("column0", k, i, turned, bn) }});
{% endfor %}
{% endfor %}
{% endmacro %}
{% if in_blocks %}
{% for i in range(loads_b) %}
{{ pieces_of.fetch(i, "min(column0 + " ~ piece_row(i) ~ ", N - 1u)", "min(" ~ k ~ " + " ~ piece_k(i) ~ ", K - " ~ piece ~ "u)") }}
{%- endfor %}
{% elif parts|length > 1 %}
        switch part {
{% for n in parts %}
        {{ "default" if loop.last else "case " ~ loop.index0 ~ "u" }}: {
{{ bring(loop.index0) }}        }
{% endfor %}
        }
{% else %}
{{ bring(0) }}{% endif %}
{% endmacro %}
{# Vectors along k go to one place of four rows of workgroup memory. The vectors of a row of k are exchanged by where k
   stands, or lanes that bring neighbours along k would wait for each other's bank. #}
{% macro across_rows(tile, value, lane, width) %}
        {
            let r = ({{ lane }}) / {{ quads }}u;
            let quad = ({{ lane }}) % {{ quads }}u;
            let at = quad * {{ width }}u + ((r / 4u) ^ (quad % 4u * 2u));
{% for c in range(4) %}
            {{ tile }}[at + {{ c * width // 4 }}u][r % 4u] = f32({{ value }}.{{ "xyzw"[c] }});
{% endfor %}
        }
{% endmacro %}
{# Where the vector `at` of row k of a tile lies; k is a number, or a variable's name. #}
{% macro spot(k, width, at, exchanged) -%}
{% set by = (k // 4 % 4 * 2) ~ "u" if k is number else k ~ " / 4u % 4u * 2u" %}
{{ k ~ ("u" if k is number) }} * {{ width // 4 }}u + {{ "((" ~ at ~ ") ^ (" ~ by ~ "))" if exchanged else at }}
{%- endmacro %}
{% macro step(k) %}
{% for i in range(ia) %}
            let a{{ i }} = left[{{ "left_at + " if bk > 16 and unrolled }}{{ spot(k, bm, "ty + " ~ i * ny ~ "u", not left_turned) }}];
{% endfor %}
{% for side in sides %}
{% for j in range(jb) %}
            let b{{ side }}{{ j }} = right{{ side }}[{{ "right_at + " if bk > 16 and unrolled }}{{ spot(k, bn, "tx + " ~ j * nx ~ "u", turned and not in_blocks) }}];
{% endfor %}
{% for i in range(tm) %}
{% for j in range(jb) %}
            acc{{ side }}{{ i }}_{{ j }} += a{{ i // 4 }}.{{ "xyzw"[i % 4] }} * b{{ side }}{{ j }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ ns.across }}u;
    let tiles = {{ ns.across * (tiles if picked is defined else (m + bm - 1) // bm) }}u;
    let share = g / tiles / BATCH;
    let z = g / tiles % BATCH;
{% if picked is defined %}
    let tile = M + 3u * ((g % tiles) / across);
    let row0 = u32(listed[tile + 1u]);
    places_end = u32(listed[tile + 2u]);
    if (row0 >= places_end) { return; }
{% for i in range(loads_a) %}
    let place{{ i }} = row0 + (lane + {{ i * threads }}u) / {{ quads }}u;
    var line{{ i }} = M;
    if (place{{ i }} < places_end) { line{{ i }} = u32(listed[place{{ i }}]); }
{% endfor %}
{% else %}
    let row0 = ((g % tiles) / across) * {{ bm }}u;
{% endif %}
{% set columns = bn %}
{% include "lib/part.wgsl" %}
    let column0 = piece * {{ bn }}u;
{% if picked is defined %}
    let a_matrix = 0u;
    let b_matrix = u32(listed[tile]);
{% else %}
{% include "lib/batch.wgsl" %}
{% endif %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * N);
    let tx = lane % {{ nx }}u;
    let ty = lane / {{ nx }}u;
    // Steps of k of this share.
    let k_begin = share * {{ each_k }}u;
    let k_end = min(k_begin + {{ each_k }}u, K);
{% for side in sides %}
{% for i in range(tm) %}
{% for j in range(jb) %}
    var acc{{ side }}{{ i }}_{{ j }} = vec4<f32>(0.0);
{% endfor %}
{% endfor %}
{% endfor %}
{% for i in range(loads_a) %}
    var mine{{ i }}: {{ V }};
{% endfor %}
{% for i in range(loads_b) %}
{% if in_blocks %}
{{ pieces_of.declare(i) }}
{%- else %}
{% for side in sides %}
    var other{{ side }}{{ i }}: {{ V }};
{% endfor %}
{% endif %}
{% endfor %}
{% if ahead %}
    // The next step is on its way from memory while this one is multiplied.
{{ load("k_begin") }}
{% endif %}
    for (var k0 = k_begin; k0 < k_end; k0 += {{ bk }}u) { // trips: {{ each_k }} / {{ bk }}
{% if not ahead %}
{{ load("k0") }}
{% endif %}
{% for i in range(loads_a) %}
{% if left_turned %}
        left[lane + {{ i * threads }}u] = vec4<f32>(mine{{ i }});
{% else %}
{{ across_rows("left", "mine" ~ i, "lane + " ~ i * threads ~ "u", bm) }}
{%- endif %}
{% endfor %}
{% for i in range(loads_b if in_blocks else 0) %}
        {
{{ pieces_of.take(i, "mine" ~ i) }}
            let r = {{ piece_row(i) }};
            let at = {{ piece_k(i) }} * {{ bn // 4 }}u + r / 4u;
{% if k % bk %}
            let there = k0 + {{ piece_k(i) }} < K;
{% endif %}
{% for q in range(piece // 4) %}
            let v{{ q }} = {{ "select(vec4<f32>(0.0), " if k % bk }}{{ pieces_of.quad("mine" ~ i, q) }}{{ ", there)" if k % bk }};
{% for c in range(4) %}
            right[at + {{ (4 * q + c) * bn // 4 }}u][r % 4u] = v{{ q }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% for side in sides %}
{% for i in range(0 if in_blocks else loads_b) %}
{% if turned %}
{{ across_rows("right" ~ side, "other" ~ side ~ i, "lane + " ~ i * threads ~ "u", bn) }}
{%- else %}
        right{{ side }}[lane + {{ i * threads }}u] = vec4<f32>(other{{ side }}{{ i }});
{% endif %}
{% endfor %}
{% endfor %}
        workgroupBarrier();
{% if ahead %}
        if (k0 + {{ bk }}u < k_end) {
{{ load("(k0 + " ~ bk ~ "u)") }}
        }
{% endif %}
{% if unrolled %}
{% if bk > 16 %}
        for (var part_k = 0u; part_k < {{ bk }}u; part_k += 16u) { // trips: {{ bk }} / 16
            let left_at = part_k * {{ bm // 4 }}u;
            let right_at = part_k * {{ bn // 4 }}u;
{% endif %}
{% for kk in range([bk, 16]|min) %}
        {
{{ step(kk) }}
        }
{% endfor %}
        {{ "}" if bk > 16 }}
{% else %}
        for (var kk = 0u; kk < {{ bk }}u; kk++) { // trips: {{ bk }}
{{ step("kk") }}
        }
{% endif %}
        workgroupBarrier();
    }
    let y_base = (share * BATCH + z) * (M * N);
{% if act > 1 and splits == 1 %}
    // A long epilogue is written once, not once for every vector: its registers would be those of the sums.
{% for side in sides %}
    var sums{{ side }} = array<vec4<f32>, {{ tm * jb }}>({% for i in range(tm) %}{% for j in range(jb) %}acc{{ side }}{{ i }}_{{ j }}, {% endfor %}{% endfor %});
{% endfor %}
{% endif %}
{% macro stores(part) %}
{% if act > 1 and splits == 1 %}
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
