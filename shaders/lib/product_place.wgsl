{# Where a tile's columns, its matrices and its range of k begin. #}
{% set columns = bn %}
{% include "lib/part.wgsl" %}
    let column0 = piece * {{ bn }}u;
{% if picked is defined %}
    let a_matrix = 0u;
    let b_matrix = u32(listed[tile]);
{% else %}
{% include "lib/batch.wgsl" %}
{% endif %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * N);
    let k_begin = split * {{ partition_k }}u;
    let k_end = min(k_begin + {{ partition_k }}u, K);
