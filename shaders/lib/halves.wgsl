// Half precision by its bits, rounded to nearest with ties to even. A driver's own functions may round otherwise, or drop
// subnormals. Only the lower 16 bits of h count.
fn from_f16(h: vec4<u32>) -> vec4<f32> {
    let magnitude = h & vec4<u32>(0x7fffu);
    let normal = bitcast<vec4<f32>>((magnitude << vec4<u32>(13u)) + vec4<u32>(0x38000000u));
    let special = bitcast<vec4<f32>>((magnitude << vec4<u32>(13u)) | vec4<u32>(0x7f800000u));
    let small = vec4<f32>(magnitude) * 5.9604644775390625e-8;
    var x = select(normal, special, magnitude >= vec4<u32>(0x7c00u));
    x = select(x, small, magnitude < vec4<u32>(0x400u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | ((h & vec4<u32>(0x8000u)) << vec4<u32>(16u)));
}

fn to_f16(x: vec4<f32>) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(x);
    let a = bits & vec4<u32>(0x7fffffffu);
    let odd = (a >> vec4<u32>(13u)) & vec4<u32>(1u);
    let normal = (a + vec4<u32>(0xc8000fffu) + odd) >> vec4<u32>(13u);
    // Adding 1/2 leaves multiples of 2^-24, the step of subnormals, in the low bits.
    let tiny = bitcast<vec4<u32>>(bitcast<vec4<f32>>(a) + 0.5) - vec4<u32>(0x3f000000u);
    var h = select(normal, tiny, a < vec4<u32>(0x38800000u));
    h = select(h, vec4<u32>(0x7c00u), a >= vec4<u32>(0x47800000u));
    h = select(h, vec4<u32>(0x7e00u), a > vec4<u32>(0x7f800000u));
    return h | ((bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u));
}
