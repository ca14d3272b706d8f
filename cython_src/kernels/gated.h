/* Two products of one left matrix, one the gate of the other: act(a @ g) * (a @ u), per type. */

#define GATED_COLUMNS 2048  /* columns that few rows make at a time: a gate of these is in the cache */

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

/* Few rows: both matrices are read in place, and a piece of the gate never leaves the cache. */
static void NAME(gated_row)(const T *a, const T *const *w, const T *const *bias, T *c, int64_t k,
                            int64_t n, int64_t act)
{
    T gate[GATED_COLUMNS];
    for (int64_t j = 0; j < n; j += GATED_COLUMNS) {
        const int64_t width = n - j < GATED_COLUMNS ? n - j : GATED_COLUMNS;
        NAME(gemv)(a, w[0] + j, n, bias[0] ? bias[0] + j : NULL, gate, k, width);
        NAME(gemv)(a, w[1] + j, n, bias[1] ? bias[1] + j : NULL, c + j, k, width);
        NAME(activate)(gate, width, act);
        for (int64_t v = 0; v < width; v++) c[j + v] *= gate[v];
    }
}

/* Inputs: a, gate and up weights, their biases. Parameters: m, k, n, has bias, act. Scratch: two strips
   and a panel. */
static int NAME(kernel_gated_product)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[0].i, k = p[1].i, n = p[2].i, act = p[4].i;
    const T *a = call->in[0];
    const T *const w[2] = {call->in[1], call->in[2]};
    const T *const bias[2] = {p[3].i ? call->in[3] : NULL, p[3].i ? call->in[4] : NULL};
    T *c = call->out[0];
    if (m < 4) {
        for (int64_t i = 0; i < m; i++) NAME(gated_row)(a + i * k, w, bias, c + i * n, k, n, act);
        return RLX_OK;
    }
    T *gate = call->out[1], *up = gate + m * NR, *panel = up + m * NR;
    for (int64_t j = 0; j < n; j += NR) {
        const int64_t width = n - j < NR ? n - j : NR;
        NAME(strip)(a, w[0] + j, bias[0] ? bias[0] + j : NULL, gate, m, k, n, width, panel);
        NAME(strip)(a, w[1] + j, bias[1] ? bias[1] + j : NULL, up, m, k, n, width, panel);
        NAME(activate)(gate, m * NR, act);
        for (int64_t i = 0; i < m; i++) {
            T *to = c + i * n + j;
            const T *x = gate + i * NR, *y = up + i * NR;
            for (int64_t v = 0; v < width; v++) to[v] = x[v] * y[v];
        }
    }
    return RLX_OK;
}

#undef GATED_COLUMNS
