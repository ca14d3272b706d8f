/* Dot products of rows with one vector, per type. */

/* The products of ROWS rows with h, added up in vectors, and those behind the last whole vector. */
#define ROW_DOTS(ROWS)                                                                             \
    static RLX_INLINE void NAME(row_dots_##ROWS)(const T *r, int64_t apart, int64_t n, const T *h, VEC *sums, T *rest) \
    {                                                                                              \
        VEC s[ROWS][4] = {{{0}}};                                                                  \
        int64_t j = 0;                                                                             \
        for (; j + 4 * VL <= n; j += 4 * VL)                                                       \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                    \
            {                                                                                      \
                const VEC x = *LANE(h + j, v);                                                     \
                _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                             \
                    s[i][v] += *LANE(r + i * apart + j, v) * x;                                    \
            }                                                                                      \
        for (; j + VL <= n; j += VL)                                                               \
            _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                                 \
                s[i][0] += *LANE(r + i * apart + j, 0) * *LANE(h + j, 0);                          \
        for (; j < n; j++)                                                                         \
            _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++) rest[i] += r[i * apart + j] * h[j]; \
        _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; i++)                                     \
            sums[i] = (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]);                                   \
    }
ROW_DOTS(1) ROW_DOTS(2)
#undef ROW_DOTS

/* y[i] += dot(r[i], h) for rows r[i] that are `apart` elements apart. Rows are read in order, so that memory is read as
   a stream. The sums of VL rows are transposed in registers and added together. */
static void NAME(add_dots)(const T *r, int64_t apart, int64_t rows, int64_t n, const T *h, T *y)
{
    for (int64_t i = 0; i < rows; i += VL) {
        const int64_t some = rows - i < VL ? rows - i : VL;
        VEC sums[VECTOR_BYTES / sizeof(T)] = {{0}};
        T rest[VECTOR_BYTES / sizeof(T)] = {0};
        int64_t k = 0;
        for (; k + 2 <= some; k += 2, r += 2 * apart) NAME(row_dots_2)(r, apart, n, h, sums + k, rest + k);
        for (; k < some; k++, r += apart) NAME(row_dots_1)(r, apart, n, h, sums + k, rest + k);
        NAME(transpose_lanes)(sums);
        for (int64_t half = VL / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++) sums[l] += sums[l + half];
        for (int64_t l = 0; l < some; l++) y[i + l] += sums[0][l] + rest[l];
    }
}
