{# Loads the tile `right` of weights in blocks, [n, k], which are decoded on their way into workgroup memory. A thread
   brings `loads` pieces of `piece` weights along k (lib/pieces.wgsl) of a step. The macros are those of
   right_loader.wgsl. #}
{% import "lib/pieces.wgsl" as pieces with context %}
{% set loads = bn * bk // piece // threads %}
{% set swizzled = false %}

{% macro functions() %}
{{ pieces.functions() }}
{% endmacro %}

{% macro variables() %}
{% for i in range(loads) %}
{{ pieces.declare(i) }}
{%- endfor %}
{% endmacro %}

{# Which piece of a step is load number `i` of this thread: its row of the weights, and its first k. Neighbouring threads
   write neighbouring columns of a tile of f32, or read neighbouring pieces of a row, which often share a cache line. #}
{% set along = bk // piece if fragments is defined else 1 %}
{% macro row_of(i) %}(lane + {{ i * threads }}u){{ " / " ~ along ~ "u" if fragments is defined else " % " ~ bn ~ "u" }}{% endmacro %}
{% macro k_of(i) %}(lane + {{ i * threads }}u){{ " % " ~ along ~ "u" if fragments is defined else " / " ~ bn ~ "u" }} * {{ piece }}u{% endmacro %}

{# Reads the step that begins at `start` from memory into variables. #}
{% macro fetch(start) %}
{% for i in range(loads) %}
{{ pieces.fetch(i, "min(column0 + " ~ row_of(i) ~ ", N - 1u)", "min(" ~ start ~ " + " ~ k_of(i) ~ ", K - " ~ piece ~ "u)") }}
{%- endfor %}
{% endmacro %}

{# Decodes the variables into the tile. #}
{% macro write() %}
{% for i in range(loads) %}
        {
{{ pieces.take(i, "now" ~ i) }}
            let r = {{ row_of(i) }};
            let index = {{ k_of(i) }} * {{ bn // 4 }}u + r / 4u;
{% if k % bk %}
            let there = k0 + {{ k_of(i) }} < K;
{% endif %}
{% for q in range(piece // 4) %}
            let v{{ q }} = {{ "select(vec4<f32>(0.0), " if k % bk }}{{ pieces.quad("now" ~ i, q) }}{{ ", there)" if k % bk }};
{% for c in range(4) %}
            right[index + {{ (4 * q + c) * bn // 4 }}u][r % 4u] = v{{ q }}.{{ "xyzw"[c] }};
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}

{# Decodes the variables into a tile of halves, eight to a piece: rows of the weights are its lines, `stride` pieces apart,
   from piece `first` of the memory `tile` on. #}
{% macro write_halves(tile, first, stride) %}
{% for i in range(loads) %}
        {
{{ pieces.take(i, "now" ~ i) }}
            let to = {{ first }}u + ({{ row_of(i) }}) * {{ stride }}u + ({{ k_of(i) }}) / 8u;
{% if k % bk %}
            let there = k0 + {{ k_of(i) }} < K;
{% endif %}
{% for q in range(piece // 8) %}
{% if pieces.raw %}
            {{ tile }}[to + {{ q }}u] = {{ "select(vec4<u32>(), " if k % bk }}pnow{{ i }}_{{ q }}{{ ", there)" if k % bk }};
{% else %}
            let low{{ q }} = {{ "select(vec4<f32>(0.0), " if k % bk }}{{ pieces.quad("now" ~ i, 2 * q) }}{{ ", there)" if k % bk }};
            let high{{ q }} = {{ "select(vec4<f32>(0.0), " if k % bk }}{{ pieces.quad("now" ~ i, 2 * q + 1) }}{{ ", there)" if k % bk }};
            {{ tile }}[to + {{ q }}u] = vec4<u32>(pack2x16float(low{{ q }}.xy), pack2x16float(low{{ q }}.zw), pack2x16float(high{{ q }}.xy), pack2x16float(high{{ q }}.zw));
{% endif %}
{% endfor %}
        }
{% endfor %}
{% endmacro %}
