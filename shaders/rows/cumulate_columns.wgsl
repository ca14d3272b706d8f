// Running sums or products of n elements that are `inner` apart; a lane walks down {{ partition }} of them, in four
// columns at once where their number allows, with eight loads under way.{{ " `carry` holds the total before each partition." if splits is may_exceed(1) }}
{% set T = type[0] %}
{% set wide = inner is divisibleby(4) and T != two_words %}
{% set E = "vec4<" ~ T ~ ">" if wide else T %}
{% set units = inner // 4 if wide else inner %}
{% set op = "*" if product else "+" %}
{% set one = number(T, 1 if product else 0) %}
{% set start = one if T == two_words else E ~ "(" ~ one ~ ")" %}
{% set ragged = n is not known_multiple(partition) or partition is not known_multiple(8) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ E }}>;
{% if splits is may_exceed(1) %}
@group(0) @binding(1) var<storage, {{ access[1] }}> carry: array<{{ E }}>;
{% endif %}
@group(0) @binding({{ 2 if splits is may_exceed(1) else 1 }}) var<storage, {{ access[2 if splits is may_exceed(1) else 1] }}> y: array<{{ E }}>;

{% include "lib/wide_one.wgsl" %}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    let column = g / {{ splits }}u * 64u + lane;
    if (g >= GROUPS || column >= {{ outer * units }}u) { return; }
    let outer = column / {{ units }}u;
    let split = g % {{ splits }}u;
    let base = outer * {{ n * units }}u + column % {{ units }}u;
    let first = split * {{ partition }}u;
    let count = {{ "min(" ~ partition ~ "u, " ~ n ~ "u - first)" if n is not known_multiple(partition) else partition ~ "u" }};
    var total = {{ "carry[(outer * " ~ splits ~ "u + split) * " ~ units ~ "u + column % " ~ units ~ "u]" if splits is may_exceed(1) else start }};
    for (var i = 0u; i < count; i += 8u) { // trips: {{ partition }} / 8
{% for c in range(8) %}
{% set index = "i + " ~ c ~ "u" %}
{% set near = "min(" ~ index ~ ", count - 1u)" if ragged else "(" ~ index ~ ")" %}
        let i{{ c }} = base + {{ "(first + count - 1u - " ~ near ~ ")" if reverse else "(first + " ~ near ~ ")" }} * {{ units }}u;
        let x{{ c }} = x[i{{ c }}];
{% endfor %}
{% for c in range(8) %}
        {{ "if (i + " ~ c ~ "u < count) {" if ragged and c else "{" }}
            let next = {{ operation(T, op, "total", "x" ~ c) }};
            y[i{{ c }}] = {{ "total" if exclusive else "next" }};
            total = next;
        }
{% endfor %}
    }
}
