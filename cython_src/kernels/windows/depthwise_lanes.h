/* Depthwise convolution of small planes, per type: the lanes of a vector are planes, so that it makes no difference how
   short the rows are. Some planes are turned so that an element of all of them is a vector, and so are their filters.
   Taps on padding are left out. Any strides and dilations; three axes. */

/* Taps that windows next to each other have in common: those that meet the operand. */
typedef struct {
    int64_t high, tall, wide;  /* taps by axis */
    int64_t depth, row, step;  /* in the planes, from one tap to the next, by axis */
    int64_t filter_depth, filter_row; /* the same in the filters, whose taps along the last axis are neighbours */
    int64_t apart;             /* in the planes, from one window to the next */
} NAME(tap_box);

/* The sums of COUNT windows. `from` is where the first tap of the first window stands, `by` its weight. WIDE is the
   number of taps along the last axis, 0 for any. */
#define BOX_SUMS(COUNT, WIDE)                                                                      \
    static void NAME(box_sums_##COUNT##_##WIDE)(const NAME(tap_box) *b, const T *from, const T *by, VEC start, T *to) \
    {                                                                                              \
        VEC sums[COUNT];                                                                           \
        const int64_t wide = WIDE ? WIDE : b->wide;                                                \
        _Pragma("GCC unroll 4") for (int r = 0; r < COUNT; r++) sums[r] = start;                   \
        for (int64_t z = 0; z < b->high; z++)                                                      \
        for (int64_t y = 0; y < b->tall; y++) {                                                    \
            const T *x = from + z * b->depth + y * b->row;                                         \
            const T *weight = by + z * b->filter_depth + y * b->filter_row;                        \
            _Pragma("GCC unroll 5") for (int64_t k = 0; k < wide; k++, x += b->step, weight += VL) \
            {                                                                                      \
                const VEC w = *(const VEC *)weight;                                                \
                _Pragma("GCC unroll 4") for (int r = 0; r < COUNT; r++)                            \
                    sums[r] += w * *(const VEC *)(x + r * b->apart);                               \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (int r = 0; r < COUNT; r++) *LANE(to, r) = sums[r];            \
    }
#define ALL_WIDE(COUNT) \
    BOX_SUMS(COUNT, 0) BOX_SUMS(COUNT, 1) BOX_SUMS(COUNT, 2) BOX_SUMS(COUNT, 3) BOX_SUMS(COUNT, 4) BOX_SUMS(COUNT, 5)
ALL_WIDE(1) ALL_WIDE(2) ALL_WIDE(3) ALL_WIDE(4)
#undef ALL_WIDE
#undef BOX_SUMS

/* Taps on padding add 0 times each weight to a window, which matters only for weights that are NaN or infinite. */
static VEC NAME(padding_sums)(const rlx_window *w, const T *filters, const rlx_range *inside)
{
    VEC sum = {0};
    for (int64_t z = 0; z < w->kernel[0]; z++)
    for (int64_t y = 0; y < w->kernel[1]; y++)
    for (int64_t x = 0; x < w->kernel[2]; x++, filters += VL) {
        const int met = z >= inside[0].first && z < inside[0].last && y >= inside[1].first &&
                        y < inside[1].last && x >= inside[2].first && x < inside[2].last;
        if (!met) sum += *(const VEC *)filters * 0;
    }
    return sum;
}

/* All windows of VL planes. `taps` has the taps that meet the operand, for each place of an axis, axis by axis. */
static void NAME(lane_windows)(const rlx_window *w, const rlx_range *taps, const T *planes, const T *filters, VEC start,
                               int finite, T *to)
{
    typedef void (*sums)(const NAME(tap_box) *, const T *, const T *, VEC, T *);
#define ALL_WIDE(COUNT) \
    {NAME(box_sums_##COUNT##_0), NAME(box_sums_##COUNT##_1), NAME(box_sums_##COUNT##_2), \
     NAME(box_sums_##COUNT##_3), NAME(box_sums_##COUNT##_4), NAME(box_sums_##COUNT##_5)}
    static const sums table[][6] = {ALL_WIDE(1), ALL_WIDE(2), ALL_WIDE(3), ALL_WIDE(4)};
#undef ALL_WIDE
    const rlx_range *along[3] = {taps, taps + w->out[0], taps + w->out[0] + w->out[1]};
    NAME(tap_box) box = {
        .depth = w->dilation[0] * w->dims[1] * w->dims[2] * VL, .row = w->dilation[1] * w->dims[2] * VL,
        .step = w->dilation[2] * VL, .filter_depth = w->kernel[1] * w->kernel[2] * VL,
        .filter_row = w->kernel[2] * VL, .apart = w->stride[2] * VL,
    };
    for (int64_t oz = 0; oz < w->out[0]; oz++)
    for (int64_t oy = 0; oy < w->out[1]; oy++) {
        const rlx_range z = along[0][oz], y = along[1][oy];
        const int64_t at_z = oz * w->stride[0] - w->before[0] + z.first * w->dilation[0];
        const int64_t at_y = oy * w->stride[1] - w->before[1] + y.first * w->dilation[1];
        const T *rows = planes + (at_z * w->dims[1] + at_y) * w->dims[2] * VL;
        const T *by = filters + z.first * box.filter_depth + y.first * box.filter_row;
        box.high = z.last - z.first, box.tall = y.last - y.first;
        for (int64_t ox = 0, some; ox < w->out[2]; ox += some, to += some * VL) {
            const rlx_range x = along[2][ox];
            some = 1;
            while (some < 4 && ox + some < w->out[2] && along[2][ox + some].first == x.first &&
                   along[2][ox + some].last == x.last)
                some++;
            box.wide = x.last - x.first;
            const T *from = rows + (ox * w->stride[2] - w->before[2] + x.first * w->dilation[2]) * VL;
            VEC begin = start;
            if (RLX_UNLIKELY(!finite)) begin += NAME(padding_sums)(w, filters, (const rlx_range[]){z, y, x});
            table[some - 1][box.wide < 6 ? box.wide : 0](&box, from, by + x.first * VL, begin, to);
        }
    }
}

static int NAME(kernel_conv_depthwise_lanes)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_depthwise_lanes, call);
    const rlx_window *w = &p->window;
    const int64_t each = w->outputs / w->groups, blocks = (w->outputs + VL - 1) / VL;
    const int64_t plane = w->dims[0] * w->dims[1] * w->dims[2], windows = w->out[0] * w->out[1] * w->out[2];
    const int64_t count = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const T *x = in->x, *end = x + w->batch * w->channels * plane, *weight = in->weight, *bias = in->bias;
    /* Each has room for the vectors that are written too far. */
    T *planes = out->turned, *filters = planes + (plane + VL) * VL, *results = filters + (count + VL) * VL;
    rlx_range *taps = out->taps, *next = taps;
    for (int axis = 0; axis < 3; axis++)
        for (int64_t i = 0; i < w->out[axis]; i++) *next++ = window_taps(w, axis, i);
    const NAME(epilogue) after = {in->residual, p->act};
    /* All images of some planes, which share filters, then the next planes. */
    const rlx_range own = rlx_share(call, blocks * w->batch, 1);
    int64_t turned = -1;
    int finite = 1;
    VEC start = {0};
    for (int64_t item = own.first; item < own.last; item++) {
        const int64_t first = item / w->batch * VL, image = item % w->batch;
        const int64_t lanes = w->outputs - first < VL ? w->outputs - first : VL;
        const T *row[VECTOR_BYTES / sizeof(T)];
        if (turned != first) {
            turned = first;
            for (int64_t l = 0; l < VL; l++) row[l] = weight + (first + (l < lanes ? l : lanes - 1)) * count;
            NAME(planes_in)(row, count, weight + w->outputs * count, filters);
            VEC none = {0};
            for (int64_t k = 0; k < count; k++) none += *LANE(filters, k) * 0;
            finite = 1;
            for (int64_t l = 0; l < lanes; l++) finite &= none[l] == 0;
            for (int64_t l = 0; bias && l < lanes; l++) start[l] = bias[first + l];
        }
        for (int64_t l = 0; l < VL; l++) {
            const int64_t o = first + (l < lanes ? l : lanes - 1);
            row[l] = x + (image * w->channels + o / each) * plane;
        }
        NAME(planes_in)(row, plane, end, planes);
        NAME(lane_windows)(w, taps, planes, filters, start, finite, results);
        const int64_t index = (image * w->outputs + first) * windows;
        NAME(planes_out)(results, windows, (T *)out->y + index, windows, lanes);
        NAME(finish)((T *)out->y + index, index, lanes * windows, after);
    }
    return RLX_OK;
}
