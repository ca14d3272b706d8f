/* Products of rows with one vector, per type, and per type in which the rows are held. */
#ifndef HELD
#define HELD T
#define OF(name) NAME(name)
#define READ(place) (*LANE(place, 0))
#define READ_ONE(place) (*(place))
#endif

/* The products of ROWS rows with h, added up in vectors, and those behind the last whole vector. */
#define ROW_DOTS(ROWS)                                                                             \
    static RLX_INLINE void OF(row_dots_##ROWS)(const HELD *r, int64_t apart, int64_t n, const T *h, VEC *sums, T *rest) \
    {                                                                                              \
        VEC s[ROWS][4] = {{{0}}};                                                                  \
        int64_t j = 0;                                                                             \
        for (; j + 4 * VL <= n; j += 4 * VL)                                                       \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                    \
            {                                                                                      \
                const VEC x = *LANE(h + j, v);                                                     \
                _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                             \
                    s[i][v] += READ(r + i * apart + j + v * VL) * x;                               \
            }                                                                                      \
        for (; j + VL <= n; j += VL)                                                               \
            _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                                 \
                s[i][0] += READ(r + i * apart + j) * *LANE(h + j, 0);                              \
        for (; j < n; j++)                                                                         \
            _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++) rest[i] += READ_ONE(r + i * apart + j) * h[j]; \
        _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                                     \
            sums[i] = (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]);                                   \
    }
ROW_DOTS(1) ROW_DOTS(2)
#undef ROW_DOTS

/* y[i] += dot(r[i], h) for rows r[i] that are `apart` elements apart. Rows are read in order, so that memory is read as
   a stream. The sums of VL rows are transposed in registers and added together. */
static void OF(add_dots)(const HELD *r, int64_t apart, int64_t rows, int64_t n, const T *h, T *y)
{
    for (int64_t i = 0; i < rows; i += VL) {
        const int64_t some = rows - i < VL ? rows - i : VL;
        VEC sums[VECTOR_BYTES / sizeof(T)] = {{0}};
        T rest[VECTOR_BYTES / sizeof(T)] = {0};
        int64_t k = 0;
        for (; k + 2 <= some; k += 2, r += 2 * apart) OF(row_dots_2)(r, apart, n, h, sums + k, rest + k);
        for (; k < some; k++, r += apart) OF(row_dots_1)(r, apart, n, h, sums + k, rest + k);
        NAME(transpose_lanes)(sums);
        for (int64_t half = VL / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++) sums[l] += sums[l + half];
        for (int64_t l = 0; l < some; l++) y[i + l] += sums[0][l] + rest[l];
    }
}

/* y += s @ r, the rows of r `apart` elements apart. y stays in registers. */
static void OF(add_rows)(const HELD *r, int64_t apart, int64_t rows, int64_t n, const T *s, T *y)
{
    int64_t e = 0;
    for (; e + 4 * VL <= n; e += 4 * VL) {
        VEC s0 = *LANE(y + e, 0), s1 = *LANE(y + e, 1), s2 = *LANE(y + e, 2), s3 = *LANE(y + e, 3);
        const HELD *row = r + e;
        for (int64_t j = 0; j < rows; j++, row += apart) {
            s0 += s[j] * READ(row), s1 += s[j] * READ(row + VL);
            s2 += s[j] * READ(row + 2 * VL), s3 += s[j] * READ(row + 3 * VL);
        }
        *LANE(y + e, 0) = s0, *LANE(y + e, 1) = s1, *LANE(y + e, 2) = s2, *LANE(y + e, 3) = s3;
    }
    for (; e + VL <= n; e += VL) {
        VEC sum = *LANE(y + e, 0);
        for (int64_t j = 0; j < rows; j++) sum += s[j] * READ(r + j * apart + e);
        *LANE(y + e, 0) = sum;
    }
    for (; e < n; e++)
        for (int64_t j = 0; j < rows; j++) y[e] += s[j] * READ_ONE(r + j * apart + e);
}
#undef HELD
#undef OF
#undef READ
#undef READ_ONE
