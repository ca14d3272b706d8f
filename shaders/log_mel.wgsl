// log10 of the mel energies of one frame per workgroup; with FLOOR_ALL 0 also the floor and scaling.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> filters: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

var<workgroup> power: array<f32, 1024>;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let row = g * 2u * N_FFT;
    var top = -1e30;
    for (var mel0 = 0u; mel0 < MELS; mel0 += 256u) {
        let mel = mel0 + lane;
        var energy = 0.0;
        for (var bin0 = 0u; bin0 < BINS; bin0 += 1024u) {
            let count = min(1024u, BINS - bin0);
            workgroupBarrier();
            for (var i = lane; i < count; i += 256u) {
                let re = x[row + bin0 + i];
                let im = x[row + bin0 + i + N_FFT];
                power[i] = re * re + im * im;
            }
            workgroupBarrier();
            if (mel < MELS) {
                for (var i = 0u; i < count; i++) { energy += power[i] * filters[mel * BINS + bin0 + i]; }
            }
        }
        if (mel < MELS) {
            let level = log(max(energy, 1e-10)) * 0.4342944819032518;
            y[g * MELS + mel] = level;
            top = max(top, level);
        }
    }
{% if not floor_all %}
    partial[lane] = top;
    for (var width = 128u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) { partial[lane] = max(partial[lane], partial[lane + width]); }
    }
    workgroupBarrier();
    let floor_at = partial[0] - 8.0;
    for (var mel = lane; mel < MELS; mel += 256u) {
        y[g * MELS + mel] = (max(y[g * MELS + mel], floor_at) + 4.0) * 0.25;
    }
{% endif %}
}
