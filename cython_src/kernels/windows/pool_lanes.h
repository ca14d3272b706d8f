/* Pools of small planes of floats: the lanes of a vector are planes, so that it makes no difference how short rows are and
   how far windows are apart. Some planes are turned so that an element of all of them is a vector. The macros are those of
   pool_kind.h. */

/* Elements of a plane, and windows of it, at most. Two buffers of as many vectors are on the stack. */
#define MOST_SMALL 400

/* Whether planes are worked on in this way: many planes with rows of few windows. */
static int POOL(are_small)(const rlx_window *w)
{
    return w->dims[0] * w->dims[1] * w->dims[2] <= MOST_SMALL && w->out[0] * w->out[1] * w->out[2] <= MOST_SMALL &&
           w->out[2] < 2 * VL && w->channels >= VL / 2;
}

/* Windows by their place along an axis: the taps inside, where tap 0 is, and the taps that a mean counts. */
typedef struct {
    rlx_range taps;
    int64_t index, count;
} POOL(place);

/* The window at a place of each axis, in all lanes. */
static RLX_INLINE VEC POOL(lane_window)(const rlx_window *w, const T *planes, const POOL(place) *const of[3])
{
    const int64_t row = w->dims[2] * VL, slice = w->dims[1] * row, step = w->dilation[2] * VL;
    VEC all = (VEC){0} + (T)(START);
    for (int64_t z = of[0]->taps.first; z < of[0]->taps.last; z++)
        for (int64_t y = of[1]->taps.first; y < of[1]->taps.last; y++) {
            const int64_t line = (of[0]->index + z * w->dilation[0]) * slice + (of[1]->index + y * w->dilation[1]) * row;
            const T *from = planes + line + of[2]->index * VL;
            for (int64_t x = of[2]->taps.first; x < of[2]->taps.last; x++) all = TAKE_LANES(all, AT(from + x * step));
        }
    return all;
}

/* All windows of the planes that belong to a part of the call. */
static void POOL(pool_lanes)(const rlx_call *call, const rlx_window *w, int64_t divide, const T *x, T *y)
{
    const int64_t plane = w->dims[0] * w->dims[1] * w->dims[2], windows = w->out[0] * w->out[1] * w->out[2];
    const rlx_range own = rlx_share(call, (w->channels + VL - 1) / VL, 1);
    const T *end = x + w->channels * plane;
    /* The product of the sizes is at most MOST_SMALL, so that their sum is little more. */
    POOL(place) places[MOST_SMALL + 2], *next = places;
    const POOL(place) *along[3], *of[3];
    /* Each has room for the vectors that are written or read too far. */
    T planes[(MOST_SMALL + VL) * VL], results[(MOST_SMALL + VL) * VL];
    for (int axis = 0; axis < 3; axis++) {
        along[axis] = next;
        for (int64_t o = 0; o < w->out[axis]; o++, next++) {
            next->taps = window_taps(w, axis, o);
            next->index = o * w->stride[axis] - w->before[axis];
            next->count = divide ? count_inside(w, axis, o, divide == RLX_DIVIDE_PADDED) : 0;
        }
    }
    for (int64_t first = own.first * VL; first < own.last * VL; first += VL) {
        const int64_t lanes = w->channels - first < VL ? w->channels - first : VL;
        const T *row[VL];
        for (int64_t l = 0; l < VL; l++) row[l] = x + (first + (l < lanes ? l : lanes - 1)) * plane;
        NAME(planes_in)(row, plane, end, planes);
        T *to = results;
        for (of[0] = along[0]; of[0] < along[0] + w->out[0]; of[0]++)
        for (of[1] = along[1]; of[1] < along[1] + w->out[1]; of[1]++)
        for (of[2] = along[2]; of[2] < along[2] + w->out[2]; of[2]++, to += VL) {
            VEC all = POOL(lane_window)(w, planes, of);
            const int64_t count = of[0]->count * of[1]->count * of[2]->count;
            if (divide) all /= (T)(count ? count : 1);
            *(VEC *)to = all;
        }
        NAME(planes_out)(results, windows, y + first * windows, windows, lanes);
    }
}
#undef MOST_SMALL
