{# Macros for kernels whose threads make four neighbouring windows of `tall` rows: what the windows see stands in
   registers, each element once. Needs in the thread: `base`, where the plane begins in x, `h0`, the first row that
   is seen, and `x0`, where the windows' first column begins, without padding (both i32). In vectors, `wide`, where
   rows are whole vectors. #}
{% set wide = dims[2] is divisibleby(4) %}
{% set span = 3 * stride[2] + (kernel[2] - 1) * dilation[2] + 1 %}
{% set rows = (tall - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1 %}
{% set first = (0 - before[2]) // 4 %}
{% set count = (span - 1 - before[2]) // 4 - first + 1 %}
{% set check_x = checks[2] or out[2] % 4 > 0 %}
{% set check_y = checks[1] or out[1] % tall > 0 %}
{# Rows that are loaded before the first of them is used, so that the loads overlap. #}
{% set together = [18 // count if wide else 32 // span, 1]|max %}
{# The columns that the windows see. #}
{% set ns = namespace(columns=[]) %}
{% for t in range(kernel[2]) %}
{% for j in range(4) if (t * dilation[2] + j * stride[2]) not in ns.columns %}
{% set ns.columns = ns.columns + [t * dilation[2] + j * stride[2]] %}
{% endfor %}
{% endfor %}
{% set columns = ns.columns %}

{# The four values that tap `t` of a row of taps sees in a row. #}
{% macro seen(row, t, T) -%}
vec4<{{ T }}>({% for j in range(4) %}{% set p = t * dilation[2] + j * stride[2] %}
{{ "q%s_%s.%s" % (row, (p - before[2]) // 4 - first, "xyzw"[(p - before[2]) % 4]) if wide else "q%s_%s" % (row, p) }}{{ ", " if j < 3 }}
{%- endfor %})
{%- endmacro %}

{% macro moved(n) %}{{ " - %su" % -n if n < 0 else " + %su" % n }}{% endmacro %}
{# Reads row `row`; what is outside is `fill`, a vector. Each read has one branch; `&&` would make two.
   SwiftShader compiles loops with many branches in exponential time. #}
{% macro load(row, fill) %}
{% set inside_y = ["(u32(h0 + %s) < %su)" % (row, dims[1])] if check_y else [] %}
        let line{{ row }} = base + u32(h0 + {{ row }}) * {{ dims[2] }}u + u32(x0);
{% if wide %}
{% for n in range(count) %}
{% set inside = inside_y + (["(u32(x0 + %s) < %su)" % (4 * (first + n), dims[2])] if check_x else []) %}
        var q{{ row }}_{{ n }} = {{ fill }};
        {{ "if (" ~ inside|join(" & ") ~ ") { " if inside }}q{{ row }}_{{ n }} = x[(line{{ row }}{{ moved(4 * (first + n)) }}) >> 2u];{{ " }" if inside }}
{% endfor %}
{% else %}
{% for p in columns %}
{% set inside = inside_y + (["(u32(x0 + %s) < %su)" % (p - before[2], dims[2])] if check_x else []) %}
        var q{{ row }}_{{ p }} = {{ fill }}.x;
        {{ "if (" ~ inside|join(" & ") ~ ") { " if inside }}q{{ row }}_{{ p }} = x[line{{ row }}{{ moved(p - before[2]) }}];{{ " }" if inside }}
{% endfor %}
{% endif %}
{% endmacro %}

{# Calls back with (row, r, ky) wherever row `ky` of the taps of the windows in row `r` meets row `row`. #}
{% macro walk(fill) %}
{% for from_row in range(0, rows, together) %}
{% set ns = namespace(met=[], read=[]) %}
{% for row in range(from_row, [from_row + together, rows]|min) %}
{% for r in range(tall) %}
{% for ky in range(kernel[1]) if r * stride[1] + ky * dilation[1] == row %}
{% set ns.met = ns.met + [(row, r, ky)] %}
{% if row not in ns.read %}{% set ns.read = ns.read + [row] %}{% endif %}
{% endfor %}
{% endfor %}
{% endfor %}
{% for row in ns.read %}
{{ load(row, fill) }}
{%- endfor %}
{% for row, r, ky in ns.met %}
{{ caller(row, r, ky) }}
{%- endfor %}
{% endfor %}
{% endmacro %}

{# Writes four neighbouring results of a row; `index` is the place of the first, `column` its column. #}
{% macro store(index, column, value) %}
{% if out[2] is divisibleby(4) %}
        y[({{ index }}) >> 2u] = {{ value }};
{% else %}
        y[{{ index }}] = {{ value }}.x;
{% for j in range(1, 4) %}
        if ({{ column }} + {{ j }}u < {{ out[2] }}u) { y[{{ index }} + {{ j }}u] = {{ value }}.{{ "xyzw"[j] }}; }
{% endfor %}
{% endif %}
{% endmacro %}
