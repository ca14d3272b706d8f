// Convolution of groups of few outputs, read once: a thread makes four neighbouring windows of some rows.
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set last = 3 if has_bias else 2 %}
{% set across = (out[2] + 3) // 4 %}
{% set high = (out[1] + tall - 1) // tall %}
{% import "lib/strips.wgsl" as strips with context %}
{{ bindings(access, x="vec4<f32>" if strips.wide else "f32", w="f32") }}
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<{{ "vec4<f32>" if out[2] is divisibleby(4) else "f32" }}>;

const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const TAPS: u32 = {{ kernel[0] * kernel[1] * kernel[2] }}u;

{{ by_element(threads, "e", (batch * outputs * out[0] * high * across) ~ "u") }}
    let column = (e % {{ across }}u) * 4u;
    let row0 = ((e / {{ across }}u) % {{ high }}u) * {{ tall }}u;
    let deep = (e / {{ across * high }}u) % {{ out[0] }}u;
    let o = (e / {{ across * high * out[0] }}u) % OUTPUTS;
    let image = e / {{ across * high * out[0] * outputs }}u;
    let x0 = i32(column * {{ stride[2] }}u);
    let h0 = i32(row0 * {{ stride[1] }}u) - {{ before[1] }};
    let zero = vec4<f32>(0.0);
{% for r in range(tall) %}
    var acc{{ r }} = vec4<f32>({{ "bias[o]" if has_bias else "0.0" }});
{% endfor %}
{% if c * kernel[0] == 1 %}
    {
        let i = 0u;
{% else %}
    for (var i = 0u; i < {{ c * kernel[0] }}u; i++) { // trips: {{ c * kernel[0] }}
{% endif %}
        let z = i32(deep * {{ stride[0] }}u + (i % {{ kernel[0] }}u) * {{ dilation[0] }}u) - {{ before[0] }};
{% if checks[0] %}
        if (u32(z) < {{ dims[0] }}u) {
{% endif %}
        let base = (image * CHANNELS + (o / {{ m }}u) * {{ c }}u + i / {{ kernel[0] }}u) * PLANE + u32(z) * {{ dims[1] * dims[2] }}u;
        let by = o * {{ c }}u * TAPS + i * {{ kernel[1] * kernel[2] }}u;
{% for t in range(kernel[1] * kernel[2]) %}
        let w{{ t }} = w[by + {{ t }}u];
{% endfor %}
{% call(row, r, ky) strips.walk("zero") %}
{% for t in range(kernel[2]) %}
        acc{{ r }} += w{{ ky * kernel[2] + t }} * {{ strips.seen(row, t, "f32") }};
{% endfor %}
{% endcall %}
{{ "        }" if checks[0] }}
    }
    let index = (((image * OUTPUTS + o) * {{ out[0] }}u + deep) * {{ out[1] }}u + row0) * {{ out[2] }}u + column;
{% for r in range(tall) %}
    {{ "if (row0 + " ~ r ~ "u < " ~ out[1] ~ "u) " if r and out[1] % tall }}{
{{ strips.store("(index + " ~ r * out[2] ~ "u)", "column", "acc" ~ r) }}    }
{% endfor %}
}
