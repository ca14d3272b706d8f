// Attention with a running softmax: one workgroup per query row, 64 keys at a time.
{% set masked = kind > 2 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> q: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> k: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> v: array<f32>;
{% if masked %}
@group(0) @binding(3) var<storage, {{ access[3] }}> mask: array<{{ type[3] }}>;
{% endif %}
@group(0) @binding({{ 3 + masked }}) var<storage, {{ access[3 + masked] }}> y: array<f32>;

{% include "lib/math.wgsl" %}

// A score that no key has; WGSL may assume that there are no infinities.
const LOWEST: f32 = -3.0e38;

var<workgroup> query: array<f32, D>;
var<workgroup> partial: array<f32, 64>;
var<workgroup> weight: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let i = g % SQ;
    let head = g / SQ % HEADS;
    let item = g / SQ / HEADS;
    let kv_head = head / (HEADS / KV_HEADS);
    let q0 = item * {{ q_steps[0] }}u + head * {{ q_steps[1] }}u + i * {{ q_steps[2] }}u;
    let k0 = item * {{ k_steps[0] }}u + kv_head * {{ k_steps[1] }}u;
    let v0 = item * {{ v_steps[0] }}u + kv_head * {{ v_steps[1] }}u;
    let y0 = item * {{ o_steps[0] }}u + head * {{ o_steps[1] }}u + i * {{ o_steps[2] }}u;
    for (var e = lane; e < D; e += 64u) { query[e] = q[q0 + e]; }

    // Keys first .. last - 1 may be seen.
    let at = i32(i) + {{ sk - sq }};
    var first = 0;
    var last = i32(SK);
{% if kind == 1 or kind == 2 %}
    last = clamp(at + 1, 0, i32(SK));
{% endif %}
{% if kind == 2 %}
    first = max(at - {{ window }}, 0);
{% endif %}
    var top = LOWEST;
    var total = 0.0;
{% for part in range((dv + 63) // 64) %}
    var acc{{ part }} = 0.0;
{% endfor %}
    for (var j0 = first; j0 < last; j0 += 64) {
        workgroupBarrier();
        let j = u32(j0) + lane;
        var score = LOWEST;
        if (i32(j) < last) {
            var s = 0.0;
            for (var e = 0u; e < D; e++) { s += query[e] * k[k0 + j * {{ k_steps[2] }}u + e]; }
            s *= SCALE;
{% if softcap != 0 %}
            s = SOFTCAP * safe_tanh(vec4<f32>(s / SOFTCAP)).x;
{% endif %}
{% if kind == 3 %}
            let m = item * {{ mask_steps[0] }}u + j;
            if (((mask[m / 4u] >> (8u * (m % 4u))) & 0xffu) == 0u) { s = LOWEST; }
{% elif kind == 4 %}
            s += mask[item * {{ mask_steps[0] }}u + head * {{ mask_steps[1] }}u + i * {{ mask_steps[2] }}u + j * {{ mask_steps[3] }}u];
{% endif %}
            score = s;
        }
        partial[lane] = score;
        for (var width = 32u; width > 0u; width >>= 1u) {
            workgroupBarrier();
            if (lane < width) { partial[lane] = max(partial[lane], partial[lane + width]); }
        }
        workgroupBarrier();
        let new_top = max(top, partial[0]);
        var p = 0.0;
        if (score > LOWEST) { p = exp(score - new_top); }
        weight[lane] = p;
        workgroupBarrier();
        var shrink = 1.0;
        if (new_top > top) { shrink = exp(max(top - new_top, -200.0)); }
        total *= shrink;
        let count = min(64u, u32(last - j0));
        for (var n = 0u; n < count; n++) { total += weight[n]; }
{% for part in range((dv + 63) // 64) %}
        acc{{ part }} *= shrink;
        if (lane + {{ 64 * part }}u < DV) {
            for (var n = 0u; n < count; n++) {
                acc{{ part }} += weight[n] * v[v0 + (u32(j0) + n) * {{ v_steps[2] }}u + lane + {{ 64 * part }}u];
            }
        }
{% endfor %}
        top = new_top;
    }
    var inverse = 0.0;
    if (total > 0.0) { inverse = 1.0 / total; }
{% for part in range((dv + 63) // 64) %}
    if (lane + {{ 64 * part }}u < DV) { y[y0 + lane + {{ 64 * part }}u] = acc{{ part }} * inverse; }
{% endfor %}
}
