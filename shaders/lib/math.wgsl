// Functions that WGSL lacks or leaves inexact, over four lanes.
// tanh and erf are Chebyshev interpolations in float64, see cython_src/kernels/vecmath.h.

fn safe_tanh(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    var p = vec4<f32>(0.002110568152052702);
    p = p * z - 0.008139527574354696;
    p = p * z + 0.021683855333810786;
    p = p * z - 0.05394321622925089;
    p = p * z + 0.13333170451633397;
    p = p * z - 0.33333329326566824;
    p = p * z + 0.9999999998379919;
    // Above 10 the result is 1, and exp would overflow.
    let a = min(abs(x), vec4<f32>(10.0));
    let big = sign(x) * (1.0 - 2.0 / (exp(2.0 * a) + 1.0));
    return select(big, x * p, abs(x) < vec4<f32>(0.63));
}

fn erf(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    var p = vec4<f32>(-1.0324887770813573e-05);
    p = p * z + 0.00011463492141477785;
    p = p * z - 0.0008507305082298148;
    p = p * z + 0.005222380040445331;
    p = p * z - 0.02686583028995897;
    p = p * z + 0.11283788094017569;
    p = p * z - 0.3761263875951135;
    p = p * z + 1.1283791670860186;
    let t = min(abs(x), vec4<f32>(4.0));
    var q = vec4<f32>(-4.850664559235695e-08);
    q = q * t + 1.1536626756567346e-06;
    q = q * t - 1.0432130444589652e-05;
    q = q * t + 2.7010111052649312e-05;
    q = q * t + 0.000313544219464039;
    q = q * t - 0.004025248557725955;
    q = q * t + 0.025132062711605063;
    q = q * t - 0.10856689214495215;
    q = q * t - 0.6329634263619704;
    q = q * t - 1.1297387384169142;
    q = q * t + 0.00022550241591989817;
    let big = sign(x) * (1.0 - exp(q));
    return select(big, x * p, abs(x) < vec4<f32>(0.92));
}

fn sigmoid(x: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-x));
}

// WGSL's pow is undefined for a negative base; a whole exponent gives it a sign here.
fn power(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let r = pow(abs(x), y);
    let odd = abs(y - 2.0 * floor(y * 0.5)) == vec4<f32>(1.0);
    return select(r, -r, (x < vec4<f32>(0.0)) & odd);
}
