/* Recursive filters in transposed direct form II, in double precision; rlx/ops/recurrent/recursive.py defines the
   sections. Eight rows are filtered side by side, since the steps along one row depend on each other. */
#define FILTER_LANES RLX_FILTER_LANES
#define ROWS NAME(filter_rows)
typedef double ROWS __attribute__((vector_size(FILTER_LANES * sizeof(double)), aligned(sizeof(double))));

/* One sample of each row through one section; z holds order + 1 states of each row, the last is 0. */
static RLX_INLINE void NAME(section)(ROWS *v, ROWS *z, const double *b, const int64_t order)
{
    const double *a = b + order + 1;
    const ROWS x = *v, y = b[0] * x + z[0];
    for (int64_t m = 0; m < order; m++) z[m] = z[m + 1] + b[m + 1] * x - a[m + 1] * y;
    *v = y;
}

/* The first `end` samples of up to FILTER_LANES rows of n through all sections. */
static RLX_INLINE void NAME(filter_lanes)(const T *x, T *y, int64_t n, int64_t end, const int64_t lanes,
                                          ROWS *z, const double *coefficients, int64_t sections,
                                          int64_t order)
{
    const int64_t taps = 2 * (order + 1);
    for (int64_t i = 0; i < end; i++) {
        ROWS v = {0};
        for (int64_t r = 0; r < lanes; r++) v[r] = x[r * n + i];
        for (int64_t s = 0; s < sections; s++)
            if (order == 2) NAME(section)(&v, z + s * 3, coefficients + s * taps, 2);
            else NAME(section)(&v, z + s * (order + 1), coefficients + s * taps, order);
        for (int64_t r = 0; r < lanes; r++) y[r * n + i] = (T)v[r];
    }
    for (int64_t r = 0; r < lanes; r++)
        for (int64_t i = end; i < n; i++) y[r * n + i] = 0;
}

/* Scratch: the states of the lanes. */
static int NAME(kernel_recursive)(const rlx_call *call)
{
    RLX_ARGUMENTS(recursive, call);
    const double *coefficients = p->coefficients;
    const int64_t rows = p->rows, n = p->n, sections = p->sections, order = p->order;
    const int64_t stride = (order + 1) * FILTER_LANES;
    const int32_t *count = in->count;
    const int64_t wanted = count ? count[0] : n;
    const int64_t end = wanted < 0 ? 0 : wanted < n ? wanted : n;
    const T *zi = in->zi;
    T *zf = out->zf;
    double *z = out->states;
    const rlx_range own = rlx_share(call, rows, FILTER_LANES);
    for (int64_t row = own.first; row < own.last; row += FILTER_LANES) {
        const int64_t lanes = own.last - row < FILTER_LANES ? own.last - row : FILTER_LANES;
        const T *x = (const T *)in->x + row * n;
        T *y = (T *)out->y + row * n;
        for (int64_t i = 0; i < sections * stride; i++) z[i] = 0;
        if (zi)
            for (int64_t s = 0; s < sections; s++)
                for (int64_t m = 0; m < order; m++)
                    for (int64_t r = 0; r < lanes; r++)
                        z[s * stride + m * FILTER_LANES + r] =
                            zi[(s * rows + row + r) * order + m];
        if (lanes == FILTER_LANES)
            NAME(filter_lanes)(x, y, n, end, FILTER_LANES, (ROWS *)z, coefficients, sections, order);
        else
            NAME(filter_lanes)(x, y, n, end, lanes, (ROWS *)z, coefficients, sections, order);
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
