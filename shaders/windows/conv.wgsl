// Convolution as a product [outputs, channels * taps] @ [channels * taps, windows] whose right side
// is read through the windows. 16 x 16 threads make 64 x 64 results, each thread 4 x 4 of them.
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set last = 3 if has_bias else 2 %}
{{ bindings(access, x="f32", w="f32") }}
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<f32>;

// Row r of the left tile at r * 5: one vector of padding keeps rows in different banks.
var<workgroup> left: array<vec4<f32>, 320>;
var<workgroup> right: array<vec4<f32>, 256>;

{% include "lib/windows.wgsl" %}

const M: u32 = {{ m }}u;
const K: u32 = {{ c * kernel[0] * kernel[1] * kernel[2] }}u;
const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const WINDOWS: u32 = {{ out[0] * out[1] * out[2] }}u;
const TAPS: u32 = {{ kernel[0] * kernel[1] * kernel[2] }}u;

fn load_w(base: u32, row: u32, k: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
    if (row < M) {
        let index = base + row * K + k;
        if (k < K) { v.x = w[index]; }
        if (k + 1u < K) { v.y = w[index + 1u]; }
        if (k + 2u < K) { v.z = w[index + 2u]; }
        if (k + 3u < K) { v.w = w[index + 3u]; }
    }
    return v;
}

fn load_x(base: u32, start: vec3<i32>, step: vec3<i32>) -> f32 {
    let p = start + step;
    var value = 0.0;
    if (inside(p)) { value = x[base + offset_in_plane(p)]; }
    return value;
}

{{ by_group(256) }}
    // All outputs of some windows, then those of the next ones: images come one after the other.
    let down = {{ (m + 63) // 64 }}u;
    let column0 = (g / {{ parts * ((m + 63) // 64) }}u) * 64u;
    let part = (g / down) % {{ parts }}u;
    let row0 = (g % down) * 64u;
    let tx = lane % 16u;
    let ty = lane / 16u;
    // The four windows of this thread; those past the end repeat the last and are not stored.
{% for j in range(4) %}
    let q{{ j }} = min(column0 + tx * 4u + {{ j }}u, BATCH * WINDOWS - 1u);
    let start{{ j }} = window_start(q{{ j }} % WINDOWS);
    let image{{ j }} = ((q{{ j }} / WINDOWS) * CHANNELS + part * {{ c }}u) * PLANE;
{% endfor %}
{% for i in range(4) %}
    var acc{{ i }} = vec4<f32>(0.0);
{% endfor %}
    for (var k0 = 0u; k0 < K; k0 += 16u) { // trips: K / 16
        left[(lane / 4u) * 5u + lane % 4u] = load_w(part * (M * K), row0 + lane / 4u, k0 + (lane % 4u) * 4u);
        let k = k0 + ty;
        var v = vec4<f32>(0.0);
        if (k < K) {
            let step = tap_step(k % TAPS);
            let from_plane = (k / TAPS) * PLANE;
{% for j in range(4) %}
            v[{{ j }}] = load_x(image{{ j }} + from_plane, start{{ j }}, step);
{% endfor %}
        }
        right[lane] = v;
        workgroupBarrier();
{% set sides = [""] %}
{% include "lib/tile_product.wgsl" %}
        workgroupBarrier();
    }
{% for i in range(4) %}
    {
        let row = row0 + ty * 4u + {{ i }}u;
        if (row < M) {
            let o = part * M + row;
            let v = acc{{ i }}{{ " + vec4<f32>(bias[o])" if has_bias }};
{% for j in range(4) %}
            if (column0 + tx * 4u + {{ j }}u < BATCH * WINDOWS) {
                y[((q{{ j }} / WINDOWS) * OUTPUTS + o) * WINDOWS + q{{ j }} % WINDOWS] = v[{{ j }}];
            }
{% endfor %}
        }
    }
{% endfor %}
}
