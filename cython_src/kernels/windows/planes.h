/* Turns planes so that an element of VL planes is a vector, and back, per type. */

/* Loads n elements of VL rows into lanes, and up to VL - 1 vectors more. Whole vectors are read, where they end before
   `end`. */
static void NAME(planes_in)(const T *const *row, int64_t n, const T *end, T *to)
{
    int64_t j = 0;
    for (; j < n; j += VL) {
        VEC v[VECTOR_BYTES / sizeof(T)];
        int whole = j + VL <= n;
        if (!whole) {
            whole = 1;
            for (int64_t l = 0; l < VL; l++) whole &= end - row[l] >= j + VL;
        }
        if (!whole) break;
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) v[l] = *(const VEC *)(row[l] + j);
        NAME(transpose_lanes)(v);
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) *LANE(to, j + l) = v[l];
    }
    for (; j < n; j++)
        for (int64_t l = 0; l < VL; l++) to[j * VL + l] = row[l][j];
}

/* Stores n vectors, of which `rows` lanes are valid, to rows that are `apart`. Up to VL - 1 vectors more are read. */
static void NAME(planes_out)(const T *from, int64_t n, T *to, int64_t apart, int64_t rows)
{
    for (int64_t j = 0; j < n; j += VL) {
        VEC v[VECTOR_BYTES / sizeof(T)];
        const int64_t some = n - j < VL ? n - j : VL;
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) v[l] = *LANE(from, j + l);
        NAME(transpose_lanes)(v);
        for (int64_t l = 0; l < rows; l++) NAME(store_lanes)(to + l * apart + j, v[l], some);
    }
}
