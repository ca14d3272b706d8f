{# One row times rows of packed weights: up to three products of it, or one that another one gates. With `experts` there
   are several rows, each with one product by the weights of its expert. The row may be normed
   on its way, and something may be added to the result. `lanes` threads share `rows` rows of weights; each takes every
   so many units (lib/units.wgsl), so that neighbours read neighbouring bytes. The row is `staged` in workgroup memory
   where there is room for it. #}
{% import "lib/units.wgsl" as units with context %}
{% set slot = namespace(next=1) %}
{% macro bind(name, type) %}
@group(0) @binding({{ slot.next }}) var<storage, {{ access[slot.next] }}> {{ name }}: array<{{ type }}>;
{% set slot.next = slot.next + 1 %}
{% endmacro %}
{% set results = 1 if gated else parts|length %}
{% set sums = rows * (parts|length) // results %}
{% set teams = threads // lanes %}
{% set quads = k // 4 %}
{# Pairs that turn are neighbours among the threads that store them; in memory half a head may lie between them. #}
{% macro row_of(p, place) %}
{%- if style == "neox" and p < turned -%}
({{ place }}) / {{ head }}u * {{ head }}u + ({{ place }}) % 2u * {{ head // 2 }}u + ({{ place }}) % {{ head }}u / 2u
{%- else -%}
{{ place }}
{%- endif -%}
{% endmacro %}
{# Neighbouring threads read fours of the row at the same time. A gap behind every so many fours puts these into different
   banks of the workgroup's memory; the format of the most weights chooses how many. #}
{% set most = namespace(rows=0, gap=8) %}
{% for scheme, n, _ in parts %}
{% if n > most.rows %}
{% set most.rows = n %}
{% set most.gap = units.spread(scheme)|int %}
{% endif %}
{% endfor %}
{% set gap = most.gap %}
{# Squares are summed by the whole workgroup, or by each team. #}
{% set squares = normed * (1 if staged else teams) %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<vec4<f32>>;
{{ bind("chosen", type[1]) if experts }}
{{- bind("norm", "vec4<f32>") if normed }}
{{- bind("residual", "f32") if added }}
{% for i in range(results if biased else 0) %}{{ bind("bias" ~ i, "f32") }}{% endfor %}
{{- bind("cosines", "f32") ~ bind("sines", "f32") if turned }}
{%- for part in parts %}{{ bind("packed" ~ loop.index0, units.element(part[0])) }}{% endfor %}
{%- for i in range(results) %}{{ bind("y" ~ i, "u32" if halves[i] else "f32") }}{% endfor %}

{% if staged %}
var<workgroup> row_of_x: array<vec4<f32>, {{ quads + quads // gap }}>;
{% endif %}
// By sum, then by thread; behind them the squares.
var<workgroup> partial: array<f32, {{ (sums + normed) * threads }}>;
// Each is the sum of an eighth.
var<workgroup> eighths: array<f32, {{ (sums * teams + squares) * 8 }}>;

{% include "lib/halves.wgsl" %}
{{ units.functions() }}
{% if gated %}
{% include "lib/epilogue.wgsl" %}
{% endif %}

{% if experts and type[1] == two_words %}
{% include "lib/wide_index.wgsl" %}
{% endif %}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = wid.x + wid.y * FOLD;
    if (group >= GROUPS) { return; }
{% if experts %}
    let line = group / {{ ends[-1] }}u;
    let g = group % {{ ends[-1] }}u;
    let expert = u32(clamp({{ index(type[1], "chosen[line]") }}, 0, {{ experts - 1 }}));
{% else %}
    let g = group;
{% endif %}
    let lane = thread % {{ lanes }}u;
    let team = thread / {{ lanes }}u;
{% if normed %}
    var square = 0.0;
{% endif %}
{% if staged %}
    for (var i = thread; i < {{ quads }}u; i += {{ threads }}u) { // trips: {{ quads }} / {{ threads }}
        let v = x[{{ "line * " ~ quads ~ "u + " if experts }}i];
{% if normed %}
        square += dot(v, v);
{% endif %}
        row_of_x[i + i / {{ gap }}u] = v{{ " * norm[i]" if normed }};
    }
    workgroupBarrier();
{% endif %}
{% for r in range(sums) %}
    var acc{{ r }} = 0.0;
{% endfor %}
{% macro entries(scheme) %}
{% set own = units.spread(scheme)|int == gap %}
{% if staged and own %}
        let from4 = k4 + k4 / {{ gap }}u;
{% endif %}
{% for q in range(8) %}
{% if staged and own %}
        let x{{ q }} = row_of_x[from4 + {{ units.four(scheme, q) }}u];
{% elif staged %}
        let i{{ q }} = k4 + {{ units.four(scheme, q) }}u;
        let x{{ q }} = row_of_x[i{{ q }} + i{{ q }} / {{ gap }}u];
{% else %}
        let i{{ q }} = k4 + {{ units.four(scheme, q) }}u;
        let v{{ q }} = x[{{ "line * " ~ quads ~ "u + " if experts }}i{{ q }}];
        let x{{ q }} = v{{ q }}{{ " * norm[i" ~ q ~ "]" if normed }};
{% if normed %}
        square += dot(v{{ q }}, v{{ q }});
{% endif %}
{% endif %}
{% endfor %}
{% if scheme in units.with_offset %}
{% for q in range(8) %}
        let t{{ q }} = dot(x{{ q }}, vec4<f32>(1.0));
{% endfor %}
{% endif %}
{% endmacro %}
{# Adds the units of products of one format to the sums. #}
{% macro products(several) %}
{% set scheme = parts[several[0]][0] %}
    for (var u = lane; u < {{ k // 32 }}u; u += {{ lanes }}u) { // trips: {{ k // 32 }} / {{ lanes }}
{{ units.place(scheme, "u") }}
{{ entries(scheme) }}
{%- for p in several %}
{% set n, row_bytes = parts[p][1:] %}
{% for r in range(rows) %}
        {
            let place = min(row0 + {{ r }}u, {{ n - 1 }}u);
            let row = ({{ "expert * " ~ n ~ "u + " if experts }}{{ row_of(p, "place") }}) * {{ row_bytes }}u;
{{ units.read(p, scheme, "u", "row") }}
{{ units.product(scheme) }}
            acc{{ r + (rows * p if gated else 0) }} += unit;
        }
{% endfor %}
{% endfor %}
    }
{% endmacro %}
{% if gated %}
    let row0 = (g * {{ teams }}u + team) * {{ rows }}u;
{% if parts[0][0] == parts[1][0] %}
{{ products([0, 1]) }}
{% else %}
{{ products([0]) }}
{% if normed and not staged %}
    let square_of_all = square;
{% endif %}
{{ products([1]) }}
{% if normed and not staged %}
    square = square_of_all;
{% endif %}
{% endif %}
{% else %}
{% for p in range(results) %}
    {{ "else " if p }}{{ "if (g < " ~ ends[p] ~ "u) " if p + 1 < results }}{
    let row0 = ((g - {{ ends[p - 1] if p else 0 }}u) * {{ teams }}u + team) * {{ rows }}u;
{{ products([p]) }}
    }
{% endfor %}
{% endif %}
{% for r in range(sums) %}
    partial[{{ r * threads }}u + thread] = acc{{ r }};
{% endfor %}
{% if normed %}
    partial[{{ sums * threads }}u + thread] = square;
{% endif %}
    workgroupBarrier();
    for (var i = thread; i < {{ sums * teams * 8 }}u; i += {{ threads }}u) { // trips: {{ sums * teams * 8 }} / {{ threads }}
        let from_ = i / 8u * {{ lanes }}u + i % 8u;
        var sum = partial[from_];
{% for j in range(1, lanes // 8) %}
        sum += partial[from_ + {{ 8 * j }}u];
{% endfor %}
        eighths[i] = sum;
    }
{% if normed %}
    if (thread < {{ squares * 8 }}u) {
        let from_ = {{ sums * threads }}u + thread / 8u * {{ lanes }}u + thread % 8u;
        var sum = partial[from_];
{% for j in range(1, (threads if staged else lanes) // 8) %}
        sum += partial[from_ + {{ 8 * j }}u];
{% endfor %}
        eighths[{{ sums * teams * 8 }}u + thread] = sum;
    }
{% endif %}
    workgroupBarrier();
    // Thread by thread through the rows of the workgroup.
    let mine = min(thread, {{ rows * teams - 1 }}u) / {{ rows }}u;
    let r = thread % {{ rows }}u;
{% macro total(of) %}{% for j in range(8) %}{{ " + " if j }}eighths[{{ of }} + {{ j }}u]{% endfor %}{% endmacro %}
    let first = (r * {{ teams }}u + mine) * 8u;
    var value = {{ total("first") }};
{% if gated %}
    let second = first + {{ rows * teams * 8 }}u;
    var other = {{ total("second") }};
{% endif %}
{% if normed %}
    let squares = {{ sums * teams * 8 }}u{{ " + mine * 8u" if not staged }};
    let scale = 1.0 / sqrt(({{ total("squares") }}) / f32(K) + EPS);
    value *= scale;
{% if gated %}
    other *= scale;
{% endif %}
{% endif %}
{% if gated %}
    value = activate(vec4<f32>(value)).x * other;
{% endif %}
{% macro place_at(p) %}{{ "row + " ~ offsets[p] ~ "u" if offsets[p] is not none else "row" }}{% endmacro %}
{% macro place_of(p) %}(g - {{ ends[p - 1] if p else 0 }}u) * {{ teams * rows }}u + thread{% endmacro %}
{% if biased %}
{% for p in range(results) %}
    {{ "else " if p }}{{ "if (g < " ~ ends[p] ~ "u) " if p + 1 < results }}{
        let place = min({{ place_of(p) }}, {{ parts[p][1] - 1 }}u);
        value += bias{{ p }}[{{ row_of(p, "place") }}];
    }
{% endfor %}
{% endif %}
{% if turned %}
    // The other one of the pair.
    partial[thread] = value;
    workgroupBarrier();
    let beside = partial[thread ^ 1u];
{% endif %}
    let stores = thread < {{ rows * teams }}u;
{% for p in range(results) %}
    {{ "else " if p }}{{ "if (g < " ~ ends[p] ~ "u) " if p + 1 < results }}{
        let place = {{ place_of(p) }};
        if (stores && place < {{ parts[p][1] }}u) {
            let row = {{ row_of(p, "place") }};
{% if p < turned %}
            value = value * cosines[place % {{ head }}u / 2u] + beside * sines[row % {{ head }}u];
{% endif %}
{% if not halves[p] %}
            y{{ p }}[{{ "line * " ~ parts[p][1] ~ "u + " if experts }}{{ place_at(p) }}] = value{{ " + residual[row]" if added }};
{% endif %}
        }
    }
{% endfor %}
{% if 1 in halves %}
    // Two neighbours in memory share a word. Where halves of a head turn, they are two threads apart.
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
{% for p in range(results) %}
    {{ "else " if p }}{{ "if (g < " ~ ends[p] ~ "u) " if p + 1 < results }}{
{% if halves[p] %}
        let place = {{ place_of(p) }};
        let row = {{ row_of(p, "place") }};
        if (stores && place < {{ parts[p][1] }}u && row % 2u == 0u) {
            let pair = to_f16(vec4<f32>(value, partial[thread + {{ 2 if style == "neox" and p < turned else 1 }}u], 0.0, 0.0));
            y{{ p }}[({{ place_at(p) }}) >> 1u] = pair.x | (pair.y << 16u);
        }
{% endif %}
    }
{% endfor %}
{% endif %}
}
