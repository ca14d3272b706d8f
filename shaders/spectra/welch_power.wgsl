// Welch's periodogram, one thread per bin, for spectra too long for workgroup memory.
@group(0) @binding(0) var<storage, {{ access[0] }}> spec: array<f32>;
{% if apart %}
@group(0) @binding(1) var<storage, {{ access[1] }}> weights: array<f32>;
{% endif %}
{% set out = 2 if apart else 1 %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<f32>;

{% include "lib/welch.wgsl" %}

{{ by_element(256, "t", "SIGNALS * BINS") }}
    y[t] = welch(t / BINS, t % BINS);
}
