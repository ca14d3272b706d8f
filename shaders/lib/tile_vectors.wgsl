{# Moves vectors of four values from a matrix into a tile in workgroup memory. A tile is [bk, width / 4] vectors: the
   values of one k are neighbours, so that a step along k reads whole vectors of rows and of columns.

   The kernel sets: k, bk; V, the type of four values; threads; quads, the vectors of a row of bk values. #}
{# The last step along k may be a part of one. #}
{% set ragged_k = k is not known_multiple(bk) %}

{# Loads are not guarded. A row or column that is not there is replaced by the last one; its results are not stored.
   Past the end of k the values are 0. #}

{# Body of a function (base, row, k): four neighbours along k in row `row` of a matrix [rows, K]. #}
{% macro along_k(buffer, wide, rows, ragged) %}
    let position = base + {{ "min(row, " ~ rows ~ " - 1u)" if ragged else "row" }} * K;
{% if wide %}
    let v = {{ buffer }}[(position + {{ "min(k, K - 4u)" if ragged_k else "k" }}) >> 2u];
    return {{ "select(" ~ V ~ "(), v, k < K)" if ragged_k else "v" }};
{% else %}
    let v = {{ V }}({% for c in range(4) %}{{ buffer }}[position + min(k + {{ c }}u, K - 1u)]{{ ", " if c < 3 }}{% endfor %});
    return select({{ V }}(), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(K));
{% endif %}
{% endmacro %}

{# Body of a function (base, column, k): four neighbours in row `k` of a matrix [K, columns]. #}
{% macro along_row(buffer, columns, ragged) %}
    let position = base + {{ "min(k, K - 1u)" if ragged_k else "k" }} * {{ columns }}u;
{% if columns is divisibleby(4) %}
    let v = {{ buffer }}[(position + {{ "min(column, " ~ (columns - 4) ~ "u)" if ragged else "column" }}) >> 2u];
{% else %}
    let v = {{ V }}({% for c in range(4) %}{{ buffer }}[position + min(column + {{ c }}u, {{ columns - 1 }}u)]{{ ", " if c < 3 }}{% endfor %});
{% endif %}
    return {{ "select(" ~ V ~ "(), v, k < K)" if ragged_k else "v" }};
{% endmacro %}

{# Arguments (row or column, k) of this thread's load number `i` of a step that begins at `start`: it brings vector
   i * threads + lane of the tile. #}
{% macro arguments(first, start, i, contiguous_k, width) %}
{% set position, size = "(lane + " ~ i * threads ~ "u)", (quads if contiguous_k else width // 4) ~ "u" %}
{% if contiguous_k %}
{{ first }} + {{ position }} / {{ size }}, {{ start }} + ({{ position }} % {{ size }}) * 4u
{%- else %}
{{ first }} + ({{ position }} % {{ size }}) * 4u, {{ start }} + {{ position }} / {{ size }}
{%- endif %}
{% endmacro %}

{# Writes a loaded vector into the tile. One along a row is a vector of the tile. One along k is four values of four rows
   of the tile. Threads that bring neighbours along k would all write to one bank of memory, so the vectors of a row of
   the tile are swizzled: their number is XORed with twice the number of four k. #}
{% macro write(tile, value, i, contiguous_k, width) %}
{% if contiguous_k %}
        {
            let r = (lane + {{ i * threads }}u) / {{ quads }}u;
            let quad = (lane + {{ i * threads }}u) % {{ quads }}u;
            let position = quad * {{ width }}u + ((r / 4u) ^ (quad % 4u * 2u));
{% for c in range(4) %}
            {{ tile }}[position + {{ c * width // 4 }}u][r % 4u] = f32({{ value }}.{{ "xyzw"[c] }});
{% endfor %}
        }
{% else %}
        {{ tile }}[lane + {{ i * threads }}u] = vec4<f32>({{ value }});
{% endif %}
{% endmacro %}

{# The index of vector `position` in row k of a tile, which may be swizzled; k is a number, or a variable's name. #}
{% macro index(k, width, position, swizzled) -%}
{% set by = (k // 4 % 4 * 2) ~ "u" if k is number else k ~ " / 4u % 4u * 2u" %}
{{ k ~ ("u" if k is number) }} * {{ width // 4 }}u + {{ "((" ~ position ~ ") ^ (" ~ by ~ "))" if swizzled else position }}
{%- endmacro %}
