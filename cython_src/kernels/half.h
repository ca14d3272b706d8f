/* Half precision and bfloat16, held in 16 bits; rounding is to nearest, ties to even. */
typedef uint16_t rlx_f16;
typedef uint16_t rlx_bf16;

static inline float rlx_from_f16(rlx_f16 h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    /* Adding to the exponent corrects its bias. A subnormal is read as 2^-14 and a fraction, from which 2^-14 is
       subtracted: no f32 here is subnormal, which threads may be told to take for 0 (floats.h). */
    const uint32_t tiny = (uint32_t)as_bits(as_float((int32_t)(rest + 0x38800000u)) - 6.103515625e-05f);
    const uint32_t finite = PICK((h & 0x7c00) == 0, tiny, rest + 0x38000000u);
    const uint32_t special = rest | 0x7f800000u;
    return as_float((int32_t)(sign | PICK((h & 0x7c00) == 0x7c00, special, finite)));
}

static inline rlx_f16 rlx_to_f16(float x)
{
    const uint32_t bits = (uint32_t)as_bits(x), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffffu;
    const uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1)) >> 13;
    /* The addition of 1/2 leaves multiples of 2^-24, the spacing of subnormals, in the low bits. */
    const uint32_t tiny = (uint32_t)as_bits(as_float((int32_t)a) + 0.5f) - 0x3f000000u;
    uint32_t h = PICK(a < 0x38800000u, tiny, normal);
    h = PICK(a >= 0x47800000u, 0x7c00u, h);
    return (rlx_f16)(sign | PICK(a > 0x7f800000u, 0x7e00u, h));
}

static inline float rlx_from_bf16(rlx_bf16 h) { return as_float((int32_t)((uint32_t)h << 16)); }

static inline rlx_bf16 rlx_to_bf16(float x)
{
    const uint32_t bits = (uint32_t)as_bits(x), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (rlx_bf16)PICK((bits & 0x7fffffffu) > 0x7f800000u, bits >> 16 | 0x40u, rounded);
}

/* A double as f32, rounded toward zero, with the last bit set if anything was cut off. Rounding the result to f16 or
   bf16 then gives the same as rounding x directly. */
static inline float rlx_odd(double x)
{
    const float near = (float)x;
    uint32_t bits = (uint32_t)as_bits(near);
    bits -= (near > 0 ? near : -near) > (x > 0 ? x : -x);
    bits |= near != x;
    return as_float((int32_t)bits);
}

/* A 64-bit integer as a double. If it is not exact, the last bit is odd, so that later rounding is right. */
static inline double rlx_odd_i64(int64_t x)
{
    const uint64_t size = x < 0 ? -(uint64_t)x : (uint64_t)x;
    const double to_odd = (double)(int64_t)(size >> 11 | ((size & 2047) != 0)) * 2048;
    const double wide = size >> 53 ? to_odd : (double)(int64_t)size;
    return x < 0 ? -wide : wide;
}

/* Widens n weights of 16 bits. */
static void widen_f16(float *restrict to, const rlx_f16 *restrict from, int64_t n)
{
    int64_t i = 0;
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#elif defined(NEON)
    for (; i + 4 <= n; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)from + i))));
#endif
    for (; i < n; i++) to[i] = rlx_from_f16(from[i]);
}

/* Rounds n floats to 16 bits; both may be at one address. */
static void narrow_f16(rlx_f16 *to, const float *from, int64_t n)
{
    int64_t i = 0;
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(NEON)
    for (; i + 4 <= n; i += 4) vst1_u16((uint16_t *)to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
    for (; i < n; i++) to[i] = rlx_to_f16(from[i]);
}

/* Widens one vector of them. */
typedef float wide_f32 __attribute__((vector_size(VECTOR_BYTES)));
static inline wide_f32 widened_f16(const rlx_f16 *from)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (wide_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (wide_f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#elif defined(NEON)
    return (wide_f32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)from)));
#else
    wide_f32 v = {0};
    for (int l = 0; l < VECTOR_BYTES / 4; l++) v[l] = rlx_from_f16(from[l]);
    return v;
#endif
}

static inline wide_f32 widened_bf16(const rlx_bf16 *from)
{
    typedef uint16_t narrow __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
    typedef uint32_t bits __attribute__((vector_size(VECTOR_BYTES)));
    return (wide_f32)(__builtin_convertvector(*(const narrow *)from, bits) << 16);
}

static void widen_bf16(float *restrict to, const rlx_bf16 *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = rlx_from_bf16(from[i]);
}
