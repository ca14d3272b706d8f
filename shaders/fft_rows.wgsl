// Whole transforms in workgroup memory: Stockham passes between two copies of the rows.
// rlx/ops/fft.py defines the passes and the twiddle table; the inverse swaps the two parts.
{% from "lib/butterfly.wgsl" import butterfly %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> twiddle: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<f32>;

const TOTAL: u32 = PER_GROUP * N;
var<workgroup> s0: array<vec2<f32>, TOTAL>;
var<workgroup> s1: array<vec2<f32>, TOTAL>;

fn cmul(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let row0 = g * PER_GROUP;
    for (var i = lane; i < TOTAL; i += 256u) {
        let row = row0 + i / N;
        var z = vec2<f32>(0.0);
        if (row < ROWS) {
            let at = row * 2u * N + i % N;
            z = vec2<f32>(x[at + {{ "N" if inverse else "0u" }}], x[at + {{ "0u" if inverse else "N" }}]);
        }
        s0[i] = z;
    }
{% set state = namespace(length=n, stride=1) %}
{% for radix in radices %}
{% set source, target = ("s0", "s1") if loop.index0 % 2 == 0 else ("s1", "s0") %}
{% set m = state.length // radix %}
{% set offset = offsets[loop.index0] %}
    workgroupBarrier();
    for (var i = lane; i < {{ per_group * (n // radix) }}u; i += 256u) {
        let base = i / {{ n // radix }}u * N;
        let t = i % {{ n // radix }}u;
        let p = t / {{ state.stride }}u;
        let q = t % {{ state.stride }}u;
{% for a in range(radix) %}
        let a{{ a }} = {{ source }}[base + q + {{ state.stride }}u * (p + {{ a * m }}u)];
{% endfor %}
{{ butterfly(radix, roots) }}
        let to = base + q + {{ state.stride * radix }}u * p;
        {{ target }}[to] = b0;
{% for j in range(1, radix) %}
{% set w = offset + (j - 1) * m %}
        {{ target }}[to + {{ j * state.stride }}u] = cmul(b{{ j }}, vec2<f32>(twiddle[{{ w }}u + p], twiddle[COUNT + {{ w }}u + p]));
{% endfor %}
    }
{% set state.length = m %}
{% set state.stride = state.stride * radix %}
{% endfor %}
    workgroupBarrier();
    for (var i = lane; i < TOTAL; i += 256u) {
        let row = row0 + i / N;
        if (row < ROWS) {
            let z = {{ "s0" if radices|length % 2 == 0 else "s1" }}[i] * SCALE;
            let at = row * 2u * N + i % N;
            y[at + {{ "N" if inverse else "0u" }}] = z.x;
            y[at + {{ "0u" if inverse else "N" }}] = z.y;
        }
    }
}
