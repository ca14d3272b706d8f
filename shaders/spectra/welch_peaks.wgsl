// The k strongest bins of Welch's periodogram, one signal per workgroup: powers in workgroup memory,
// then few of many bins are selected; otherwise every bin counts the bins before it, which is its rank.
@group(0) @binding(0) var<storage, {{ access[0] }}> spec: array<f32>;
{% if apart %}
@group(0) @binding(1) var<storage, {{ access[1] }}> weights: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> values: array<f32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> places: array<i32>;
{% else %}
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;
{% endif %}

{% set select = bins > 256 and k <= 64 %}
var<workgroup> {{ "key: array<u32" if select else "power: array<f32" }}, {{ bins }}>;

{% include "lib/welch.wgsl" %}
{% if select %}
{% set T, largest = "f32", 1 %}
{% include "lib/sort_key.wgsl" %}
{% set most = bins %}
{% include "lib/select.wgsl" %}
{% else %}
{% include "lib/beats.wgsl" %}
{% endif %}
{% include "lib/welch_result.wgsl" %}
{% if select %}

// The power that a key was made of.
fn value_of(key: u32) -> f32 {
    if (key == 0xfffffffeu) { return bitcast<f32>(0x7fc00000u | (key & 0u)); }
    return bitcast<f32>(select(key, ~key & 0x7fffffffu, (key >> 31u) == 0u));
}
{% endif %}

{{ by_group(256) }}
{% if select %}
    for (var bin = lane; bin < BINS; bin += 256u) { key[bin] = sort_key(welch(g, bin)); } // trips: BINS / 256
    workgroupBarrier();
    let filled = select_firsts(BINS, lane);
    if (lane < filled) { put(g * K + rank_of(lane, filled), list_at[lane], value_of(list_key[lane])); }
{% else %}
    for (var bin = lane; bin < BINS; bin += 256u) { power[bin] = welch(g, bin); } // trips: BINS / 256
    workgroupBarrier();
    for (var bin = lane; bin < BINS; bin += 256u) { // trips: BINS / 256
        let mine = power[bin];
        var rank = 0u;
        // Most bins have lost long before the end of the loop.
        for (var j = 0u; j < BINS && rank < K; j++) { rank += u32(beats(power[j], j, mine, bin)); } // trips: BINS
        if (rank < K) { put(g * K + rank, bin, mine); }
    }
{% endif %}
}
