// Batched [m, k] @ [k, n] for few rows. A workgroup makes 64 columns of one row; k is split over
// its lanes, whose sums are then added up.
{% set wide = n % 4 == 0 %}
{% set V = "vec4<f32>" if wide else "f32" %}
{% set E = "f16" if half else "f32" %}
{% set S = "vec4<" ~ E ~ ">" if wide else E %}
{% set columns = 16 if wide else 64 %}
{% set each = 4 if wide else 1 %}
{% set parts = 256 // columns %}
{% set out = 3 if has_bias else 2 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<{{ E }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> b: array<{{ S }}>;
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<{{ S }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<{{ S }}>;

var<workgroup> part: array<{{ V }}, 256>;

{% include "lib/epilogue.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ (n + 63) // 64 }}u;
    let z = g / (M * across);
    let row = (g / across) % M;
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * K) + row * K;
    let b_base = b_matrix * (K * {{ n // each }}u);
    // The column, counted in vectors of {{ each }}.
    let column = (g % across) * {{ columns }}u + lane % {{ columns }}u;
    var sum = {{ V }}(0.0);
    if (column < {{ n // each }}u) {
        for (var k = lane / {{ columns }}u; k < K; k += {{ parts }}u) {
            sum += f32(a[a_base + k]) * {{ V }}(b[b_base + k * {{ n // each }}u + column]);
        }
    }
    part[lane] = sum;
    workgroupBarrier();
    for (var width = 128u; width >= {{ columns }}u; width /= 2u) {
        if (lane < width) { part[lane] += part[lane + width]; }
        workgroupBarrier();
    }
    if (lane < {{ columns }}u && column < {{ n // each }}u) {
        let v = part[lane]{{ " + " ~ V ~ "(bias[column])" if has_bias }};
{% if wide %}
        y[(z * M + row) * {{ n // 4 }}u + column] = {{ S }}(activate(v));
{% else %}
        y[(z * M + row) * N + column] = {{ E }}(activate(vec4<f32>(v)).x);
{% endif %}
    }
}
