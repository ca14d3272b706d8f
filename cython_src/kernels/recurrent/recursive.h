/* Recursive filters, transposed direct form II, in double precision. rlx/ops/recursive.py says what
   the sections are. Rows are filtered eight side by side: the recursion along a row is one chain of
   dependent steps, which only other rows can fill. */
#define FILTER_LANES 8
#define ROWS NAME(filter_rows)
typedef double ROWS __attribute__((vector_size(FILTER_LANES * sizeof(double)), aligned(sizeof(double))));

/* One sample of each row through one section; z holds order + 1 states of each row, the last is 0. */
static RLX_INLINE void NAME(section)(ROWS *v, ROWS *z, const rlx_param *b, const int64_t order)
{
    const rlx_param *a = b + order + 1;
    const ROWS x = *v, y = b[0].f * x + z[0];
    for (int64_t m = 0; m < order; m++) z[m] = z[m + 1] + b[m + 1].f * x - a[m + 1].f * y;
    *v = y;
}

/* Every sample of up to FILTER_LANES rows through all sections. */
static RLX_INLINE void NAME(filter_lanes)(const T *x, T *y, int64_t n, const int64_t lanes, ROWS *z,
                                          const rlx_param *coefficients, int64_t sections, int64_t order)
{
    const int64_t taps = 2 * (order + 1);
    for (int64_t i = 0; i < n; i++) {
        ROWS v = {0};
        for (int64_t r = 0; r < lanes; r++) v[r] = x[r * n + i];
        for (int64_t s = 0; s < sections; s++)
            if (order == 2) NAME(section)(&v, z + s * 3, coefficients + s * taps, 2);
            else NAME(section)(&v, z + s * (order + 1), coefficients + s * taps, order);
        for (int64_t r = 0; r < lanes; r++) y[r * n + i] = (T)v[r];
    }
}

/* Parameters: rows, n, sections, order, whether there is an initial state, coefficients. Outputs:
   the signal, the final state, scratch for the states of the lanes. */
static int NAME(kernel_recursive)(const rlx_call *call)
{
    const rlx_param *p = call->p, *coefficients = p + 5;
    const int64_t rows = p[0].i, n = p[1].i, sections = p[2].i, order = p[3].i, has_zi = p[4].i;
    const int64_t stride = (order + 1) * FILTER_LANES;
    const T *zi = has_zi ? call->in[1] : NULL;
    T *zf = call->out[1];
    double *z = call->out[2];
    for (int64_t row = 0; row < rows; row += FILTER_LANES) {
        const int64_t lanes = rows - row < FILTER_LANES ? rows - row : FILTER_LANES;
        const T *x = (const T *)call->in[0] + row * n;
        T *y = (T *)call->out[0] + row * n;
        for (int64_t i = 0; i < sections * stride; i++) z[i] = 0;
        if (has_zi)
            for (int64_t s = 0; s < sections; s++)
                for (int64_t m = 0; m < order; m++)
                    for (int64_t r = 0; r < lanes; r++)
                        z[s * stride + m * FILTER_LANES + r] =
                            zi[(s * rows + row + r) * order + m];
        if (lanes == FILTER_LANES)
            NAME(filter_lanes)(x, y, n, FILTER_LANES, (ROWS *)z, coefficients, sections, order);
        else
            NAME(filter_lanes)(x, y, n, lanes, (ROWS *)z, coefficients, sections, order);
        for (int64_t s = 0; s < sections; s++)
            for (int64_t m = 0; m < order; m++)
                for (int64_t r = 0; r < lanes; r++)
                    zf[(s * rows + row + r) * order + m] =
                        (T)z[s * stride + m * FILTER_LANES + r];
    }
    return RLX_OK;
}
#undef FILTER_LANES
#undef ROWS
