// Log-mel levels: {{ frames }} frames per workgroup, their powers side by side in workgroup memory by chunks of
// bins. Sixteen lanes share a mel and read its filter in order; each number read is used for all frames.
// With floor_all the level is written as it is; log_mel_floor follows once the maximum is known.
// With linear the mel itself is written, for the gradient.
{% set chunk = ([bins, 512 if frames == 4 else 2048]|min)|at_least(1) %}
{% set once = bins <= chunk %}
{% set V = "vec4<f32>" if frames == 4 else "f32" %}
{{ bindings(access, spec="f32", filters="f32", y="f32") }}

var<workgroup> power: array<{{ V }}, {{ chunk }}>;
var<workgroup> part: array<{{ V }}, 256>;

{% include "lib/nan.wgsl" %}

fn power_of(row: u32, bin: u32) -> f32 {
    // Frames after the last one repeat it and are not written.
    let index = min(row, ROWS - 1u) * {{ 2 * n_fft }}u + bin;
    let re = spec[index];
    let im = spec[index + N_FFT];
    return re * re + im * im;
}

fn level_of(mel: f32) -> f32 {
    return {{ "mel" if linear else "nan_log(nan_max(mel, 1e-10)) * 0.4342944819032518" }};
}

{{ by_group(256) }}
    let row0 = g * {{ frames }}u;
    let mine = lane % 16u;
    var top = {{ V }}(-3.0e38);
{% macro load() %}
            for (var i = lane; i < count; i += 256u) { // trips: {{ chunk }} / 256
                power[i] = {{ V }}({% for f in range(frames) %}power_of(row0 + {{ f }}u, bin0 + i){{ ", " if not loop.last }}{% endfor %});
            }
            workgroupBarrier();
{% endmacro %}
{% if once %}
    {
        let bin0 = 0u;
        let count = BINS;
{{ load() }}
    }
{% endif %}
    for (var mel0 = 0u; mel0 < MELS; mel0 += 16u) { // trips: MELS / 16
        let mel = mel0 + lane / 16u;
        var sum = {{ V }}(0.0);
        for (var bin0 = 0u; bin0 < BINS; bin0 += {{ chunk }}u) { // trips: BINS / {{ chunk }}
            let count = min({{ chunk }}u, BINS - bin0);
{% if not once %}
            workgroupBarrier();
{{ load() }}
{% endif %}
            if (mel < MELS) {
                for (var i = mine; i < count; i += 16u) { sum += power[i] * filters[mel * BINS + bin0 + i]; } // trips: {{ chunk }} / 16
            }
        }
        part[lane] = sum;
        workgroupBarrier();
        for (var width = 8u; width > 0u; width /= 2u) { // trips: 4
            if (mine < width) { part[lane] += part[lane + width]; }
            workgroupBarrier();
        }
        if (mine == 0u && mel < MELS) {
            let sums = part[lane];
{% for f in range(frames) %}
            {
                let level = level_of(sums{{ "[" ~ f ~ "]" if frames > 1 }});
                if (row0 + {{ f }}u < ROWS) { y[(row0 + {{ f }}u) * MELS + mel] = level; }
                top{{ "[" ~ f ~ "]" if frames > 1 }} = nan_max(top{{ "[" ~ f ~ "]" if frames > 1 }}, level);
            }
{% endfor %}
        }
        workgroupBarrier();
    }
{% if not floor_all and not linear %}
    part[lane] = top;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) { // trips: 8
        if (lane < width) {
{% for f in range(frames) %}
{% set index = "[" ~ f ~ "]" if frames > 1 else "" %}
            part[lane]{{ index }} = nan_max(part[lane]{{ index }}, part[lane + width]{{ index }});
{% endfor %}
        }
        workgroupBarrier();
    }
    let lowest = part[0] - 8.0;
    // Each lane reads back only what it wrote itself.
    for (var mel = lane / 16u; mine == 0u && mel < MELS; mel += 16u) { // trips: MELS / 16
{% for f in range(frames) %}
        if (row0 + {{ f }}u < ROWS) {
            let index = (row0 + {{ f }}u) * MELS + mel;
            y[index] = (nan_max(y[index], lowest{{ "[" ~ f ~ "]" if frames > 1 }}) + 4.0) * 0.25;
        }
{% endfor %}
    }
{% endif %}
}
