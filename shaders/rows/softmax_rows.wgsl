// exp(x - max) / sum, or its logarithm, over rows of n neighbours; {{ lanes }} lanes share a row. In memory
// they are f32 or f16 (lib/stored.wgsl).
{% set wide = n is divisibleby(4) %}
{% set E = "vec4<f32>" if wide else "f32" %}
{% set m = n // 4 if wide else n %}
{% set extreme = true %}
{% set largest = "max(max({0}.x, {0}.y), max({0}.z, {0}.w))" if wide else "{0}" %}
{% set sum = "dot({0}, vec4<f32>(1.0))" if wide else "{0}" %}
{% import "lib/stored.wgsl" as stored with context %}
{{ bindings(access, x=stored.unit, y=stored.unit) }}

{% include "lib/row_total.wgsl" %}

{% include "lib/nan.wgsl" %}

fn expo(x: {{ E }}) -> {{ E }} {
{% if wide %}
    return select(exp(x), x, (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
{% else %}
    return nan_exp(x);
{% endif %}
}

{% include "lib/row_entry.wgsl" %}
{% if held %}
    // The row stays in registers: {{ held }} elements per lane, loaded at once.
{% for c in range(held) %}
{% set full = ((c + 1) * lanes) is known_within(m) %}
    let v{{ c }} = {{ stored.read("x[base + " ~ ("own + " ~ c * lanes ~ "u" if full else "min(own + " ~ c * lanes ~ "u, " ~ (m - 1) ~ "u)") ~ "]") }};
{% endfor %}
    var lane_max = v0;
{% for c in range(1, held) %}
    lane_max = max(lane_max, v{{ c }});
{% endfor %}
    let top = row_max({{ largest.format("lane_max") }}, lane{{ ", together" if subgroups }});
    var part = {{ E }}(0.0);
{% for c in range(held) %}
    let e{{ c }} = expo(v{{ c }} - top);
{% if ((c + 1) * lanes) is known_within(m) %}
    part += e{{ c }};
{% else %}
    part += select({{ E }}(0.0), e{{ c }}, own < {{ (m - c * lanes)|at_least(0) }}u);
{% endif %}
{% endfor %}
    let total = row_sum({{ sum.format("part") }}, lane{{ ", together" if subgroups }});
{% if log %}
    let level = nan_log(total);
{% else %}
    let inverse = 1.0 / total;
{% endif %}
{% if rows is not known_multiple(threads // lanes) %}
    if (row >= {{ rows }}u) { return; }
{% endif %}
{% for c in range(held) %}
    {{ "if (own < " ~ (m - c * lanes)|at_least(0) ~ "u) { " if ((c + 1) * lanes) is not known_within(m) }}y[base + own + {{ c * lanes }}u] = {{ stored.held_as("(v" ~ c ~ " - top) - level" if log else "e" ~ c ~ " * inverse") }};{{ " }" if ((c + 1) * lanes) is not known_within(m) }}
{% endfor %}
{% else %}
    // Two passes over the row. The first keeps the largest element so far and the sum of exponentials below it;
    // its first value is finite, as the difference of two infinities would be NaN.
    var top = -3.4028234663852886e38;
    var part = {{ E }}(0.0);
{% set u = 8 %}
    var i = own;
    for (; i + {{ (u - 1) * lanes }}u < {{ m }}u; i += {{ u * lanes }}u) { // trips: {{ m }} / {{ u * lanes }}
{% for c in range(u) %}
        let v{{ c }} = {{ stored.read("x[base + i + " ~ c * lanes ~ "u]") }};
{% endfor %}
        let lane_max = {% for c in range(u - 1) %}max(v{{ c }}, {% endfor %}v{{ u - 1 }}{{ ")" * (u - 1) }};
        let next = max(top, {{ largest.format("lane_max") }});
        part = part * exp(top - next){% for c in range(u) %} + expo(v{{ c }} - next){% endfor %};
        top = next;
    }
    for (; i < {{ m }}u; i += {{ lanes }}u) { // trips: {{ u }}
        let v = {{ stored.read("x[base + i]") }};
        let next = max(top, {{ largest.format("v") }});
        part = part * exp(top - next) + expo(v - next);
        top = next;
    }
    let all = row_max(top, lane{{ ", together" if subgroups }});
    let total = row_sum({{ sum.format("part") }} * exp(top - all), lane{{ ", together" if subgroups }});
{% if log %}
    let level = nan_log(total);
{% else %}
    let inverse = 1.0 / total;
{% endif %}
    i = own;
    for (; i + {{ (u - 1) * lanes }}u < {{ m }}u; i += {{ u * lanes }}u) { // trips: {{ m }} / {{ u * lanes }}
{% for c in range(u) %}
        let v{{ c }} = {{ stored.read("x[base + i + " ~ c * lanes ~ "u]") }};
{% endfor %}
{% for c in range(u) %}
        y[base + i + {{ c * lanes }}u] = {{ stored.held_as("(v" ~ c ~ " - all) - level" if log else "expo(v" ~ c ~ " - all) * inverse") }};
{% endfor %}
    }
    for (; i < {{ m }}u; i += {{ lanes }}u) { // trips: {{ u }}
        let v = {{ stored.read("x[base + i]") }};
        y[base + i] = {{ stored.held_as("(v - all) - level" if log else "expo(v - all) * inverse") }};
    }
{% endif %}
}
