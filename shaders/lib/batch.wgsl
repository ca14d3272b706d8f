    // The matrices of batch number z: its coordinates along the batch dimensions, times their steps.
    var a_matrix = 0u;
    var b_matrix = 0u;
    var rest = z;
{% for d in range(rank)|reverse %}
    a_matrix += (rest % {{ dims[d] }}u) * {{ a_steps[d] }}u;
    b_matrix += (rest % {{ dims[d] }}u) * {{ b_steps[d] }}u;
    rest /= {{ dims[d] }}u;
{% endfor %}
