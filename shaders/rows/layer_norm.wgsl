// (x - mean) / sqrt(var + eps) * weight + bias over rows of n, with a mean of 0 for rms_norm; one
// workgroup per row. With a residual the rows are x + residual; they stand in `sum` where that is
// wanted, else in y until they are normalised. A lane reads only elements that it wrote itself. In memory
// all of it is f32 or f16 (lib/stored.wgsl).
{% set row = "x" if not has_residual else "sum" if keep else "y" %}
{% set lanes = 64 if n <= 256 else 256 %}
{% set E = "f32" %}
{% import "lib/stored.wgsl" as stored with context %}
{% set index = namespace(next=1) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ stored.unit }}>;
{% if has_weight %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> weight: array<{{ stored.unit }}>;
{% set index.next = index.next + 1 %}
{% endif %}
{% if has_bias %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> bias: array<{{ stored.unit }}>;
{% set index.next = index.next + 1 %}
{% endif %}
{% if has_residual %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> residual: array<{{ stored.unit }}>;
{% set index.next = index.next + 1 %}
{% endif %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> y: array<{{ stored.unit }}>;
{% if keep %}
@group(0) @binding({{ index.next + 1 }}) var<storage, {{ access[index.next + 1] }}> sum: array<{{ stored.unit }}>;
{% endif %}

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
    let mean = 0.0;
{{ first("v * v") }}
{% else %}
{{ first("v") }}
    let mean = total(all, lane) / f32(N);
    all = 0.0;
    // A second pass over the row: the mean of squares minus the squared mean would cancel.
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
        let d = {{ stored.read(row ~ "[base + i]") }} - mean;
        all += d * d;
    }
{% endif %}
    let scale = 1.0 / sqrt(total(all, lane) / f32(N) + EPS);
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
        let v = ({{ stored.read(row ~ "[base + i]") }} - mean) * scale;
        y[base + i] = {{ stored.held_as("v" ~ (" * " ~ stored.read("weight[i]") if has_weight else "") ~ (" + " ~ stored.read("bias[i]") if has_bias else "")) }};
    }
}
