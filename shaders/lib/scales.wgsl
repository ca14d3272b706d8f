{# Bindings of the arrays beside packed weights, such as scales; `next.at` counts them. #}
{% if scale_bytes %}
@group(0) @binding({{ next.at }}) var<storage, {{ access[next.at] }}> scales: array<u32>;
{% set next.at = next.at + 1 %}
{% endif %}
{% if zero_bytes %}
@group(0) @binding({{ next.at }}) var<storage, {{ access[next.at] }}> zeros: array<u32>;
{% set next.at = next.at + 1 %}
{% endif %}
