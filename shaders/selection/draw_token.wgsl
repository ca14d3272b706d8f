// A token of its candidates, which come in the order of their logits: a penalty for recent tokens, then temperature, top-k,
// softmax, top-p and min-p. -1 where tokens that are no candidates might be drawn, or the best logit is not finite.
{{ bindings(access, values="f32", indices="i32", tokens="i32", settings="f32", y="i32") }}

const LEAST = -1e30;
var<workgroup> score: array<f32, {{ k }}>;
var<workgroup> order: array<u32, {{ k }}>;
var<workgroup> share: array<f32, {{ k }}>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    let penalty = settings[4];
    let row = (LINES - 1u) * K;
    if (lane < K) {
        var v = values[row + lane];
        // By bits: a driver may assume that there is no NaN.
        if ((bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u) { v = LEAST; }
        v = max(v, LEAST);
        let token = indices[row + lane];
        var seen = token == tokens[COUNT - 1u];
        for (var j = 6u; j < END; j++) { seen |= i32(settings[j]) == token; } // trips: END
        if (seen) { v = select(v * penalty, v / penalty, v > 0.0); }
        score[lane] = v;
    }
    workgroupBarrier();
    if (lane < K) {
        let mine = score[lane];
        var rank = 0u;
        for (var j = 0u; j < K; j++) { rank += u32((score[j] > mine) | ((score[j] == mine) & (j < lane))); } // trips: K
        order[rank] = lane;
    }
    workgroupBarrier();
    let hot = settings[0] > 0.0;
    let heat = select(1.0, settings[0], hot);
    if (lane < K) { share[lane] = exp((score[order[lane]] - score[order[0]]) / heat); }
    workgroupBarrier();
    if (lane > 0u) { return; }
    var most = select(1u, clamp(u32(settings[1]), 1u, K), hot);
    // Of equal ones all are kept.
    while (hot && most < K && score[order[most]] == score[order[most - 1u]]) { most++; } // trips: K
    var sum = 0.0;
    for (var i = 0u; i < most; i++) { sum += share[i]; } // trips: K
    let least = settings[3] * share[0];
    var kept = 0.0;
    var count = 0u;
    while (count < most && kept < settings[2] * sum && share[count] >= least) { // trips: K
        kept += share[count];
        count++;
    }
    var place = 0u;
    var passed = share[0];
    while (place + 1u < count && passed <= settings[5] * kept) { // trips: K
        place++;
        passed += share[place];
    }
    var unsure = (bitcast<u32>(values[row]) & 0x7f800000u) == 0x7f800000u;
{% if not all %}
    unsure |= (hot | (penalty > 1.0)) & (score[order[most - 1u]] <= values[row + K - 1u]);
{% endif %}
    y[0] = select(indices[row + order[place]], -1, unsure);
}
