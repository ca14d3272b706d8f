{# What the product kernels bind: the left operand, weights, biases, results. One weight makes one result;
   several make as many, of `parts` columns each; two that are `gated` make one. W, B and Y say of which
   elements weights, biases and results are. The experts of rows, or the list of tiles by expert, come before the results. #}
{% set listed = 1 if picked is defined or by_expert is defined else 0 %}
{% set weights = 2 if gated else parts|length %}
{% set biases = has_bias * (2 if gated else 1) %}
{% for i in range(weights) %}
@group(0) @binding({{ 1 + i }}) var<storage, {{ access[1 + i] }}> w{{ i }}: array<{{ W[0 if gated else i] }}>;
{% endfor %}
{% for i in range(biases) %}
@group(0) @binding({{ 1 + weights + i }}) var<storage, {{ access[1 + weights + i] }}> bias{{ i }}: array<{{ B }}>;
{% endfor %}
{% if listed %}
@group(0) @binding({{ 1 + weights + biases }}) var<storage, {{ access[1 + weights + biases] }}> listed: array<{{ type[1 + weights + biases] }}>;
{% endif %}
{% if listed and type[1 + weights + biases] == two_words %}
{% include "lib/wide_index.wgsl" %}
{% endif %}
{% for i in range(parts|length) %}
{% set index = 1 + weights + biases + listed + i %}
@group(0) @binding({{ index }}) var<storage, {{ access[index] }}> y{{ i }}: array<{{ Y[i] }}>;
{% endfor %}
