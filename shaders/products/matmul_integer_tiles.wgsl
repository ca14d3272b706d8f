// Product of matrices of bytes in i32, tiled like matmul.wgsl. Four bytes along k are a word. In `a` they are stored so;
// those of `b` are transposed on the way into workgroup memory. A thread makes TM x TN sums, four products at a time.
// Rows of both matrices are whole words.
{{ bindings(access, a="u32", b="u32") }}
{% set vectors = true %}
{% include "lib/scaled.wgsl" %}

{# BK counts words. #}
{% set nx, ny = bn // tn, bm // tm %}
{% set threads = nx * ny %}
{% set ia, jb = tm // 4, tn // 4 %}
{% set loads_a, loads_b = bm * bk // threads, bn * bk // 4 // threads %}
{% set inner = k // 4 %}
{% set checked_k = inner is not known_multiple(bk) %}
var<workgroup> left: array<vec4<u32>, {{ bk * bm // 4 }}>;
var<workgroup> right: array<vec4<u32>, {{ bk * bn // 4 }}>;

{% include "lib/bytes.wgsl" %}
{% set shift_a, shift_b = b_signed and not a_signed, a_signed and not b_signed %}

{# Load number `i` of a thread: a word of `a`, and a square of 4 x 4 bytes of `b`. #}
{% macro row(i) %}((lane * {{ loads_a }}u + {{ i }}u) / {{ bk }}u){% endmacro %}
{% macro word(i) %}((lane * {{ loads_a }}u + {{ i }}u) % {{ bk }}u){% endmacro %}
{% macro strip(i) %}((lane + {{ i * threads }}u) % {{ bn // 4 }}u){% endmacro %}
{% macro four(i) %}((lane + {{ i * threads }}u) / {{ bn // 4 }}u){% endmacro %}
{% macro load(k0) %}
{% for i in range(loads_a) %}
        {
            let k = {{ k0 }} + {{ word(i) }};
            let r = min(row0 + {{ row(i) }}, M - 1u);
            mine{{ i }} = a[a_base + r * {{ inner }}u + {{ "min(k, " ~ (inner - 1) ~ "u)" if checked_k else "k" }}]{{ " ^ 0x80808080u" if shift_a }};
            {{ "if (k >= " ~ inner ~ "u) { mine" ~ i ~ " = 0u; }" if checked_k }}
        }
{% endfor %}
{% for i in range(loads_b) %}
        {
            let k = {{ k0 }} + {{ four(i) }};
            let index = b_base + {{ "min(k, " ~ (inner - 1) ~ "u)" if checked_k else "k" }} * {{ n }}u + min(column0 / 4u + {{ strip(i) }}, {{ n // 4 - 1 }}u);
            other{{ i }} = vec4<u32>(b[index], b[index + {{ n // 4 }}u], b[index + {{ 2 * (n // 4) }}u], b[index + {{ 3 * (n // 4) }}u]){{ " ^ vec4<u32>(0x80808080u)" if shift_b }};
            {{ "if (k >= " ~ inner ~ "u) { other" ~ i ~ " = vec4<u32>(0u); }" if checked_k }}
        }
{% endfor %}
{% endmacro %}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% include "lib/integer_place.wgsl" %}
    let a_base = a_matrix * (M * {{ inner }}u);
    let b_base = b_matrix * ({{ inner }}u * N);
    let tx = lane % {{ nx }}u;
    let ty = lane / {{ nx }}u;
{% for i in range(tm) %}
{% for j in range(jb) %}
    var acc{{ i }}_{{ j }} = vec4<i32>(0);
{% endfor %}
{% endfor %}
{% for i in range(ia) %}
    {{ "var of_row" ~ i ~ " = vec4<i32>(0);" if shift_b }}
{% endfor %}
{% for j in range(jb) %}
    {{ "var of_column" ~ j ~ " = vec4<i32>(0);" if shift_a }}
{% endfor %}
{% for i in range(loads_a) %}
    var mine{{ i }}: u32;
{% endfor %}
{% for i in range(loads_b) %}
    var other{{ i }}: vec4<u32>;
{% endfor %}
    // The next step is on its way from memory while this one is multiplied.
{{ load("0u") }}
    for (var k0 = 0u; k0 < {{ inner }}u; k0 += {{ bk }}u) { // trips: {{ inner }} / {{ bk }}
{% for i in range(loads_a) %}
        left[({{ word(i) }} * {{ bm }}u + {{ row(i) }}) / 4u][{{ row(i) }} % 4u] = mine{{ i }};
{% endfor %}
{% for i in range(loads_b) %}
        right[{{ four(i) }} * {{ bn // 4 }}u + {{ strip(i) }}] = exchanged(other{{ i }});
{% endfor %}
        workgroupBarrier();
        if (k0 + {{ bk }}u < {{ inner }}u) {
{{ load("k0 + " ~ bk ~ "u") }}
        }
{% for kk in range(bk) %}
        {
{% for i in range(ia) %}
            let a{{ i }} = left[{{ kk * bm // 4 + i * ny }}u + ty];
            {{ "of_row" ~ i ~ " += dots(0x01010101u, a" ~ i ~ ");" if shift_b }}
{% endfor %}
{% for j in range(jb) %}
            let b{{ j }} = right[{{ kk * bn // 4 + j * nx }}u + tx];
            {{ "of_column" ~ j ~ " += dots(0x01010101u, b" ~ j ~ ");" if shift_a }}
{% for i in range(tm) %}
            acc{{ i }}_{{ j }} += dots(a{{ i // 4 }}.{{ "xyzw"[i % 4] }}, b{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
{% for i in range(tm) %}
    {
        let row = row0 + (ty + {{ (i // 4) * ny }}u) * 4u + {{ i % 4 }}u;
{% for j in range(jb) %}
        {
            let column = column0 + (tx + {{ j * nx }}u) * 4u;
            {{ "if (row < M && column < N) " if m is not known_multiple(bm) or n is not known_multiple(bn) }}{ y[((z * M + row) * N + column) >> 2u] = finished(acc{{ i }}_{{ j }}{{ " + 128 * of_column" ~ j if shift_a }}{{ " + 128 * of_row" ~ (i // 4) ~ "." ~ "xyzw"[i % 4] if shift_b }}, column); }
        }
{% endfor %}
    }
{% endfor %}
}
