/* Sliding windows over three axes. The struct rlx_window is generated from rlx/abi/windows.py: sizes by axis, planes of
   the operand (channels) and of the result (outputs), and groups that they are in. */

/* The layout of the planes that taps read; distances in elements. */
typedef struct {
    int64_t plane, depth, row; /* from one plane, slice, row to the next */
    int64_t phase;             /* from one phase of the stride to the next, in a row */
    int64_t z, y;              /* slices and rows that are read */
} rlx_layout;

/* Padded rows separated by phase: element i of a padded row is at i % stride * phase + i / stride, so that neighbouring
   windows read neighbouring elements. */
static inline rlx_layout window_layout(const rlx_window *w)
{
    int64_t reach[3];
    for (int a = 0; a < 3; a++)
        reach[a] = (w->out[a] - 1) * w->stride[a] + (w->kernel[a] - 1) * w->dilation[a] + 1;
    const int64_t phase = (reach[2] + w->stride[2] - 1) / w->stride[2];
    const int64_t row = phase * w->stride[2], depth = reach[1] * row;
    /* Behind each plane there is slack for whole vectors that are written too far. */
    return (rlx_layout){reach[0] * depth + RLX_PLANE_SLACK, depth, row, phase, reach[0], reach[1]};
}

/* How threads share the windows of a plane: by slices, rows, or, in a single row, columns. Each begins `each` windows
   behind the one before. */
typedef struct {
    int axis;
    int64_t each;
} rlx_strips;

static inline rlx_strips window_strips(const rlx_window *w)
{
    const int axis = w->out[0] > 1 ? 0 : w->out[1] > 1 ? 1 : 2;
    return (rlx_strips){axis, axis == 0 ? w->out[1] * w->out[2] : axis == 1 ? w->out[2] : 1};
}

/* Restricts w to some of its windows. */
static inline void keep_strips(rlx_window *w, int axis, rlx_range some)
{
    w->out[axis] = some.last - some.first;
    w->before[axis] -= some.first * w->stride[axis];
}

/* The offset of each tap of the first window in a plane. */
static inline void tap_offsets(int64_t *to, const rlx_window *w, const rlx_layout *l)
{
    const int64_t step = w->stride[2];
    for (int64_t z = 0; z < w->kernel[0]; z++)
    for (int64_t y = 0; y < w->kernel[1]; y++)
    for (int64_t x = 0; x < w->kernel[2]; x++) {
        const int64_t index = x * w->dilation[2];
        *to++ = z * w->dilation[0] * l->depth + y * w->dilation[1] * l->row + index % step * l->phase + index / step;
    }
}

/* Entries [first, last) of phase r of a padded row come from the operand: entry i is its element i * stride + r -
   before. */
static inline rlx_range phase_range(const rlx_window *w, const rlx_layout *l, int64_t r)
{
    const int64_t step = w->stride[2], before = w->before[2], beyond = w->dims[2] + before;
    rlx_range range = {before > r ? (before - r + step - 1) / step : 0,
                       beyond > r ? (beyond - r + step - 1) / step : 0};
    if (range.last > l->phase) range.last = l->phase;
    if (range.first > range.last) range.first = range.last;
    return range;
}

/* The taps [first, last) of a window at place `at` of an axis that meet the operand. */
static inline rlx_range window_taps(const rlx_window *w, int axis, int64_t index)
{
    const int64_t begin = w->before[axis] - index * w->stride[axis], step = w->dilation[axis];
    const int64_t end = w->dims[axis] + begin;
    rlx_range inside = {begin > 0 ? (begin + step - 1) / step : 0, end > 0 ? (end + step - 1) / step : 0};
    if (inside.last > w->kernel[axis]) inside.last = w->kernel[axis];
    if (inside.last < inside.first) inside.last = inside.first = 0;
    return inside;
}
