// Log-mel levels of one frame per workgroup: powers in workgroup memory by chunks, a mel per lane.
// With floor_all the level is written as it is; log_mel_floor follows once the maximum is known.
// With linear the mel itself is written, for the gradient.
@group(0) @binding(0) var<storage, {{ access[0] }}> spec: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> filters: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

{% set chunk = [bins, 2048]|min %}
var<workgroup> power: array<f32, {{ chunk }}>;
var<workgroup> part: array<f32, 256>;

{% include "lib/nan.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    var top = -3.0e38;
    for (var mel0 = 0u; mel0 < MELS; mel0 += 256u) {
        let mel = mel0 + lane;
        var sum = 0.0;
        for (var bin0 = 0u; bin0 < BINS; bin0 += {{ chunk }}u) {
            let count = min({{ chunk }}u, BINS - bin0);
            for (var i = lane; i < count; i += 256u) {
                let at = g * {{ 2 * n_fft }}u + bin0 + i;
                let re = spec[at];
                let im = spec[at + N_FFT];
                power[i] = re * re + im * im;
            }
            workgroupBarrier();
            if (mel < MELS) {
                for (var i = 0u; i < count; i++) { sum += power[i] * filters[mel * BINS + bin0 + i]; }
            }
            workgroupBarrier();
        }
        if (mel < MELS) {
            let level = {{ "sum" if linear else "nan_log(nan_max(sum, 1e-10)) * 0.4342944819032518" }};
            y[g * MELS + mel] = level;
            top = nan_max(top, level);
        }
    }
{% if not floor_all and not linear %}
    part[lane] = top;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if (lane < width) { part[lane] = nan_max(part[lane], part[lane + width]); }
        workgroupBarrier();
    }
    let lowest = part[0] - 8.0;
    // Each lane reads back only what it wrote itself.
    for (var mel = lane; mel < MELS; mel += 256u) {
        y[g * MELS + mel] = (nan_max(y[g * MELS + mel], lowest) + 4.0) * 0.25;
    }
{% endif %}
}
