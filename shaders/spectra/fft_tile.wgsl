// Whole transforms in the registers of a workgroup, {{ count }} per workgroup (rlx.ops.spectra.fft_tiles.Tile). Transform q
// reads its points at (q / inner) * outer + (q % inner) * across + step * i, and writes them likewise. An inverse
// swaps real and imaginary parts on both ends.
//
// Reading: a point is in two blocks, or it is one or two neighbouring `samples`, times a taper. Points past `held_in` are
// 0; the others may be multiplied by a chirp. Writing: each point may be multiplied by a factor. With `bins` the
// one-sided spectrum is written, or with `power` its re^2 + im^2. For pairs of samples, with a = Z[k], b = conj Z[n - k]
// and w = exp(-pi i k / n), that is X[k] = (a + b) / 2 - i w (a - b) / 2 (Cooley, Lewis & Welch 1970).
{% from "lib/fft_passes.wgsl" import points, each, butterflies, exchange, mirrored with context %}
{% from "lib/dft.wgsl" import dft_place with context %}
{% set ends = namespace(binding=2) %}
{{ bindings(access, x="vec2<f32>" if wide else "f32", roots="vec2<f32>") }}
{% if chirped %}
@group(0) @binding({{ ends.binding }}) var<storage, {{ access[ends.binding] }}> chirp: array<vec2<f32>>;
{% set ends.binding = ends.binding + 1 %}
{% endif %}
{% if tapered %}
@group(0) @binding({{ ends.binding }}) var<storage, {{ access[ends.binding] }}> taper: array<{{ "vec2<f32>" if samples == 2 else "f32" }}>;
{% set ends.binding = ends.binding + 1 %}
{% endif %}
{% if bins and samples == 2 %}
@group(0) @binding({{ ends.binding }}) var<storage, {{ access[ends.binding] }}> bin_roots: array<vec2<f32>>;
{% set ends.binding = ends.binding + 1 %}
{% endif %}
{% if factored %}
@group(0) @binding({{ ends.binding }}) var<storage, {{ access[ends.binding] }}> factor: array<vec2<f32>>;
{% set ends.binding = ends.binding + 1 %}
{% endif %}
@group(0) @binding({{ ends.binding }}) var<storage, {{ access[ends.binding] }}> y: array<f32>;

{% set passes = radices|length %}
{% set half = literal(0.5 * scale) %}
{% if passes > 1 or (bins and samples == 2) %}
var<workgroup> held: array<{{ "f32" if split else "vec2<f32>" }}, {{ count * row }}>;
{% endif %}

fn turn(z: vec2<f32>, w: vec2<f32>) -> vec2<f32> { return z * w.x + vec2<f32>(-z.y, z.x) * w.y; }

{{ by_group(count * threads) }}
{% for end in ["in", "out"] %}
{% if (from_columns, to_columns)[loop.index0] %}
    let {{ end }}_row = lane % {{ count }}u;
    let {{ end }}_thread = lane / {{ count }}u;
{% else %}
    let {{ end }}_row = lane / {{ threads }}u;
    let {{ end }}_thread = lane % {{ threads }}u;
{% endif %}
{% endfor %}
{{ points() }}
    {
        // Transforms after the last one repeat it and are not written.
        let q = min(g * {{ count }}u + in_row, {{ rows - 1 }}u);
        let start = (q / {{ inner }}u) * {{ in_outer }}u;
{% call(u, b, guarded) each(radices[0], "in_thread") %}
        {{ "if (" ~ b ~ " < " ~ (n // radices[0]) ~ "u) " if guarded }}{
            let local = (q % {{ inner }}u) * {{ in_across }}u + ({{ b }}) * {{ in_step }}u;
            let index = start + local;
{% if tapered %}
            let place = {{ b }};
{% endif %}
{% for i in range(radices[0]) %}
{% set v = "v" ~ (u * radices[0] + i) %}
{% set on = n // radices[0] * i * in_step %}
{% if wide %}
            {{ v }} = x[index / 2u + {{ on // 2 }}u];
{% elif samples == 1 %}
            {{ "if (local + " ~ on ~ "u < " ~ held_in ~ "u) " if chirped }}{ {{ v }}.x = x[index + {{ on }}u]; }
{% else %}
            {{ "if (local + " ~ on ~ "u < " ~ held_in ~ "u) " if chirped }}{ {{ v }} = vec2<f32>(x[index + {{ on }}u], x[index + {{ on + in_imag }}u]){{ ".yx" if swap_in }}; }
{% endif %}
{% endfor %}
{% if tapered %}
{% for i in range(radices[0]) %}
            v{{ u * radices[0] + i }}{{ ".x" if samples == 1 }} *= taper[place + {{ n // radices[0] * i }}u];
{% endfor %}
{% endif %}
{% if chirped %}
{% for i in range(radices[0]) %}
{% set v = "v" ~ (u * radices[0] + i) %}
{% set on = n // radices[0] * i * in_step %}
            if (local + {{ on }}u < {{ held_in }}u) { {{ v }} = turn({{ v }}, chirp[local + {{ on }}u]); }
{% endfor %}
{% endif %}
        }
{% endcall %}
    }
{% for s in range(passes) %}
{{ butterflies(s, "in_thread" if s == 0 else "out_thread") }}
{% if s < passes - 1 %}
{{ exchange(s, "in_thread" if s == 0 else "out_thread", ("in_row" if s == 0 else "out_row") ~ " * " ~ row ~ "u", "out_thread", "out_row * " ~ row ~ "u") }}
{% endif %}
{% endfor %}
{% set r = radices[passes - 1] %}
{% if bins and samples == 2 %}
{{ mirrored(passes - 1, "out_thread", "out_row * " ~ row ~ "u") }}
{% endif %}
    let q = g * {{ count }}u + out_row;
    if (q >= {{ rows }}u) { return; }
    let start = (q / {{ inner }}u) * {{ out_outer }}u;
{% call(u, b, guarded) each(r, "out_thread") %}
    {{ "if (" ~ b ~ " < " ~ (n // r) ~ "u) " if guarded }}{
        let local = (q % {{ inner }}u) * {{ out_across }}u + ({{ b }}) * {{ out_step }}u;
{% if bins %}
        let index = start + local;
{% for j in range(r) %}
{% set slot = u * r + dft_place(r, j)|int %}
{% set on = n // r * j %}
{% if samples == 1 %}
        if ({{ b }} + {{ on }}u < {{ bins }}u) {
{% if power %}
            y[index + {{ on }}u] = SCALE * SCALE * dot(v{{ slot }}, v{{ slot }});
{% else %}
            y[index + {{ on }}u] = SCALE * v{{ slot }}.x;
            y[index + {{ on + bins }}u] = SCALE * v{{ slot }}.y;
{% endif %}
        }
{% else %}
        {
            let w = bin_roots[{{ b }} + {{ on }}u];
            let sum = v{{ slot }} + vec2<f32>(m{{ slot }}.x, -m{{ slot }}.y);
            let d = v{{ slot }} - vec2<f32>(m{{ slot }}.x, -m{{ slot }}.y);
            let re = {{ half }} * (sum.x + w.x * d.y + w.y * d.x);
{% if j == 0 and u == 0 %}
            // The imaginary parts of the first and the last bin are 0, not only nearly so.
            let im = select({{ half }} * (sum.y - w.x * d.x + w.y * d.y), 0.0, {{ b }} == 0u);
            if ({{ b }} == 0u) {
                let end = {{ half }} * 2.0 * (v{{ slot }}.x - v{{ slot }}.y);
                y[index + {{ n }}u] = {{ "end * end" if power else "end" }};
{% if not power %}
                y[index + {{ n + bins }}u] = 0.0;
{% endif %}
            }
{% else %}
            let im = {{ half }} * (sum.y - w.x * d.x + w.y * d.y);
{% endif %}
{% if power %}
            y[index + {{ on }}u] = re * re + im * im;
{% else %}
            y[index + {{ on }}u] = re;
            y[index + {{ on + bins }}u] = im;
{% endif %}
        }
{% endif %}
{% endfor %}
{% else %}
{% for j in range(r) %}
{% set v = "v" ~ (u * r + dft_place(r, j)|int) %}
{% set on = n // r * j * out_step %}
        {{ "if (local + " ~ on ~ "u < " ~ out_imag ~ "u) " if cut }}{
            let z = {{ "turn(" ~ v ~ (".yx" if swap_before else "") ~ ", factor[local + " ~ on ~ "u])" if factored else v }}{{ ".yx" if swap_after }}{{ " * SCALE" if scale != 1 }};
            let index = start + local + {{ on }}u;
            y[index] = z.x;
            y[index + {{ out_imag }}u] = z.y;
        }
{% endfor %}
{% endif %}
    }
{% endcall %}
}
