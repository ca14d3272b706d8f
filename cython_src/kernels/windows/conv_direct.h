/* Convolutions of planes, per type: a direct loop for groups of few outputs, whose lanes are windows. */

/* Writes n zeros by whole vectors: up to VL - 1 more. */
static inline void NAME(zeros)(T *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) *(VEC *)(to + i) = (VEC){0};
}

/* Copies every second entry by whole vectors: up to VL - 1 more. */
static inline void NAME(every_second)(T *restrict to, const T *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        for (int64_t v = 0; v < VL; v++) to[i + v] = from[2 * (i + v)];
}

/* Copies planes with their padding, rows separated by phase of the stride (window.h). Whole vectors are written in
   ascending order, so that what is written too far is overwritten next or falls into the slack behind a plane. */
static void NAME(pad_planes)(T *to, const T *from, int64_t planes, const rlx_window *w,
                             const rlx_layout *l)
{
    const int64_t step = w->stride[2], width = w->dims[2], before = w->before[2];
    const T *end = from + planes * w->dims[0] * w->dims[1] * width;
    enum { KNOWN = 8 };
    rlx_range known[KNOWN];
    for (int64_t r = 0; r < KNOWN && r < step; r++) known[r] = phase_range(w, l, r);
    for (int64_t p = 0; p < planes; p++, to += l->plane - l->z * l->depth)
    for (int64_t z = 0; z < l->z; z++)
    for (int64_t y = 0; y < l->y; y++, to += l->row) {
        const int64_t from_z = z - w->before[0], from_y = y - w->before[1];
        if (from_z < 0 || from_z >= w->dims[0] || from_y < 0 || from_y >= w->dims[1]) {
            NAME(zeros)(to, l->row);
            continue;
        }
        const T *row = from + ((p * w->dims[0] + from_z) * w->dims[1] + from_y) * width;
        for (int64_t r = 0; r < step; r++) {
            T *part = to + r * l->phase;
            const rlx_range own = r < KNOWN ? known[r] : phase_range(w, l, r);
            const int64_t first = own.first, last = own.last;
            const T *source = row + r - before;
            NAME(zeros)(part, first);
            if (step == 1 && source + last + VL <= end) {
                for (int64_t i = first; i < last; i += VL)
                    *(VEC *)(part + i) = *(const VEC *)(source + i);
            } else if (step == 2 && source + 2 * (last + VL) <= end) {
                NAME(every_second)(part + first, source + 2 * first, last - first);
            } else {
                for (int64_t i = first; i < last; i++) part[i] = source[i * step];
            }
            NAME(zeros)(part + last, l->phase - last);
        }
    }
}

/* What is done to contiguous results before they leave the cache: a residual is added, NULL for none, then the activation. */
static inline void NAME(finish)(T *c, int64_t count, const T *residual, int64_t act)
{
    if (residual)
        for (int64_t i = 0; i < count; i++) c[i] += residual[i];
    NAME(activate)(c, count, act);
}

/* The groups of a convolution, and the windows of a plane that a part makes. */
typedef struct {
    const rlx_window *w;
    rlx_layout l;           /* of the planes that the taps read */
    const int64_t *offsets; /* of the taps of the first window in such a plane */
    int64_t channels, taps; /* channels of a group, and taps of a filter */
} NAME(convolution);

/* One output plane of a group of few outputs. Four vectors of neighbouring windows, in one row or several, stay in
   registers while all channels and taps are added. */
static void NAME(conv_plane)(const NAME(convolution) *f, const T *weight, T start, const T *planes, T *c)
{
    const rlx_window *w = f->w;
    const rlx_layout *l = &f->l;
    const int64_t channels = f->channels, taps = f->taps, *offsets = f->offsets;
    int64_t oz = 0, oy = 0, x = 0;
    while (oz < w->out[0]) {
        const T *from[4];
        T *to[4];
        int64_t length[4];
        _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) {
            if (oz == w->out[0]) { /* past the last window, the previous vector is computed again */
                from[s] = from[s - 1], to[s] = to[s - 1], length[s] = length[s - 1];
                continue;
            }
            /* The last vector of a row overlaps the one before, where there is one. */
            const int64_t left = w->out[2] - x, whole = left >= VL || x == 0;
            const int64_t index = whole ? x : w->out[2] - VL;
            from[s] = planes + oz * w->stride[0] * l->depth + oy * w->stride[1] * l->row + index;
            to[s] = c + index;
            length[s] = left < VL && x == 0 ? left : VL;
            if ((x += VL) < w->out[2]) continue;
            x = 0, c += w->out[2];
            if (++oy == w->out[1]) oy = 0, oz++;
        }
        VEC sum[4];
        _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) sum[s] = start - (VEC){0};
        const T *weights = weight;
        int64_t plane = 0;
        for (int64_t ch = 0; ch < channels; ch++, plane += l->plane, weights += taps)
            for (int64_t i = 0; i < taps; i++) {
                const int64_t tap = plane + offsets[i];
                const T by = weights[i];
                sum[0] += by * *(const VEC *)(from[0] + tap);
                sum[1] += by * *(const VEC *)(from[1] + tap);
                sum[2] += by * *(const VEC *)(from[2] + tap);
                sum[3] += by * *(const VEC *)(from[3] + tap);
            }
        _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++)
            if (length[s] == VL)
                *(VEC *)to[s] = sum[s];
            else
                for (int64_t v = 0; v < length[s]; v++) to[s][v] = sum[s][v];
    }
}

/* Threads share groups of images, or where these are few, some windows of every group. */
static int NAME(kernel_conv_direct)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_direct, call);
    rlx_window w = p->window; /* those windows that this part makes */
    const int64_t windows = w.out[0] * w.out[1] * w.out[2], plane = w.dims[0] * w.dims[1] * w.dims[2];
    const int64_t channels = w.channels / w.groups, outputs = w.outputs / w.groups;
    const T *bias = in->bias, *residual = in->residual;
    rlx_range some = {0, w.batch * w.groups};
    int64_t to = 0; /* where its windows begin in the result */
    if (some.last >= call->parts) {
        some = rlx_share(call, some.last, 1);
    } else {
        const rlx_strips strips = window_strips(&w);
        const rlx_range own = rlx_share(call, w.out[strips.axis], strips.axis == 2 ? MICRO_COLUMNS : 1);
        if (own.first == own.last) return RLX_OK;
        to = own.first * strips.each;
        keep_strips(&w, strips.axis, own);
    }
    const rlx_layout l = window_layout(&w);
    tap_offsets(out->offsets, &w, &l);
    const NAME(convolution) f = {&w, l, out->offsets, channels, w.kernel[0] * w.kernel[1] * w.kernel[2]};
    const int64_t own = w.out[0] * w.out[1] * w.out[2];
    for (int64_t piece = some.first; piece < some.last; piece++) {
        NAME(pad_planes)(out->planes, (const T *)in->x + piece * channels * plane, channels, &w, &l);
        for (int64_t i = 0; i < outputs; i++) {
            const int64_t o = piece % w.groups * outputs + i, index = (piece * outputs + i) * windows + to;
            T *y = (T *)out->y + index;
            NAME(conv_plane)(&f, (const T *)in->weight + o * channels * f.taps, bias ? bias[o] : 0, out->planes, y);
            NAME(finish)(y, own, residual ? residual + index : NULL, p->act);
        }
    }
    return RLX_OK;
}
