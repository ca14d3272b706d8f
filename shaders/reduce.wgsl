// Sum, mean, product, maximum or minimum over n elements that are `inner` apart; one workgroup per result.
{% set T = type[0] %}
{% set lanes = 64 if n <= 256 else 256 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<{{ T }}>;

var<workgroup> part: array<{{ T }}, {{ lanes }}>;

fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} {
{% if kind == "prod" %}
    return a * b;
{% elif kind in ("sum", "mean") %}
    return a + b;
{% elif T == "f32" %}
    // NaN stays: {{ kind }} alone may return the other operand, and a driver may assume that there is none.
    let nan = max(bitcast<u32>(a) & 0x7fffffffu, bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
    return select({{ kind }}(a, b), a + b, nan);
{% else %}
    return {{ kind }}(a, b);
{% endif %}
}

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let base = (g / INNER) * N * INNER + g % INNER;
{% if kind in ("max", "min") %}
    // Every lane starts from the first element: an extreme may count it many times.
    var total = x[base];
{% else %}
    var total = {{ T }}({{ 1 if kind == "prod" else 0 }});
{% endif %}
    for (var i = lane; i < N; i += {{ lanes }}u) {
        total = combine(total, x[base + i * INNER]);
    }
    part[lane] = total;
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) {
        if (lane < width) { part[lane] = combine(part[lane], part[lane + width]); }
        workgroupBarrier();
    }
    if (lane == 0u) {
{% if kind == "mean" and n == 0 %}
        // NaN by run-time bits: WGSL forbids it as a constant, and 0 / 0 may be folded to anything.
        y[g] = bitcast<f32>(0x7fc00000u | (g & 0u));
{% else %}
        y[g] = part[0]{{ " / f32(N)" if kind == "mean" }};
{% endif %}
    }
}
