// (x - mean) / sqrt(var + eps) * weight + bias over rows of n, with a mean of 0 for rms_norm; {{ lanes }} lanes share
// a row. With a residual the rows are x + residual, which `sum` keeps where that is wanted. A lane reads only
// elements that it wrote itself, or before it writes them. In memory all of it may be f16 (lib/stored.wgsl).
{% set wide = n is divisibleby(4) %}
{% set E = "vec4<f32>" if wide else "f32" %}
{% set m = n // 4 if wide else n %}
{% set extreme = false %}
{% set sum_of = "dot({0}, vec4<f32>(1.0))" if wide else "{0}" %}
{% import "lib/stored.wgsl" as stored with context %}
{{ bindings(access, x=stored.unit, weight=has_weight and stored.unit, bias=has_bias and stored.unit, residual=has_residual and stored.unit, y=stored.unit, sum=keep and stored.unit) }}
{% include "lib/row_total.wgsl" %}

{% macro load(i) %}{{ stored.read("x[base + " ~ i ~ "]") }}{{ " + " ~ stored.read("residual[base + " ~ i ~ "]") if has_residual }}{% endmacro %}
{% macro scaled(i, value) %}{{ value }} * scale{{ " * " ~ stored.read("weight[" ~ i ~ "]") if has_weight }}{{ " + " ~ stored.read("bias[" ~ i ~ "]") if has_bias }}{% endmacro %}
{% macro row_mean(value) %}row_sum({{ value }}, lane{{ ", together" if subgroups }}) / f32(N){% endmacro %}
{% macro store(i, value) %}y[base + {{ i }}] = {{ stored.held_as(scaled(i, value)) }};{% endmacro %}
{% macro inside(c, value) %}{{ value if ((c + 1) * lanes) is known_within(m) else "select(" ~ E ~ "(0.0), " ~ value ~ ", own < " ~ (m - c * lanes)|at_least(0) ~ "u)" }}{% endmacro %}
{% macro guarded(c, statement) %}
{% set guards = (["mine"] if rows is not known_multiple(threads // lanes) else []) + (["own < " ~ (m - c * lanes)|at_least(0) ~ "u"] if ((c + 1) * lanes) is not known_within(m) else []) %}
{{ "if (" ~ guards|join(" && ") ~ ") { " if guards }}{{ statement }}{{ " }" if guards }}
{%- endmacro %}

{% include "lib/row_entry.wgsl" %}
{% if rows is not known_multiple(threads // lanes) %}
    let mine = row < {{ rows }}u;
{% endif %}
{% if held %}
    // The row stays in registers: {{ held }} elements per lane, loaded at once.
{% for c in range(held) %}
    let i{{ c }} = {{ "own + " ~ c * lanes ~ "u" if ((c + 1) * lanes) is known_within(m) else "min(own + " ~ c * lanes ~ "u, " ~ (m - 1) ~ "u)" }};
    let v{{ c }} = {{ load("i" ~ c) }};
{% endfor %}
{% for c in range(held) if keep %}
    {{ guarded(c, "sum[base + i" ~ c ~ "] = " ~ stored.held_as("v" ~ c) ~ ";") }}
{% endfor %}
    var part = {{ E }}(0.0);
{% if not rms %}
{% for c in range(held) %}
    part += {{ inside(c, "v" ~ c) }};
{% endfor %}
    let mean = {{ row_mean(sum_of.format("part")) }};
    // The mean of squares minus the squared mean would cancel. The mean of the differences corrects the mean's rounding.
    part = {{ E }}(0.0);
{% for c in range(held) %}
    let e{{ c }} = v{{ c }} - mean;
    part += {{ inside(c, "e" ~ c) }};
{% endfor %}
    let rest = {{ row_mean(sum_of.format("part")) }};
    part = {{ E }}(0.0);
{% endif %}
{% for c in range(held) %}
    let d{{ c }} = {{ "v" ~ c if rms else "e" ~ c ~ " - rest" }};
    part += {{ inside(c, "d{0} * d{0}".format(c)) }};
{% endfor %}
    let scale = 1.0 / sqrt({{ row_mean(sum_of.format("part")) }} + EPS);
{% for c in range(held) %}
    {{ guarded(c, store("i" ~ c, "d" ~ c)) }}
{% endfor %}
{% else %}
    // Two passes over the row. The first keeps the mean so far and the squares of what differs from it, and joins
    // eight elements to them at a time (Chan, Golub and LeVeque 1983): sums of plain squares would cancel.
{% set u = 8 %}
{% set kept = "sum" if keep else "y" %}
{% set centred = "{}" if rms else "({} - mean - rest)" %}
{% set again = stored.read((kept if has_residual else "x") ~ "[base + {}]") %}
    var mean_of = {{ E }}(0.0);
    var squares = {{ E }}(0.0);
    var count = 0.0;
    var i = own;
    for (; i + {{ (u - 1) * lanes }}u < {{ m }}u; i += {{ u * lanes }}u) { // trips: {{ m }} / {{ u * lanes }}
{% for c in range(u) %}
        let v{{ c }} = {{ load("i + " ~ c * lanes ~ "u") }};
{% endfor %}
{% if has_residual %}
{% for c in range(u) %}
        {{ kept }}[base + i + {{ c * lanes }}u] = {{ stored.held_as("v" ~ c) }};
{% endfor %}
{% endif %}
{% if rms %}
        squares += {% for c in range(u) %}v{{ c }} * v{{ c }}{{ " + " if c < u - 1 }}{% endfor %};
{% else %}
        let eight = ({% for c in range(u) %}v{{ c }}{{ " + " if c < u - 1 }}{% endfor %}) / {{ u }}.0;
{% for c in range(u) %}
        let d{{ c }} = v{{ c }} - eight;
{% endfor %}
        let delta = eight - mean_of;
        let next = count + {{ u }}.0;
        mean_of += delta * ({{ u }}.0 / next);
        squares += {% for c in range(u) %}d{{ c }} * d{{ c }}{{ " + " if c < u - 1 }}{% endfor %} + delta * delta * (count * {{ u }}.0 / next);
        count = next;
{% endif %}
    }
    for (; i < {{ m }}u; i += {{ lanes }}u) { // trips: {{ u }}
        let v = {{ load("i") }};
{% if has_residual %}
        {{ kept }}[base + i] = {{ stored.held_as("v") }};
{% endif %}
{% if rms %}
        squares += v * v;
{% else %}
        let delta = v - mean_of;
        count += 1.0;
        mean_of += delta / count;
        squares += delta * (v - mean_of);
{% endif %}
    }
{% if not rms %}
    let mean = {{ row_mean(sum_of.format("mean_of") ~ " * count") }};
    let rest = {{ row_mean(sum_of.format("(mean_of - mean)") ~ " * count") }};
    let off = mean_of - mean - rest;
    squares += off * off * count;
{% endif %}
    let scale = 1.0 / sqrt({{ row_mean(sum_of.format("squares")) }} + EPS);
    i = own;
    for (; i + {{ (u - 1) * lanes }}u < {{ m }}u; i += {{ u * lanes }}u) { // trips: {{ m }} / {{ u * lanes }}
{% for c in range(u) %}
        let v{{ c }} = {{ again.format("i + " ~ c * lanes ~ "u") }};
{% endfor %}
{% for c in range(u) %}
        {{ store("i + " ~ c * lanes ~ "u", centred.format("v" ~ c)) }}
{% endfor %}
    }
    for (; i < {{ m }}u; i += {{ lanes }}u) { // trips: {{ u }}
        let v = {{ again.format("i") }};
        {{ store("i", centred.format("v")) }}
    }
{% endif %}
}
