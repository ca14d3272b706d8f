// Steps FIRST to LAST - 1 of the selective scan; a thread per channel, 64 channels per workgroup. Few
// states are kept in registers, many in the buffer that carries them from call to call.
{% set out = 6 if has_d else 5 %}
{{ bindings(access, x="f32", delta="f32", a="f32", b="f32", c="f32") }}
{% if has_d %}
@group(0) @binding(5) var<storage, {{ access[5] }}> d: array<f32>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<f32>;
@group(0) @binding({{ out + 1 }}) var<storage, {{ access[out + 1] }}> kept: array<f32>;

{{ by_group(64) }}
    let across = {{ (channels + 63) // 64 }}u;
    let item = g / across;
    let channel = (g % across) * 64u + lane;
    if (channel >= CHANNELS) { return; }
    let own = (item * CHANNELS + channel) * STATES;
{% if unrolled %}
{% for n in range(states) %}
    var h{{ n }} = {{ "kept[own + " ~ n ~ "u]" if first else "0.0" }};
    let a{{ n }} = a[channel * STATES + {{ n }}u];
{% endfor %}
{% elif first == 0 %}
    for (var n = 0u; n < STATES; n++) { kept[own + n] = 0.0; } // trips: STATES
{% endif %}
    for (var step = FIRST; step < LAST; step++) { // trips: LAST - FIRST
        let index = (item * LENGTH + step) * CHANNELS + channel;
        let row = (item * LENGTH + step) * STATES;
        let by = delta[index];
        let enters = by * x[index];
        var sum = {{ "d[channel] * x[index]" if has_d else "0.0" }};
{% if unrolled %}
{% for n in range(states) %}
        h{{ n }} = select(exp(by * a{{ n }}) * h{{ n }}, 0.0, h{{ n }} == 0.0) + enters * b[row + {{ n }}u];
        sum += h{{ n }} * c[row + {{ n }}u];
{% endfor %}
{% else %}
        for (var n = 0u; n < STATES; n++) { // trips: STATES
            let old = kept[own + n];
            let rest = select(exp(by * a[channel * STATES + n]) * old, 0.0, old == 0.0);
            let h = rest + enters * b[row + n];
            kept[own + n] = h;
            sum += h * c[row + n];
        }
{% endif %}
        y[index] = sum;
    }
{% if unrolled and last < length %}
{% for n in range(states) %}
    kept[own + {{ n }}u] = h{{ n }};
{% endfor %}
{% endif %}
}
