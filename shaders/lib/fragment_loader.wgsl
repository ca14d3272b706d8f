{# Brings matrices from memory into tiles of halves in workgroup memory, eight halves (a vec4<u32>, "a piece") at a time.

   A matrix is `lines` lines of `along` numbers each. Its numbers are f16, or f32 that are rounded to f16 on the way. A tile
   keeps the order of the matrix, so that nothing is transposed here: its lines are parts of lines of the matrix, each
   followed by a gap that spreads lines over the banks of workgroup memory. #}

{# How the numbers of a buffer are read, as its WGSL type: whole pieces where all lines begin at one, else smaller units.
   `aligned` divides the places at which lines begin and their lengths. #}
{% macro unit(wide, aligned) %}
{% if wide %}
{{ "vec4<f32>" if aligned is divisibleby(4) else "f32" }}
{%- else %}
{{ "vec4<u32>" if aligned % 8 == 0 else ("u32" if aligned % 2 == 0 else "f16") }}
{%- endif %}
{% endmacro %}

{# Function `name` (base, line, at): the piece that begins at number `index` of a line of the matrix at `base`, whose lines are
   `step` numbers apart. What is not there is replaced by something that is; past the end of k, by 0. `k_runs` is along or
   across: which of the two indices is k. #}
{% macro function(name, buffer, wide, lines, along, step, aligned, k_runs, ragged_line, ragged_along) %}
fn {{ name }}(base: u32, line: u32, index: u32) -> vec4<u32> {
    let start = base + {{ "min(line, " ~ (lines - 1) ~ "u)" if ragged_line else "line" }} * {{ step }}u;
{% set whole = aligned % 8 == 0 %}
{% set first = "min(index, " ~ (along - 8) ~ "u)" if ragged_along else "index" %}
{% if whole and not wide %}
    let piece = {{ buffer }}[(start + {{ first }}) >> 3u];
{% elif whole %}
    let place = (start + {{ first }}) >> 2u;
    let low = vec4<f16>({{ buffer }}[place]);
    let high = vec4<f16>({{ buffer }}[place + 1u]);
    let piece = vec4<u32>(bitcast<vec2<u32>>(low), bitcast<vec2<u32>>(high));
{% elif aligned % 2 == 0 and not wide %}
    let piece = vec4<u32>({% for c in range(4) %}{{ buffer }}[(start + min(index + {{ 2 * c }}u, {{ along - 2 }}u)) >> 1u]{{ ", " if c < 3 }}{% endfor %});
{% elif aligned is divisibleby(4) and wide %}
    let low = vec4<f16>({{ buffer }}[(start + min(index, {{ along - 4 }}u)) >> 2u]);
    let high = vec4<f16>({{ buffer }}[(start + min(index + 4u, {{ along - 4 }}u)) >> 2u]);
    let piece = vec4<u32>(bitcast<vec2<u32>>(low), bitcast<vec2<u32>>(high));
{% else %}
{% for c in range(8) %}
    let v{{ c }} = f16({{ buffer }}[start + min(index + {{ c }}u, {{ along - 1 }}u)]);
{% endfor %}
    let piece = vec4<u32>({% for c in range(4) %}bitcast<u32>(vec2<f16>(v{{ 2 * c }}, v{{ 2 * c + 1 }})){{ ", " if c < 3 }}{% endfor %});
{% endif %}
{% if k_runs == "across" and ragged_line %}
    return select(vec4<u32>(), piece, line < {{ lines }}u);
{% elif k_runs == "along" and ragged_along and whole %}
    return select(vec4<u32>(), piece, index < {{ along }}u);
{% elif k_runs == "along" and ragged_along %}
    // The end of the sums may lie within a piece, even within a word.
    return vec4<u32>({% for c in range(4) %}piece.{{ "xyzw"[c] }} & select(select(0u, 0xffffu, index + {{ 2 * c }}u < {{ along }}u), 0xffffffffu, index + {{ 2 * c + 1 }}u < {{ along }}u){{ ", " if c < 3 }}{% endfor %});
{% else %}
    return piece;
{% endif %}
}
{% endmacro %}
