// Product of matrices of bytes in i32 for few rows: a thread makes four columns of all rows, strips of threads divide
// the sums among them, four k at a time, and load four squares of `b` before they multiply. Rows of both matrices are
// whole words.
{{ bindings(access, a="u32", b="u32") }}
{% set vectors = true %}
{% include "lib/scaled.wgsl" %}

{% set threads = 256 %}
{% set lanes = columns // 4 %}
{% set strips = threads // lanes %}
{% set inner = k // 4 %}
{% set rows = [m, 4]|min %}
var<workgroup> sums: array<vec4<i32>, {{ threads * rows }}>;

{% include "lib/bytes.wgsl" %}
{% set shift_a, shift_b = b_signed and not a_signed, a_signed and not b_signed %}

{# Squares number `q` and the next ones, `count` in all. #}
{% macro squares(count) %}
{% for u in range(count) %}
{% for c in range(4) %}
            let w{{ u }}_{{ c }} = b[b_base + (q + {{ u * strips }}u) * N + {{ c * (n // 4) }}u];
{% endfor %}
{% endfor %}
{% for u in range(count) %}
            {
                let w = exchanged(vec4<u32>(w{{ u }}_0, w{{ u }}_1, w{{ u }}_2, w{{ u }}_3){{ " ^ vec4<u32>(0x80808080u)" if shift_b }});
                let index = a_base + q + {{ u * strips }}u;
{% if shift_a %}
                of_column += dots(0x01010101u, w);
{% endif %}
{% for r in range(m) %}
                sum{{ r }} += dots(a[index + {{ r * inner }}u]{{ " ^ 0x80808080u" if shift_a }}, w);
{% endfor %}
{% if shift_b %}
{% for r in range(m) %}
                sum{{ r }} += 128 * dots(a[index + {{ r * inner }}u], vec4<u32>(0x01010101u)).x;
{% endfor %}
{% endif %}
            }
{% endfor %}
{% endmacro %}
{{ by_group(threads) }}
    let across = {{ (n + columns - 1) // columns }}u;
    let z = g / across;
    let column = (g % across) * {{ lanes }}u + lane % {{ lanes }}u;
    let strip = lane / {{ lanes }}u;
{% include "lib/batch.wgsl" %}
    let a_base = a_matrix * (M * {{ inner }}u);
    let b_base = b_matrix * ({{ inner }}u * N) + min(column, {{ n // 4 - 1 }}u);
{% for r in range(m) %}
    var sum{{ r }} = vec4<i32>(0);
{% endfor %}
    {{ "var of_column = vec4<i32>(0);" if shift_a }}
    var q = strip;
    for (; q + {{ 3 * strips }}u < {{ inner }}u; q += {{ 4 * strips }}u) { // trips: {{ inner }} / {{ 4 * strips }}
{{ squares(4) }}    }
    for (; q < {{ inner }}u; q += {{ strips }}u) { // trips: 4
{{ squares(1) }}    }
{% for first in range(0, m, rows) %}
{% set several = [rows, m - first]|min %}
    workgroupBarrier();
{% for r in range(several) %}
    sums[{{ r * threads }}u + lane] = sum{{ first + r }}{{ " + 128 * of_column" if shift_a }};
{% endfor %}
    workgroupBarrier();
    for (var width = {{ strips // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ strips // 2 }})
        if (strip < width) {
{% for r in range(several) %}
            sums[{{ r * threads }}u + lane] += sums[{{ r * threads }}u + lane + width * {{ lanes }}u];
{% endfor %}
        }
        workgroupBarrier();
    }
    if (strip < {{ several }}u && column < {{ n // 4 }}u) {
        y[(z * M + {{ first }}u + strip) * {{ n // 4 }}u + column] = finished(sums[strip * {{ threads }}u + lane % {{ lanes }}u], column * 4u);
    }
{% endfor %}
}
