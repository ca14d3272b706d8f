// Elements with borders that repeat some of them: a coordinate outside of an axis stands for one inside.
{{ bindings(access, x=type[0], y=type[1]) }}

{{ by_element(256, "e", "COUNT") }}
    var rest = e / UNIT;
    var index = e % UNIT;
{% for d in range(rank)|reverse %}
{% set n = inside[d] %}
{% set period = 2 * (n - 1) if kind == "reflect" else n %}
    let c{{ d }} = i32(rest % {{ dims[d] }}u) - {{ before[d] }};
    rest /= {{ dims[d] }}u;
{% if kind == "edge" or n == 1 %}
    let i{{ d }} = clamp(c{{ d }}, 0, {{ n - 1 }});
{% else %}
{# Whole periods are added first: the remainder of a negative number is not the same on every driver. #}
    let m{{ d }} = (c{{ d }} + {{ (before[d] + period - 1) // period * period }}) % {{ period }};
    let i{{ d }} = {% if kind == "wrap" %}m{{ d }}{% else %}min(m{{ d }}, {{ period }} - m{{ d }}){% endif %};
{% endif %}
    index += u32(i{{ d }}) * {{ steps[d] }}u;
{% endfor %}
    y[e] = x[index];
}
