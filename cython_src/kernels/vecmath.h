/* Point functions that the compiler turns into vector code: no branches, no calls in f32.

   f32 exp, log, tanh, erf and sigmoid are polynomials, within a few units in the last place; f64
   takes the C library's. The coefficients of tanh and erf are Chebyshev interpolations of degree 6,
   7 and 10 in float64. NaN and infinities follow C. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define PICK(condition, a, b) ((condition) ? (a) : (b))

static inline float as_float(int32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline int32_t as_bits(float x)
{
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float rlx_exp_f32(float x)
{
    /* Beyond these the result is infinite or zero anyway; a NaN passes both comparisons. */
    float t = PICK(x > 89.0f, 89.0f, x);
    t = PICK(t < -105.0f, -105.0f, t);
    /* Adding 1.5 * 2^23 rounds to the nearest integer. */
    float n = (t * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
    float r = t - n * 0.693359375f;
    r = r + n * 2.12194440054690583e-4f;
    float p = 1.989098174101498e-4f;
    p = p * r + 1.3933642665224773e-3f;
    p = p * r + 8.333310934390034e-3f;
    p = p * r + 4.166646499149443e-2f;
    p = p * r + 1.666666668161003e-1f;
    p = p * r + 5.000000013459092e-1f;
    p = p * r * r + r + 1.0f;
    /* 2^n in two halves, so that subnormal results and overflow come out right. */
    int32_t whole = (int32_t)PICK(n == n, n, 0.0f), half = whole >> 1;
    return p * as_float((half + 127) << 23) * as_float((whole - half + 127) << 23);
}

static inline float rlx_log_f32(float x)
{
    int tiny = x < 1.17549435e-38f;
    float scaled = PICK(tiny, x * 8388608.0f, x);
    int32_t bits = as_bits(scaled);
    int32_t e = ((bits - 0x3f3504f3) >> 23) - PICK(tiny, 23, 0);
    float m = as_float(bits - ((bits - 0x3f3504f3) & (int32_t)0xff800000));
    /* log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: Taylor to s^11. */
    float f = m - 1.0f, s = f / (m + 1.0f), z = s * s;
    float tail = z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * (0.222222222f + z * 0.181818182f))));
    /* 2 s = f - s f keeps the leading term exact near m = 1. */
    float r = f - s * (f - tail);
    float k = (float)e;
    float y = k * 0.693359375f + (r + k * -2.12194440054690583e-4f);
    y = PICK(x == INFINITY, INFINITY, y);
    y = PICK(x == 0.0f, -INFINITY, y);
    return PICK(x >= 0.0f, y, NAN);
}

static inline float rlx_tanh_f32(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 0.002110568152052702f;
    p = p * z + -0.008139527574354696f;
    p = p * z + 0.021683855333810786f;
    p = p * z + -0.05394321622925089f;
    p = p * z + 0.13333170451633397f;
    p = p * z + -0.33333329326566824f;
    p = p * z + 0.9999999998379919f;
    float big = copysignf(1.0f - 2.0f / (rlx_exp_f32(2.0f * a) + 1.0f), x);
    return PICK(a < 0.63f, x * p, big);
}

static inline float rlx_erf_f32(float x)
{
    float a = fabsf(x), z = x * x;
    float p = -1.0324887770813573e-05f;
    p = p * z + 0.00011463492141477785f;
    p = p * z + -0.0008507305082298148f;
    p = p * z + 0.005222380040445331f;
    p = p * z + -0.02686583028995897f;
    p = p * z + 0.11283788094017569f;
    p = p * z + -0.3761263875951135f;
    p = p * z + 1.1283791670860186f;
    /* log erfc(a); above 4 the function is 1 in f32. A NaN takes the polynomial of x. */
    float t = PICK(a > 4.0f, 4.0f, a);
    float q = -4.850664559235695e-08f;
    q = q * t + 1.1536626756567346e-06f;
    q = q * t + -1.0432130444589652e-05f;
    q = q * t + 2.7010111052649312e-05f;
    q = q * t + 0.000313544219464039f;
    q = q * t + -0.004025248557725955f;
    q = q * t + 0.025132062711605063f;
    q = q * t + -0.10856689214495215f;
    q = q * t + -0.6329634263619704f;
    q = q * t + -1.1297387384169142f;
    q = q * t + 0.00022550241591989817f;
    float big = copysignf(1.0f - rlx_exp_f32(q), x);
    return PICK(a >= 0.92f, big, x * p);
}

static inline float rlx_sigmoid_f32(float x) { return 1.0f / (1.0f + rlx_exp_f32(-x)); }
static inline float rlx_sqrt_f32(float x) { return sqrtf(x); }
static inline float rlx_abs_f32(float x) { return fabsf(x); }
static inline float rlx_pow_f32(float x, float y) { return powf(x, y); }
static inline float rlx_div_f32(float x, float y) { return x / y; }

static inline double rlx_exp_f64(double x) { return exp(x); }
static inline double rlx_log_f64(double x) { return log(x); }
static inline double rlx_tanh_f64(double x) { return tanh(x); }
static inline double rlx_erf_f64(double x) { return erf(x); }
static inline double rlx_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
static inline double rlx_sqrt_f64(double x) { return sqrt(x); }
static inline double rlx_abs_f64(double x) { return fabs(x); }
static inline double rlx_pow_f64(double x, double y) { return pow(x, y); }
static inline double rlx_div_f64(double x, double y) { return x / y; }

/* Division that never traps: 0 for y = 0, and the wrapped quotient for MIN / -1. */
#define INTEGER_FUNCTIONS(suffix, T, U)                                                          \
    static inline T rlx_abs_##suffix(T x) { return x < 0 ? (T)(0 - (U)x) : x; }                  \
    static inline T rlx_div_##suffix(T x, T y)                                                   \
    {                                                                                            \
        return y == 0 ? 0 : (y == (T)-1 && (T)-1 < 0) ? (T)(0 - (U)x) : x / y;                   \
    }
INTEGER_FUNCTIONS(i32, int32_t, uint32_t)
INTEGER_FUNCTIONS(i64, int64_t, uint64_t)
INTEGER_FUNCTIONS(u32, uint32_t, uint32_t)
