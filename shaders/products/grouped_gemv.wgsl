{# Few rows times the matrices of their experts: gemv.wgsl with a batch of single rows. #}
{% set by_expert = true %}
{% include "gemv.wgsl" %}
