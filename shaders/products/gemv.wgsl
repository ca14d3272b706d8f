// Batched [m, k] @ [k, n] for few rows, where reading the weights takes most of the time. A workgroup makes all rows of
// some columns. Its threads divide the sums among them, four k at a time, and load several rows of weights before they
// multiply. Several weights make as many results (`parts`), or one (`gated`): act(a @ w0) * (a @ w1), one sum after the
// other. Where the sums are split, each partition goes to `y0` as a result of its own; split_sum.wgsl adds. Workgroup
// memory holds the rows of `a`, one stage of k at a time.
{% set wide = parts|reject("divisibleby", 4)|list|length == 0 %}
{% set wide_k = k > 0 and k is divisibleby(4) %}
{% set V = "vec4<f32>" if wide else "f32" %}
{% set E = "f16" if half else "f32" %}
{% set S = "vec4<" ~ E ~ ">" if wide else E %}
{% set O = "f32" if splits is may_exceed(1) else E %}
{% set D = "vec4<" ~ O ~ ">" if wide else O %}
{% set each = 4 if wide else 1 %}
{% set lanes = columns // each %}
{% set strips = 256 // lanes %}
{% set several = parts|length > 1 %}
{% set ns = namespace(across=0, first=0) %}
{% for n in parts %}
{% set ns.across = ns.across + (n + columns - 1) // columns %}
{% endfor %}
{% set W, Y, B = [S] * parts|length, [D] * parts|length, S %}
{% set vector_a = wide_k and not transposed_a %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ "vec4<" ~ E ~ ">" if vector_a else E }}>;
{% include "lib/parts.wgsl" %}

{% set sides = ["", "_up"] if gated else [""] %}
{# Rows whose sums are added at a time, and the number of such rounds. #}
{% set rows = [m, 2]|min %}
{% set rounds = (m + rows - 1) // rows %}
var<workgroup> sums: array<{{ V }}, {{ 256 * rows }}>;
var<workgroup> staged: array<vec4<f32>, {{ m * stage // 4 }}>;

{% include "lib/epilogue.wgsl" %}

// A place in the left matrix, and four values along k of a row of it, which stand {{ m if transposed_a else 1 }} apart.
{% set step = m if transposed_a else 1 %}
fn place(row: u32, k: u32) -> u32 { return {{ "k * M + row" if transposed_a else "row * K + k" }}; }

fn four(position: u32) -> vec4<f32> {
{% if vector_a %}
    return vec4<f32>(a[position >> 2u]);
{% else %}
    return vec4<f32>(f32(a[position]), f32(a[position + {{ step }}u]), f32(a[position + {{ 2 * step }}u]), f32(a[position + {{ 3 * step }}u]));
{% endif %}
}

{# The products of `count` groups of four k. All loads come before the first multiplication. #}
{% macro fours(weight, n, count) %}
{% for u in range(count) %}
{% for c in range(4) %}
            let w{{ u }}_{{ c }} = {{ V }}({{ weight }}[b_base + ((q + {{ u * strips }}u) * 4u + {{ c }}u) * {{ n // each }}u + column]);
{% endfor %}
{% endfor %}
{% for u in range(count) %}
{% for row in range(m) %}
            {
                let x = staged[{{ row * (stage // 4) }}u + q + {{ u * strips }}u - k0 / 4u];
                s{{ row }} += x.x * w{{ u }}_0 + x.y * w{{ u }}_1 + x.z * w{{ u }}_2 + x.w * w{{ u }}_3;
            }
{% endfor %}
{% endfor %}
{% endmacro %}
{{ by_group(256) }}
    let across = {{ ns.across }}u;
    let split = g / across / BATCH;
    let z = g / across % BATCH;
{% include "lib/part.wgsl" %}
{% if by_expert is defined %}
    let a_matrix = z;
    let b_matrix = u32(clamp({{ index(type[type|length - parts|length - 1], "listed[z]") }}, 0, {{ experts - 1 }}));
{% else %}
{% include "lib/batch.wgsl" %}
{% endif %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * {{ n // each }}u);
    // The column, counted in vectors of {{ each }}; strips of threads take turns along k.
    let column = piece * {{ lanes }}u + lane % {{ lanes }}u;
    let strip = lane / {{ lanes }}u;
    let k_end = min((split + 1u) * {{ partition_k }}u, K);
    // Row and column that this thread adds up and writes, a round at a time.
    let mine = lane / {{ lanes }}u;
{% for side in sides %}
{% set weight = loop.index0 %}
{% for round in range(rounds) %}
    var total{{ side }}{{ round }} = {{ V }}(0.0);
{% endfor %}
    {
{% for row in range(m) %}
    var s{{ row }} = {{ V }}(0.0);
{% endfor %}
    let begin = split * {{ partition_k }}u;
    for (var k0 = begin; k0 < k_end; k0 += {{ stage }}u) { // trips: {{ partition_k }} / {{ stage }}
    workgroupBarrier();
    for (var i = lane; i < {{ m * stage // 4 }}u; i += 256u) { // trips: {{ m * stage // 4 }} / 256
        let k = k0 + i % {{ stage // 4 }}u * 4u;
        if (k + 3u < k_end) { staged[i] = four(a_base + place(i / {{ stage // 4 }}u, k)); }
    }
    workgroupBarrier();
    let stop = min(k0 + {{ stage }}u, k_end);
{% for n in parts %}
    if ({{ "part == " ~ loop.index0 ~ "u && " if several }}column < {{ n // each }}u) {
        var q = k0 / 4u + strip;
        let whole = stop / 4u;
        for (; q + {{ strips }}u < whole; q += {{ 2 * strips }}u) { // trips: {{ stage // 4 }} / {{ 2 * strips }}
{{ fours("w" ~ (weight + loop.index0), n, 2) }}
        }
        if (q < whole) {
{{ fours("w" ~ (weight + loop.index0), n, 1) }}
        }
    }
{% endfor %}
    }
{% if not wide_k %}
{% for n in parts %}
    if ({{ "part == " ~ loop.index0 ~ "u && " if several }}column < {{ n // each }}u) {
        for (var k = k_end / 4u * 4u + strip; k < k_end; k += {{ strips }}u) { // trips: 3
            let w = {{ V }}(w{{ weight + loop.index0 }}[b_base + k * {{ n // each }}u + column]);
{% for row in range(m) %}
            s{{ row }} += f32(a[a_base + place({{ row }}u, k)]) * w;
{% endfor %}
        }
    }
{% endfor %}
{% endif %}
{% for round in range(rounds) %}
    workgroupBarrier();
{% for row in range(rows) if round * rows + row < m %}
    sums[{{ 256 * row }}u + lane] = s{{ round * rows + row }};
{% endfor %}
    workgroupBarrier();
    if (mine < {{ [rows, m - round * rows]|min }}u) {
        for (var i = 0u; i < {{ strips }}u; i++) { total{{ side }}{{ round }} += sums[mine * 256u + i * {{ lanes }}u + lane % {{ lanes }}u]; } // trips: {{ strips }}
    }
{% endfor %}
    }
{% endfor %}
{% for n in parts %}
{% set part = loop.index0 %}
    if ({{ "part == " ~ part ~ "u && " if several }}mine < {{ rows }}u && column < {{ n // each }}u) {
{% for round in range(rounds) %}
        {{ "if (mine < " ~ (m - round * rows) ~ "u) " if m - round * rows < rows }}{
            let position = ((split * BATCH + z) * M + {{ round * rows }}u + mine) * {{ n // each }}u + column;
{% if splits is may_exceed(1) %}
            y{{ part }}[position] = total{{ round }};
{% else %}
            let v = total{{ round }}{{ " + " ~ V ~ "(bias0[" ~ ns.first // each ~ "u + column])" if has_bias }};
{% if gated %}
            let up = total_up{{ round }}{{ " + " ~ V ~ "(bias1[column])" if has_bias }};
{% endif %}
            y{{ part }}[position] = {{ D }}({{ "activate(v)" if wide else "activate(vec4<f32>(v)).x" }}{{ " * up" if gated }});
{% endif %}
        }
{% endfor %}
    }
{% set ns.first = ns.first + n %}
{% endfor %}
}
