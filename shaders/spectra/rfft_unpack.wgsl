// The one-sided spectrum of real rows from the transform of their packed form, one thread per bin.
// For an even row, with a = Z[k], b = conj Z[n / 2 - k], w = exp(-2 pi i k / n):
// X[k] = (a + b) / 2 - i w (a - b) / 2 (Cooley, Lewis & Welch 1970).
{{ bindings(access, z="f32", roots="f32", y="f32") }}

{{ by_element(256, "t", "ROWS * BINS") }}
    let k = t % BINS;
    let row = t / BINS;
    let base = row * 2u * LENGTH;
    let to = row * 2u * BINS + k;
{% if n % 2 %}
    y[to] = SCALE * z[base + k];
    y[to + BINS] = SCALE * z[base + LENGTH + k];
{% else %}
    let here = base + k % LENGTH;
    let there = base + (LENGTH - k) % LENGTH;
    let a = vec2<f32>(z[here], z[here + LENGTH]);
    let b = vec2<f32>(z[there], -z[there + LENGTH]);
    let w = vec2<f32>(roots[k], roots[k + BINS]);
    let d = a - b;
    y[to] = 0.5 * SCALE * (a.x + b.x + w.x * d.y + w.y * d.x);
    // The imaginary parts of the first and the last bin are exactly 0.
    let im = 0.5 * SCALE * (a.y + b.y - w.x * d.x + w.y * d.y);
    y[to + BINS] = select(im, 0.0, k == 0u || k == LENGTH);
{% endif %}
}
