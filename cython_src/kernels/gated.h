/* Two products of one left matrix, one the gate of the other: act(a @ g) * (a @ u), per type. */

#define FEW 3               /* rows that are made one by one */
#define GATED_COLUMNS 2048  /* columns that these make at a time, at most */
#define GATED_BYTES 262144  /* bytes of a matrix that stay in the cache from one row to the next */

/* One strip, [rows, NR] one after the other: up to NR columns of a @ b. */
static void NAME(strip)(const T *a, const T *b, const T *bias, T *strip, int64_t rows, int64_t k,
                        int64_t n, int64_t width, T *panel)
{
    T start[NR];
    NAME(begin)(start, bias, width);
    for (int64_t i = 0; k == 0 && i < rows; i++) memcpy(strip + i * NR, start, sizeof start);
    for (int64_t p = 0; p < k; p += KC) {
        const int64_t depth = k - p < KC ? k - p : KC;
        NAME(pack)(panel, b + p * n, n, depth, width, 0);
        NAME(tiles)(a + p, k, panel, strip, NR, rows, depth, p ? NULL : start);
    }
}

/* Few rows: both matrices are read in place, some columns of one after some of the other, and of several
   rows so few that the second row finds them in the cache. */
static void NAME(gated_few)(const T *a, const T *const *w, const T *const *bias, T *c, int64_t m,
                            int64_t k, int64_t n, int64_t act, rlx_range own)
{
    T gate[FEW * GATED_COLUMNS];
    int64_t some = m == 1 ? GATED_COLUMNS : GATED_BYTES / (int64_t)sizeof(T) / (k + 1) / (4 * VL) * (4 * VL);
    if (some < 4 * VL) some = 4 * VL;
    if (some > GATED_COLUMNS - VL) some = GATED_COLUMNS - 4 * VL;
    for (int64_t j = own.first, width; j < own.last; j += width) {
        /* gemv rounds another way where there is not even a vector: none such is left over. */
        width = own.last - j < some + VL ? own.last - j : some;
        for (int64_t i = 0; i < m; i++)
            NAME(gemv)(a + i * k, w[0] + j, n, bias[0] ? bias[0] + j : NULL, gate + i * width, k, width);
        for (int64_t i = 0; i < m; i++)
            NAME(gemv)(a + i * k, w[1] + j, n, bias[1] ? bias[1] + j : NULL, c + i * n + j, k, width);
        NAME(activate)(gate, m * width, act);
        for (int64_t i = 0; i < m; i++)
            for (int64_t v = 0; v < width; v++) c[i * n + j + v] *= gate[i * width + v];
    }
}

/* Inputs: a, gate and up weights, their biases. Parameters: m, k, n, has bias, act, strips of the
   gate that are made before those of the other product. Scratch: these, one more and a panel. */
static int NAME(kernel_gated_product)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[0].i, k = p[1].i, n = p[2].i, act = p[4].i, strips = p[5].i;
    const T *a = call->in[0];
    const T *const w[2] = {call->in[1], call->in[2]};
    const T *const bias[2] = {p[3].i ? call->in[3] : NULL, p[3].i ? call->in[4] : NULL};
    T *c = call->out[0];
    const rlx_range own = rlx_share(call, n, m <= FEW ? 4 * VL : NR); /* parts are columns */
    if (m <= FEW) {
        NAME(gated_few)(a, w, bias, c, m, k, n, act, own);
        return RLX_OK;
    }
    T *gates = call->out[1], *up = gates + strips * m * NR, *panel = up + m * NR;
    for (int64_t first = own.first; first < own.last; first += strips * NR) {
        const int64_t last = own.last - first < strips * NR ? own.last : first + strips * NR;
        for (int64_t j = first; j < last; j += NR)
            NAME(strip)(a, w[0] + j, bias[0] ? bias[0] + j : NULL, gates + (j - first) * m, m, k, n,
                        n - j < NR ? n - j : NR, panel);
        NAME(activate)(gates, (last - first + NR - 1) / NR * NR * m, act);
        for (int64_t j = first; j < last; j += NR) {
            const int64_t width = n - j < NR ? n - j : NR;
            NAME(strip)(a, w[1] + j, bias[1] ? bias[1] + j : NULL, up, m, k, n, width, panel);
            for (int64_t i = 0; i < m; i++) {
                const T *x = gates + (j - first) * m + i * NR, *y = up + i * NR;
                for (int64_t v = 0; v < width; v++) c[i * n + j + v] = x[v] * y[v];
            }
        }
    }
    return RLX_OK;
}

#undef FEW
#undef GATED_COLUMNS
#undef GATED_BYTES
