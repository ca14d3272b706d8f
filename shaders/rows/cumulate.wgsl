// Running sums or products of n elements that are `inner` apart; one workgroup per line. A lane adds up
// a piece of the line, the pieces' totals are scanned, then every lane goes over its piece again.
{% set T = type[0] %}
{% set op = "*" if product else "+" %}
{% set start = number(T, 1 if product else 0) %}
{% set lanes = 64 if n is preferably_within(512) else 256 %}
{{ bindings(access, x=T, y=T) }}

var<workgroup> part: array<{{ T }}, {{ lanes }}>;

{% include "lib/wide_one.wgsl" %}
fn index(base: u32, i: u32) -> u32 {
    return base + {{ "(N - 1u - i)" if reverse else "i" }} * INNER;
}

{{ by_group(lanes) }}
    let base = (g / INNER) * N * INNER + g % INNER;
    let first = min(lane * {{ (n + lanes - 1) // lanes }}u, N);
    let end = min(first + {{ (n + lanes - 1) // lanes }}u, N);
    var total = {{ start }};
    for (var i = first; i < end; i++) { total = {{ operation(T, op, "total", "x[index(base, i)]") }}; } // trips: {{ (n + lanes - 1) // lanes }}
    part[lane] = total;
    workgroupBarrier();
    for (var width = 1u; width < {{ lanes }}u; width *= 2u) { // trips: bits({{ lanes // 2 }})
        var below = {{ start }};
        if (lane >= width) { below = part[lane - width]; }
        workgroupBarrier();
        part[lane] = {{ operation(T, op, "below", "part[lane]") }};
        workgroupBarrier();
    }
    total = {{ start }};
    if (lane > 0u) { total = part[lane - 1u]; }
    for (var i = first; i < end; i++) { // trips: {{ (n + lanes - 1) // lanes }}
        let next = {{ operation(T, op, "total", "x[index(base, i)]") }};
        y[index(base, i)] = {{ "total" if exclusive else "next" }};
        total = next;
    }
}
