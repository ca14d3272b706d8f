/* Resizing along one axis by tables of taps and weights, per type. */

/* A tap of weight 0 is not read. A single tap has weight 1. */
static int NAME(kernel_interpolate)(const rlx_call *call)
{
    RLX_ARGUMENTS(interpolate, call);
    const int64_t outer = p->outer, n = p->n, count = p->count;
    const int64_t inner = p->inner, taps = p->taps;
    const T outside = (T)p->outside;
    const T *x = in->x, *weights = in->weights;
    const int32_t *indices = in->indices;
    T *y = out->y;
    for (int64_t o = 0; o < outer; o++, x += n * inner) {
        if (inner == 1 && taps == 1) {
            for (int64_t j = 0; j < count; j++) y[j] = indices[j] < 0 ? outside : x[indices[j]];
            y += count;
            continue;
        }
        for (int64_t j = 0; j < count; j++, y += inner) {
            const int32_t *index = indices + j * taps;
            const T *weight = weights + j * taps;
            if (index[0] < 0) {
                for (int64_t i = 0; i < inner; i++) y[i] = outside;
            } else if (taps == 1) {
                memcpy(y, x + index[0] * inner, (size_t)inner * sizeof(T));
            } else if (inner == 1) {
                T sum = 0;
                for (int64_t t = 0; t < taps; t++) {
                    const T v = x[index[t]];
                    sum += weight[t] != 0 ? weight[t] * v : 0;
                }
                *y = sum;
            } else {
                for (int64_t i = 0; i < inner; i++) y[i] = 0;
                for (int64_t t = 0; t < taps; t++) {
                    const T *from = x + index[t] * inner;
                    const T by = weight[t];
                    if (by != 0)
                        for (int64_t i = 0; i < inner; i++) y[i] += by * from[i];
                }
            }
        }
    }
    return RLX_OK;
}
