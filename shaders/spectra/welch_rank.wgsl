// The k strongest bins of a periodogram in memory: every bin counts the bins before it.
@group(0) @binding(0) var<storage, {{ access[0] }}> power: array<f32>;
{% if apart %}
@group(0) @binding(1) var<storage, {{ access[1] }}> values: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> places: array<i32>;
{% else %}
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;
{% endif %}

{% include "lib/beats.wgsl" %}
{% include "lib/welch_result.wgsl" %}

{{ by_element(256, "t", "SIGNALS * BINS") }}
    let signal = t / BINS;
    let bin = t % BINS;
    let mine = power[t];
    var rank = 0u;
    for (var j = 0u; j < BINS; j++) { // trips: BINS
        rank += u32(beats(power[signal * BINS + j], j, mine, bin));
        // Most bins have lost long before the end of the loop.
        if (rank >= K) { return; }
    }
    put(signal * K + rank, bin, mine);
}
