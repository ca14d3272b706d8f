// The floor of log-mel levels, 8 below the maximum of everything, and their scaling.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> top: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

{% include "lib/nan.wgsl" %}

{{ by_element(256, "e", "TOTAL") }}
    y[e] = (nan_max(x[e], top[0] - 8.0) + 4.0) * 0.25;
}
