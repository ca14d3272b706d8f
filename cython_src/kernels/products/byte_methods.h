/* The inner loops of products of 8-bit integers (integers.h), one for each instruction that there is for them: of some rows
   of the left matrix and the columns of one panel of the right one. */

#define I32_LANES ((int64_t)(VECTOR_BYTES / 4))

typedef int32_t sums_i32 __attribute__((vector_size(VECTOR_BYTES))); /* aliases nothing, so that it stays in registers */
typedef int16_t vec_i16 __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));
typedef int8_t half_i8 __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1), may_alias));

/* Sums of two neighbouring products of 16-bit integers. */
static inline vec_i32 add_pairs(vec_i16 a, vec_i16 b)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (vec_i32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (vec_i32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vec_i32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    vec_i32 sums;
    for (int64_t l = 0; l < I32_LANES; l++) sums[l] = a[2 * l] * b[2 * l] + a[2 * l + 1] * b[2 * l + 1];
    return sums;
#endif
}

/* The sums of neighbouring elements, of `low` and then of `high`. */
static inline sums_i32 sums_of_neighbours(sums_i32 low, sums_i32 high)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return (sums_i32)_mm512_add_epi32(_mm512_permutex2var_epi32((__m512i)low, even, (__m512i)high),
                                      _mm512_permutex2var_epi32((__m512i)low, odd, (__m512i)high));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (sums_i32)_mm256_permute4x64_epi64(_mm256_hadd_epi32((__m256i)low, (__m256i)high), 0xd8);
#else
    return __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
#endif
}

/* Half a vector of signed bytes as 16-bit integers. Written out, since GCC 12 widens each half of it by itself. */
static inline vec_i16 widened_bytes(const int8_t *from)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (vec_i16)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (vec_i16)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
#else
    return __builtin_convertvector(*(const half_i8 *)from, vec_i16);
#endif
}

/* One implementation of the inner loop: bytes of an element of the left operand, whether single ones are signed, and how many
   rows of a panel stand side by side in each column. Where these are 8, two rows of the left operand alternate, 8 elements
   of each; a last odd row alternates with zeros. */
typedef struct {
    int64_t bytes, is_signed, deep;
    /* Multiplies 1, 2, 4 or 6 rows, `row` bytes apart, by the columns of a panel with `step` bytes for 4 of its rows.
       Each sum begins at the row's `begin` minus `times` times the column's sum. */
    void (*micro)(const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,
                  const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t rows, int64_t width);
} byte_method;

static RLX_NOINLINE void store_few(int32_t *c, vec_i32 v, int64_t width) { memcpy(c, &v, (size_t)width * sizeof(*c)); }

static RLX_INLINE void store_integers(int32_t *c, vec_i32 v, int64_t width)
{
    if (width >= I32_LANES)
        *(vec_i32 *)c = v;
    else
        store_few(c, v, width);
}

#define PAIRS(ROWS)                                                                                \
    static void pairs_##ROWS(const char *a, int64_t row, const int8_t *b, int64_t step,            \
                             const int32_t *begin, int32_t *c, int64_t ldc, int64_t fours,         \
                             int64_t width)                                                        \
    {                                                                                              \
        sums_i32 low[ROWS], high[ROWS];                                                            \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) low[r] = high[r] = (sums_i32){0};   \
        for (int64_t i = 0; i < fours; i++, b += step) {                                           \
            const vec_i16 b0 = widened_bytes(b), b1 = widened_bytes(b + VECTOR_BYTES / 2);         \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
            {                                                                                      \
                int64_t x;                                                                         \
                memcpy(&x, a + r * row + 8 * i, 8);                                                \
                const vec_i16 v = (vec_i16)(x - (vec_i64){0});                                     \
                low[r] += (sums_i32)add_pairs(v, b0), high[r] += (sums_i32)add_pairs(v, b1);       \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++, c += ldc)                           \
            store_integers(c, (vec_i32)(sums_of_neighbours(low[r], high[r]) + begin[r]), width);   \
    }
PAIRS(1) PAIRS(4) PAIRS(6)
#undef PAIRS

static void micro_pairs(const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,
                        const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t rows, int64_t width)
{
    (void)sums, (void)times;
    for (int64_t j = 0; j < width; j += I32_LANES, b += VECTOR_BYTES, c += I32_LANES) {
        if (rows == 6) pairs_6(a, row, b, step, begin, c, ldc, fours, width - j);
        else if (rows == 4) pairs_4(a, row, b, step, begin, c, ldc, fours, width - j);
        else
            for (int64_t r = 0; r < rows; r++)
                pairs_1(a + r * row, row, b, step, begin + r, c + r * ldc, ldc, fours, width - j);
    }
}
static const byte_method method_pairs = {2, 1, 4, micro_pairs};

#ifdef DOT_FEATURES
/* Products of bytes, four of them added to each sum: of unsigned with signed ones on x86, of signed ones on ARM. ARM's
   instructions are written as such: GCC and clang before 16 have their functions only for code that is compiled for newer
   processors as a whole. */
#if VECTOR_BYTES == 64
#define DOT_SIGNED 0
typedef __m512i dot_bytes;
#define DOT_LOAD(from) _mm512_loadu_si512(from)
#define DOT_ADD(sum, left, right) \
    ((sums_i32)_mm512_dpbusd_epi32((__m512i)(sum), _mm512_set1_epi32(left), right))
/* The lanes of vector v of a row of results. Only the last vector may be partial. */
static RLX_INLINE __mmask16 last_lanes(int64_t width, int64_t v, int64_t vectors)
{
    const int64_t rest = width - v * I32_LANES;
    return v + 1 < vectors || rest >= I32_LANES ? (__mmask16)-1 : (__mmask16)((1u << rest) - 1);
}
#define DOT_STORE(c, v, sum, width, vectors) \
    _mm512_mask_storeu_epi32((c) + (v) * I32_LANES, last_lanes(width, v, vectors), (__m512i)(sum))
#elif VECTOR_BYTES == 32
#define DOT_SIGNED 0
typedef __m256i dot_bytes;
#define DOT_LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define DOT_ADD(sum, left, right) \
    ((sums_i32)_mm256_dpbusd_avx_epi32((__m256i)(sum), _mm256_set1_epi32(left), right))
#define DOT_STORE(c, v, sum, width, vectors) \
    store_integers((c) + (v) * I32_LANES, (vec_i32)(sum), (v) + 1 < (vectors) ? I32_LANES : (width) - (v) * I32_LANES)
#else
#define DOT_SIGNED 1
typedef int8x16_t dot_bytes;
#define DOT_LOAD(from) vld1q_s8(from)
#define DOT_ADD(sum, left, right)                                                                  \
    ({                                                                                             \
        sums_i32 more = (sum);                                                                     \
        __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(more) : "w"(right), "w"(vdupq_n_s32(left)));   \
        more;                                                                                      \
    })
#define DOT_STORE(c, v, sum, width, vectors) \
    store_integers((c) + (v) * I32_LANES, (vec_i32)(sum), (v) + 1 < (vectors) ? I32_LANES : (width) - (v) * I32_LANES)
/* Step S of four: row r of the left operand has its bytes of all of them in a register. */
#define DOT_STEP(S, ROWS, VECTORS)                                                                 \
    _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                                      \
    {                                                                                              \
        const int8x16_t right = vld1q_s8(b + v * VECTOR_BYTES);                                    \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            __asm__("sdot %0.4s, %1.16b, %2.4b[" #S "]" : "+w"(acc[r][v]) : "w"(right), "w"(left[r])); \
    }                                                                                              \
    b += step;
#define DOT_FOURS(ROWS, VECTORS)                                                                   \
    for (; i + 4 <= fours; i += 4) {                                                               \
        int8x16_t left[ROWS];                                                                      \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            left[r] = vld1q_s8((const int8_t *)a + r * row + 4 * i);                               \
        DOT_STEP(0, ROWS, VECTORS) DOT_STEP(1, ROWS, VECTORS)                                      \
        DOT_STEP(2, ROWS, VECTORS) DOT_STEP(3, ROWS, VECTORS)                                      \
    }
#endif
#ifndef DOT_FOURS
#define DOT_FOURS(ROWS, VECTORS)
#endif

#define DOTS(ROWS, VECTORS)                                                                        \
    __attribute__((target(DOT_FEATURES))) static void dots_##ROWS##_##VECTORS(                     \
        const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,           \
        const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t width) \
    {                                                                                              \
        sums_i32 acc[ROWS][VECTORS];                                                               \
        int64_t i = 0;                                                                             \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                acc[r][v] = begin[r] - times * (sums_i32)*(const vec_i32 *)(sums + v * I32_LANES); \
        DOT_FOURS(ROWS, VECTORS)                                                                   \
        for (; i < fours; i++, b += step) {                                                        \
            dot_bytes right[VECTORS];                                                              \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                right[v] = DOT_LOAD(b + v * VECTOR_BYTES);                                         \
                if (ROWS > 2 && v * VECTOR_BYTES % 64 == 0) RLX_PREFETCH(b + 4 * step + v * VECTOR_BYTES); \
            }                                                                                      \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
            {                                                                                      \
                int32_t x;                                                                         \
                memcpy(&x, a + r * row + 4 * i, 4);                                                \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                    acc[r][v] = DOT_ADD(acc[r][v], x, right[v]);                                   \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++, c += ldc)                           \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                DOT_STORE(c, v, acc[r][v], width, VECTORS);                                        \
    }
DOTS(1, 1) DOTS(1, 2) DOTS(6, 1) DOTS(6, 2)
#if MICRO_VECTORS == 4
DOTS(1, 3) DOTS(1, 4) DOTS(2, 4) DOTS(4, 4) DOTS(6, 3) DOTS(6, 4)
#else
DOTS(2, 2) DOTS(4, 2)
#endif
#undef DOTS
#undef DOT_FOURS
#undef DOT_STEP
#undef DOT_LOAD
#undef DOT_ADD
#undef DOT_STORE

static void micro_dots(const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,
                       const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t rows, int64_t width)
{
    typedef void (*dots)(const char *, int64_t, const int8_t *, int64_t, const int32_t *, const int32_t *, int32_t,
                         int32_t *, int64_t, int64_t, int64_t);
#if MICRO_VECTORS == 4
    static const dots one[] = {dots_1_1, dots_1_2, dots_1_3, dots_1_4}, two = dots_2_4, four = dots_4_4;
    static const dots six[] = {dots_6_1, dots_6_2, dots_6_3, dots_6_4};
#else
    static const dots one[] = {dots_1_1, dots_1_2}, two = dots_2_2, four = dots_4_2;
    static const dots six[] = {dots_6_1, dots_6_2};
#endif
    const int64_t vectors = (width - 1) / I32_LANES, full = vectors == MICRO_VECTORS - 1;
    const dots kernel = rows == 6 ? six[vectors] : full && rows > 2 ? four : full && rows > 1 ? two : one[vectors];
    const int64_t some = rows == 6 || full ? rows : 1;
    for (int64_t r = 0; r < rows; r += some)
        kernel(a + r * row, row, b, step, begin + r, sums, times, c + r * ldc, ldc, fours, width);
}
static const byte_method method_dots = {1, DOT_SIGNED, 4, micro_dots};
#endif

#ifdef MMLA_FEATURES
/* Adds the products of two rows and two columns of 8 signed bytes each to 2 x 2 sums. */
#define MMLA_ADD(sum, left, right) __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(left), "w"(right))

/* Two halves of vectors, low or high ones. */
static RLX_INLINE int32x4_t low_halves(int32x4_t a, int32x4_t b) { return vcombine_s32(vget_low_s32(a), vget_low_s32(b)); }
static RLX_INLINE int32x4_t high_halves(int32x4_t a, int32x4_t b) { return vcombine_s32(vget_high_s32(a), vget_high_s32(b)); }

/* Pairs of rows by vectors of columns. Of the last pair of `rows` the second may be missing. */
#define MMLA(PAIRS, VECTORS)                                                                       \
    __attribute__((target(MMLA_FEATURES))) static void mmla_##PAIRS##_##VECTORS(                   \
        const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,           \
        const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t rows, int64_t width) \
    {                                                                                              \
        int32x4_t acc[PAIRS][2 * VECTORS];                                                         \
        _Pragma("GCC unroll 4") for (int p = 0; p < PAIRS; p++)                                    \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                const int32x4_t less = vmulq_n_s32(vld1q_s32(sums + v * I32_LANES), times);        \
                const int32x4_t first = vsubq_s32(vdupq_n_s32(begin[2 * p]), less);                \
                const int32x4_t second = vsubq_s32(vdupq_n_s32(begin[2 * p + 1 < rows ? 2 * p + 1 : 0]), less); \
                acc[p][2 * v] = low_halves(first, second);                                         \
                acc[p][2 * v + 1] = high_halves(first, second);                                    \
            }                                                                                      \
        for (int64_t i = 0; i < fours; i += 2, a += 16, b += 2 * step) {                           \
            int8x16_t left[PAIRS];                                                                 \
            _Pragma("GCC unroll 4") for (int p = 0; p < PAIRS; p++)                                \
                left[p] = vld1q_s8((const int8_t *)a + 2 * p * row);                               \
            _Pragma("GCC unroll 8") for (int v = 0; v < 2 * VECTORS; v++)                          \
            {                                                                                      \
                const int8x16_t right = vld1q_s8(b + v * VECTOR_BYTES);                            \
                _Pragma("GCC unroll 4") for (int p = 0; p < PAIRS; p++)                            \
                    MMLA_ADD(acc[p][v], left[p], right);                                           \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (int p = 0; p < PAIRS; p++, c += 2 * ldc)                      \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                const int64_t some = v + 1 < VECTORS ? I32_LANES : width - v * I32_LANES;          \
                const int32x4_t even = acc[p][2 * v], odd = acc[p][2 * v + 1];                     \
                store_integers(c + v * I32_LANES, (vec_i32)low_halves(even, odd), some);           \
                if (2 * p + 1 < rows)                                                              \
                    store_integers(c + ldc + v * I32_LANES, (vec_i32)high_halves(even, odd), some); \
            }                                                                                      \
    }
MMLA(1, 1) MMLA(1, 2) MMLA(1, 3) MMLA(1, 4)
MMLA(2, 4)
MMLA(3, 1) MMLA(3, 2) MMLA(3, 3) MMLA(3, 4)
#undef MMLA
#undef MMLA_ADD

static void micro_mmla(const char *a, int64_t row, const int8_t *b, int64_t step, const int32_t *begin,
                       const int32_t *sums, int32_t times, int32_t *c, int64_t ldc, int64_t fours, int64_t rows, int64_t width)
{
    typedef void (*mmla)(const char *, int64_t, const int8_t *, int64_t, const int32_t *, const int32_t *, int32_t,
                         int32_t *, int64_t, int64_t, int64_t, int64_t);
    static const mmla two[] = {mmla_1_1, mmla_1_2, mmla_1_3, mmla_1_4};
    static const mmla six[] = {mmla_3_1, mmla_3_2, mmla_3_3, mmla_3_4};
    const int64_t vectors = (width - 1) / I32_LANES, full = vectors == 3;
    const mmla kernel = rows == 6 ? six[vectors] : full && rows == 4 ? mmla_2_4 : two[vectors];
    const int64_t max_rows = rows == 6 || full ? rows : 2;
    for (int64_t r = 0; r < rows; r += max_rows)
        kernel(a + r * row, row, b, step, begin + r, sums, times, c + r * ldc, ldc, fours,
             rows - r < max_rows ? rows - r : max_rows, width);
}
static const byte_method method_mmla = {1, 1, 8, micro_mmla};
#endif
