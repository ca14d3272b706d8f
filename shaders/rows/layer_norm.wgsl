// (x - mean) / sqrt(var + eps) * weight + bias over rows of n, with a mean of 0 for rms_norm; one
// workgroup per row. With a residual the rows are x + residual; they stand in `sum` where that is
// wanted, else in y until they are normalised. A lane reads only elements that it wrote itself. In memory
// all of it is f32 or f16 (lib/stored.wgsl).
{% set row = "x" if not has_residual else "sum" if keep else "y" %}
{% set lanes = 64 if n <= 256 else 256 %}
{% set E = "f32" %}
{% import "lib/stored.wgsl" as stored with context %}
{{ bindings(access, x=stored.unit, weight=has_weight and stored.unit, bias=has_bias and stored.unit, residual=has_residual and stored.unit, y=stored.unit, sum=keep and stored.unit) }}

var<workgroup> part: array<f32, {{ lanes }}>;

// The sum of every lane's value, for every lane.
fn total(value: f32, lane: u32) -> f32 {
    part[lane] = value;
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ lanes // 2 }})
        if (lane < width) { part[lane] += part[lane + width]; }
        workgroupBarrier();
    }
    let all = part[0];
    workgroupBarrier();
    return all;
}

{{ by_group(lanes) }}
    let base = g * N;
{% macro first(value) %}
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
{% if has_residual %}
        let v = {{ stored.read("x[base + i]") }} + {{ stored.read("residual[base + i]") }};
        {{ row }}[base + i] = {{ stored.held_as("v") }};
{% else %}
        let v = {{ stored.read("x[base + i]") }};
{% endif %}
        all += {{ value }};
    }
{% endmacro %}
    var all = 0.0;
{% if rms %}
{{ first("v * v") }}
{% else %}
{{ first("v") }}
    let mean = total(all, lane) / f32(N);
    all = 0.0;
    var differences = 0.0;
    // The mean of squares minus the squared mean would cancel. The mean of the differences corrects the mean's rounding.
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
        let d = {{ stored.read(row ~ "[base + i]") }} - mean;
        all += d * d;
        differences += d;
    }
    let rest = total(differences, lane) / f32(N);
{% endif %}
    let scale = 1.0 / sqrt(total(all, lane) / f32(N) + EPS);
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
        let v = ({{ stored.read(row ~ "[base + i]") }}{{ " - mean - rest" if not rms }}) * scale;
        y[base + i] = {{ stored.held_as("v" ~ (" * " ~ stored.read("weight[i]") if has_weight else "") ~ (" + " ~ stored.read("bias[i]") if has_bias else "")) }};
    }
}
