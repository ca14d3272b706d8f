/* Local maxima of rows, and the limits that they have to meet (rlx/ops/spectra/find_peaks.py). */

/* Sorts positions by height in ascending order; equal heights keep their order. A merge sort. */
static void NAME(sort_by_height)(const T *x, const int32_t *index, int32_t *order, int32_t *spare,
                                 int64_t m)
{
    for (int64_t i = 0; i < m; i++) order[i] = (int32_t)i;
    for (int64_t width = 1; width < m; width *= 2) {
        for (int64_t start = 0; start < m; start += 2 * width) {
            const int64_t middle = start + width < m ? start + width : m;
            const int64_t end = start + 2 * width < m ? start + 2 * width : m;
            int64_t i = start, j = middle;
            for (int64_t k = start; k < end; k++) {
                const int left = i < middle && (j >= end || x[index[order[i]]] <= x[index[order[j]]]);
                spare[k] = left ? order[i++] : order[j++];
            }
        }
        memcpy(order, spare, (size_t)m * sizeof(int32_t));
    }
}

/* The lowest sample between a peak and the next higher sample, in direction 1 or -1. */
static T NAME(lowest)(const T *x, int64_t n, int64_t peak, int64_t step)
{
    T low = x[peak];
    for (int64_t i = peak; i >= 0 && i < n && x[i] <= x[peak]; i += step) low = x[i] < low ? x[i] : low;
    return low;
}

/* The distance from a peak to where the signal crosses a level below it. */
static T NAME(crossing)(const T *x, int64_t n, int64_t peak, int64_t step, T level)
{
    int64_t i = peak;
    while (i + step >= 0 && i + step < n && x[i] > level) i += step;
    const T steps = (T)((i - peak) * step);
    return x[i] < level ? steps - (level - x[i]) / (x[i - step] - x[i]) : steps;
}

/* Scratch: positions, their order by height, the other half of the merge sort, and which peaks are kept. */
static int NAME(kernel_find_peaks)(const rlx_call *call)
{
    RLX_ARGUMENTS(find_peaks, call);
    const double *limits = p->limits;
    const int64_t rows = p->rows, n = p->n, most = p->candidates, slots = p->slots, distance = p->distance;
    int32_t *index = out->places, *order = index + most, *spare = order + most, *keep = spare + most;
    T low[3], high[3];
    for (int i = 0; i < 3; i++) low[i] = (T)limits[2 * i], high[i] = (T)limits[2 * i + 1];
    const rlx_range own = rlx_share(call, rows, 1);
    for (int64_t row = own.first; row < own.last; row++) {
        const T *x = (const T *)in->x + row * n;
        int32_t *indices = (int32_t *)out->indices + row * slots;
        T *prominences = (T *)out->prominences + row * slots;
        int64_t m = 0, result = 0;
        for (int64_t i = 1; i < n - 1; i++) {
            if (!(x[i - 1] < x[i])) continue;
            int64_t ahead = i + 1;
            while (ahead < n - 1 && x[ahead] == x[i]) ahead++;
            if (x[ahead] < x[i]) {
                if (x[i] >= low[0] && x[i] <= high[0]) index[m++] = (int32_t)((i + ahead - 1) / 2);
                i = ahead;
            }
        }
        for (int64_t j = 0; j < m; j++) keep[j] = 1;
        if (distance > 1) {
            NAME(sort_by_height)(x, index, order, spare, m);
            for (int64_t i = m - 1; i >= 0; i--) {
                const int64_t j = order[i];
                if (!keep[j]) continue;
                for (int64_t k = j - 1; k >= 0 && index[j] - index[k] < distance; k--) keep[k] = 0;
                for (int64_t k = j + 1; k < m && index[k] - index[j] < distance; k++) keep[k] = 0;
            }
        }
        for (int64_t j = 0; j < m; j++) {
            if (!keep[j]) continue;
            const T left = NAME(lowest)(x, n, index[j], -1), right = NAME(lowest)(x, n, index[j], 1);
            const T top = x[index[j]], drop = top - (left > right ? left : right);
            if (!(drop >= low[1] && drop <= high[1])) continue;
            if (p->widths) {
                const T level = top - (T)0.5 * drop;
                const T width = NAME(crossing)(x, n, index[j], -1, level) +
                                NAME(crossing)(x, n, index[j], 1, level);
                if (!(width >= low[2] && width <= high[2])) continue;
            }
            if (result < slots) indices[result] = index[j], prominences[result] = drop;
            result++;
        }
        ((int32_t *)out->counts)[row] = (int32_t)result;
        for (int64_t i = result; i < slots; i++) indices[i] = -1, prominences[i] = 0;
    }
    return RLX_OK;
}
