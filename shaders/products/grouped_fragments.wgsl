{# Rows times the matrices of their experts on matrix units: matmul_fragments.wgsl where each tile has rows of one expert,
   from anywhere in the operand. expert_tiles.wgsl lists them. #}
{% set picked = true %}
{% include "matmul_fragments.wgsl" %}
