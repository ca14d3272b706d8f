/* Pools: the maximum or the sum of sliding windows. */

/* The taps [*low, result) of a window that begins at `first` are inside [0, size). */
static inline int64_t taps_inside(int64_t first, int64_t step, int64_t taps, int64_t size,
                                  int64_t *low)
{
    const int64_t high = size > first ? (size - first + step - 1) / step : 0;
    *low = first < 0 ? (-first + step - 1) / step : 0;
    return high < taps ? high : taps;
}

/* Elements of window o along one axis, with or without padding, but without what extends beyond the padding. */
static inline int64_t count_inside(const rlx_window *w, int axis, int64_t o, int padded)
{
    int64_t low, first = o * w->stride[axis] - w->before[axis], size = w->dims[axis];
    if (padded) first += w->before[axis], size += w->before[axis] + w->after[axis];
    const int64_t high = taps_inside(first, w->dilation[axis], w->kernel[axis], size, &low);
    return high > low ? high - low : 0;
}

#define JOIN_MAX(a, v) ((v) > (a) || (v) != (v) ? (v) : (a)) /* a NaN stays */
#define JOIN_SUM(a, v) ((a) + (v))
/* NEAR: whether windows of three adjacent taps and stride two have loops of their own. */
#define POOL(KIND, SUFFIX, E, START, JOIN, DIVIDES, NEAR)                                                 \
    static int kernel_pool_##KIND##_##SUFFIX(const rlx_call *call)                                           \
    {                                                                                             \
        RLX_ARGUMENTS(pool_##KIND, call);                                                      \
        const rlx_window w = p->window;                                                           \
        const int64_t divide = p->divide, step = w.stride[2];                                     \
        const int64_t plane = w.dims[0] * w.dims[1] * w.dims[2];                                  \
        const E *x = in->x;                                                                       \
        E *y = out->y, *joined = out->row;                                                        \
        for (int64_t channel = 0; channel < w.channels; channel++, x += plane)                    \
        for (int64_t oz = 0; oz < w.out[0]; oz++)                                                 \
        for (int64_t oy = 0; oy < w.out[1]; oy++, y += w.out[2]) {                                \
            const int64_t z = oz * w.stride[0] - w.before[0], v = oy * w.stride[1] - w.before[1]; \
            int64_t z_low, y_low;                                                                 \
            const int64_t z_high =                                                                \
                taps_inside(z, w.dilation[0], w.kernel[0], w.dims[0], &z_low);                    \
            const int64_t y_high =                                                                \
                taps_inside(v, w.dilation[1], w.kernel[1], w.dims[1], &y_low);                    \
            /* Rows are combined first, since neighbouring windows share them. */                 \
            const E *line = NULL;                                                                 \
            int64_t y_next = y_low;                                                               \
            if (NEAR && z_high - z_low == 1 && y_high - y_low == 3) { /* three rows in one go */  \
                const E *a = x + ((z + z_low * w.dilation[0]) * w.dims[1] + v +                   \
                                  y_low * w.dilation[1]) * w.dims[2];                             \
                const E *b = a + w.dilation[1] * w.dims[2], *c = b + w.dilation[1] * w.dims[2];   \
                _Pragma("GCC ivdep") for (int64_t i = 0; i < w.dims[2]; i++) {                    \
                    const E both = JOIN(a[i], b[i]);                                              \
                    joined[i] = JOIN(both, c[i]);                                                 \
                }                                                                                 \
                line = joined, y_next = y_high;                                                   \
            }                                                                                     \
            for (int64_t kz = z_low; kz < z_high; kz++)                                           \
            for (int64_t ky = y_next; ky < y_high; ky++) {                                        \
                const E *from = x + ((z + kz * w.dilation[0]) * w.dims[1] + v +                   \
                                     ky * w.dilation[1]) * w.dims[2];                             \
                if (line)                                                                         \
                    _Pragma("GCC ivdep") for (int64_t i = 0; i < w.dims[2]; i++)                  \
                        joined[i] = JOIN(line[i], from[i]);                                       \
                line = line ? joined : from;                                                      \
            }                                                                                     \
            if (NEAR && line && w.kernel[2] == 3 && w.dilation[2] == 1 && step == 2) {            \
                /* Windows of three adjacent taps: first those that are inside, then the          \
                   others. */                                                                     \
                int64_t first, last = taps_inside(-w.before[2], 2, w.out[2], w.dims[2] - 2, &first); \
                const E *from = line - w.before[2];                                               \
                if (last < first) last = first = w.out[2];                                        \
                _Pragma("GCC ivdep") for (int64_t i = first; i < last; i++) {                     \
                    const E both = JOIN(from[2 * i], from[2 * i + 1]);                            \
                    y[i] = JOIN(both, from[2 * i + 2]);                                           \
                }                                                                                 \
                for (int64_t i = 0; i < w.out[2]; i++) {                                          \
                    if (i == first) i = last;                                                     \
                    if (i == w.out[2]) break;                                                     \
                    y[i] = START;                                                                 \
                    for (int64_t at = 2 * i - w.before[2], end = at + 3; at < end; at++)          \
                        if (at >= 0 && at < w.dims[2]) y[i] = JOIN(y[i], line[at]);               \
                }                                                                                 \
                continue;                                                                         \
            }                                                                                     \
            for (int64_t i = 0; i < w.out[2]; i++) y[i] = START;                                  \
            for (int64_t kx = 0; line && kx < w.kernel[2]; kx++) {                                \
                const int64_t shift = kx * w.dilation[2] - w.before[2];                           \
                int64_t low;                                                                      \
                const int64_t high = taps_inside(shift, step, w.out[2], w.dims[2], &low);         \
                const E *from = line + shift;                                                     \
                if (step == 1)                                                                    \
                    _Pragma("GCC ivdep") for (int64_t i = low; i < high; i++) y[i] = JOIN(y[i], from[i]);\
                else if (step == 2)                                                               \
                    _Pragma("GCC ivdep") for (int64_t i = low; i < high; i++) y[i] = JOIN(y[i], from[2 * i]);\
                else                                                                              \
                    _Pragma("GCC ivdep") for (int64_t i = low; i < high; i++) y[i] = JOIN(y[i], from[i * step]);\
            }                                                                                     \
            if (!DIVIDES || !divide) continue;                                                    \
            const int64_t rows = count_inside(&w, 0, oz, divide == RLX_DIVIDE_PADDED) *                           \
                                 count_inside(&w, 1, oy, divide == RLX_DIVIDE_PADDED);                            \
            /* Windows [first, last) have all taps of the axis. */                                \
            const int64_t whole = w.dims[2] - (w.kernel[2] - 1) * w.dilation[2];                  \
            int64_t first, last = taps_inside(-w.before[2], step, w.out[2], whole, &first);       \
            if (last < first) first = last = w.out[2];                                            \
            const E every = (E)(rows ? rows * w.kernel[2] : 1);                                   \
            for (int64_t i = first; i < last; i++) y[i] /= every;                                 \
            for (int64_t i = 0; i < w.out[2]; i++) {                                              \
                if (i == first) i = last;                                                         \
                if (i == w.out[2]) break;                                                         \
                const int64_t count = rows * count_inside(&w, 2, i, divide == RLX_DIVIDE_PADDED);                 \
                y[i] /= (E)(count ? count : 1);                                                   \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
POOL(max, f32, float, -INFINITY, JOIN_MAX, 0, 1)
POOL(sum, f32, float, 0, JOIN_SUM, 1, 0)
POOL(max, f64, double, -INFINITY, JOIN_MAX, 0, 0)
POOL(max, i32, int32_t, INT32_MIN, JOIN_MAX, 0, 0)
POOL(sum, f64, double, 0, JOIN_SUM, 1, 0)
#undef POOL
#undef JOIN_MAX
#undef JOIN_SUM
