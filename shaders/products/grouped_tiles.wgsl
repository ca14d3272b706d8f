{# Rows times the matrices of their experts: matmul.wgsl where each tile has rows of one expert, from anywhere in the
   operand. expert_tiles.wgsl lists them. #}
{% set picked = true %}
{% include "matmul.wgsl" %}
