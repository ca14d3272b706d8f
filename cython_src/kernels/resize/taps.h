/* Tables of taps and weights of a resized axis, for sizes that are known only when the graph runs (rlx/ops/resize/taps.py). */

#ifndef RLX_TAPS
#define RLX_TAPS
enum { TAPS_NEAREST, TAPS_LINEAR, TAPS_CUBIC };
enum { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC };
enum { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, NEAREST_FLOOR, NEAREST_CEIL };

/* A product that is rounded before it is added to something: tables of known sizes are made so. */
static double rlx_times(double a, double b)
{
    volatile double product = a * b;
    return product;
}

/* The position of result y of an axis of n entries. */
static double rlx_position(double y, const rlx_resize_taps *p, double shift)
{
    const double n = (double)p->n, count = (double)p->count;
    /* Quotients of whole numbers: where one is whole, it is exact. */
    const int exact = rlx_times(p->scale, n) == count;
    const double above = exact ? n : 1, below = exact ? count : p->scale;
    switch (p->coordinates) {
    case ALIGN_CORNERS: return p->count > 1 ? y * (n - 1) / (count - 1) : 0;
    case ASYMMETRIC: return y * above / below;
    case PYTORCH_HALF_PIXEL:
        if (p->count == 1) return 0;
        break;
    }
    return shift + (y + 0.5) * above / below - 0.5;
}

/* The triangle, or the cubic convolution kernel of parameter a. */
static double rlx_filter(const rlx_resize_taps *p, double distance)
{
    const double d = fabs(distance), a = p->cubic;
    if (p->mode == TAPS_LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return rlx_times(rlx_times(rlx_times(a + 2, d) - (a + 3), d), d) + 1;
    if (d < 2) return rlx_times(rlx_times(rlx_times(a, d) - 5 * a, d) + 8 * a, d) - 4 * a;
    return 0;
}

static double rlx_nearest(double position, int64_t how)
{
    switch (how) {
    case ROUND_PREFER_FLOOR: return ceil(position - 0.5);
    case ROUND_PREFER_CEIL: return floor(position + 0.5);
    case NEAREST_FLOOR: return floor(position);
    }
    return ceil(position);
}
#endif

static int NAME(kernel_resize_taps)(const rlx_call *call)
{
    RLX_ARGUMENTS(resize_taps, call);
    const int64_t n = p->n, count = p->count, taps = p->taps, padded = p->padded;
    const int64_t across = p->turned ? padded : 1, along = p->turned ? 1 : taps;
    const double centred = 1 - (double)count / rlx_times(p->scale, (double)n);
    const double shift = p->coordinates == HALF_PIXEL_SYMMETRIC ? rlx_times((double)n / 2, centred) : 0;
    int32_t *indices = out->indices;
    T *weights = out->weights;
    for (int64_t y = 0; y < padded; y++) {
        const double position = rlx_position((double)(y < count ? y : count - 1), p, shift);
        const double first = p->mode == TAPS_NEAREST ? rlx_nearest(position, p->rounding)
                                                     : floor(position - (double)(taps / 2)) + 1;
        double weight[4] = {1, 0, 0, 0}, total = 0;
        for (int64_t t = 0; t < taps && p->mode != TAPS_NEAREST; t++) {
            const double i = first + (double)t;
            weight[t] = p->exclude && (i < 0 || i >= (double)n) ? 0 : rlx_filter(p, i - position);
            total += weight[t];
        }
        for (int64_t t = 0; t < taps; t++) {
            const double i = first + (double)t, last = (double)(n - 1);
            const double by = p->exclude && p->mode != TAPS_NEAREST ? weight[t] / (total == 0 ? 1 : total) : weight[t];
            indices[y * along + t * across] = (int32_t)(i < 0 ? 0 : i > last ? last : i);
            weights[y * along + t * across] = (T)by;
        }
    }
    return RLX_OK;
}
