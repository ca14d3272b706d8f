/* Lines: kernels that work along the middle axis of [outer, n, inner] see outer * inner lines of n elements, `inner`
   apart. Neighbouring lines share vectors. Where few lines are neighbours, and they are short, those of several outer
   positions are brought side by side in a buffer first. */

/* Columns of a buffer are a multiple of BESIDE; elements of one outer position there at most, and of all; columns that are
   worked on together at most. */
#define BESIDE 16
#define BESIDE_ELEMENTS 256
#define BUFFER (BESIDE * BESIDE_ELEMENTS)
#define STRIP 256

/* The lines that this part of a call computes: outer positions (pieces), or columns of all of them. */
static inline rlx_block share_lines(const rlx_call *call, int64_t outer, int64_t inner)
{
    return rlx_share_block(call, outer, 1, inner, 1, RLX_LINE_COLUMNS);
}

/* Whether lines are brought side by side: those that are few neighbours and short, and contiguous ones of fewer than
   `least` elements. The answer is the same in every part of a call. */
static inline int lie_apart(int64_t outer, int64_t n, int64_t inner, int64_t least)
{
    return outer >= BESIDE / 2 && inner < BESIDE && n * inner <= BESIDE_ELEMENTS && (inner > 1 || n < least);
}

/* Outer positions, of `left` that are left, that go side by side in a buffer: as many as it holds, since a few columns
   take as long as many. */
static inline int64_t lines_beside(int64_t left, int64_t size, int64_t inner)
{
    const int64_t room = BESIDE_ELEMENTS / (size > 0 ? size : 1), strips = STRIP / BESIDE / inner;
    const int64_t max_strips = BESIDE * (room < strips ? room > 0 ? room : 1 : strips);
    const int64_t needed = (left + BESIDE - 1) / BESIDE * BESIDE;
    return needed < max_strips ? needed : max_strips;
}

/* Rows of `inner` columns that are worked on as one row, so that few columns fill vectors too: 1 where there are more
   columns, or few rows. */
static inline int64_t rows_together(int64_t n, int64_t inner)
{
    int64_t fold = 1;
    if (inner >= BESIDE) return 1;
    while (fold * inner % BESIDE || fold * inner < 4 * BESIDE) fold *= 2;
    return fold * inner <= STRIP && n >= fold ? fold : 1;
}

/* d[0] to d[3], `to` apart, become the columns of the four rows at s, which are `from` apart: vectors of 16 bytes. */
typedef int32_t four_words __attribute__((vector_size(16), aligned(4), may_alias));
typedef int64_t two_words __attribute__((vector_size(16), aligned(8), may_alias));
static RLX_INLINE void turn_4(void *d, int64_t to, const void *s, int64_t from)
{
    const int32_t *x = s;
    const four_words a = *(const four_words *)x, b = *(const four_words *)(x + from);
    const four_words c = *(const four_words *)(x + 2 * from), e = *(const four_words *)(x + 3 * from);
    const four_words p = __builtin_shufflevector(a, b, 0, 4, 1, 5), q = __builtin_shufflevector(c, e, 0, 4, 1, 5);
    const four_words r = __builtin_shufflevector(a, b, 2, 6, 3, 7), t = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    int32_t *y = d;
    *(four_words *)y = __builtin_shufflevector(p, q, 0, 1, 4, 5);
    *(four_words *)(y + to) = __builtin_shufflevector(p, q, 2, 3, 6, 7);
    *(four_words *)(y + 2 * to) = __builtin_shufflevector(r, t, 0, 1, 4, 5);
    *(four_words *)(y + 3 * to) = __builtin_shufflevector(r, t, 2, 3, 6, 7);
}
static RLX_INLINE void turn_8(void *d, int64_t to, const void *s, int64_t from)
{
    const int64_t *x = s;
    int64_t *y = d;
    for (int64_t i = 0; i < 4; i += 2)
        for (int64_t j = 0; j < 4; j += 2) {
            const two_words a = *(const two_words *)(x + i * from + j), b = *(const two_words *)(x + (i + 1) * from + j);
            *(two_words *)(y + j * to + i) = __builtin_shufflevector(a, b, 0, 2);
            *(two_words *)(y + (j + 1) * to + i) = __builtin_shufflevector(a, b, 1, 3);
        }
}

/* bring: `count` rows of n elements, `apart` from each other, become columns of [n, lanes]; the columns behind them
   become 0. send is the reverse. Tiles of 4 x 4 elements are turned; the last tile of a row overlaps the one before. */
#define LINES(SUFFIX, T, TURN)                                                                    \
    RLX_MAYBE_UNUSED static void bring_##SUFFIX(T *to, const T *from, int64_t apart, int64_t n,   \
                                                int64_t count, int64_t lanes)                     \
    {                                                                                             \
        if (RLX_UNLIKELY(count < lanes)) memset(to, 0, (size_t)(n * lanes) * sizeof(T));          \
        int64_t b = 0;                                                                            \
        for (; n >= 4 && b + 4 <= count; b += 4, from += 4 * apart) {                             \
            for (int64_t i = 0; i + 4 <= n; i += 4) TURN(to + i * lanes + b, lanes, from + i, apart);\
            if (n % 4) TURN(to + (n - 4) * lanes + b, lanes, from + n - 4, apart);                \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                           \
            for (int64_t c = b; c < count; c++) {                                                 \
                RLX_SCALAR_LOOP;                                                                  \
                to[i * lanes + c] = from[(c - b) * apart + i];                                    \
            }                                                                                     \
    }                                                                                             \
    RLX_MAYBE_UNUSED static void send_##SUFFIX(T *to, const T *from, int64_t apart, int64_t n,    \
                                               int64_t count, int64_t lanes)                      \
    {                                                                                             \
        int64_t b = 0;                                                                            \
        for (; n >= 4 && b + 4 <= count; b += 4, to += 4 * apart) {                               \
            for (int64_t i = 0; i + 4 <= n; i += 4) TURN(to + i, apart, from + i * lanes + b, lanes);\
            if (n % 4) TURN(to + n - 4, apart, from + (n - 4) * lanes + b, lanes);                \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                           \
            for (int64_t c = b; c < count; c++) {                                                 \
                RLX_SCALAR_LOOP;                                                                  \
                to[(c - b) * apart + i] = from[i * lanes + c];                                    \
            }                                                                                     \
    }
LINES(f32, float, turn_4)
LINES(f64, double, turn_8)
LINES(i32, int32_t, turn_4)
LINES(u32, uint32_t, turn_4)
LINES(i64, int64_t, turn_8)
