// Convolution of groups of few outputs: each thread makes up to four neighbouring windows.
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set last = 3 if has_bias else 2 %}
{% set across = (out[2] + 3) // 4 %}
{{ bindings(access, x="f32", w="f32") }}
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<f32>;

{% include "lib/windows.wgsl" %}

const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const TAPS: u32 = {{ kernel[0] * kernel[1] * kernel[2] }}u;
const ROWS: u32 = {{ out[0] * out[1] }}u;
const WIDTH: u32 = {{ out[2] }}u;

{{ by_element(256, "e", "BATCH * OUTPUTS * ROWS * " ~ across ~ "u") }}
    let x0 = (e % {{ across }}u) * 4u;
    let row = (e / {{ across }}u) % ROWS;
    let o = (e / ({{ across }}u * ROWS)) % OUTPUTS;
    let image = e / ({{ across }}u * ROWS * OUTPUTS);
    let base = (image * CHANNELS + (o / {{ m }}u) * {{ c }}u) * PLANE;
    let start = window_start(row * WIDTH + x0);
    var sum = vec4<f32>({{ "bias[o]" if has_bias else "0.0" }});
    for (var i = 0u; i < {{ c }}u * TAPS; i++) { // trips: {{ c }} * TAPS
        let by = w[o * {{ c }}u * TAPS + i];
        let plane = base + (i / TAPS) * PLANE;
        let step = tap_step(i % TAPS);
{% for j in range(4) %}
        {
            let p = start + step + vec3<i32>(0, 0, {{ j * stride[2] }});
            if (inside(p){{ " && x0 + " ~ j ~ "u < WIDTH" if j and out[2] % 4 }}) { sum[{{ j }}] += by * x[plane + offset_in_plane(p)]; }
        }
{% endfor %}
    }
    let index = ((image * OUTPUTS + o) * ROWS + row) * WIDTH + x0;
    y[index] = sum.x;
    if (x0 + 1u < WIDTH) { y[index + 1u] = sum.y; }
    if (x0 + 2u < WIDTH) { y[index + 2u] = sum.z; }
    if (x0 + 3u < WIDTH) { y[index + 3u] = sum.w; }
}
