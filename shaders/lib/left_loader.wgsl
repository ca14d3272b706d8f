{# Loads the tile `left` of the left operand a: [m, k], or [k, m] if `transposed_a`. With `picked`, the rows of a tile are
   those that `listed` names, in any order. Each thread brings `loads` vectors of a step. #}
{% import "lib/tile_vectors.wgsl" as vectors with context %}
{% set loads = bm * quads // threads %}
{% set contiguous_k = not transposed_a %}
{% set swizzled = contiguous_k %}

{% macro functions() %}
{% if contiguous_k %}
fn load_a(base: u32, row: u32, k: u32) -> {{ V }} {
{{ vectors.along_k("a", wide_k, "M", m is not known_multiple(bm) or picked is defined) }}}
{% else %}
fn load_a(base: u32, column: u32, k: u32) -> {{ V }} {
{{ vectors.along_row("a", m, m is not known_multiple(bm)) }}}
{% endif %}
{% endmacro %}

{# With `picked`: the row behind each of this thread's loads. It stays the same at every step. #}
{% macro rows() %}
{% for i in range(loads) %}
    let place{{ i }} = row0 + (lane + {{ i * threads }}u) / {{ quads }}u;
    var line{{ i }} = M;
    if (place{{ i }} < places_end) { line{{ i }} = u32(listed[place{{ i }}]); }
{% endfor %}
{% endmacro %}

{% macro variables() %}
{% for i in range(loads) %}
    var a_next{{ i }}: {{ V }};
{% endfor %}
{% endmacro %}

{# Reads the step that begins at `start` from memory into variables. #}
{% macro fetch(start) %}
{% for i in range(loads) %}
{% if picked is defined %}
        a_next{{ i }} = load_a(a_base, line{{ i }}, {{ start }} + ((lane + {{ i * threads }}u) % {{ quads }}u) * 4u);
{% else %}
        a_next{{ i }} = load_a(a_base, {{ vectors.arguments("row0", start, i, contiguous_k, bm) }});
{% endif %}
{% endfor %}
{% endmacro %}

{# Writes the variables into the tile. #}
{% macro write() %}
{% for i in range(loads) %}
{{ vectors.write("left", "a_next" ~ i, i, contiguous_k, bm) }}
{%- endfor %}
{% endmacro %}
