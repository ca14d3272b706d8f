/* Products of rows of f32, rounded to 16 bits, with weights in 8 bits: sums of two products of integers at a time.

   A row becomes integers of 16 bits and one scale: its largest element is 32767 of it. That is 256 times finer than the
   weights are. Weights stand in panels of ROUNDED_COLUMNS columns, two rows of a column side by side; a last odd row is
   followed by anything. The last panel is as wide as the others. */

#define ROUNDED_COLUMNS (4 * I32_LANES)
#define ROUNDED_BLOCK RLX_ROUNDED_ROWS /* rows of the left matrix that are rounded at a time */
/* Pairs whose sum fits into 32 bits: each is at most 2 * 32767 * 128. */
#define ROUNDED_PAIRS 255

typedef float rounded_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* Pairs that n elements make. */
static inline int64_t pairs_of(int64_t n) { return (n + 1) / 2; }

/* Rounds a row, followed by 0 where n is odd, and returns its scale. That is NaN for a row with NaN or infinity. Rows
   without an element of 2^-100 are 0, since their inverse scale might be infinite. */
static float round_row(const float *x, int64_t n, int16_t *to)
{
    int32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
    }
    float largest;
    memcpy(&largest, &top, 4);
    if (top >= 0x7f800000 || largest < 0x1p-100f) {
        memset(to, 0, (size_t)(2 * pairs_of(n)) * sizeof(*to));
        return top >= 0x7f800000 ? NAN : 0.0f;
    }
    const float scale = largest / 32767.0f, times = 32767.0f / largest;
    for (int64_t i = 0; i < n; i++) {
        /* The last bits of this sum are the nearest integer. */
        const float sum = x[i] * times + 0x1.8p23f;
        int32_t bits;
        memcpy(&bits, &sum, 4);
        to[i] = (int16_t)bits;
    }
    if (n % 2) to[n] = 0;
    return scale;
}

/* y += a * scale of the row * panel * scale of the column, for some rows of a that are `row` elements apart. */
#define ROUNDED(ROWS)                                                                                       \
    static void rounded_##ROWS(const int16_t *a, int64_t row, const float *row_scales, const int8_t *panel, \
                               int64_t pairs, const float *scales, float *y, int64_t apart)                 \
    {                                                                                                       \
        for (int64_t p = 0, some; p < pairs; p += some) {                                                   \
            sums_i32 acc[ROWS][4];                                                                          \
            some = pairs - p < ROUNDED_PAIRS ? pairs - p : ROUNDED_PAIRS;                                   \
            _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                                          \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) acc[r][v] = (sums_i32){0};              \
            for (int64_t i = p; i < p + some; i++, panel += 2 * VECTOR_BYTES) {                             \
                vec_i16 left[ROWS];                                                                         \
                RLX_PREFETCH(panel + 1024);                                                                 \
                if (VECTOR_BYTES > 32) RLX_PREFETCH(panel + 1024 + VECTOR_BYTES);                           \
                _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                                      \
                {                                                                                           \
                    int32_t both;                                                                           \
                    memcpy(&both, a + r * row + 2 * i, 4);                                                  \
                    left[r] = (vec_i16)(both - (sums_i32){0});                                              \
                }                                                                                           \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                         \
                {                                                                                           \
                    const vec_i16 right = widened_bytes(panel + v * (VECTOR_BYTES / 2));                    \
                    _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                                  \
                        acc[r][v] += (sums_i32)add_pairs(left[r], right);                                   \
                }                                                                                           \
            }                                                                                               \
            for (int r = 0; r < ROWS; r++)                                                                  \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                         \
                {                                                                                           \
                    rounded_f32 *to = (rounded_f32 *)(y + r * apart) + v;                                   \
                    const rounded_f32 sums = (rounded_f32)__builtin_convertvector(acc[r][v], wide_f32);     \
                    *to += sums * (row_scales[r] * ((const rounded_f32 *)scales)[v]);                       \
                }                                                                                           \
        }                                                                                                   \
    }
/* Rows at a time: as many as the registers hold. */
ROUNDED(1) ROUNDED(2)
#if VECTOR_BYTES == 64
ROUNDED(4)
#define ROUNDED_MOST 4
#else
#define rounded_4 rounded_2
#define ROUNDED_MOST 2
#endif
#undef ROUNDED

/* y += rounded rows times `columns` columns of panels. Rows of a are `row` elements apart, those of y `apart`. */
static void add_rounded(const int16_t *a, int64_t row, const float *row_scales, int64_t rows, const int8_t *panels,
                        int64_t pairs, const float *scales, int64_t columns, float *y, int64_t apart)
{
    for (int64_t j = 0; j < columns; j += ROUNDED_COLUMNS, panels += 2 * pairs * ROUNDED_COLUMNS) {
        const int64_t width = columns - j < ROUNDED_COLUMNS ? columns - j : ROUNDED_COLUMNS;
        const size_t bytes = (size_t)width * sizeof(float);
        const int whole = width == ROUNDED_COLUMNS;
        float some_scales[4 * VECTOR_BYTES / 4] = {0}, part[ROUNDED_MOST * 4 * VECTOR_BYTES / 4] = {0};
        if (!whole) memcpy(some_scales, scales + j, bytes);
        for (int64_t i = 0, some; i < rows; i += some) {
            some = rows - i >= ROUNDED_MOST ? ROUNDED_MOST : rows - i >= 2 ? 2 : 1;
            float *to = y + i * apart + j;
            for (int64_t r = 0; !whole && r < some; r++) memcpy(part + r * ROUNDED_COLUMNS, to + r * apart, bytes);
            (some == 4 ? rounded_4 : some == 2 ? rounded_2 : rounded_1)(
                a + i * row, row, row_scales + i, panels, pairs, whole ? scales + j : some_scales, whole ? to : part,
                whole ? apart : ROUNDED_COLUMNS);
            for (int64_t r = 0; !whole && r < some; r++) memcpy(to + r * apart, part + r * ROUNDED_COLUMNS, bytes);
        }
    }
}

/* Packs rows of w [rows, n] as panels. */
static void pack_pairs(const int8_t *w, int64_t rows, int64_t n, int8_t *panels)
{
    for (int64_t j = 0; j < rows; j += ROUNDED_COLUMNS, panels += 2 * pairs_of(n) * ROUNDED_COLUMNS)
        for (int64_t v = 0; v < ROUNDED_COLUMNS; v++) {
            const int8_t *from = w + (j + v < rows ? j + v : rows - 1) * n;
            int8_t *to = panels + 2 * v;
            for (int64_t i = 0; i < n; i++) to[i / 2 * 2 * ROUNDED_COLUMNS + i % 2] = from[i];
            if (n % 2) to[n / 2 * 2 * ROUNDED_COLUMNS + 1] = 0;
        }
}

/* Scratch: scales of ROUNDED_BLOCK rows, these rows, and a panel. */
static int kernel_rounded_matmul_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(rounded_matmul, call);
    const int64_t m = p->m, n = p->n, k = p->k, pairs = pairs_of(k);
    const rlx_block own = rlx_share_tiles(call, 1, m, n, ROUNDED_MOST, ROUNDED_COLUMNS);
    const int64_t j0 = own.columns.first, width = own.columns.last - j0;
    float *row_scales = out->rows;
    int16_t *rounded = (int16_t *)(row_scales + ROUNDED_BLOCK);
    int8_t *panel = (int8_t *)(rounded + (m < ROUNDED_BLOCK ? m : ROUNDED_BLOCK) * 2 * pairs);
    if (own.pieces.first == own.pieces.last) return RLX_OK;
    for (int64_t i = own.rows.first; i < own.rows.last; i += ROUNDED_BLOCK) {
        const int64_t rows = own.rows.last - i < ROUNDED_BLOCK ? own.rows.last - i : ROUNDED_BLOCK;
        float *y = (float *)out->y + i * n + j0;
        for (int64_t r = 0; r < rows; r++) {
            row_scales[r] = round_row((const float *)in->x + (i + r) * k, k, rounded + r * 2 * pairs);
            if (in->bias) memcpy(y + r * n, (const float *)in->bias + j0, (size_t)width * sizeof(float));
            else memset(y + r * n, 0, (size_t)width * sizeof(float));
        }
        for (int64_t j = 0; j < width; j += ROUNDED_COLUMNS) {
            const int64_t some = width - j < ROUNDED_COLUMNS ? width - j : ROUNDED_COLUMNS;
            const int8_t *from = (const int8_t *)in->w + (j0 + j) * 2 * pairs;
            if (!p->packing) pack_pairs((const int8_t *)in->w + (j0 + j) * k, some, k, panel);
            add_rounded(rounded, 2 * pairs, row_scales, rows, p->packing ? from : panel, pairs,
                        (const float *)in->scales + j0 + j, some, y + j, n);
        }
    }
    return RLX_OK;
}
