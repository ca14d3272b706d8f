/* The micro-kernel of matrix products, per type: a tile of results stays in registers. A panel holds MICRO_COLUMNS
   columns of the right matrix, row by row, and is read from its first byte to its last. The last panel of a matrix is
   narrower: padded with zeros to whole vectors. */

/* The first `count` lanes of a vector, 1 to VL. Other lanes load as 0 and are not stored. */
#if VECTOR_BYTES == 64 && defined(__x86_64__)
static RLX_INLINE VEC NAME(load_lanes)(const T *from, int64_t count)
{
#ifdef SINGLE
    return (VEC)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#else
    return (VEC)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), from);
#endif
}

static RLX_INLINE void NAME(store_lanes)(T *to, VEC v, int64_t count)
{
#ifdef SINGLE
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)v);
#else
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << count) - 1), (__m512d)v);
#endif
}
#else
static RLX_NOINLINE VEC NAME(load_some)(const T *from, int64_t count)
{
    VEC v = {0};
    memcpy(&v, from, (size_t)count * sizeof(T));
    return v;
}

static RLX_NOINLINE void NAME(store_some)(T *to, VEC v, int64_t count) { memcpy(to, &v, (size_t)count * sizeof(T)); }

static RLX_INLINE VEC NAME(load_lanes)(const T *from, int64_t count)
{
    return count == VL ? *(const VEC *)from : NAME(load_some)(from, count);
}

static RLX_INLINE void NAME(store_lanes)(T *to, VEC v, int64_t count)
{
    if (count == VL)
        *(VEC *)to = v;
    else
        NAME(store_some)(to, v, count);
}
#endif

#if defined(NEON) && defined(SINGLE)
/* On ARM several numbers of the left matrix are loaded at a time, and multiplied from their lanes: on many processors an
   instruction that loads one number into all lanes keeps a multiplier busy. Sums are added up in the same order as without. */
#define MICRO_LANE(r, v, left, lane, FMA) \
    acc[0][r][v] = (VEC)FMA((float32x4_t)acc[0][r][v], vld1q_f32(b + (v) * VL), left, lane);
#define MICRO_STEP(S, ROWS, VECTORS)                                                               \
    _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                                      \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) MICRO_LANE(r, v, left[r], S, vfmaq_laneq_f32) \
    if (ROWS > 2) RLX_PREFETCH(b + MICRO_AHEAD * step);                                            \
    b += step;
#define MICRO_FOURS(ROWS, VECTORS)                                                                 \
    for (; i + 4 <= depth; i += 4, a += 4) {                                                       \
        float32x4_t left[ROWS];                                                                    \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) left[r] = vld1q_f32(a + r * lda);   \
        MICRO_STEP(0, ROWS, VECTORS) MICRO_STEP(1, ROWS, VECTORS)                                  \
        MICRO_STEP(2, ROWS, VECTORS) MICRO_STEP(3, ROWS, VECTORS)                                  \
    }
#define MICRO_LANES_1(VECTORS) MICRO_FOURS(1, VECTORS)
#define MICRO_LANES_2(VECTORS) MICRO_FOURS(2, VECTORS)
#define MICRO_LANES_4(VECTORS) MICRO_FOURS(4, VECTORS)
#define MICRO_LANES_6(VECTORS) MICRO_FOURS(6, VECTORS)
#define MICRO_LANES_alone(VECTORS)
#define MICRO_LANES_tail(VECTORS)
#define MICRO_LANES(NUMBER, VECTORS) MICRO_LANES_##NUMBER(VECTORS)
#else
#define MICRO_LANES(NUMBER, VECTORS)
#endif

/* Multiplies ROWS rows of a by `depth` rows of a panel, which are `step` apart, and adds to c or to `start`. The last
   vector of a row of c has `lanes` lanes. A single row has WAYS independent sums along k, which hide the latency of an
   addition. The last panel of several is summed as the others are (`tail`), so that equal columns give equal results. */
#define MICRO(NUMBER, ROWS, VECTORS, WAYS)                                                         \
    static void NAME(micro_##NUMBER##_##VECTORS)(const T *a, int64_t lda, const T *b, int64_t step, T *c, \
                                               int64_t ldc, int64_t depth, const T *start, int64_t lanes) \
    {                                                                                              \
        VEC acc[WAYS][ROWS][VECTORS];                                                              \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                acc[0][r][v] = start ? *(const VEC *)(start + v * VL)                              \
                               : v < VECTORS - 1 ? *(const VEC *)(c + r * ldc + v * VL)            \
                                           : NAME(load_lanes)(c + r * ldc + v * VL, lanes);        \
        _Pragma("GCC unroll 8") for (int w = 1; w < WAYS; w++)                                     \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                    acc[w][r][v] = (VEC){0};                                                       \
        int64_t i = 0;                                                                             \
        MICRO_LANES(NUMBER, VECTORS)                                                               \
        for (; i + WAYS <= depth; i += WAYS)                                                       \
            _Pragma("GCC unroll 8") for (int w = 0; w < WAYS; w++, b += step, a++)                  \
            {                                                                                      \
                VEC right[VECTORS];                                                                \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                {                                                                                  \
                    right[v] = *(const VEC *)(b + v * VL);                                         \
                    if (ROWS > 2 && v * VECTOR_BYTES % 64 == 0) RLX_PREFETCH(b + MICRO_AHEAD * step + v * VL);     \
                }                                                                                  \
                _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                             \
                {                                                                                  \
                    const T x = a[r * lda];                                                        \
                    _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                      \
                        acc[w][r][v] += x * right[v];                                              \
                }                                                                                  \
            }                                                                                      \
        for (; WAYS > 1 && i < depth; i++, b += step, a++)                                         \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                    acc[0][r][v] += a[r * lda] * *(const VEC *)(b + v * VL);                       \
        _Pragma("GCC unroll 8") for (int w = 1; w < WAYS; w++)                                     \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                    acc[0][r][v] += acc[w][r][v];                                                  \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++, c += ldc)                           \
        {                                                                                          \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS - 1; v++)                          \
                *(VEC *)(c + v * VL) = acc[0][r][v];                                               \
            NAME(store_lanes)(c + (VECTORS - 1) * VL, acc[0][r][VECTORS - 1], lanes);              \
        }                                                                                          \
    }
/* WAYS of a whole panel. */
#define PANEL_WAYS (MICRO_VECTORS == 4 ? 2 : 4)
/* Double precision needs fewer of them. */
#ifdef SINGLE
#define MICROS(VECTORS, WAYS) \
    MICRO(alone, 1, VECTORS, WAYS) MICRO(tail, 1, VECTORS, PANEL_WAYS) MICRO(1, 1, VECTORS, 1) MICRO(2, 2, VECTORS, 1) \
    MICRO(4, 4, VECTORS, 1) MICRO(6, 6, VECTORS, 1)
#else
#define MICROS(VECTORS, WAYS) MICRO(1, 1, VECTORS, 1) MICRO(4, 4, VECTORS, 1)
#endif
MICROS(1, 8) MICROS(2, 4)
#if MICRO_VECTORS == 4
MICROS(3, 2) MICROS(4, 2)
#endif
#undef PANEL_WAYS
#undef MICRO
#undef MICROS
#undef MICRO_LANES

/* Columns that a panel of `width` columns has in memory. */
static inline int64_t NAME(panel_columns)(int64_t width) { return (width + VL - 1) / VL * VL; }

/* Multiplies any number of rows by a panel, or by up to MICRO_COLUMNS columns of a matrix whose rows are `step` apart
   and may be read to the end of the last vector. `several` says that the right matrix has other panels: the sums of a single
   row are then added in the same order in all of them. */
static void NAME(micro_rows)(const T *a, int64_t lda, const T *b, int64_t step, T *c, int64_t ldc, int64_t rows,
                             int64_t depth, const T *start, int64_t width, int64_t several)
{
    typedef void (*micro)(const T *, int64_t, const T *, int64_t, T *, int64_t, int64_t, const T *, int64_t);
#ifdef SINGLE
#define MICROS(VECTORS) \
    {NAME(micro_1_##VECTORS), NAME(micro_2_##VECTORS), NAME(micro_4_##VECTORS), NAME(micro_6_##VECTORS), \
     NAME(micro_alone_##VECTORS), NAME(micro_tail_##VECTORS)},
    const int64_t max_rows = 6, min_rows = 2, alone = rows > 1 ? 0 : several ? 5 : 4;
#else
#define MICROS(VECTORS) {NAME(micro_1_##VECTORS), NULL, NAME(micro_4_##VECTORS)},
    const int64_t max_rows = 4, min_rows = 4, alone = 0;
    (void)several;
#endif
    static const micro table[][6] = {
        MICROS(1) MICROS(2)
#if MICRO_VECTORS == 4
        MICROS(3) MICROS(4)
#endif
    };
#undef MICROS
    const int64_t last = (width - 1) / VL, lanes = width - last * VL;
    while (rows) {
        /* 8 rows as 4 and 4 are faster than as 6 and 2. */
        const int64_t some = rows >= max_rows && rows != 8 ? max_rows : rows >= 4 ? 4 : rows >= min_rows ? 2 : 1;
        table[last][alone ? alone : some / 2](a, lda, b, step, c, ldc, depth, start, lanes);
        rows -= some, a += some * lda, c += some * ldc;
    }
}

static const T NAME(micro_zeros)[MICRO_COLUMNS] = {0};

/* Initial values of the sums of a panel: the bias, or 0. A bias that a vector load would overrun is copied first. */
static inline const T *NAME(micro_start)(T *start, const T *bias, int64_t width)
{
    if (!bias) return NAME(micro_zeros);
    if (width % VL == 0) return bias;
    for (int64_t v = 0; v < width; v++) start[v] = bias[v];
    return start;
}
