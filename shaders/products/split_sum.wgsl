// Adds the partitions of split sums, [partitions, elements]; then bias and activation.
{% set E = "f16" if half else "f32" %}
{# A bias has one entry per column of the last axis or, with `every`, one per so many neighbours. #}
{% set of_rows = every is defined %}
{% set wide = (every if of_rows else n) is divisibleby(4) %}
{% set B = E if of_rows or not wide else "vec4<" ~ E ~ ">" %}
{% set S = "vec4<f32>" if wide else "f32" %}
{% set D = ("vec4<" ~ E ~ ">") if wide else E %}
{% set step = 4 if wide else 1 %}
{% set last = 2 if has_bias else 1 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ S }}>;
{% if has_bias %}
@group(0) @binding(1) var<storage, {{ access[1] }}> bias: array<{{ B }}>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<{{ D }}>;

{% include "lib/epilogue.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = (wid.x + wid.y * FOLD) * 256u + lane;
    let count = {{ elements // step }}u;
    if (index >= count) { return; }
    var sum = x[index];
    for (var split = 1u; split < SPLITS; split++) { sum += x[split * count + index]; } // trips: SPLITS
{% if has_bias %}
    sum += {{ S }}({{ "f32(bias[(index / %su) %% %su])" % (every // step, n) if of_rows else "bias[index %% %su]" % (n // step) }});
{% endif %}
    y[index] = {{ D }}(activate({{ "sum" if wide else "vec4<f32>(sum)" }}){{ "" if wide else ".x" }});
}
