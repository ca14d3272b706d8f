// One Stockham pass through global memory; one butterfly per invocation.
{% from "lib/butterfly.wgsl" import butterfly %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> twiddle: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;
{% set re_in, im_in = ("N", "0u") if inverse and first else ("0u", "N") %}
{% set re_out, im_out = ("N", "0u") if inverse and last else ("0u", "N") %}
{% set m = length // radix %}

fn cmul(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= ROWS * {{ n // radix }}u) { return; }
    let base = i / {{ n // radix }}u * 2u * N;
    let t = i % {{ n // radix }}u;
    let p = t / STRIDE;
    let q = t % STRIDE;
{% for a in range(radix) %}
    let i{{ a }} = base + q + STRIDE * (p + {{ a * m }}u);
    let a{{ a }} = vec2<f32>(x[i{{ a }} + {{ re_in }}], x[i{{ a }} + {{ im_in }}]);
{% endfor %}
{{ butterfly(radix, roots) }}
    let to = base + q + STRIDE * {{ radix }}u * p;
    y[to + {{ re_out }}] = b0.x * SCALE;
    y[to + {{ im_out }}] = b0.y * SCALE;
{% for j in range(1, radix) %}
    {
        let w = {{ offset + (j - 1) * m }}u + p;
        let z = cmul(b{{ j }}, vec2<f32>(twiddle[w], twiddle[COUNT + w])) * SCALE;
        y[to + {{ j * stride }}u + {{ re_out }}] = z.x;
        y[to + {{ j * stride }}u + {{ im_out }}] = z.y;
    }
{% endfor %}
}
