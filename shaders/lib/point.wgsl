{# Point functions of the elementwise table that WGSL lacks or leaves undefined somewhere, for four
   lanes. An elementwise kernel includes those that it calls. #}
// x, of which a compiler knows nothing; zero is 0 at run time.
fn opaque(x: vec4<f32>, zero: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(zero));
}

fn nan_like(x: vec4<f32>) -> vec4<f32> {
    // Made from run-time bits: WGSL forbids NaN as a constant.
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) & vec4<u32>(0u)) | vec4<u32>(0x7fc00000u));
}

// Drivers may assume that there is no NaN, and then x == x and select(x, 0, x < 0) lose it; bits don't.
fn nan_bits(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

// By its sign bit: 0 - x is not -0 for 0.
fn negative_f32(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(0x80000000u));
}

fn negative_i32(x: vec4<i32>) -> vec4<i32> { return vec4<i32>(0) - x; }

fn negative_u32(x: vec4<u32>) -> vec4<u32> { return vec4<u32>(0u) - x; }

fn relu_f32(x: vec4<f32>) -> vec4<f32> { return select(max(x, vec4<f32>(0.0)), x, nan_bits(x)); }

fn relu_i32(x: vec4<i32>) -> vec4<i32> { return max(x, vec4<i32>(0)); }

fn relu_u32(x: vec4<u32>) -> vec4<u32> { return x; }

// A sum with NaN is NaN.
fn maximum_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(max(x, y), x + y, nan_bits(x) | nan_bits(y));
}

fn maximum_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> { return max(x, y); }

fn maximum_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> { return max(x, y); }

fn minimum_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return select(min(x, y), x + y, nan_bits(x) | nan_bits(y));
}

fn minimum_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> { return min(x, y); }

fn minimum_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> { return min(x, y); }

fn sign_f32(x: vec4<f32>) -> vec4<f32> {
    return select(select(x, vec4<f32>(1.0), x > vec4<f32>(0.0)), vec4<f32>(-1.0), x < vec4<f32>(0.0));
}

fn sign_i32(x: vec4<i32>) -> vec4<i32> { return sign(x); }

fn sign_u32(x: vec4<u32>) -> vec4<u32> { return min(x, vec4<u32>(1u)); }

fn infinity_like(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) & vec4<u32>(0u)) | vec4<u32>(0x7f800000u));
}

// The driver's exp and log may lose a NaN, and log may give anything at 0 and below.
fn exponential(x: vec4<f32>) -> vec4<f32> { return keep_nan(x, exp(x)); }

fn logarithm(x: vec4<f32>) -> vec4<f32> {
    let y = select(log(x), -infinity_like(x), x == vec4<f32>(0.0));
    return keep_nan(x, select(y, nan_like(x), x < vec4<f32>(0.0)));
}

// exp(x) - 1: Taylor near 0, where the subtraction would cancel.
fn expm1(x: vec4<f32>) -> vec4<f32> {
    let t = clamp(x, vec4<f32>(-0.6), vec4<f32>(0.6));
    let near = t + t * t * (0.5 + t * (0.16666667 + t * (0.041666667 + t * (0.0083333333 + t * (0.0013888889
        + t * (0.00019841270 + t * (0.000024801587 + t * 0.0000027557319)))))));
    return keep_nan(x, select(exp(x) - 1.0, near, abs(x) <= vec4<f32>(0.5)));
}

// log(1 + x): 2 atanh(x / (2 + x)) near 0.
fn log1p(x: vec4<f32>) -> vec4<f32> {
    let t = clamp(x, vec4<f32>(-0.5), vec4<f32>(0.5));
    let s = t / (2.0 + t);
    let z = s * s;
    let near = 2.0 * s + s * z * (0.66666667 + z * (0.4 + z * (0.28571429 + z * (0.22222222
        + z * (0.18181818 + z * 0.15384615)))));
    return select(logarithm(1.0 + x), near, abs(x) < vec4<f32>(0.5));
}

// The sine of an angle plus quarter turns: pi/2 in three parts, then a polynomial on -pi/4 to pi/4.
fn sine_after(x: vec4<f32>, turns: i32) -> vec4<f32> {
    let n = round(x * 0.636619772367581343);
    let r = ((x - n * 1.5703125) - n * 0.0004839897155761719) + n * 0.00000016292067961387602;
    let quadrant = vec4<i32>(n) + vec4<i32>(turns);
    let z = r * r;
    let s = r + r * z * (-0.16666666631589003 + z * (0.00833332878229936 + z * (-0.00019839202172159784
        + z * 0.000002717345361627713)));
    let c = 1.0 + z * (-0.4999999961485576 + z * (0.04166661669239419 + z * (-0.0013886617996113834
        + z * 0.000024379830963894595)));
    let y = select(s, c, (quadrant & vec4<i32>(1)) == vec4<i32>(1));
    return select(y, -y, (quadrant & vec4<i32>(2)) == vec4<i32>(2));
}

fn sine(x: vec4<f32>) -> vec4<f32> { return sine_after(x, 0); }

fn cosine(x: vec4<f32>) -> vec4<f32> { return sine_after(x, 1); }

fn atangent(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    // Beyond tan(3 pi / 8) and tan(pi / 8) the angle is taken from pi/2 and pi/4.
    let far = a > vec4<f32>(2.414213562);
    let middle = !far & (a > vec4<f32>(0.4142135624));
    let s = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / a, far);
    let z = s * s;
    let p = s * (0.9999999993712274 + z * (-0.33333306893036774 + z * (0.1999818304075261
        + z * (-0.1423953266624381 + z * (0.10569828793087244 + z * -0.060263052137509994)))));
    let y = p + select(select(vec4<f32>(0.0), vec4<f32>(0.7853981634), middle), vec4<f32>(1.570796327), far);
    return select(y, -y, x < vec4<f32>(0.0));
}

fn atangent2(y: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let a = max(abs(x), abs(y));
    let b = min(abs(x), abs(y));
    // Both infinite counts as equal, both zero as an angle of 0.
    let ratio = select(select(b / a, vec4<f32>(1.0), a == b), vec4<f32>(0.0), a == vec4<f32>(0.0));
    var t = atangent(ratio);
    t = select(t, 1.570796327 - t, abs(y) > abs(x));
    // The sign bit tells -0 from 0.
    t = select(t, 3.141592654 - t, (bitcast<vec4<u32>>(x) >> vec4<u32>(31u)) == vec4<u32>(1u));
    t = select(t, -t, (bitcast<vec4<u32>>(y) >> vec4<u32>(31u)) == vec4<u32>(1u));
    return select(t, nan_like(t), nan_bits(x) | nan_bits(y));
}

fn asine(x: vec4<f32>) -> vec4<f32> {
    let y = atangent2(x, sqrt(max((1.0 - x) * (1.0 + x), vec4<f32>(0.0))));
    return select(nan_like(x), y, abs(x) <= vec4<f32>(1.0));
}

fn acosine(x: vec4<f32>) -> vec4<f32> {
    let y = atangent2(sqrt(max((1.0 - x) * (1.0 + x), vec4<f32>(0.0))), x);
    return select(nan_like(x), y, abs(x) <= vec4<f32>(1.0));
}

// Half of exp(|x|) as a product, since exp itself overflows before sinh and cosh do.
fn hyperbolic_sine(x: vec4<f32>) -> vec4<f32> {
    let e = exp(abs(x) * 0.5);
    let far = sign_f32(x) * ((0.5 * e) * e - 0.5 / (e * e));
    let z = x * x;
    let near = x * (1.0 + z * (0.16666667 + z * (0.0083333333 + z * (0.00019841270 + z * 0.0000027557319))));
    return keep_nan(x, select(far, near, abs(x) < vec4<f32>(1.0)));
}

fn hyperbolic_cosine(x: vec4<f32>) -> vec4<f32> {
    let e = exp(abs(x) * 0.5);
    return keep_nan(x, (0.5 * e) * e + 0.5 / (e * e));
}

fn area_sine(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let near = log1p(a + a * a / (1.0 + sqrt(a * a + 1.0)));
    let y = select(near, log(a) + 0.6931471806, a > vec4<f32>(1e8));
    return keep_nan(x, select(y, -y, x < vec4<f32>(0.0)));
}

fn area_cosine(x: vec4<f32>) -> vec4<f32> {
    let t = x - 1.0;
    let near = log1p(t + sqrt(max(2.0 * t + t * t, vec4<f32>(0.0))));
    let y = select(near, log(x) + 0.6931471806, x > vec4<f32>(1e8));
    return select(nan_like(x), y, x >= vec4<f32>(1.0));
}

fn area_tangent(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let y = 0.5 * log1p(2.0 * a / (1.0 - a));
    return select(nan_like(x), select(y, -y, x < vec4<f32>(0.0)), a <= vec4<f32>(1.0));
}

fn softplus(x: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(0.0), x < vec4<f32>(0.0)) + log1p(exp(-abs(x)));
}

fn quotient_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> { return x / y; }

// WGSL gives x for x / 0.
fn quotient_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> {
    return select(x / y, vec4<i32>(0), y == vec4<i32>(0));
}

fn quotient_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    return select(x / y, vec4<u32>(0u), y == vec4<u32>(0u));
}

// Long division in binary: every subtraction is exact. Right for |x / y| below 2^64.
fn remainder_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let b = abs(y);
    var r = abs(x);
    for (var k = 63; k >= 0; k--) { // trips: 64
        let step = b * exp2(f32(k));
        r = select(r, r - step, r >= step);
    }
    let defined = (b > vec4<f32>(0.0)) & (abs(x) <= vec4<f32>(3.4e38)) & !nan_bits(y);
    return select(nan_like(x), select(r, -r, x < vec4<f32>(0.0)), defined);
}

// Not x % y: Vulkan leaves the remainder of a negative integer undefined, and NVIDIA's is another number.
fn remainder_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> {
    return select(x - y * (x / y), vec4<i32>(0), y == vec4<i32>(0));
}

fn remainder_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    return select(x % y, vec4<u32>(0u), y == vec4<u32>(0u));
}

fn modulo_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let r = remainder_f32(x, y);
    let other_side = !(r == vec4<f32>(0.0)) & ((r < vec4<f32>(0.0)) != (y < vec4<f32>(0.0)));
    return select(r, r + y, other_side);
}

fn modulo_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> {
    let r = remainder_i32(x, y);
    let other_side = (r != vec4<i32>(0)) & ((r < vec4<i32>(0)) != (y < vec4<i32>(0)));
    return select(r, r + y, other_side);
}

fn modulo_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> { return remainder_u32(x, y); }

// pow with C's meaning of signs, zeros, infinities and NaN, by bits: WGSL leaves x <= 0 undefined, and a driver may
// assume that there is no infinity and take subnormals for 0.
fn power_f32(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let least = vec4<u32>(0x00800000u);
    let one = vec4<u32>(0x3f800000u);
    let infinity = vec4<u32>(0x7f800000u);
    let negative = bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u);
    let a = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    let b = bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu);
    // A subnormal is so many times 2^-149.
    let small = exp2(y * (log2(vec4<f32>(max(a, vec4<u32>(1u)))) - 149.0));
    let near = select(pow(abs(x), y), small, a < least);
    let grows = (a > one) != (bitcast<vec4<u32>>(y) >= vec4<u32>(0x80000000u));
    let far = select(vec4<f32>(0.0), infinity_like(x), grows);
    // x to the power 1 is x, which rounding could bring to infinity.
    let known = select(near, abs(x), bitcast<vec4<u32>>(y) == one);
    let r = select(select(known, far, (a == vec4<u32>(0u)) | (a == infinity) | (b == infinity)), vec4<f32>(1.0), a == one);
    // From 2^24 on all numbers are even. A subnormal may pass for 0 in arithmetic.
    let fraction = (b < least) & (b != vec4<u32>(0u));
    let whole = ((floor(y) == y) & !fraction) | (b >= vec4<u32>(0x4b800000u));
    let odd = (b < vec4<u32>(0x4b800000u)) & (floor(y) == y) & !(floor(y * 0.5) * 2.0 == y);
    let signed = select(r, -r, negative & odd);
    let none = negative & !whole & (a != vec4<u32>(0u)) & (a < infinity);
    let power = select(signed, nan_like(x), none | (a > infinity) | (b > infinity));
    return select(power, vec4<f32>(1.0), (b == vec4<u32>(0u)) | (bitcast<vec4<u32>>(x) == one));
}

// The square root by bits, for the same reasons; 0 for -0 and infinity for minus infinity.
fn power_half(x: vec4<f32>) -> vec4<f32> {
    let infinity = vec4<u32>(0x7f800000u);
    let a = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    // A subnormal is so many times 2^-149.
    let small = sqrt(vec4<f32>(a)) * 3.7433921e-23;
    let r = select(select(sqrt(abs(x)), small, a < vec4<u32>(0x00800000u)), infinity_like(x), a == infinity);
    let negative = (bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u)) & (a != vec4<u32>(0u)) & (a < infinity);
    return select(r, nan_like(x), negative | (a > infinity));
}

fn power_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    var r = vec4<u32>(1u);
    var base = x;
    var e = y;
    for (var bit = 0u; bit < 32u; bit++) { // trips: 32
        r = select(r, r * base, (e & vec4<u32>(1u)) == vec4<u32>(1u));
        base *= base;
        e >>= vec4<u32>(1u);
    }
    return r;
}

fn power_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> {
    let whole = bitcast<vec4<i32>>(power_u32(bitcast<vec4<u32>>(x), bitcast<vec4<u32>>(max(y, vec4<i32>(0)))));
    let odd = (y & vec4<i32>(1)) == vec4<i32>(1);
    let minus = select(vec4<i32>(1), vec4<i32>(-1), odd);
    let unit = select(select(vec4<i32>(0), minus, x == vec4<i32>(-1)), vec4<i32>(1), x == vec4<i32>(1));
    return select(whole, unit, y < vec4<i32>(0));
}

fn shift_right_i32(x: vec4<i32>, y: vec4<u32>) -> vec4<i32> { return x >> min(y, vec4<u32>(31u)); }

fn shift_right_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    return select(x >> (y & vec4<u32>(31u)), vec4<u32>(0u), y > vec4<u32>(31u));
}

fn exclusive_i32(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> { return x ^ y; }

fn exclusive_u32(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> { return x ^ y; }

fn exclusive_bool(x: vec4<bool>, y: vec4<bool>) -> vec4<bool> { return x != y; }

fn from_bf16(h: vec4<u32>) -> vec4<f32> { return bitcast<vec4<f32>>(h << vec4<u32>(16u)); }

fn to_bf16(x: vec4<f32>) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(x);
    let rounded = (bits + vec4<u32>(0x7fffu) + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u))) >> vec4<u32>(16u);
    let nan = (bits & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(rounded, (bits >> vec4<u32>(16u)) | vec4<u32>(0x40u), nan);
}

fn from_i8(b: vec4<u32>) -> vec4<i32> {
    return bitcast<vec4<i32>>(b << vec4<u32>(24u)) >> vec4<u32>(24u);
}
