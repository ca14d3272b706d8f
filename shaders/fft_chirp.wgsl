// The stages of Bluestein's transform around its two convolving ones; one element per invocation.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> factor: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;
{% set count = n if stage == "gather" else m %}
{% set terms = m if stage == "filter" else n %}
{% set source = n if stage == "spread" else m %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= ROWS * {{ count }}u) { return; }
    let row = i / {{ count }}u;
    let e = i % {{ count }}u;
    var z = vec2<f32>(0.0);
    if (e < {{ terms }}u) {
        let at = row * {{ 2 * source }}u + e;
        var a = vec2<f32>(x[at], x[at + {{ source }}u]);
{% if stage == "spread" and inverse %}
        a = a.yx;
{% endif %}
        let w = vec2<f32>(factor[e], factor[e + {{ terms }}u]);
        z = vec2<f32>(a.x * w.x - a.y * w.y, a.x * w.y + a.y * w.x);
    }
{% if stage == "gather" %}
    z = z{{ ".yx" if inverse else "" }} * SCALE;
{% endif %}
    let to = row * {{ 2 * count }}u + e;
    y[to] = z.x;
    y[to + {{ count }}u] = z.y;
}
