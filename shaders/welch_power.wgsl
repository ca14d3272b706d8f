// Powers of every bin of every signal, for spectra too long for workgroup memory.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;

{% include "lib/welch.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= SIGNALS * BINS) { return; }
    y[i] = power_of(i / BINS, i % BINS);
}
