// A cascade of recursive sections, transposed direct form II, one thread per block of a row.
// Stage "state" starts from 0 and writes the state after each block but the last; stage "filter"
// starts from the state before the block and writes the samples; the block that holds the last sample to
// filter writes the state after it.
{% set states = sections * order %}
{% set blocked = blocks > 1 %}
{% set starts = states and stage == "filter" and (blocked or has_zi) %}
{% set counted = blocks - 1 if stage == "state" else blocks %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
{% if starts %}
@group(0) @binding(1) var<storage, {{ access[1] }}> before: array<f32>;
{% endif %}
{% set index = 2 if starts else 1 %}
{% if has_count %}
@group(0) @binding({{ index }}) var<storage, {{ access[index] }}> count: array<i32>;
{% set index = index + 1 %}
{% endif %}
{% if stage == "filter" %}
@group(0) @binding({{ index }}) var<storage, {{ access[index] }}> y: array<f32>;
{% set index = index + 1 %}
{% endif %}
{% if states %}
@group(0) @binding({{ index }}) var<storage, {{ access[index] }}> after: array<f32>;
{% endif %}

{{ by_element(64, "t", "ROWS * " ~ counted ~ "u") }}
    let row = t / {{ counted }}u;
    let block = t % {{ counted }}u;
{% for s in range(sections) %}
{% for m in range(order) %}
{% if not starts %}
    var z{{ s }}_{{ m }} = 0.0;
{% elif blocked %}
    var z{{ s }}_{{ m }} = before[(row * BLOCKS + block) * {{ states }}u + {{ s * order + m }}u];
{% else %}
    var z{{ s }}_{{ m }} = before[({{ s }}u * ROWS + row) * ORDER + {{ m }}u];
{% endif %}
{% endfor %}
{% endfor %}
    let first = block * LENGTH;
    let past = min((block + 1u) * LENGTH, N);
{% if has_count %}
    let wanted = u32(clamp(count[0], 0, {{ n }}));
    let end = clamp(wanted, first, past);
{% else %}
    let end = past;
{% endif %}
    for (var i = row * N + first; i < row * N + end; i++) { // trips: LENGTH
        let v0 = x[i];
{% for s in range(sections) %}
{% set c = coefficients[s] %}
        let v{{ s + 1 }} = f32({{ c[0] }}) * v{{ s }}{{ " + z%s_0" % s if order }};
{% for m in range(order) %}
        z{{ s }}_{{ m }} = {{ "z%s_%s + " % (s, m + 1) if m + 1 < order }}f32({{ c[m + 1] }}) * v{{ s }} - f32({{ c[order + m + 2] }}) * v{{ s + 1 }};
{% endfor %}
{% endfor %}
{% if stage == "filter" %}
        y[i] = v{{ sections }};
{% endif %}
    }
{% if stage == "filter" and has_count %}
    for (var i = row * N + end; i < row * N + past; i++) { y[i] = 0.0; } // trips: LENGTH
{% endif %}
{% if states %}
{% if stage == "filter" %}
{% if has_count %}
    // The block with the last sample that is filtered; the first one where there is none.
    if (block != select((wanted - 1u) / LENGTH, 0u, wanted == 0u)) { return; }
{% else %}
    if (block + 1u < BLOCKS) { return; }
{% endif %}
{% endif %}
{% for s in range(sections) %}
{% for m in range(order) %}
{% if stage == "state" %}
    after[(row * BLOCKS + block) * {{ states }}u + {{ s * order + m }}u] = z{{ s }}_{{ m }};
{% else %}
    after[({{ s }}u * ROWS + row) * ORDER + {{ m }}u] = z{{ s }}_{{ m }};
{% endif %}
{% endfor %}
{% endfor %}
{% endif %}
}
