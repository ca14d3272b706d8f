// Maximum, sum or mean of sliding windows: a thread per window, or a workgroup for one of many taps.
{% set T = type[0] %}
{% set step = 256 if shared else 1 %}
{% set taps = kernel[0] * kernel[1] * kernel[2] %}
{{ bindings(access, x=T, y=T) }}
{% if shared %}
var<workgroup> part: array<{{ T }}, 256>;
{% endif %}

{% include "lib/windows.wgsl" %}

const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const WINDOWS: u32 = {{ out[0] * out[1] * out[2] }}u;

fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} {
{% if kind == "sum" %}
    return a + b;
{% elif T == "f32" %}
    // NaN stays: max alone may return the other operand. Naga's x != x is false for NaN.
    return select(a, select(b, max(a, b), b == b), a == a);
{% else %}
    return max(a, b);
{% endif %}
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
{% if shared %}
    if (g >= GROUPS) { return; }
    let e = g;
{% else %}
    let e = g * 256u + lane;
    if (e >= CHANNELS * WINDOWS) { return; }
{% endif %}
    let base = (e / WINDOWS) * PLANE;
    let start = window_start(e % WINDOWS);
{% if kind == "sum" %}
    var total = 0.0;
{% elif T == "f32" %}
    // Minus infinity by run-time bits: WGSL forbids it as a constant.
    var total = bitcast<f32>(0xff800000u | (e & 0u));
{% else %}
    var total = bitcast<i32>(0x80000000u);
{% endif %}
    for (var tap = {{ "lane" if shared else "0u" }}; tap < {{ taps }}u; tap += {{ step }}u) { // trips: {{ taps }} / {{ step }}
        let p = start + tap_step(tap);
        if (inside(p)) { total = combine(total, x[base + offset_in_plane(p)]); }
    }
{% if shared %}
    part[lane] = total;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) { // trips: 8
        if (lane < width) { part[lane] = combine(part[lane], part[lane + width]); }
        workgroupBarrier();
    }
    total = part[0];
    if (lane > 0u) { return; }
{% endif %}
{% if divide %}
    var count = 1;
{% for a in range(3) if kernel[a] > 1 %}
    {
        // Taps of this axis below the end of the operand{{ " and its padding" if divide == 2 }}, less those before its begin.
        var taps = min({{ kernel[a] }}, ({{ dims[a] + (after[a] if divide == 2 else 0) + dilation[a] - 1 }} - start[{{ a }}]) / {{ dilation[a] }});
{% if divide == 1 %}
        taps -= (max(-start[{{ a }}], 0) + {{ dilation[a] - 1 }}) / {{ dilation[a] }};
{% endif %}
        count *= max(taps, 0);
    }
{% endfor %}
    total /= f32(max(count, 1));
{% endif %}
    y[e] = total;
}
