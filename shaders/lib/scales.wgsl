{# Bindings of the arrays beside packed weights, such as scales; `next.index` counts them. #}
{% if scale_bytes %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> scales: array<u32>;
{% set next.index = next.index + 1 %}
{% endif %}
{% if zero_bytes %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> zeros: array<u32>;
{% set next.index = next.index + 1 %}
{% endif %}
