// (x - mean) / sqrt(var + eps) * weight + bias over rows of n, with a mean of 0 for rms_norm; {{ lanes }} lanes share
// a row. With a residual the rows are x + residual, which `sum` keeps where that is wanted. A lane reads only
// elements that it wrote itself, or before it writes them. In memory all of it may be f16 (lib/stored.wgsl).
{% set wide = n is divisibleby(4) %}
{% set E = "vec4<f32>" if wide else "f32" %}
{% set m = n // 4 if wide else n %}
{% set extreme = false %}
{% set sum_of = "dot({0}, vec4<f32>(1.0))" if wide else "{0}" %}
{% import "lib/stored.wgsl" as stored with context %}
{% set index = namespace(next=1) %}
{% macro bind(name) %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> {{ name }}: array<{{ stored.unit }}>;
{% set index.next = index.next + 1 %}
{% endmacro %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ stored.unit }}>;
{{ bind("weight") if has_weight }}{{ bind("bias") if has_bias }}{{ bind("residual") if has_residual }}{{ bind("y") }}{{ bind("sum") if keep }}
{% include "lib/row_total.wgsl" %}

{% macro load(i) %}{{ stored.read("x[base + " ~ i ~ "]") }}{{ " + " ~ stored.read("residual[base + " ~ i ~ "]") if has_residual }}{% endmacro %}
{% macro scaled(i, value) %}{{ value }} * scale{{ " * " ~ stored.read("weight[" ~ i ~ "]") if has_weight }}{{ " + " ~ stored.read("bias[" ~ i ~ "]") if has_bias }}{% endmacro %}
{% macro store(i, value) %}y[base + {{ i }}] = {{ stored.held_as(scaled(i, value)) }};{% endmacro %}

{% include "lib/row_entry.wgsl" %}
{% if rows is not known_multiple(threads // lanes) %}
    let mine = row < {{ rows }}u;
{% endif %}
{% if held %}
    // The row stays in registers: {{ held }} elements per lane, loaded at once.
{% for c in range(held) %}
{% set full = ((c + 1) * lanes) is known_within(m) %}
    let i{{ c }} = {{ "own + " ~ c * lanes ~ "u" if full else "min(own + " ~ c * lanes ~ "u, " ~ (m - 1) ~ "u)" }};
    let v{{ c }} = {{ load("i" ~ c) }};
{% endfor %}
{% for c in range(held) %}
{% set guards = (["mine"] if rows is not known_multiple(threads // lanes) else []) + (["own < " ~ (m - c * lanes)|at_least(0) ~ "u"] if ((c + 1) * lanes) is not known_within(m) else []) %}
{% if keep %}
    {{ "if (" ~ guards|join(" && ") ~ ") { " if guards }}sum[base + i{{ c }}] = {{ stored.held_as("v" ~ c) }};{{ " }" if guards }}
{% endif %}
{% endfor %}
    var part = {{ E }}(0.0);
{% if rms %}
{% for c in range(held) %}
    let d{{ c }} = v{{ c }};
{% endfor %}
{% else %}
{% for c in range(held) %}
    part += {{ "v" ~ c if ((c + 1) * lanes) is known_within(m) else "select(" ~ E ~ "(0.0), v" ~ c ~ ", own < " ~ (m - c * lanes)|at_least(0) ~ "u)" }};
{% endfor %}
    let mean = row_sum({{ sum_of.format("part") }}, lane{{ ", together" if subgroups }}) / f32(N);
    part = {{ E }}(0.0);
    // The mean of squares minus the squared mean would cancel.
{% for c in range(held) %}
    let d{{ c }} = v{{ c }} - mean;
{% endfor %}
{% endif %}
{% for c in range(held) %}
    part += {{ "d{0} * d{0}".format(c) if ((c + 1) * lanes) is known_within(m) else "select({1}(0.0), d{0} * d{0}, own < {2}u)".format(c, E, (m - c * lanes)|at_least(0)) }};
{% endfor %}
    let scale = 1.0 / sqrt(row_sum({{ sum_of.format("part") }}, lane{{ ", together" if subgroups }}) / f32(N) + EPS);
{% for c in range(held) %}
{% set guards = (["mine"] if rows is not known_multiple(threads // lanes) else []) + (["own < " ~ (m - c * lanes)|at_least(0) ~ "u"] if ((c + 1) * lanes) is not known_within(m) else []) %}
    {{ "if (" ~ guards|join(" && ") ~ ") { " if guards }}{{ store("i" ~ c, "d" ~ c) }}{{ " }" if guards }}
{% endfor %}
{% else %}
    // Two passes over the row. The first keeps the mean so far and the squares of what differs from it, and joins
    // eight elements to them at a time (Chan, Golub and LeVeque 1983): sums of plain squares would cancel.
{% set u = 8 %}
{% set kept = "sum" if keep else "y" %}
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
{% if rms %}
    let mean = 0.0;
{% else %}
    let mean = row_sum({{ sum_of.format("mean_of") }} * count, lane{{ ", together" if subgroups }}) / f32(N);
    let off = mean_of - mean;
    squares += off * off * count;
{% endif %}
    let scale = 1.0 / sqrt(row_sum({{ sum_of.format("squares") }}, lane{{ ", together" if subgroups }}) / f32(N) + EPS);
    i = own;
    for (; i + {{ (u - 1) * lanes }}u < {{ m }}u; i += {{ u * lanes }}u) { // trips: {{ m }} / {{ u * lanes }}
{% for c in range(u) %}
        let v{{ c }} = {{ again.format("i + " ~ c * lanes ~ "u") }};
{% endfor %}
{% for c in range(u) %}
        {{ store("i + " ~ c * lanes ~ "u", "(v" ~ c ~ " - mean)") }}
{% endfor %}
    }
    for (; i < {{ m }}u; i += {{ lanes }}u) { // trips: {{ u }}
        let v = {{ again.format("i") }};
        {{ store("i", "(v - mean)") }}
    }
{% endif %}
}
