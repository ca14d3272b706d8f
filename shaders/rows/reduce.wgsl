// Sum, mean, product, maximum or minimum over n elements that are `inner` apart. {{ parts }} lanes share a result,
// so that neighbouring lanes read neighbouring elements: of one result, or of neighbouring results.
{% set T = type[0] %}
{% set width = 256 // parts %}
{% set apart = 1 if inner == 1 else width %}
{{ bindings(access, x=T, y=T) }}

{% if parts > 1 %}
var<workgroup> part: array<{{ T }}, 256>;
{% endif %}

{% include "lib/wide_one.wgsl" %}
fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} {
{% if kind == "prod" %}
    return {{ operation(T, "*", "a", "b") }};
{% elif kind in ("sum", "mean") %}
    return {{ operation(T, "+", "a", "b") }};
{% elif T == "f32" %}
    // NaN stays: {{ kind }} alone may return the other operand, and a driver may assume that there is none.
    let nan = max(bitcast<u32>(a) & 0x7fffffffu, bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
    return select({{ kind }}(a, b), a + b, nan);
{% else %}
    return {{ operation(T, kind, "a", "b") }};
{% endif %}
}

{{ by_group(256, "group") }}
{% if inner == 1 %}
    let mine = lane % {{ parts }}u;
    let result = group * {{ width }}u + lane / {{ parts }}u;
{% else %}
    let mine = lane / {{ width }}u;
    let result = group * {{ width }}u + lane % {{ width }}u;
{% endif %}
    // Lanes past the last result repeat its work, and write nothing.
    let g = min(result, RESULTS - 1u);
    let base = (g / INNER) * N * INNER + g % INNER;
{% if kind in ("max", "min") %}
    // Every lane starts from the first element: an extreme may count it many times.
    var total = x[base];
{% else %}
    var total = {{ number(T, 1 if kind == "prod" else 0) }};
{% endif %}
    for (var i = mine; i < N; i += {{ parts }}u) { // trips: N / {{ parts }}
        total = combine(total, x[base + i * INNER]);
    }
{% if parts > 1 %}
    part[lane] = total;
    workgroupBarrier();
    for (var step = {{ parts // 2 }}u; step > 0u; step /= 2u) { // trips: bits({{ parts // 2 }})
        if (mine < step) { part[lane] = combine(part[lane], part[lane + step * {{ apart }}u]); }
        workgroupBarrier();
    }
    total = part[lane];
{% endif %}
    if (mine == 0u && result < RESULTS) {
{% if kind == "mean" and n == 0 %}
        // NaN by run-time bits: WGSL forbids it as a constant, and 0 / 0 may be folded to anything.
        y[g] = bitcast<f32>(0x7fc00000u | (g & 0u));
{% else %}
        y[g] = total{{ " / f32(N)" if kind == "mean" }};
{% endif %}
    }
}
