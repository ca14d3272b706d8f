// The k strongest bins of a signal, one workgroup each: powers in workgroup memory, then each bin
// counts the bins that come before it.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;

{% include "lib/welch.wgsl" %}
{% include "lib/rank.wgsl" %}

var<workgroup> power: array<f32, BINS>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    for (var bin = lane; bin < BINS; bin += 256u) { power[bin] = power_of(g, bin); }
    workgroupBarrier();
    for (var bin = lane; bin < BINS; bin += 256u) {
        let mine = key_of(power[bin]);
        var rank = 0u;
        for (var other = 0u; other < BINS; other++) {
            let key = key_of(power[other]);
            rank += select(0u, 1u, key > mine || (key == mine && other < bin));
        }
        if (rank < K) {
            y[(g * K + rank) * 2u] = f32(bin);
            y[(g * K + rank) * 2u + 1u] = power[bin];
        }
    }
}
