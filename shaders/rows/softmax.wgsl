// exp(x - max) / sum, or its logarithm, over n elements that are `inner` apart; one workgroup per row.
{% set lanes = 64 if n <= 256 else 256 %}
{% set E = "f32" %}
{% import "lib/stored.wgsl" as stored with context %}
{{ bindings(access, x=stored.unit, y=stored.unit) }}

var<workgroup> part: array<f32, {{ lanes }}>;

{% include "lib/nan.wgsl" %}

{{ by_group(lanes) }}
    let base = (g / INNER) * N * INNER + g % INNER;
    var top = {{ stored.read("x[base]") }};
    for (var i = lane; i < N; i += {{ lanes }}u) { top = max(top, {{ stored.read("x[base + i * INNER]") }}); } // trips: N / {{ lanes }}
    part[lane] = top;
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ lanes // 2 }})
        if (lane < width) { part[lane] = max(part[lane], part[lane + width]); }
        workgroupBarrier();
    }
    top = part[0];
    // Everyone has read the maximum before the memory is used for the sum.
    workgroupBarrier();
    var total = 0.0;
    for (var i = lane; i < N; i += {{ lanes }}u) { // trips: N / {{ lanes }}
        let e = nan_exp({{ stored.read("x[base + i * INNER]") }} - top);
{% if not log %}
        y[base + i * INNER] = {{ stored.held_as("e") }};
{% endif %}
        total += e;
    }
    part[lane] = total;
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ lanes // 2 }})
        if (lane < width) { part[lane] += part[lane + width]; }
        workgroupBarrier();
    }
{% if log %}
    let level = nan_log(part[0]);
    for (var i = lane; i < N; i += {{ lanes }}u) { y[base + i * INNER] = {{ stored.held_as(stored.read("x[base + i * INNER]") ~ " - top - level") }}; } // trips: N / {{ lanes }}
{% else %}
    let inverse = 1.0 / part[0];
    // Each lane reads back only what it wrote itself.
    for (var i = lane; i < N; i += {{ lanes }}u) { y[base + i * INNER] = {{ stored.held_as(stored.read("y[base + i * INNER]") ~ " * inverse") }}; } // trips: N / {{ lanes }}
{% endif %}
}
