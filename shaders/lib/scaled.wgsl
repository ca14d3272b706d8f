{# Stores a product of bytes: sums in i32, or sums as f32 times a scale (one, or one per column). #}
{% if scales %}
@group(0) @binding(2) var<storage, {{ access[2] }}> scale: array<f32>;
{% endif %}
{% set N4 = "f32" if scales else "i32" %}
@group(0) @binding({{ 3 if scales else 2 }}) var<storage, {{ access[3 if scales else 2] }}> y: array<{{ ("vec4<" ~ N4 ~ ">") if vectors else N4 }}>;

// Four sums of a row, the first in column `column`.
fn finished(sums: vec4<i32>, column: u32) -> vec4<{{ N4 }}> {
{% if scales > 1 %}
    let last = N - 1u;
    return vec4<f32>(sums) * vec4<f32>(scale[min(column, last)], scale[min(column + 1u, last)], scale[min(column + 2u, last)], scale[min(column + 3u, last)]);
{% elif scales %}
    return vec4<f32>(sums) * scale[0];
{% else %}
    return sums;
{% endif %}
}
