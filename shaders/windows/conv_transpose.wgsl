// Transposed convolution: each thread gathers one place of up to four planes of the result. Other
// calls add the taps and channels outside of the given ranges to the result.
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set last = 3 if has_bias else 2 %}
{% set blocks = (m + per_thread - 1) // per_thread %}
{% set taps = kernel[0] * kernel[1] * kernel[2] %}
{{ bindings(access, x="f32", w="f32") }}
{% if has_bias %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<f32>;

// dims are those of the result, out those of x: seen from the result, x is its windows.
const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const ENTRIES: u32 = {{ out[0] * out[1] * out[2] }}u;
const PER_CHANNEL: u32 = {{ m * taps }}u;

{{ by_element(256, "e", "BATCH * PARTS * " ~ blocks ~ "u * PLANE") }}
    let index = e % PLANE;
    let block = (e / PLANE) % {{ blocks }}u;
    let part = (e / (PLANE * {{ blocks }}u)) % PARTS;
    let image = e / (PLANE * {{ blocks }}u * PARTS);
    let pz = i32(index / {{ dims[1] * dims[2] }}u) + {{ before[0] }};
    let py = i32((index / {{ dims[2] }}u) % {{ dims[1] }}u) + {{ before[1] }};
    let px = i32(index % {{ dims[2] }}u) + {{ before[2] }};
    let x_base = (image * CHANNELS + part * {{ c }}u) * ENTRIES;
    let w_base = part * {{ c }}u * PER_CHANNEL;
{% for j in range(per_thread) %}
    // A plane past the last of the group repeats it and is not stored.
    let o{{ j }} = min(block * PER_THREAD + {{ j }}u, {{ m - 1 }}u);
    var sum{{ j }} = 0.0;
{% endfor %}
    for (var tap = TAP_FROM; tap < TAP_TO; tap++) { // trips: TAP_TO - TAP_FROM
        let z = pz - i32((tap / {{ kernel[1] * kernel[2] }}u) * {{ dilation[0] }}u);
        let y_ = py - i32(((tap / {{ kernel[2] }}u) % {{ kernel[1] }}u) * {{ dilation[1] }}u);
        let x_ = px - i32((tap % {{ kernel[2] }}u) * {{ dilation[2] }}u);
        if (min(z, min(y_, x_)) < 0) { continue; }
{% if stride[0] * stride[1] * stride[2] > 1 %}
        if (z % {{ stride[0] }} != 0 || y_ % {{ stride[1] }} != 0 || x_ % {{ stride[2] }} != 0) { continue; }
{% endif %}
        let origin = vec3<u32>(u32(z) / {{ stride[0] }}u, u32(y_) / {{ stride[1] }}u, u32(x_) / {{ stride[2] }}u);
        if (origin.x >= {{ out[0] }}u || origin.y >= {{ out[1] }}u || origin.z >= {{ out[2] }}u) { continue; }
        let entry = x_base + (origin.x * {{ out[1] }}u + origin.y) * {{ out[2] }}u + origin.z;
        for (var c = CHANNEL_FROM; c < CHANNEL_TO; c++) { // trips: CHANNEL_TO - CHANNEL_FROM
            let value = x[entry + c * ENTRIES];
            let row = w_base + c * PER_CHANNEL + tap;
{% for j in range(per_thread) %}
            sum{{ j }} += value * w[row + o{{ j }} * {{ taps }}u];
{% endfor %}
        }
    }
{% for j in range(per_thread) %}
    if (block * PER_THREAD + {{ j }}u < {{ m }}u) {
        let o = part * {{ m }}u + o{{ j }};
        let to = (image * OUTPUTS + o) * PLANE + index;
{% if not first %}
        sum{{ j }} += y[to];
{% elif has_bias %}
        sum{{ j }} += bias[o];
{% endif %}
        y[to] = sum{{ j }};
    }
{% endfor %}
}
