// Many rows of x times packed weights. A workgroup of 16 x 16 threads makes a tile of 64 x 64, a thread
// 4 x 4 of it; weights are decoded once per tile. Both operands lie along k in workgroup memory: row r
// holds 8 vectors, number q at r * 8 + (q ^ r % 8), so that neighbouring rows are in different banks.
{% set next = namespace(at=2) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<u32>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.at }}) var<storage, {{ access[next.at] }}> y: array<f32>;

var<workgroup> left: array<vec4<f32>, 512>;
var<workgroup> right: array<vec4<f32>, 512>;

{% include "lib/blocks.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ (n + 63) // 64 }}u;
    let row0 = (g / across) * 64u;
    let column0 = (g % across) * 64u;
    let tx = lane % 16u;
    let ty = lane / 16u;
    // What this thread loads: two vectors of one row of each operand.
    let mine = lane / 4u;
    let pair = (lane % 4u) * 2u;
    let first = mine * 8u + (pair ^ (mine % 8u));
    let second = mine * 8u + ((pair + 1u) ^ (mine % 8u));
{% for i in range(4) %}
    var acc{{ i }} = vec4<f32>(0.0);
{% endfor %}
    for (var k0 = 0u; k0 < K; k0 += 32u) {
        let k = k0 + pair * 4u;
        var x0 = vec4<f32>(0.0);
        var x1 = vec4<f32>(0.0);
        var w0 = vec4<f32>(0.0);
        var w1 = vec4<f32>(0.0);
        if (k < K && row0 + mine < M) {
            let at = (row0 + mine) * {{ k // 4 }}u + (k >> 2u);
            x0 = x[at];
            x1 = x[at + 1u];
        }
        if (k < K && column0 + mine < N) {
            let scale = scale_at(column0 + mine, k);
            w0 = scale.x * codes_at(column0 + mine, k) + scale.y;
            w1 = scale.x * codes_at(column0 + mine, k + 4u) + scale.y;
        }
        left[first] = x0;
        left[second] = x1;
        right[first] = w0;
        right[second] = w1;
        workgroupBarrier();
        for (var q = 0u; q < 8u; q++) {
{% for j in range(4) %}
            let w_{{ j }} = right[(tx + {{ 16 * j }}u) * 8u + (q ^ (tx % 8u))];
{% endfor %}
{% for i in range(4) %}
            let x_{{ i }} = left[(ty * 4u + {{ i }}u) * 8u + (q ^ ((ty * 4u + {{ i }}u) % 8u))];
            acc{{ i }} += vec4<f32>(dot(x_{{ i }}, w_0), dot(x_{{ i }}, w_1), dot(x_{{ i }}, w_2), dot(x_{{ i }}, w_3));
{% endfor %}
        }
        workgroupBarrier();
    }
{% for i in range(4) %}
    if (row0 + ty * 4u + {{ i }}u < M) {
        let at = (row0 + ty * 4u + {{ i }}u) * N + column0 + tx;
{% for j in range(4) %}
        if (column0 + tx + {{ 16 * j }}u < N) { y[at + {{ 16 * j }}u] = acc{{ i }}.{{ "xyzw"[j] }}; }
{% endfor %}
    }
{% endfor %}
}
