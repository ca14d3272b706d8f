// The k strongest of the powers that welch_power left: each bin counts the bins that come before it.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;

{% include "lib/rank.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= SIGNALS * BINS) { return; }
    let signal = i / BINS;
    let bin = i % BINS;
    let mine = key_of(x[i]);
    var rank = 0u;
    for (var other = 0u; other < BINS; other++) {
        let key = key_of(x[signal * BINS + other]);
        rank += select(0u, 1u, key > mine || (key == mine && other < bin));
    }
    if (rank < K) {
        y[(signal * K + rank) * 2u] = f32(bin);
        y[(signal * K + rank) * 2u + 1u] = x[i];
    }
}
