{# Rows times the matrices of their experts: the tiles of matmul.wgsl, each of rows of one expert, which stand anywhere;
   expert_tiles.wgsl lists them. #}
{% set picked = true %}
{% include "matmul.wgsl" %}
