// The k strongest bins of Welch's periodogram, one signal per workgroup: powers in workgroup memory,
// then every bin counts the bins before it, which is its rank.
@group(0) @binding(0) var<storage, {{ access[0] }}> spec: array<f32>;
{% if apart %}
@group(0) @binding(1) var<storage, {{ access[1] }}> weights: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> values: array<f32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> places: array<i32>;
{% else %}
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;
{% endif %}

var<workgroup> power: array<f32, {{ bins }}>;

{% include "lib/welch.wgsl" %}
{% include "lib/beats.wgsl" %}
{% include "lib/welch_result.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    for (var bin = lane; bin < BINS; bin += 256u) { power[bin] = welch(g, bin); }
    workgroupBarrier();
    for (var bin = lane; bin < BINS; bin += 256u) {
        let mine = power[bin];
        var rank = 0u;
        // Most bins are out long before the end.
        for (var j = 0u; j < BINS && rank < K; j++) { rank += u32(beats(power[j], j, mine, bin)); }
        if (rank < K) { put(g * K + rank, bin, mine); }
    }
}
