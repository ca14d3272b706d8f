/* Vectors of f32, and the operations on them that differ between instruction sets: comparisons, selection, exact
   products, powers of two, and partial vectors. */
#if VECTOR_BYTES >= 32
#include <immintrin.h>
#endif

#define FLOATS ((int64_t)(VECTOR_BYTES / 4))
/* Whether entries of vectors can be taken in any order. */
#if VECTOR_BYTES >= 32 || defined(NEON)
#define PERMUTES
#endif

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
typedef float vf_apart __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int8_t few_i8 __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));

static RLX_INLINE vf v_load(const float *p) { return (vf)*(const vf_apart *)p; }
static RLX_INLINE void v_store(float *p, vf x) { *(vf_apart *)p = (vf_apart)x; }
static RLX_INLINE vf v_all(float x) { return x - (vf){0}; }

/* Signed bytes as integers of 32 bits. Written out, since GCC 12 widens them one by one. */
static RLX_INLINE vi widened_i8(const uint8_t *from)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
    return __builtin_convertvector(*(const few_i8 *)from, vi);
#endif
}

/* v_min and v_max give the second operand where either is NaN; those of ARM give NaN. */
#if VECTOR_BYTES == 64
typedef __mmask16 vm;
static RLX_INLINE vm v_less(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
static RLX_INLINE vm v_odd(vi a) { return _mm512_test_epi32_mask((__m512i)a, _mm512_set1_epi32(1)); }
static RLX_INLINE int v_every(vm m) { return m == 0xffff; }
static RLX_INLINE vf v_pick(vm m, vf a, vf b) { return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
static RLX_INLINE vf v_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
static RLX_INLINE vf v_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
static RLX_INLINE vf v_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static RLX_INLINE vf v_scale(vf x, vf n) { return (vf)_mm512_scalef_ps((__m512)x, (__m512)n); }
/* Entry k of the result is entry places[k] of x. */
static RLX_INLINE vf v_permute(vf x, vi places) { return (vf)_mm512_permutexvar_ps((__m512i)places, (__m512)x); }
/* The same of a and b, one after the other. */
static RLX_INLINE vf v_permute_two(vf a, vf b, vi places)
{
    return (vf)_mm512_permutex2var_ps((__m512)a, (__m512i)places, (__m512)b);
}
static RLX_INLINE vf v_gather(const float *from, vi places) { return (vf)_mm512_i32gather_ps((__m512i)places, from, 4); }
static RLX_INLINE vf v_sqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
static RLX_INLINE vm v_unordered(vf a, vf b)
{
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
}
static RLX_INLINE int v_any(vm m) { return m != 0; }
static RLX_INLINE float v_sum(vf x) { return _mm512_reduce_add_ps((__m512)x); }
static RLX_INLINE float v_top(vf x) { return _mm512_reduce_max_ps((__m512)x); }
/* The sum in f64. */
static RLX_INLINE double v_sum_wide(vf x)
{
    const __m256 low = _mm512_castps512_ps256((__m512)x);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)x), 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(low), _mm512_cvtps_pd(high)));
}
/* The first n entries of x; the others become 0. */
static RLX_INLINE vf v_keep(vf x, int64_t n)
{
    return (vf)_mm512_maskz_mov_ps((__mmask16)((1u << n) - 1), (__m512)x);
}
static RLX_INLINE vf v_reciprocal(vf x) { return (vf)_mm512_rcp14_ps((__m512)x); }
static RLX_INLINE vf v_load_some(const float *from, int64_t n)
{
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}
static RLX_INLINE void v_store_some(float *to, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
}
#else
typedef vi vm;
static RLX_INLINE vm v_less(vf a, vf b) { return a < b; }
static RLX_INLINE vm v_odd(vi a) { return (a & 1) != 0; }
static RLX_INLINE vm v_unordered(vf a, vf b) { return (a != a) | (b != b); }
#if VECTOR_BYTES == 32
static RLX_INLINE int v_every(vm m) { return _mm256_movemask_ps((__m256)m) == 0xff; }
static RLX_INLINE vf v_pick(vm m, vf a, vf b) { return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m); }
static RLX_INLINE vf v_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
static RLX_INLINE vf v_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static RLX_INLINE vf v_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static RLX_INLINE vf v_permute(vf x, vi places) { return (vf)_mm256_permutevar8x32_ps((__m256)x, (__m256i)places); }
static RLX_INLINE vf v_permute_two(vf a, vf b, vi places)
{
    return v_pick(places < 8, v_permute(a, places), v_permute(b, places));
}
static RLX_INLINE vf v_gather(const float *from, vi places) { return (vf)_mm256_i32gather_ps(from, (__m256i)places, 4); }
static RLX_INLINE vf v_sqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
static RLX_INLINE vi v_first(int64_t n) { return (vi){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)n; }
static RLX_INLINE vf v_load_some(const float *from, int64_t n)
{
    return (vf)_mm256_maskload_ps(from, (__m256i)v_first(n));
}
static RLX_INLINE void v_store_some(float *to, vf x, int64_t n)
{
    _mm256_maskstore_ps(to, (__m256i)v_first(n), (__m256)x);
}
#elif defined(NEON)
static RLX_INLINE int v_every(vm m) { return vminvq_u32((uint32x4_t)m) == 0xffffffff; }
static RLX_INLINE vf v_pick(vm m, vf a, vf b) { return (vf)vbslq_f32((uint32x4_t)m, (float32x4_t)a, (float32x4_t)b); }
static RLX_INLINE vf v_min(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
static RLX_INLINE vf v_max(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
static RLX_INLINE vf v_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
static RLX_INLINE vf v_sqrt(vf x) { return (vf)vsqrtq_f32((float32x4_t)x); }
/* The bytes of the entries at these places. */
static RLX_INLINE uint8x16_t v_bytes_of(vi places) { return (uint8x16_t)(places * 0x04040404 + 0x03020100); }
static RLX_INLINE vf v_permute(vf x, vi places) { return (vf)vqtbl1q_u8((uint8x16_t)x, v_bytes_of(places)); }
static RLX_INLINE vf v_permute_two(vf a, vf b, vi places)
{
    return (vf)vqtbl2q_u8((uint8x16x2_t){{(uint8x16_t)a, (uint8x16_t)b}}, v_bytes_of(places));
}
static RLX_INLINE vf v_gather(const float *from, vi places)
{
    return (vf){from[places[0]], from[places[1]], from[places[2]], from[places[3]]};
}
#else
static RLX_INLINE int v_every(vm m)
{
    int32_t all = -1;
    for (int l = 0; l < FLOATS; l++) all &= m[l];
    return all;
}
static RLX_INLINE vf v_pick(vm m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
static RLX_INLINE vf v_min(vf a, vf b) { return v_pick(a < b, a, b); }
static RLX_INLINE vf v_max(vf a, vf b) { return v_pick(a > b, a, b); }
static RLX_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
static RLX_INLINE vf v_sqrt(vf x)
{
    for (int l = 0; l < FLOATS; l++) x[l] = sqrtf(x[l]);
    return x;
}
#endif
#if VECTOR_BYTES == 16
/* Partial loads and stores: n is at least 1 and less than FLOATS. */
static RLX_INLINE vf v_load_some(const float *from, int64_t n)
{
    return (vf){from[0], n > 1 ? from[1] : 0, n > 2 ? from[2] : 0, 0};
}
static RLX_INLINE void v_store_some(float *to, vf x, int64_t n)
{
    to[0] = x[0];
    if (n > 1) to[1] = x[1];
    if (n > 2) to[2] = x[2];
}
#endif
static RLX_INLINE int v_any(vm m) { return !v_every(~m); }
#if defined(NEON)
static RLX_INLINE float v_sum(vf x) { return vaddvq_f32((float32x4_t)x); }
static RLX_INLINE float v_top(vf x) { return vmaxvq_f32((float32x4_t)x); }
#else
static RLX_INLINE float v_sum(vf x)
{
    float part[FLOATS];
    v_store(part, x);
    for (int64_t half = FLOATS / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}
static RLX_INLINE float v_top(vf x)
{
    float part[FLOATS];
    v_store(part, x);
    for (int64_t half = FLOATS / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; l++) part[l] = part[l] > part[l + half] ? part[l] : part[l + half];
    return part[0];
}
#endif
static RLX_INLINE vf v_keep(vf x, int64_t n)
{
#if VECTOR_BYTES == 32
    return (vf)((vi)x & v_first(n));
#else
    return (vf)((vi)x & ((vi){0, 1, 2, 3} < (int32_t)n));
#endif
}
/* The sum in f64. */
static RLX_INLINE double v_sum_wide(vf x)
{
#if defined(NEON)
    return vaddvq_f64(vaddq_f64(vcvt_f64_f32(vget_low_f32((float32x4_t)x)), vcvt_high_f64_f32((float32x4_t)x)));
#else
    double part[FLOATS];
    for (int64_t l = 0; l < FLOATS; l++) part[l] = x[l];
    for (int64_t half = FLOATS / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
#endif
}
/* 1 / x to 14 bits or more. */
static RLX_INLINE vf v_reciprocal(vf x) { return 1.0f / x; }
/* x * 2^n for whole n from -250 to 250, in two steps: subnormal results and overflow come out right. */
static RLX_INLINE vf v_scale(vf x, vf n)
{
    const vi whole = __builtin_convertvector(n, vi), half = whole >> 1;
    return x * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}
#endif

static RLX_INLINE vf v_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
/* The magnitude of x with the sign of y. */
static RLX_INLINE vf v_signed(vf x, vf y)
{
    return (vf)(((vi)x & 0x7fffffff) | ((vi)y & (int32_t)0x80000000));
}

/* a * b - p. It is exact where p is nearly the product. */
static RLX_INLINE vf v_rest(vf a, vf b, vf p)
{
#if VECTOR_BYTES >= 32 || defined(NEON)
    return v_fma(a, b, -p);
#else
    const vf ah = (vf)((vi)a & ~0xfff), bh = (vf)((vi)b & ~0xfff), al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}
/* p - a * b, which is as exact. */
static RLX_INLINE vf v_lack(vf a, vf b, vf p)
{
#if VECTOR_BYTES >= 32 || defined(NEON)
    return v_fma(-a, b, p);
#else
    return -v_rest(a, b, p);
#endif
}
