// Result element c reads data[c . data_steps + indices[c . index_steps + d] . axis_steps]. An index
// out of range takes the nearest entry: a shader can't report it.
{% set E = "f16" if half else type[0] %}
{{ bindings(access, x=E, indices=type[1], y=E) }}

{% if type[1] == two_words %}
{% include "lib/wide_index.wgsl" %}

{% endif %}
{{ by_element(256, "e", "COUNT") }}
    var rest = e;
    var position = 0u;
    var which = 0u;
{% for d in range(rank)|reverse %}
{% if dims[d] > 1 %}
    position += (rest % {{ dims[d] }}u) * {{ data_steps[d] }}u;
    which += (rest % {{ dims[d] }}u) * {{ index_steps[d] }}u;
    rest /= {{ dims[d] }}u;
{% endif %}
{% endfor %}
{% for d in range(depth) %}
    let i{{ d }} = {{ index(type[1], "indices[which + " ~ d ~ "u]") }};
    position += u32(clamp(select(i{{ d }}, i{{ d }} + {{ sizes[d] }}, i{{ d }} < 0), 0, {{ [sizes[d] - 1, 0]|max }})) * {{ axis_steps[d] }}u;
{% endfor %}
    y[e] = x[position];
}
