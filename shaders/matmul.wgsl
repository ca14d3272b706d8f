// act(a @ b + bias), batched: a 64 x 64 tile of the result per workgroup, 4 x 4 of it per invocation,
// through 16 columns of a and rows of b at a time in workgroup memory.
@group(0) @binding(0) var<storage, {{ access[0] }}> a: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> b: array<f32>;
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ 2 + has_bias }}) var<storage, {{ access[2 + has_bias] }}> y: array<f32>;

{% include "lib/math.wgsl" %}
{% include "lib/activation.wgsl" %}
{% include "lib/batch.wgsl" %}

var<workgroup> a_tile: array<f32, 1024>; // [k][row]
var<workgroup> b_tile: array<f32, 1024>; // [k][column]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let tiles_n = (N + 63u) / 64u;
    let tiles = (M + 63u) / 64u * tiles_n;
    let item = g / tiles;
    let row0 = g % tiles / tiles_n * 64u;
    let col0 = g % tiles_n * 64u;
    let at = matrix_at(item);
    let a0 = at.x * M * K;
    let b0 = at.y * K * N;
    let ty = lane / 16u * 4u;
    let tx = lane % 16u * 4u;
    var acc0 = vec4<f32>(0.0);
    var acc1 = vec4<f32>(0.0);
    var acc2 = vec4<f32>(0.0);
    var acc3 = vec4<f32>(0.0);
    for (var k0 = 0u; k0 < K; k0 += 16u) {
        workgroupBarrier();
        for (var e = lane; e < 1024u; e += 256u) {
            let ar = row0 + e / 16u;
            let ak = k0 + e % 16u;
            var v = 0.0;
            if (ar < M && ak < K) { v = a[a0 + ar * K + ak]; }
            a_tile[e % 16u * 64u + e / 16u] = v;
            let bk = k0 + e / 64u;
            let bc = col0 + e % 64u;
            v = 0.0;
            if (bk < K && bc < N) { v = b[b0 + bk * N + bc]; }
            b_tile[e] = v;
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let s = k * 64u;
            let bv = vec4<f32>(b_tile[s + tx], b_tile[s + tx + 1u], b_tile[s + tx + 2u], b_tile[s + tx + 3u]);
            acc0 += a_tile[s + ty] * bv;
            acc1 += a_tile[s + ty + 1u] * bv;
            acc2 += a_tile[s + ty + 2u] * bv;
            acc3 += a_tile[s + ty + 3u] * bv;
        }
    }
    let y0 = item * M * N;
    let col = col0 + tx;
    var start = vec4<f32>(0.0);
{% if has_bias %}
{% for c in range(4) %}
    if (col + {{ c }}u < N) { start[{{ c }}] = bias[col + {{ c }}u]; }
{% endfor %}
{% endif %}
{% for r in range(4) %}
    {
        let row = row0 + ty + {{ r }}u;
        let v = activate(acc{{ r }} + start);
        if (row < M) {
{% for c in range(4) %}
            if (col + {{ c }}u < N) { y[y0 + row * N + col + {{ c }}u] = v[{{ c }}]; }
{% endfor %}
        }
    }
{% endfor %}
}
