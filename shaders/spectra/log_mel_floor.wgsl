// The floor of log-mel levels, 8 below the maximum of everything, and their scaling.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> top: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

{% include "lib/nan.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    if (e >= TOTAL) { return; }
    y[e] = (nan_max(x[e], top[0] - 8.0) + 4.0) * 0.25;
}
