// The k strongest bins of Welch's periodogram, one signal per workgroup: powers in workgroup memory,
// then every bin counts the bins before it, which is its rank.
@group(0) @binding(0) var<storage, {{ access[0] }}> spec: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;

var<workgroup> power: array<f32, {{ bins }}>;

{% include "lib/welch.wgsl" %}
{% include "lib/beats.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    for (var bin = lane; bin < BINS; bin += 256u) { power[bin] = welch(g, bin); }
    workgroupBarrier();
    for (var bin = lane; bin < BINS; bin += 256u) {
        let mine = power[bin];
        var rank = 0u;
        for (var j = 0u; j < BINS; j++) { rank += u32(beats(power[j], j, mine, bin)); }
        if (rank < K) {
            let at = (g * K + rank) * 2u;
            y[at] = f32(bin);
            y[at + 1u] = mine;
        }
    }
}
