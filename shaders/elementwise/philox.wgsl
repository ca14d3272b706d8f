// Philox 4x32-10 words, and uniform and normal numbers made from them; a thread makes one block of 4.
{% set out = "u32" if kind == 0 else "f32" %}
@group(0) @binding(0) var<storage, {{ access[0] }}> seed: array<u32>;
{% if kind == 2 %}
@group(0) @binding(1) var<storage, {{ access[1] }}> table: array<u32>;
{% endif %}
{% set last = 2 if kind == 2 else 1 %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<{{ out }}>;

// The upper half of a product of two words, from products of their halves.
fn high_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u);
}

{% if kind == 2 %}
fn number(bits: u32) -> f32 {
    let u = max(bits >> 1u, 1u);
    let octave = countLeadingZeros(u) - 1u;
    let rest = (u << octave) & 0x3fffffffu;
    let index = octave * 257u + (rest >> 22u);
    let fine = table[index] - (((table[index] - table[index + 1u]) * ((rest >> 9u) & 8191u)) >> 13u);
    let z = f32((fine + 16u) >> 5u) * 4.76837158203125e-7;
    return select(z, -z, (bits & 1u) == 1u);
}
{% elif kind == 1 %}
fn number(bits: u32) -> f32 { return f32(bits >> 8u) * 5.9604644775390625e-8; }
{% else %}
fn number(bits: u32) -> u32 { return bits; }
{% endif %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let block = (wid.x + wid.y * FOLD) * 256u + lane;
    if (block * 4u >= COUNT) { return; }
    var c = vec4<u32>(block, 0u, STREAM, 0u);
    var k = vec2<u32>(seed[0], {{ "seed[1]" if words > 1 else "0u" }});
    for (var round = 0u; round < 10u; round++) { // trips: 10
        c = vec4<u32>(
            high_product(c.z, 0xCD9E8D57u) ^ c.y ^ k.x,
            c.z * 0xCD9E8D57u,
            high_product(c.x, 0xD2511F53u) ^ c.w ^ k.y,
            c.x * 0xD2511F53u,
        );
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    for (var j = 0u; j < 4u; j++) { // trips: 4
        if (block * 4u + j < COUNT) { y[block * 4u + j] = number(c[j]); }
    }
}
