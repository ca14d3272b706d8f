// softmax(q k^T * scale + mask) v for one query of one head per workgroup. Keys come in blocks of
// 64, one per lane; the running maximum and sum make the softmax online (Milakov & Gimelshein
// 2018), so the score matrix is never stored.
{% import "lib/attention_reads.wgsl" as reads with context %}
{% set has_mask = kind >= 3 %}
{% set out = 4 if has_mask else 3 %}
{% set pieces = (dv + 63) // 64 %}
{{ bindings(access, q="f32", k=reads.unit(false), v=reads.unit(false)) }}
{% if has_mask %}
@group(0) @binding(3) var<storage, {{ access[3] }}> mask: array<{{ type[3] }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<f32>;

{{ reads.functions() }}
var<workgroup> query: array<f32, {{ [d, 1]|max }}>;
var<workgroup> part: array<f32, 64>;
var<workgroup> weight: array<f32, 64>;
{% if softcap != 0.0 %}
{% include "lib/math.wgsl" %}
{% endif %}

// Below every score, and finite: the difference of two infinities would be NaN.
const LOWEST: f32 = -3.0e38;

{{ by_group(64) }}
    let row = g % SQ;
    let head = (g / SQ) % HEADS;
    let batch = g / (SQ * HEADS);
    let kv_head = head / {{ heads // kv_heads }}u;
    let q_base = batch * {{ q_steps[0] }}u + head * {{ q_steps[1] }}u + row * {{ q_steps[2] }}u;
    let k_base = batch * {{ k_steps[0] }}u + kv_head * {{ k_steps[1] }}u;
    let v_base = batch * {{ v_steps[0] }}u + kv_head * {{ v_steps[1] }}u;
    let y_base = batch * {{ o_steps[0] }}u + head * {{ o_steps[1] }}u + row * {{ o_steps[2] }}u;
{% if has_mask %}
    let mask_base = batch * {{ mask_steps[0] }}u + head * {{ mask_steps[1] }}u + row * {{ mask_steps[2] }}u;
{% endif %}
    for (var i = lane; i < D; i += 64u) { query[i] = q[q_base + i] * SCALE; } // trips: D / 64
    workgroupBarrier();

    // The visible keys of this query stand in [low, high).
    var low = 0;
    var high = i32(SK);
{% if kind in (1, 2) %}
    let index = i32(row) + i32(SK) - i32(SQ);
    high = min(high, index + 1);
{% endif %}
{% if kind == 2 %}
    low = max(0, index - i32(WINDOW));
{% endif %}
    var top = LOWEST;
    var total = 0.0;
{% for p in range(pieces) %}
    var acc{{ p }} = 0.0;
{% endfor %}
    for (var block = low; block < high; block += 64) { // trips: SK / 64
        let key = u32(block) + lane;
        var visible = i32(key) < high;
        var score = LOWEST;
        if (visible) {
            var sum = 0.0;
            let base = k_base + key * {{ k_steps[2] }}u;
            for (var i = 0u; i < D; i++) { sum += query[i] * {{ reads.one("k", "base + i") }}; } // trips: D
{% if softcap != 0.0 %}
            sum = SOFTCAP * safe_tanh_s(sum / SOFTCAP);
{% endif %}
{% if kind == 3 %}
            let byte = mask_base + key * {{ mask_steps[3] }}u;
            visible = ((mask[byte >> 2u] >> ((byte & 3u) * 8u)) & 255u) != 0u;
{% elif kind == 4 %}
            sum += mask[mask_base + key * {{ mask_steps[3] }}u];
{% endif %}
            if (visible) { score = sum; }
        }
        part[lane] = score;
        workgroupBarrier();
        for (var width = 32u; width > 0u; width /= 2u) { // trips: 6
            if (lane < width) { part[lane] = max(part[lane], part[lane + width]); }
            workgroupBarrier();
        }
        let next = max(top, part[0]);
        let rescale = exp(top - next);
        top = next;
        var e = 0.0;
        if (visible) { e = exp(score - next); }
        weight[lane] = e;
        // Everyone has read the maximum before the memory is used for the sum.
        workgroupBarrier();
        part[lane] = e;
        workgroupBarrier();
        for (var width = 32u; width > 0u; width /= 2u) { // trips: 6
            if (lane < width) { part[lane] += part[lane + width]; }
            workgroupBarrier();
        }
        total = total * rescale + part[0];
        let count = u32(min(64, high - block));
{% for p in range(pieces) %}
        if (lane + {{ 64 * p }}u < DV) {
            acc{{ p }} *= rescale;
            for (var i = 0u; i < count; i++) { // trips: 64
                let at = v_base + (u32(block) + i) * {{ v_steps[2] }}u + lane + {{ 64 * p }}u;
                acc{{ p }} += weight[i] * {{ reads.one("v", "at") }};
            }
        }
{% endfor %}
        workgroupBarrier();
    }
    // A query that sees no key gives zeros.
    var inverse = 0.0;
    // A NaN total passes: naga compiles != to a comparison that is false for it.
    if (!(total == 0.0)) { inverse = 1.0 / total; }
{% for p in range(pieces) %}
    if (lane + {{ 64 * p }}u < DV) { y[y_base + lane + {{ 64 * p }}u] = acc{{ p }} * inverse; }
{% endfor %}
}
