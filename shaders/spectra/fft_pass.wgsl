// One Stockham pass of transforms that are too long for workgroup memory, one thread per butterfly
// (the indexing is that of rlx.ops.spectra.fft_plans.Plan). An inverse swaps real and imaginary parts at the
// first read and the last write.
{% from "lib/butterfly.wgsl" import butterfly with context %}
{% set part = length // radix %}
{{ bindings(access, x="f32", roots="f32", y="f32") }}

// z times a twiddle factor of the table.
fn turn(z: vec2<f32>, index: u32) -> vec2<f32> {
    let re = roots[index];
    let im = roots[index + COUNT];
    return vec2<f32>(z.x * re - z.y * im, z.x * im + z.y * re);
}

{{ by_element(256, "t", (rows * (n // radix)) ~ "u") }}
    let base = (t / {{ n // radix }}u) * {{ 2 * n }}u;
    let u = t % {{ n // radix }}u;
    let q = u % STRIDE;
    let p = u / STRIDE;
    let from_at = base + q + STRIDE * p;
    let to_at = base + q + {{ stride * radix }}u * p;
{% for i in range(radix) %}
    let x{{ i }} = vec2<f32>(x[from_at + {{ stride * part * i }}u], x[from_at + {{ stride * part * i + n }}u]){{ ".yx" if first and inverse }};
{% endfor %}
{{ butterfly(radix) }}
{% for j in range(radix) %}
{% if j == 0 or part == 1 %}
    let z{{ j }} = y{{ j }}{{ ".yx" if last and inverse }} * SCALE;
{% else %}
    let z{{ j }} = turn(y{{ j }}, p + {{ offset + (j - 1) * part }}u){{ ".yx" if last and inverse }} * SCALE;
{% endif %}
    y[to_at + {{ stride * j }}u] = z{{ j }}.x;
    y[to_at + {{ stride * j + n }}u] = z{{ j }}.y;
{% endfor %}
}
