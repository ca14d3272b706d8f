{# Many rows of x times packed weights on matrix units: matmul_fragments.wgsl with a loader that decodes weights to halves
   (lib/packed_loader.wgsl); `scheme` is their format. #}
{% include "matmul_fragments.wgsl" %}
