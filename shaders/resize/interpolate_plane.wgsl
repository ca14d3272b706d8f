// Resizing along the last two axes where the pattern of taps repeats every four results. A thread makes 4 x 4
// results from rows that it interpolates once. `xs` and `ys` list the taps of each of four results: the index into the
// entries `columns` (`lines`) that a thread reads, and the weight. No tap has weight 0: such an entry may be infinite.
{% set across, high = (size[1] + 3) // 4, (size[0] + 3) // 4 %}
{% set wide = size[1] is divisibleby(4) %}
{{ bindings(access, x="f32", y="vec4<f32>" if wide else "f32") }}

fn store(index: u32, column: u32, v: vec4<f32>) {
{% if wide %}
    y[index >> 2u] = v;
{% else %}
    y[index] = v.x;
{% for j in range(1, 4) %}
    if (column + {{ j }}u < {{ size[1] }}u) { y[index + {{ j }}u] = v[{{ j }}]; }
{% endfor %}
{% endif %}
}

{{ by_element(128, "e", (planes * high * across) ~ "u") }}
    let column = e % {{ across }}u;
    let row = (e / {{ across }}u) % {{ high }}u;
    let plane = e / {{ across * high }}u;
{% for d in columns %}
    let c{{ loop.index0 }} = u32(clamp(i32(column * {{ step[1] }}u) + {{ d }}, 0, {{ dims[1] - 1 }}));
{% endfor %}
{% for d in lines %}
    let line{{ loop.index0 }} = (plane * {{ dims[0] }}u + u32(clamp(i32(row * {{ step[0] }}u) + {{ d }}, 0, {{ dims[0] - 1 }}))) * {{ dims[1] }}u;
{% endfor %}
{% for _ in lines %}
{% set r = loop.index0 %}
{% for _ in columns %}
    let s{{ r }}_{{ loop.index0 }} = x[line{{ r }} + c{{ loop.index0 }}];
{% endfor %}
{% endfor %}
{% for _ in lines %}
{% set r = loop.index0 %}
    let h{{ r }} = vec4<f32>(
{%- for taps in xs %}
{% for index, weight in taps %}{{ " + " if not loop.first }}{{ "" if weight == 1 else literal(weight) ~ " * " }}s{{ r }}_{{ index }}{% endfor %}{{ ", " if not loop.last }}
{%- endfor %});
{% endfor %}
    let index = (plane * {{ size[0] }}u + row * 4u) * {{ size[1] }}u + column * 4u;
{% for taps in ys %}
    {{ "if (row * 4u + %su < %su) " % (loop.index0, size[0]) if loop.index0 and size[0] is not divisibleby(4) }}{ store(index + {{ loop.index0 * size[1] }}u, column * 4u, {% for line, weight in taps %}{{ " + " if not loop.first }}{{ "" if weight == 1 else literal(weight) ~ " * " }}h{{ line }}{% endfor %}); }
{% endfor %}
}
