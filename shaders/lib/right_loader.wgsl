{# Loads the tiles of the weights w0, w1, ...: [k, n], or [n, k] if `transposed_b`. Of several weights (`parts`) a workgroup takes
   one; of two that are `gated` it takes both, into the tiles `right` and `right_up`. Each thread brings `loads` vectors
   of a step to each tile. packed_loader.wgsl has the same macros for weights in blocks. #}
{% import "lib/tile_vectors.wgsl" as vectors with context %}
{% set loads = bn * quads // threads %}
{% set contiguous_k = transposed_b %}
{% set swizzled = contiguous_k %}

{% macro functions() %}
{% for i in range(2 if gated else parts|length) %}
{% set n = parts[0 if gated else i] %}
{% if contiguous_k %}
fn load_w{{ i }}(base: u32, row: u32, k: u32) -> {{ V }} {
{{ vectors.along_k("w" ~ i, wide_k, n ~ "u", n is not known_multiple(bn)) }}}
{% else %}
fn load_w{{ i }}(base: u32, column: u32, k: u32) -> {{ V }} {
{{ vectors.along_row("w" ~ i, n, n is not known_multiple(bn)) }}}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro variables() %}
{% for i in range(loads) %}
{% for side in sides %}
    var b_next{{ side }}{{ i }}: {{ V }};
{% endfor %}
{% endfor %}
{% endmacro %}

{# Reads the step that begins at `start` of weight `part`, of both weights if `gated`. #}
{% macro fetch_part(part, start) %}
{% for i in range(loads) %}
{% for side in sides %}
        b_next{{ side }}{{ i }} = load_w{{ part + loop.index0 }}(b_base, {{ vectors.arguments("column0", start, i, contiguous_k, bn) }});
{% endfor %}
{% endfor %}
{% endmacro %}

{# Reads the step that begins at `start` from memory into variables. #}
{% macro fetch(start) %}
{% if parts|length == 1 %}
{{ fetch_part(0, start) }}
{%- else %}
        switch part {
{% for n in parts %}
        {{ "default" if loop.last else "case " ~ loop.index0 ~ "u" }}: {
{{ fetch_part(loop.index0, start) }}        }
{% endfor %}
        }
{% endif %}
{% endmacro %}

{# Writes the variables into the tiles. #}
{% macro write() %}
{% for side in sides %}
{% for i in range(loads) %}
{{ vectors.write("right" ~ side, "b_next" ~ side ~ i, i, contiguous_k, bn) }}
{%- endfor %}
{% endfor %}
{% endmacro %}
