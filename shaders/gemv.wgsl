// act(a @ b + bias) for few rows: 64 columns of one row per workgroup, k shared by four lanes each.
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> b: array<f32>;
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ 2 + has_bias }}) var<storage, {{ access[2 + has_bias] }}> y: array<f32>;

{% include "lib/math.wgsl" %}
{% include "lib/activation.wgsl" %}
{% include "lib/batch.wgsl" %}

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let pieces = (N + 63u) / 64u;
    let item = g / (pieces * M);
    let row = g / pieces % M;
    let col = g % pieces * 64u + lane % 64u;
    let at = matrix_at(item);
    let a0 = (at.x * M + row) * K;
    let b0 = at.y * K * N;
    var acc = 0.0;
    if (col < N) {
        for (var k = lane / 64u; k < K; k += 4u) { acc += a[a0 + k] * b[b0 + k * N + col]; }
    }
    partial[lane] = acc;
    workgroupBarrier();
    if (lane < 64u && col < N) {
        var v = partial[lane] + partial[lane + 64u] + partial[lane + 128u] + partial[lane + 192u];
{% if has_bias %}
        v += bias[col];
{% endif %}
        y[(item * M + row) * N + col] = activate(vec4<f32>(v)).x;
    }
}
