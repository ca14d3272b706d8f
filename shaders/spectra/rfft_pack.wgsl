// Real rows as complex ones in block layout, one thread per complex number: an even row pairs its
// samples, an odd one gets imaginary parts 0.
{{ bindings(access, x="f32", z="f32") }}

{{ by_element(256, "t", "ROWS * LENGTH") }}
    let i = t % LENGTH;
    let to = (t / LENGTH) * 2u * LENGTH + i;
{% if n % 2 %}
    z[to] = x[t];
    z[to + LENGTH] = 0.0;
{% else %}
    z[to] = x[2u * t];
    z[to + LENGTH] = x[2u * t + 1u];
{% endif %}
}
