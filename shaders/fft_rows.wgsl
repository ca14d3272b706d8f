// Whole transforms in workgroup memory, {{ per_group }} per workgroup, by Stockham passes (the
// indexing is that of rlx.ops.fft.Plan). An inverse swaps real and imaginary parts on both ends.
{% from "lib/butterfly.wgsl" import butterfly with context %}
{% set total = per_group * n %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> roots: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

var<workgroup> even: array<vec2<f32>, {{ total }}>;
var<workgroup> odd: array<vec2<f32>, {{ total }}>;

// z times a twiddle factor of the table.
fn turn(z: vec2<f32>, at: u32) -> vec2<f32> {
    let re = roots[at];
    let im = roots[at + COUNT];
    return vec2<f32>(z.x * re - z.y * im, z.x * im + z.y * re);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let row0 = g * PER_GROUP;
    for (var i = lane; i < {{ total }}u; i += 256u) {
        let row = row0 + i / N;
        var z = vec2<f32>(0.0);
        if (row < ROWS) {
            let at = row * {{ 2 * n }}u + i % N;
            z = vec2<f32>(x[at], x[at + N]);
        }
        even[i] = z{{ ".yx" if inverse }};
    }
    workgroupBarrier();
{% set ns = namespace(length=n, stride=1, source="even", target="odd") %}
{% for r in radices %}
{% set part = ns.length // r %}
{% set offset = offsets[loop.index0] %}
    // Radix {{ r }} at length {{ ns.length }}.
    for (var t = lane; t < {{ total // r }}u; t += 256u) {
        let base = (t / {{ n // r }}u) * N;
        let u = t % {{ n // r }}u;
        let q = u % {{ ns.stride }}u;
        let p = u / {{ ns.stride }}u;
        let from_at = base + q + {{ ns.stride }}u * p;
        let to_at = base + q + {{ ns.stride * r }}u * p;
{% for i in range(r) %}
        let x{{ i }} = {{ ns.source }}[from_at + {{ ns.stride * part * i }}u];
{% endfor %}
{{ butterfly(r) }}
        {{ ns.target }}[to_at] = y0;
{% for j in range(1, r) %}
{% if part == 1 %}
        {{ ns.target }}[to_at + {{ ns.stride * j }}u] = y{{ j }};
{% else %}
        {{ ns.target }}[to_at + {{ ns.stride * j }}u] = turn(y{{ j }}, p + {{ offset + (j - 1) * part }}u);
{% endif %}
{% endfor %}
    }
    workgroupBarrier();
{% set ns.length = part %}
{% set ns.stride = ns.stride * r %}
{% if ns.source == "even" %}
{% set ns.source = "odd" %}
{% set ns.target = "even" %}
{% else %}
{% set ns.source = "even" %}
{% set ns.target = "odd" %}
{% endif %}
{% endfor %}
    for (var i = lane; i < {{ total }}u; i += 256u) {
        let row = row0 + i / N;
        if (row < ROWS) {
            let at = row * {{ 2 * n }}u + i % N;
            let z = {{ ns.source }}[i]{{ ".yx" if inverse }} * SCALE;
            y[at] = z.x;
            y[at + N] = z.y;
        }
    }
}
