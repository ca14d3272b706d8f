/* Exact products of 8-bit integers in i32, four elements along k at a time. A panel of the right matrix holds 4 signed
   bytes for each column: 4 rows of it. The sums of all columns come first. Unsigned right operands b are stored as b' = b
   - 128. Where an instruction needs a left operand of the other sign, a is stored as a' = a + x, x being 128 or -128. With
   y = 128, or 0 for signed right operands: sum a b = sum (a' - x)(b' + y) = sum a'b' - x sum b' + y sum a' - k x y. */

#define I32_LANES ((int64_t)(VECTOR_BYTES / 4))
#define BYTE_COLUMNS (MICRO_VECTORS * I32_LANES) /* columns of a panel */
#define BYTE_ROWS RLX_BYTE_ROWS /* rows of the left matrix that are converted at a time */

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

/* One implementation of the inner loop: bytes of an element of the left operand, and whether single ones are signed. */
typedef struct {
    int64_t bytes, is_signed;
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
static const byte_method method_pairs = {2, 1, micro_pairs};

#ifdef DOT_FEATURES
/* Products of bytes, four of them added to each sum: of unsigned with signed ones on x86, of signed ones on ARM. */
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
#else
#define DOT_SIGNED 1
typedef int8x16_t dot_bytes;
#define DOT_LOAD(from) vld1q_s8(from)
#define DOT_ADD(sum, left, right) \
    ((sums_i32)vdotq_s32((int32x4_t)(sum), right, vreinterpretq_s8_s32(vdupq_n_s32(left))))
#define DOT_STORE(c, v, sum, width, vectors) \
    store_integers((c) + (v) * I32_LANES, (vec_i32)(sum), (v) + 1 < (vectors) ? I32_LANES : (width) - (v) * I32_LANES)
/* Step S of four: row r of the left operand has its bytes of all of them in a register. */
#define DOT_STEP(S, ROWS, VECTORS)                                                                 \
    _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                                      \
    {                                                                                              \
        const int8x16_t right = vld1q_s8(b + v * VECTOR_BYTES);                                    \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            acc[r][v] = (sums_i32)vdotq_laneq_s32((int32x4_t)acc[r][v], right, left[r], S);        \
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
DOTS(1, 1) DOTS(1, 2) DOTS(1, 3) DOTS(1, 4)
DOTS(2, 4) DOTS(4, 4)
DOTS(6, 1) DOTS(6, 2) DOTS(6, 3) DOTS(6, 4)
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
    static const dots one[] = {dots_1_1, dots_1_2, dots_1_3, dots_1_4};
    static const dots six[] = {dots_6_1, dots_6_2, dots_6_3, dots_6_4};
    const int64_t vectors = (width - 1) / I32_LANES, full = vectors == 3;
    const dots made = rows == 6         ? six[vectors]
                      : full && rows > 2 ? dots_4_4
                      : full && rows > 1 ? dots_2_4
                                         : one[vectors];
    const int64_t some = rows == 6 || full ? rows : 1;
    for (int64_t r = 0; r < rows; r += some)
        made(a + r * row, row, b, step, begin + r, sums, times, c + r * ldc, ldc, fours, width);
}
static const byte_method method_dots = {1, DOT_SIGNED, micro_dots};
#endif

/* What is added to elements of the left operand before they are multiplied: 128 or -128 where their sign is not the one that
   an implementation takes. */
static int32_t offset_of(const byte_method *method, int64_t is_signed)
{
    return method->bytes > 1 || !is_signed == !method->is_signed ? 0 : method->is_signed ? -128 : 128;
}

/* Converts rows of the left matrix for an implementation, padded with zeros, and computes the initial values of their
   sums. */
static void ready_rows(char *to, int32_t *begin, const uint8_t *a, int64_t rows, int64_t k, int64_t fours,
                       const byte_method *method, int64_t is_signed, int64_t b_shifted)
{
    const int32_t x = offset_of(method, is_signed), y = b_shifted ? 128 : 0;
    const uint8_t flip = x ? 128 : 0;
    for (int64_t r = 0; r < rows; r++, a += k, to += 4 * fours * method->bytes) {
        int32_t sum = 0;
        if (method->bytes == 1) {
            for (int64_t i = 0; i < k; i++) to[i] = (char)(a[i] ^ flip);
            if (y && method->is_signed) for (int64_t i = 0; i < k; i++) sum += (int8_t)(a[i] ^ flip);
            else for (int64_t i = 0; y && i < k; i++) sum += a[i] ^ flip;
        } else {
            int16_t *wide = (int16_t *)to;
            if (is_signed) for (int64_t i = 0; i < k; i++) wide[i] = (int8_t)a[i];
            else for (int64_t i = 0; i < k; i++) wide[i] = a[i];
            for (int64_t i = 0; y && i < k; i++) sum += wide[i];
        }
        memset(to + k * method->bytes, 0, (size_t)((4 * fours - k) * method->bytes));
        begin[r] = y * sum - (int32_t)k * x * y;
    }
}

/* Packs columns of a matrix as a panel, the sums of the columns first. */
static void ready_columns(int8_t *panel, const uint8_t *b, int64_t n, int64_t k, int64_t width, int64_t is_signed)
{
    const int64_t columns = (width + I32_LANES - 1) / I32_LANES * I32_LANES, fours = (k + 3) / 4;
    const uint8_t flip = is_signed ? 0 : 128;
    int32_t *sums = (int32_t *)panel;
    memset(panel, 0, (size_t)(4 * columns * (fours + 1)));
    for (int64_t i = 0; i < k; i++) {
        int8_t *to = panel + 4 * columns * (i / 4 + 1) + i % 4;
        for (int64_t v = 0; v < width; v++) to[4 * v] = (int8_t)(b[i * n + v] ^ flip);
        for (int64_t v = 0; v < width; v++) sums[v] += (int8_t)(b[i * n + v] ^ flip);
    }
}

/* Scratch: initial sums of BYTE_ROWS rows, these rows, and a panel. */
static int integer_products(const rlx_call *call, const byte_method *method)
{
    RLX_ARGUMENTS(matmul_integer, call);
    const int64_t m = p->m, k = p->k, n = p->n, packed = p->packing;
    const rlx_block own = rlx_share_tiles(call, p->batch, m, n, 6, BYTE_COLUMNS);
    const int64_t fours = (k + 3) / 4, row = 4 * fours * method->bytes;
    int32_t *begin = out->rows;
    char *ready = (char *)(begin + BYTE_ROWS);
    int8_t *panel = (int8_t *)(ready + (m < BYTE_ROWS ? m : BYTE_ROWS) * 8 * fours);
    for (int64_t z = own.pieces.first; z < own.pieces.last; z++) {
        int64_t rest = z, at_a = 0, at_b = 0;
        for (int64_t d = p->rank - 1; d >= 0; d--) {
            at_a += rest % p->dims[d] * p->a_steps[d];
            at_b += rest % p->dims[d] * p->b_steps[d];
            rest /= p->dims[d];
        }
        const uint8_t *a = (const uint8_t *)in->a + at_a * m * k;
        const int8_t *b = (const int8_t *)in->b + at_b * (packed ? p->packed_stride : k * n);
        for (int64_t i = own.rows.first; i < own.rows.last; i += BYTE_ROWS) {
            const int64_t rows = own.rows.last - i < BYTE_ROWS ? own.rows.last - i : BYTE_ROWS;
            ready_rows(ready, begin, a + i * k, rows, k, fours, method, p->a_signed, !p->b_signed);
            for (int64_t j = own.columns.first; j < own.columns.last; j += BYTE_COLUMNS) {
                const int64_t width = n - j < BYTE_COLUMNS ? n - j : BYTE_COLUMNS;
                const int64_t step = 4 * ((width + I32_LANES - 1) / I32_LANES * I32_LANES);
                const int8_t *from = packed ? b + 4 * j * (fours + 1) : panel;
                if (!packed) ready_columns(panel, (const uint8_t *)b + j, n, k, width, p->b_signed);
                int32_t *c = (int32_t *)out->y + (z * m + i) * n + j;
                for (int64_t r = 0, some; r < rows; r += some) {
                    some = rows - r >= 6 && rows - r != 8 ? 6 : rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
                    method->micro(ready + r * row, row, from + step, step, begin + r, (const int32_t *)from,
                               offset_of(method, p->a_signed), c + r * n, n, fours, some, width);
                }
            }
        }
    }
    return RLX_OK;
}

static int kernel_matmul_integer(const rlx_call *call) { return integer_products(call, &method_pairs); }
#ifdef DOT_FEATURES
static int kernel_matmul_integer_dots(const rlx_call *call) { return integer_products(call, &method_dots); }
#endif
