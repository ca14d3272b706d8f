/* Scalar functions. The compiler makes vector code of f32 exp, log, tanh and pow where they are called in a loop. f64 uses
   the C library. Vector functions are in functions.h. The coefficients of tanh are a Chebyshev interpolation of degree 6
   in float64. NaN and infinities follow C. */
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
    /* Outside of this range the result is infinite or zero. NaN passes both comparisons. */
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

static inline double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

static inline uint64_t as_long_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

#if VECTOR_BYTES >= 32 || defined(NEON)
/* exp2(y log2 |x|) in double precision. Both series are off by less than 1e-9 of the result, so that only the rounding
   to float counts, and powers that are floats come out exact. */
static RLX_INLINE float rlx_pow_f32(float base, float power)
{
    const double x = base, y = power, a = fabs(x), reach = fabs(y), rounding = 6755399441055744.0;
    /* The mantissa m is from sqrt(1/2) to sqrt(2). Floats below the normal ones are normal doubles. */
    const uint64_t one = 0x3ff0000000000000u, bits = as_long_bits(a), moved = bits + (one - 0x3fe6a09e667f3bcdu);
    const double e = as_double((moved >> 52) | 0x4330000000000000u) - 4503599627371519.0; /* 2^52 + 1023 */
    const double m = as_double(bits - (moved & 0xfff0000000000000u) + one);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    double log2 = e + s * p * 2.8853900817779268; /* 2 / log(2) */
    log2 = PICK(a < INFINITY, log2, a);
    log2 = PICK(a == 0.0, -INFINITY, log2);
    double t = y * log2;
    t = PICK(t > 1000.0, 1000.0, t); /* far beyond infinity and zero; NaN stays */
    t = PICK(t < -1000.0, -1000.0, t);
    const double shifted = t + rounding, r = (t - (shifted - rounding)) * 0.69314718055994531;
    double q = 1.0 / 40320;
    q = q * r + 1.0 / 5040;
    q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120;
    q = q * r + 1.0 / 24;
    q = q * r + 1.0 / 6;
    q = q * r + 0.5;
    q = q * r + 1.0;
    q = q * r + 1.0;
    double result = q * as_double((as_long_bits(shifted) << 52) + one);
    /* Negative numbers have powers that are whole. Floats from 2^25 on are even. */
    const double nearest = y + rounding;
    const int even = reach >= 33554432.0, whole = even | (nearest - rounding == y);
    const uint64_t odd = PICK(whole & !even, as_long_bits(nearest) << 63, 0);
    result = PICK((x < 0.0) & (a < INFINITY) & !whole, NAN, result);
    result = as_double(as_long_bits(result) ^ (as_long_bits(x) & odd));
    result = PICK((y == 0.0) | (x == 1.0) | ((a == 1.0) & (reach == INFINITY)), 1.0, result);
    return (float)result;
}
#else
/* Two doubles at a time take longer than the C library. */
static inline float rlx_pow_f32(float x, float y) { return powf(x, y); }
#endif

static inline double rlx_pow_f64(double x, double y) { return pow(x, y); }

static inline double rlx_exp_f64(double x) { return exp(x); }
static inline double rlx_log_f64(double x) { return log(x); }
static inline double rlx_tanh_f64(double x) { return tanh(x); }
static inline double rlx_erf_f64(double x) { return erf(x); }
static inline double rlx_expm1_f64(double x) { return expm1(x); }
static inline double rlx_log1p_f64(double x) { return log1p(x); }
static inline double rlx_sin_f64(double x) { return sin(x); }
static inline double rlx_cos_f64(double x) { return cos(x); }
static inline double rlx_softplus_f64(double x) { return (x < 0 ? 0 : x) + log1p(exp(-fabs(x))); }
static inline double rlx_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

/* Functions of the C library for both types. F is the suffix of the float versions. */
#define LIBRARY_FUNCTIONS(suffix, T, F)                                                           \
    static inline T rlx_sqrt_##suffix(T x) { return sqrt##F(x); }                                 \
    static inline T rlx_abs_##suffix(T x) { return fabs##F(x); }                                  \
    static inline T rlx_sign_##suffix(T x) { return x > 0 ? 1 : x < 0 ? -1 : x; }                 \
    static inline T rlx_unit_##suffix(T x) { return x < 0 ? 0 : x > 1 ? 1 : x; }                  \
    static inline T rlx_exp2_##suffix(T x) { return exp2##F(x); }                                 \
    static inline T rlx_tan_##suffix(T x) { return tan##F(x); }                                   \
    static inline T rlx_asin_##suffix(T x) { return asin##F(x); }                                 \
    static inline T rlx_acos_##suffix(T x) { return acos##F(x); }                                 \
    static inline T rlx_atan_##suffix(T x) { return atan##F(x); }                                 \
    static inline T rlx_sinh_##suffix(T x) { return sinh##F(x); }                                 \
    static inline T rlx_cosh_##suffix(T x) { return cosh##F(x); }                                 \
    static inline T rlx_asinh_##suffix(T x) { return asinh##F(x); }                               \
    static inline T rlx_acosh_##suffix(T x) { return acosh##F(x); }                               \
    static inline T rlx_atanh_##suffix(T x) { return atanh##F(x); }                               \
    static inline T rlx_ceil_##suffix(T x) { return ceil##F(x); }                                 \
    static inline T rlx_floor_##suffix(T x) { return floor##F(x); }                               \
    static inline T rlx_round_##suffix(T x) { return rint##F(x); }                                \
    static inline T rlx_atan2_##suffix(T x, T y) { return atan2##F(x, y); }                       \
    static inline T rlx_div_##suffix(T x, T y) { return x / y; }                                  \
    static inline T rlx_fmod_##suffix(T x, T y) { return fmod##F(x, y); }                         \
    static inline T rlx_mod_##suffix(T x, T y)                                                    \
    {                                                                                             \
        const T r = fmod##F(x, y);                                                                \
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                          \
    }
LIBRARY_FUNCTIONS(f32, float, f)
LIBRARY_FUNCTIONS(f64, double, )

/* Division that never traps: 0 for y = 0, and the wrapped quotient for MIN / -1. */
#define INTEGER_FUNCTIONS(suffix, T, U)                                                           \
    static inline T rlx_abs_##suffix(T x) { return x < 0 ? (T)(0 - (U)x) : x; }                   \
    static inline T rlx_sign_##suffix(T x) { return x > 0 ? 1 : x < 0 ? (T)-1 : 0; }              \
    static inline T rlx_div_##suffix(T x, T y)                                                    \
    {                                                                                             \
        return y == 0 ? 0 : (y == (T)-1 && (T)-1 < 0) ? (T)(0 - (U)x) : x / y;                    \
    }                                                                                             \
    static inline T rlx_fmod_##suffix(T x, T y)                                                   \
    {                                                                                             \
        return y == 0 || (y == (T)-1 && (T)-1 < 0) ? 0 : x % y;                                   \
    }                                                                                             \
    static inline T rlx_mod_##suffix(T x, T y)                                                    \
    {                                                                                             \
        const T r = rlx_fmod_##suffix(x, y);                                                      \
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                          \
    }                                                                                             \
    static inline T rlx_shift_left_##suffix(T x, T y)                                             \
    {                                                                                             \
        return (U)y < sizeof(T) * 8 ? (T)((U)x << (U)y) : 0;                                      \
    }                                                                                             \
    static inline T rlx_shift_right_##suffix(T x, T y)                                            \
    {                                                                                             \
        return (U)y < sizeof(T) * 8 ? x >> (U)y : (T)(x < 0 ? -1 : 0);                            \
    }                                                                                             \
    static inline T rlx_pow_##suffix(T x, T y)                                                    \
    {                                                                                             \
        if (y < 0) return x == 1 ? 1 : x == (T)-1 ? (y & 1 ? x : 1) : 0;                          \
        U r = 1, b = (U)x;                                                                        \
        for (U e = (U)y; e; e >>= 1, b *= b)                                                      \
            if (e & 1) r *= b;                                                                    \
        return (T)r;                                                                              \
    }
INTEGER_FUNCTIONS(i32, int32_t, uint32_t)
INTEGER_FUNCTIONS(i64, int64_t, uint64_t)
INTEGER_FUNCTIONS(u32, uint32_t, uint32_t)
