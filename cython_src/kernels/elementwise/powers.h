/* Powers of vectors of f32. A power is exp2(y log2 |x|) in double precision, off by less than 1e-9 of itself, so that only
   the rounding to float counts, and powers that are floats come out exact. */
#if VECTOR_BYTES == 64
/* |x| is m * 2^e with m from 3/4 to 3/2. A number c of few bits, by the first four bits behind the point of m, makes
   r = m c - 1 exact and small; near 1 c is 1, so that the logarithm keeps its digits. */
#define POW_NEAR                                                                                  \
    {1.0f, 0.90625f, 0.875f, 0.8125f, 0.78125f, 0.75f, 0.71875f, 0.6875f,                         \
     1.3125f, 1.25f, 1.1875f, 1.1875f, 1.125f, 1.0625f, 1.0625f, 1.0f}
/* The binary logarithms of 1 / c, and 2^(k / 8). */
static const double pow_logs[16] = {
    0.0, 0.14201900487242788, 0.19264507794239588, 0.2995602818589078,
    0.3561438102252753, 0.4150374992788438, 0.4764380439429871, 0.5405683813627028,
    -0.3923174227787603, -0.32192809488736235, -0.2479275134435855, -0.2479275134435855,
    -0.16992500144231237, -0.0874628412503394, -0.0874628412503394, 0.0,
};
static const double pow_eighths[8] = {
    1.0, 1.0905077326652577, 1.189207115002721, 1.2968395546510096,
    1.4142135623730951, 1.5422108254079407, 1.681792830507429, 1.8340080864093424,
};

#define TERM_64(p, x, c) _mm512_fmadd_pd(p, x, _mm512_set1_pd(c))
/* Eight powers. `place` counts in the table of logarithms. The series are Chebyshev's, of log2(1 + r) / r and of 2^f for
   f up to 1/16. */
static RLX_INLINE __m256 pow_eight(__m256 r32, __m256i e32, __m256i place32, __m256 y32)
{
    const __m512d r = _mm512_cvtps_pd(r32), y = _mm512_cvtps_pd(y32);
    const __m512d table = _mm512_permutex2var_pd(_mm512_loadu_pd(pow_logs), _mm512_cvtepi32_epi64(place32),
                                                 _mm512_loadu_pd(pow_logs + 8));
    __m512d p = _mm512_set1_pd(0.19139934840182376);
    p = TERM_64(p, r, -0.24064204477597881);
    p = TERM_64(p, r, 0.28857338918475812);
    p = TERM_64(p, r, -0.36067385755415418);
    p = TERM_64(p, r, 0.48089832609896681);
    p = TERM_64(p, r, -0.7213475203794665);
    p = TERM_64(p, r, 1.4426950408909237);
    __m512d t = _mm512_mul_pd(y, _mm512_fmadd_pd(p, r, _mm512_add_pd(_mm512_cvtepi32_pd(e32), table)));
    /* Beyond infinity and zero; NaN, the second operand, stays. */
    t = _mm512_max_pd(_mm512_set1_pd(-1000), _mm512_min_pd(_mm512_set1_pd(1000), t));
    const __m512d rounding = _mm512_set1_pd(844424930131968.0); /* adding 1.5 * 2^49 rounds to eighths */
    const __m512d shifted = _mm512_add_pd(t, rounding), eighths = _mm512_sub_pd(shifted, rounding);
    const __m512d f = _mm512_sub_pd(t, eighths);
    __m512d q = _mm512_set1_pd(0.009618881258343);
    q = TERM_64(q, f, 0.0555106194821901848);
    q = TERM_64(q, f, 0.240226506224572376);
    q = TERM_64(q, f, 0.693147174201654194);
    q = TERM_64(q, f, 1.0);
    /* The low bits of the sum count the eighths. */
    q = _mm512_mul_pd(q, _mm512_permutexvar_pd(_mm512_castpd_si512(shifted), _mm512_loadu_pd(pow_eighths)));
    return _mm512_cvtpd_ps(_mm512_scalef_pd(q, eighths));
}

/* Powers of positive normal numbers times 2^more. */
static RLX_INLINE vf pow_plain(vf x, vi more, vf y)
{
    const vi bits = (vi)x, e = (bits - 0x3f400000) >> 23, m = bits - (e << 23), place = (m >> 19) & 15;
    const vf near = POW_NEAR, r = v_fma((vf)m, v_permute(near, place), v_all(-1.0f));
    const __m512i power = (__m512i)(e + more);
    const __m512 all = (__m512)y;
#define LOW(v) _mm512_castsi512_si256((__m512i)(v))
#define HIGH(v) _mm512_extracti64x4_epi64((__m512i)(v), 1)
    const __m256 low = pow_eight(_mm256_castsi256_ps(LOW(r)), LOW(power), LOW(place), _mm256_castsi256_ps(LOW(all)));
    const __m256 high = pow_eight(_mm256_castsi256_ps(HIGH(r)), HIGH(power), HIGH(place), _mm256_castsi256_ps(HIGH(all)));
#undef LOW
#undef HIGH
    return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* The same of any numbers, some of which are not positive, normal or finite. */
static RLX_NOINLINE vf pow_any(vf x, vf y)
{
    const vf zero = {0}, one = v_all(1.0f), infinity = v_all(INFINITY), a = v_abs(x), reach = v_abs(y);
    const vm tiny = v_less(a, v_all(1.17549435e-38f)), finite = v_less(a, infinity);
    const vi more = (vi)v_pick(tiny, (vf)((vi){0} - 23), (vf)(vi){0});
    vf z = pow_plain(v_pick(tiny, a * 8388608.0f, a), more, y);
    const vm nothing = _mm512_cmp_ps_mask((__m512)a, (__m512)zero, _CMP_EQ_OQ), negative = v_less(y, zero);
    z = v_pick((vm)(nothing | ~finite), v_pick((vm)~(nothing ^ negative), infinity, zero), z);
    z = v_pick(v_unordered(x, y), x + y, z);
    /* Negative numbers have powers that are whole. Floats from 2^24 on are even. */
    const vf nearest = (vf)_mm512_roundscale_ps((__m512)y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const vm far = (vm)~v_less(reach, v_all(16777216.0f));
    const vm whole = (vm)(far | _mm512_cmp_ps_mask((__m512)nearest, (__m512)y, _CMP_EQ_OQ));
    const vm odd = (vm)(whole & ~far & v_odd((vi)_mm512_cvtps_epi32((__m512)nearest)));
    z = v_pick((vm)(v_less(x, zero) & finite & ~whole), v_all(NAN), z);
    z = v_pick(odd, (vf)((vi)z ^ ((vi)x & (int32_t)0x80000000)), z);
#define EQUAL(a, b) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_EQ_OQ)
    return v_pick((vm)(EQUAL(y, zero) | EQUAL(x, one) | (EQUAL(a, one) & EQUAL(reach, infinity))), one, z);
#undef EQUAL
}

static RLX_INLINE vf v_pow(vf x, vf y)
{
    /* Positive normal numbers are neighbours among integers. */
    const __mmask16 plain = _mm512_cmplt_epu32_mask((__m512i)((vi)x - 0x00800000), _mm512_set1_epi32(0x7f000000));
    if (RLX_UNLIKELY(plain != 0xffff || !v_every(v_less(v_abs(y), v_all(INFINITY))))) return pow_any(x, y);
    return pow_plain(x, (vi){0}, y);
}
#else
static RLX_INLINE vf v_pow(vf x, vf y)
{
    float a[FLOATS], b[FLOATS];
    v_store(a, x), v_store(b, y);
    for (int l = 0; l < FLOATS; l++) a[l] = rlx_pow_f32(a[l], b[l]);
    return v_load(a);
}
#endif

/* A loop over whole vectors of two operands, then over the remaining entries. */
#define LOOP_VECTOR2(name, function)                                                              \
    static void loop_##name(void *d, const void *a, const void *b, const void *c, int64_t n)      \
    {                                                                                             \
        const float *x = a, *y = b;                                                               \
        float *z = d;                                                                             \
        (void)c;                                                                                  \
        for (int64_t i = 0; i < n; i += FLOATS) {                                                 \
            const int64_t left = n - i;                                                           \
            if (RLX_UNLIKELY(left < FLOATS))                                                      \
                v_store_some(z + i, function(v_load_some(x + i, left), v_load_some(y + i, left)), left); \
            else                                                                                  \
                v_store(z + i, function(v_load(x + i), v_load(y + i)));                           \
        }                                                                                         \
    }
