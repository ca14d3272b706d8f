// The floor of log-mel levels, 8 below the maximum of everything, and their scaling.
{{ bindings(access, x="f32", top="f32", y="f32") }}

{% include "lib/nan.wgsl" %}

{{ by_element(256, "e", "TOTAL") }}
    y[e] = (nan_max(x[e], top[0] - 8.0) + 4.0) * 0.25;
}
