// Batched [m, k] @ [k, n] for few rows. A workgroup makes 64 columns of one row; k is split over
// its lanes, whose sums are then added up. Several weights make as many results (`parts`), or one of two
// products (`gated`): act(a @ w0) * (a @ w1). Those are summed one after the other: in one loop, reading
// two places of memory by turns took up to twice as long.
{% set wide = parts|reject("divisibleby", 4)|list|length == 0 %}
{% set V = "vec4<f32>" if wide else "f32" %}
{% set E = "f16" if half else "f32" %}
{% set S = "vec4<" ~ E ~ ">" if wide else E %}
{% set columns = 16 if wide else 64 %}
{% set each = 4 if wide else 1 %}
{% set splits = 256 // columns %}
{% set several = parts|length > 1 %}
{% set ns = namespace(across=0, first=0) %}
{% for n in parts %}
{% set ns.across = ns.across + (n + 63) // 64 %}
{% endfor %}
{% set W, Y, B = [S] * parts|length, [S] * parts|length, S %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ E }}>;
{% include "lib/parts.wgsl" %}

{% set sides = ["", "_up"] if gated else [""] %}
var<workgroup> sums: array<{{ V }}, 256>;

{% include "lib/epilogue.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ ns.across }}u;
    let z = g / (M * across);
    let row = (g / across) % M;
{% set lanes = columns %}{% set columns = 64 %}
{% include "lib/part.wgsl" %}
{% set columns = lanes %}
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * K) + row * K;
    let b_base = b_matrix * (K * {{ n // each }}u);
    // The column, counted in vectors of {{ each }}.
    let column = piece * {{ columns }}u + lane % {{ columns }}u;
{% for side in sides %}
{% set weight = loop.index0 %}
    var sum{{ side }} = {{ V }}(0.0);
{% for n in parts %}
    if ({{ "part == " ~ loop.index0 ~ "u && " if several }}column < {{ n // each }}u) {
        for (var k = lane / {{ columns }}u; k < K; k += {{ splits }}u) {
            sum{{ side }} += f32(a[a_base + k]) * {{ V }}(w{{ weight + loop.index0 }}[b_base + k * {{ n // each }}u + column]);
        }
    }
{% endfor %}
    sums[lane] = sum{{ side }};
    workgroupBarrier();
    for (var width = 128u; width >= {{ columns }}u; width /= 2u) {
        if (lane < width) { sums[lane] += sums[lane + width]; }
        workgroupBarrier();
    }
    sum{{ side }} = sums[lane];
{% if not loop.last %}
    workgroupBarrier();
{% endif %}
{% endfor %}
{% for n in parts %}
{% set part = loop.index0 %}
    if ({{ "part == " ~ part ~ "u && " if several }}lane < {{ columns }}u && column < {{ n // each }}u) {
        let v = sum{{ " + " ~ V ~ "(bias0[" ~ ns.first // each ~ "u + column])" if has_bias }};
{% if gated %}
        let up = sum_up{{ " + " ~ V ~ "(bias1[column])" if has_bias }};
{% endif %}
        let at = (z * M + row) * {{ n // each }}u + column;
{% if wide %}
        y{{ part }}[at] = {{ S }}(activate(v){{ " * up" if gated }});
{% else %}
        y{{ part }}[at] = {{ E }}(activate(vec4<f32>(v)).x{{ " * up" if gated }});
{% endif %}
    }
{% set ns.first = ns.first + n %}
{% endfor %}
}
