/* Lines: kernels that work along the middle axis of [outer, n, inner] see outer * inner lines of n elements, `inner`
   apart. Neighbouring lines share vectors. Where few lines are neighbours, and they are short, those of several outer
   positions are brought side by side in a buffer first. */

/* Outer positions that are brought side by side, elements of each at most, and columns that are worked on together. */
#define BESIDE 16
#define BESIDE_ELEMENTS 256
#define STRIP 256

/* The lines that this part of a call computes: outer positions (pieces), or columns of all of them. */
static inline rlx_block share_lines(const rlx_call *call, int64_t outer, int64_t inner)
{
    return rlx_share_block(call, outer, 1, inner, 1, RLX_LINE_COLUMNS);
}

/* Whether lines are brought side by side. The answer is the same in every part of a call. */
static inline int lie_apart(int64_t outer, int64_t n, int64_t inner)
{
    return outer >= BESIDE / 2 && inner < BESIDE && n * inner <= BESIDE_ELEMENTS && (inner > 1 || n < BESIDE);
}

/* Rows of `inner` columns that are worked on as one row, so that few columns fill vectors too: 1 where there are more
   columns, or few rows. */
static inline int64_t rows_together(int64_t n, int64_t inner)
{
    int64_t fold = 1;
    if (inner >= BESIDE) return 1;
    while (fold * inner % BESIDE || fold * inner < 4 * BESIDE) fold *= 2;
    return fold * inner <= STRIP && n >= 4 * fold ? fold : 1;
}

/* bring: `count` rows of n elements, `apart` from each other, become columns of [n, BESIDE]; the columns behind them
   become 0. send is the reverse. */
#define LINES(SUFFIX, T)                                                                          \
    RLX_MAYBE_UNUSED static void bring_##SUFFIX(T *to, const T *from, int64_t apart, int64_t n,   \
                                                int64_t count)                                    \
    {                                                                                             \
        if (RLX_UNLIKELY(count < BESIDE)) memset(to, 0, (size_t)(n * BESIDE) * sizeof(T));        \
        for (int64_t b = 0; b < count; b++, from += apart)                                        \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                to[i * BESIDE + b] = from[i];                                                     \
            }                                                                                     \
    }                                                                                             \
    RLX_MAYBE_UNUSED static void send_##SUFFIX(T *to, const T *from, int64_t apart, int64_t n,    \
                                               int64_t count)                                     \
    {                                                                                             \
        for (int64_t b = 0; b < count; b++, to += apart)                                          \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                to[i] = from[i * BESIDE + b];                                                     \
            }                                                                                     \
    }
LINES(f32, float)
LINES(f64, double)
LINES(i32, int32_t)
LINES(u32, uint32_t)
LINES(i64, int64_t)
