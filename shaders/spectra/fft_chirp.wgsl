// The pointwise stages of Bluestein's algorithm (1970): x times the chirp spread to length m, the
// filter on its transform, and the convolution times the chirp gathered back to length n.
{% set count = n if stage == "gather" else m %}
{% set source = n if stage == "spread" else m %}
{% set factors = m if stage == "filter" else n %}
{{ bindings(access, x="f32", factor="f32", y="f32") }}

{{ by_element(256, "t", (rows * count) ~ "u") }}
    let row = t / {{ count }}u;
    let i = t % {{ count }}u;
    var z = vec2<f32>(0.0);
    if (i < {{ factors }}u) {
        let index = row * {{ 2 * source }}u + i;
        let v = vec2<f32>(x[index], x[index + {{ source }}u]){{ ".yx" if stage == "spread" and inverse }};
        let w = vec2<f32>(factor[i], factor[i + {{ factors }}u]);
        z = vec2<f32>(v.x * w.x - v.y * w.y, v.x * w.y + v.y * w.x);
    }
{% if stage == "gather" %}
    z = z{{ ".yx" if inverse }} * SCALE;
{% endif %}
    let to_at = row * {{ 2 * count }}u + i;
    y[to_at] = z.x;
    y[to_at + {{ count }}u] = z.y;
}
