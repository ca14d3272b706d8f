{# The passes of a tile (rlx.ops.spectra.fft_tiles.Tile) on points in registers: `v<u * r + i>` is point i of a thread's u-th
   butterfly. Between passes, points move to other threads through workgroup memory, `held`. #}
{% from "lib/dft.wgsl" import dft, dft_place with context %}

{# Each butterfly of a thread: its number within the transform as b<u>, guarded where not all threads have it. #}
{% macro each(r, thread) %}
{% set total = n // r %}
{% for u in range((total + threads - 1) // threads) %}
{{ caller(u, thread ~ (" + " ~ (u * threads) ~ "u" if u else ""), (u + 1) * threads > total) }}
{% endfor %}
{% endmacro %}

{# Declares the points that a thread holds at most. #}
{% macro points() %}
{% set ns = namespace(most=1) %}
{% for r in radices %}
{% set ns.most = [ns.most, r * ((n // r + threads - 1) // threads)]|max %}
{% endfor %}
{% for i in range(ns.most) %}
    var v{{ i }} = vec2<f32>(0.0);
{% endfor %}
{% endmacro %}

{# Where position `index` of a transform lies in workgroup memory. #}
{% macro slot(index, skew) -%}
{{ "(" ~ index ~ ") + (" ~ index ~ ") / " ~ banks ~ "u * " ~ skew ~ "u" if skew else index }}
{%- endmacro %}

{# The arithmetic of pass `s`, without its loads and stores. #}
{% macro butterflies(s, thread) %}
{% set r = radices[s] %}
{% set last = s == radices|length - 1 %}
{% set ns = namespace(length=n, stride=1) %}
{% for q in radices[:s] %}
{% set ns.length = ns.length // q %}
{% set ns.stride = ns.stride * q %}
{% endfor %}
{% set part = ns.length // r %}
    // Radix {{ r }} at length {{ ns.length }}.
{% call(u, b, guarded) each(r, thread) %}
{{ dft(r, u * r, 1) }}
{% if not last and r > 1 %}
    {
        let p = {{ "min(" ~ b ~ ", " ~ (n // r - 1) ~ "u)" if guarded else "(" ~ b ~ ")" }} / {{ ns.stride }}u;
{% for j in range(1, r) %}
{% set v = "v" ~ (u * r + dft_place(r, j)|int) %}
        {{ v }} = turn({{ v }}, roots[p + {{ offsets[s] + (j - 1) * part }}u]);
{% endfor %}
    }
{% endif %}
{% endcall %}
{% endmacro %}

{# Writes the points of pass `s` to workgroup memory and reads those of the next pass. #}
{% macro exchange(s, from_thread, from_row, to_thread, to_row) %}
{% set r, next = radices[s], radices[s + 1] %}
{% set skew = skews[s] %}
{% set ns = namespace(stride=1) %}
{% for q in radices[:s] %}
{% set ns.stride = ns.stride * q %}
{% endfor %}
{% set stride = ns.stride %}
{% for component in ([".x", ".y"] if split else [""]) %}
{% if s or not loop.first %}
    workgroupBarrier();
{% endif %}
{% call(u, b, guarded) each(r, from_thread) %}
    {{ "if (" ~ b ~ " < " ~ (n // r) ~ "u) " if guarded }}{
        let b = {{ b }};
        let index = b % {{ stride }}u + (b / {{ stride }}u) * {{ stride * r }}u;
{% for j in range(r) %}
        held[{{ from_row }} + {{ slot("index + " ~ (stride * j) ~ "u", skew) }}] = v{{ u * r + dft_place(r, j)|int }}{{ component }};
{% endfor %}
    }
{% endcall %}
    workgroupBarrier();
{% call(u, b, guarded) each(next, to_thread) %}
    {{ "if (" ~ b ~ " < " ~ (n // next) ~ "u) " if guarded }}{
        let index = {{ b }};
{% for i in range(next) %}
        v{{ u * next + i }}{{ component }} = held[{{ to_row }} + {{ slot("index + " ~ (n // next * i) ~ "u", skew) }}];
{% endfor %}
    }
{% endcall %}
{% endfor %}
{% endmacro %}

{# For each result k of pass `s`, m<i>: the result at n - k; for k = 0 that is itself. #}
{% macro mirrored(s, thread, row) %}
{% set r = radices[s] %}
{% for u in range((n // r + threads - 1) // threads) %}
{% for j in range(r) %}
    var m{{ u * r + j }}: vec2<f32>;
{% endfor %}
{% endfor %}
{% for component in ([".x", ".y"] if split else [""]) %}
{% if s or not loop.first %}
    workgroupBarrier();
{% endif %}
{% call(u, b, guarded) each(r, thread) %}
    {{ "if (" ~ b ~ " < " ~ (n // r) ~ "u) " if guarded }}{
        let index = {{ row }} + {{ b }};
{% for j in range(r) %}
        held[index + {{ n // r * j }}u] = v{{ u * r + dft_place(r, j)|int }}{{ component }};
{% endfor %}
    }
{% endcall %}
    workgroupBarrier();
{% call(u, b, guarded) each(r, thread) %}
    {{ "if (" ~ b ~ " < " ~ (n // r) ~ "u) " if guarded }}{
        let index = {{ row }} + {{ n }}u - ({{ b }});
{% for j in range(r) %}
        m{{ u * r + dft_place(r, j)|int }}{{ component }} = held[index - {{ ((n // r * j) ~ "u") if j else "select(0u, " ~ n ~ "u, (" ~ b ~ ") == 0u)" }}];
{% endfor %}
    }
{% endcall %}
{% endfor %}
{% endmacro %}
