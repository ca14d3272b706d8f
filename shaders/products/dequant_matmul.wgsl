{# Many rows of x times packed weights: the tiles of matmul.wgsl, whose weights are decoded on their way into workgroup
   memory; `scheme` says how. #}
{% include "matmul.wgsl" %}
