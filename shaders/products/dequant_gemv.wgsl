// Few rows of x times packed weights. A thread sums 4 columns for all rows. The pieces of a column are divided among
// `lanes` threads, so that neighbouring threads read neighbouring pieces. Each weight is read and decoded once, while the
// next loads are under way. x is in workgroup memory: four numbers of piece p are at place p ^ q of row q, which avoids
// bank conflicts of writes and of reads. Where the sums are split, each partition goes to `y` as a result of its own;
// split_sum.wgsl adds.
{% set next = namespace(index=2) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, {{ access[1] }}> packed: array<u32>;
{% include "lib/scales.wgsl" %}
@group(0) @binding({{ next.index }}) var<storage, {{ access[next.index] }}> y: array<f32>;

{% set threads = 128 %}
{% set quads = piece // 4 %}
{% set pieces = k // piece %}
{% set vectors = [m * quads * lanes, threads]|max %}
{# Rows whose sums are added at a time. #}
{% set rows = [vectors // threads, m]|min %}
{% set uneven = pieces % lanes != 0 %}
// First x, then the sums.
var<workgroup> shared_memory: array<vec4<f32>, {{ vectors }}>;

{% include "lib/blocks.wgsl" %}
{% set sparing = true %}
{% import "lib/pieces.wgsl" as pieces_of with context %}
{{ pieces_of.functions() }}
{{ by_group(threads) }}
    let turn = lane % {{ lanes }}u;
    let split = g / {{ across }}u;
    let start = split * {{ partition_pieces }}u;
    let end = {{ "min(start + " ~ partition_pieces ~ "u, " ~ pieces ~ "u)" }};
    let column = ((g % {{ across }}u) * {{ threads // lanes }}u + lane / {{ lanes }}u) * 4u;
{% for r in range(m) %}
    var sum{{ r }} = vec4<f32>(0.0);
{% endfor %}
{% for c in range(4) %}
    let column{{ c }} = min(column + {{ c }}u, N - 1u);
{{ pieces_of.declare(c) }}
{%- endfor %}
{% macro ask(index) %}
{% for c in range(4) %}
{{ pieces_of.fetch(c, "column" ~ c, index ~ " * " ~ piece ~ "u") }}
{%- endfor %}
{% endmacro %}
{% if pieces %}
    {
        let first = {{ "min(start + turn, " ~ (pieces - 1) ~ "u)" if uneven else "start + turn" }};
{{ ask("first") }}    }
    for (var begin = start; begin < end; begin += {{ lanes }}u) { // trips: {{ partition_pieces }} / {{ lanes }}
        workgroupBarrier();
        for (var i = lane; i < {{ m * quads * lanes }}u; i += {{ threads }}u) { // trips: {{ m * quads * lanes }} / {{ threads }}
            let r = i / {{ quads * lanes }}u;
            let j = i % {{ quads * lanes }}u;
            let source = begin * {{ quads }}u + j;
            {{ "if (source < " ~ k // 4 ~ "u) " if uneven }}{ shared_memory[(r * {{ quads }}u + j % {{ quads }}u) * {{ lanes }}u + ((j / {{ quads }}u) ^ (j % {{ quads }}u))] = x[r * {{ k // 4 }}u + source]; }
        }
        workgroupBarrier();
{% for c in range(4) %}
{{ pieces_of.take(c, "mine" ~ c) }}
{%- endfor %}
        let following = {{ "min(begin + turn + " ~ lanes ~ "u, " ~ (pieces - 1) ~ "u)" }};
        if (begin + {{ lanes }}u < end) {
{{ ask("following") }}        }
{% if uneven %}
        if (begin + turn < {{ pieces }}u) {
{% endif %}
{% for q in range(quads) %}
        {
{% for c in range(4) %}
            let w{{ c }} = {{ pieces_of.quad("mine" ~ c, q) }};
{% endfor %}
{% for part in "xyzw" %}
            let w_{{ part }} = vec4<f32>(w0.{{ part }}, w1.{{ part }}, w2.{{ part }}, w3.{{ part }});
{% endfor %}
            let index = {{ q * lanes }}u + (turn ^ {{ q }}u);
{% for r in range(m) %}
            let v{{ r }} = shared_memory[{{ r * quads * lanes }}u + index];
            sum{{ r }} = sum{{ r }} + v{{ r }}.x * w_x + v{{ r }}.y * w_y + v{{ r }}.z * w_z + v{{ r }}.w * w_w;
{% endfor %}
        }
{% endfor %}
        {{ "}" if uneven }}
    }
{% endif %}
{% for first in range(0, m, rows) %}
{% set several = [rows, m - first]|min %}
    workgroupBarrier();
{% for r in range(several) %}
    shared_memory[{{ r * threads }}u + lane] = sum{{ first + r }};
{% endfor %}
    workgroupBarrier();
    for (var width = {{ lanes // 2 }}u; width > 0u; width /= 2u) { // trips: bits({{ lanes // 2 }})
        if (turn < width) {
{% for r in range(several) %}
            shared_memory[{{ r * threads }}u + lane] += shared_memory[{{ r * threads }}u + lane + width];
{% endfor %}
        }
        workgroupBarrier();
    }
    if (turn == 0u) {
{% for r in range(several) %}
{% for c in range(4) %}
        {{ "if (column + " ~ c ~ "u < N) " if n % 4 or n % (4 * threads // lanes) }}{ y[(split * M + {{ first + r }}u) * N + column + {{ c }}u] = shared_memory[{{ r * threads }}u + lane].{{ "xyzw"[c] }}; }
{% endfor %}
{% endfor %}
    }
{% endfor %}
}
