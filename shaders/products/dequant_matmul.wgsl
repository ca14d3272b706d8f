{# Many rows of x times packed weights: matmul.wgsl with a loader that decodes weights (lib/packed_loader.wgsl); `scheme`
   is their format. #}
{% include "matmul.wgsl" %}
