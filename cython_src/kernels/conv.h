/* Convolution, per type: a matrix product whose right side is read through the windows, and a
   direct loop for groups of few outputs. */

/* n zeros by whole vectors: up to VL - 1 more than asked for. */
static inline void NAME(zeros)(T *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) *(VEC *)(to + i) = (VEC){0};
}

/* Every second entry, by whole vectors: up to VL - 1 more than asked for. */
static inline void NAME(every_second)(T *restrict to, const T *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        for (int64_t v = 0; v < VL; v++) to[i + v] = from[2 * (i + v)];
}

/* Planes with their padding, rows taken apart by phase (window.h). Everything is written in
   ascending order by whole vectors, so what is too much is overwritten or falls into the slack. */
static void NAME(pad_planes)(T *to, const T *from, int64_t planes, const rlx_window *w,
                             const rlx_layout *l)
{
    const int64_t step = w->stride[2], width = w->dims[2], before = w->before[2];
    const T *end = from + planes * w->dims[0] * w->dims[1] * width;
    enum { KNOWN = 8 };
    rlx_range known[KNOWN];
    for (int64_t r = 0; r < KNOWN && r < step; r++) known[r] = phase_range(w, l, r);
    for (int64_t p = 0; p < planes; p++)
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

/* Panels that are packed together: the rows of the right side are on pages of their own, and each is looked
   up once for all of them. */
enum { NAME(MOST_PANELS) = 4 };

/* Rows [p, p + depth) of the right side, columns [j, j + width), as panels that are `apart`: column q is
   a window of an image, all of one image and then those of the next, row i the i-th of channels x taps.
   Windows of one row are copied by whole vectors; what is too much is overwritten by the next piece or
   row, or is beyond the last one. */
static void NAME(pack_windows)(T *panels, int64_t panel, const T *planes, int64_t image, const T *end,
                               const rlx_window *w, const rlx_layout *l, const int64_t *offsets,
                               int64_t taps, int64_t p, int64_t depth, int64_t j, int64_t width)
{
    struct { int64_t at, from, length; } piece[NAME(MOST_PANELS) * MICRO_COLUMNS];
    int64_t pieces = 0;
    for (int64_t v = 0; v < width; pieces++) {
        const int64_t q = j + v, x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const int64_t left = w->out[2] - x, room = MICRO_COLUMNS - v % MICRO_COLUMNS;
        piece[pieces].at = v / MICRO_COLUMNS * panel + v % MICRO_COLUMNS;
        piece[pieces].from = q / (w->out[0] * w->out[1] * w->out[2]) * image +
                             yz / w->out[1] * w->stride[0] * l->depth +
                             yz % w->out[1] * w->stride[1] * l->row + x;
        piece[pieces].length = left < room ? left : room;
        if (piece[pieces].length > width - v) piece[pieces].length = width - v;
        v += piece[pieces].length;
    }
    int64_t tap = p % taps;
    const int64_t last = (width - 1) / MICRO_COLUMNS * panel, some = (width - 1) % MICRO_COLUMNS + 1;
    const T *plane = planes + p / taps * l->plane;
    for (int64_t i = 0; i < depth; i++, panels += MICRO_COLUMNS) {
        const T *source = plane + offsets[tap];
        for (int64_t s = 0; s < pieces; s++) {
            const T *from = source + piece[s].from;
            T *to = panels + piece[s].at;
            const int64_t n = piece[s].length;
            if (from + n + VL <= end)
                for (int64_t v = 0; v < n; v += VL) *(VEC *)(to + v) = *(const VEC *)(from + v);
            else
                for (int64_t v = 0; v < n; v++) to[v] = from[v];
        }
        for (int64_t v = some; v < NAME(panel_columns)(some); v++) panels[last + v] = 0;
        if (++tap == taps) tap = 0, plane += l->plane;
    }
}

/* What is done to results before they are stored: a value of their own is added to each, then the activation. */
typedef struct {
    const T *residual; /* as far from where the results begin as they are from theirs; NULL for none */
    int64_t act;
} NAME(rlx_after);

/* `count` results that stand side by side, `at` entries behind where residuals begin. */
static inline void NAME(finish)(T *c, int64_t at, int64_t count, NAME(rlx_after) after)
{
    if (after.residual)
        for (int64_t i = 0; i < count; i++) c[i] += after.residual[at + i];
    NAME(activate)(c, count, after.act);
}

/* The weights of a group: as they lie, rows of k, or packed for the micro-kernel: `deep` columns of all rows,
   then the next ones. */
typedef struct {
    const T *from;
    int64_t first, rows; /* of the packed rows these are used, of so many */
    int64_t deep, packed;
    int64_t together; /* panels of windows */
} NAME(rlx_filters);

/* One group of some images, whose planes are `image` apart and whose results `result`: [m, k] @
   [k, images x windows], the right side packed as it is needed. */
static void NAME(conv_group)(NAME(rlx_filters) weight, const T *bias, const T *planes, int64_t images,
                             int64_t image, const T *end, T *c, int64_t result, int64_t m,
                             int64_t apart, const rlx_window *w, const rlx_layout *l,
                             const int64_t *offsets, T *scratch, NAME(rlx_after) after)
{
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t each = w->out[0] * w->out[1] * w->out[2];
    const int64_t k = w->channels / w->groups * taps, n = images * each;
    /* A vector may be written past the last row of a panel. The results of a panel's columns stand
       side by side until they are whole: in c every row is on a page of its own. */
    const int64_t panel = (weight.deep + 1) * MICRO_COLUMNS;
    T *panels = scratch, *strips = panels + weight.together * panel;
    const T zeros[4 * VL] = {0};
    const int there = taps == 1 && images == 1 && each == l->plane;
    for (int64_t j = 0; j < n; j += weight.together * MICRO_COLUMNS) {
        const int64_t width = n - j < weight.together * MICRO_COLUMNS ? n - j : weight.together * MICRO_COLUMNS;
        /* Columns of the operand itself: windows of one tap, one after the other, need no copy. */
        const int64_t whole = there ? width / MICRO_COLUMNS * MICRO_COLUMNS : 0;
        if (k == 0) memset(strips, 0, (size_t)(weight.together * m * MICRO_COLUMNS) * sizeof(T));
        for (int64_t p = 0; p < k; p += weight.deep) {
            const int64_t depth = k - p < weight.deep ? k - p : weight.deep;
            const T *a = weight.packed ? weight.from + p * weight.rows + weight.first * depth
                                       : weight.from + weight.first * k + p;
            if (whole < width)
                NAME(pack_windows)(panels, panel, planes, image, end, w, l, offsets, taps, p, depth, j + whole,
                                   width - whole);
            for (int64_t v = 0; v < width; v += MICRO_COLUMNS) {
                const T *packed = panels + (v - whole) / MICRO_COLUMNS * panel;
                NAME(micro_rows)(a, weight.packed ? depth : k, !weight.packed,
                                 v < whole ? planes + p * l->plane + j + v : packed,
                                 v < whole ? l->plane : MICRO_COLUMNS, strips + v * m, MICRO_COLUMNS, m, depth,
                                 p ? NULL : zeros,
                                 NAME(panel_columns)(width - v < MICRO_COLUMNS ? width - v : MICRO_COLUMNS));
            }
        }
        for (int64_t r = 0; r < m; r++)
        for (int64_t v = 0, some; v < width; v += some) {
            const T start = bias ? bias[r] : 0;
            const T *from = strips + v / MICRO_COLUMNS * MICRO_COLUMNS * m + r * MICRO_COLUMNS + v % MICRO_COLUMNS;
            const int64_t q = (j + v) % each, at = (j + v) / each * result + r * apart + q;
            T *to = c + at;
            some = MICRO_COLUMNS - v % MICRO_COLUMNS;
            if (some > width - v) some = width - v;
            if (some > each - q) some = each - q;
            if (some == MICRO_COLUMNS)
                for (int64_t i = 0; i < MICRO_COLUMNS; i += VL)
                    *(VEC *)(to + i) = *(const VEC *)(from + i) + start;
            else
                for (int64_t i = 0; i < some; i++) to[i] = from[i] + start;
            NAME(finish)(to, at, some, after);
        }
    }
}

/* The same for at most FEW_WINDOWS columns, the other way round: windows are rows, outputs the columns of panels,
   so that no column is empty and weights are read once, from the first to the last. */
#define FEW_WINDOWS 64
static void NAME(conv_few)(NAME(rlx_filters) weight, const T *bias, const T *planes, int64_t images,
                           int64_t image, T *c, int64_t result, int64_t m, int64_t apart,
                           const rlx_window *w, const rlx_layout *l, const int64_t *offsets,
                           T *scratch, NAME(rlx_after) after)
{
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t each = w->out[0] * w->out[1] * w->out[2];
    const int64_t channels = w->channels / w->groups, k = channels * taps, n = images * each;
    T *products = scratch + n * k, *to = scratch;
    for (int64_t q = 0; q < n; q++) {
        const int64_t x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const T *plane = planes + q / each * image + yz / w->out[1] * w->stride[0] * l->depth +
                         yz % w->out[1] * w->stride[1] * l->row + x;
        for (int64_t ch = 0; ch < channels; ch++, plane += l->plane)
            for (int64_t i = 0; i < taps; i++) *to++ = plane[offsets[i]];
    }
    for (int64_t j = 0; j < m; j += MICRO_COLUMNS) {
        const int64_t first = weight.first + j, width = m - j < MICRO_COLUMNS ? m - j : MICRO_COLUMNS;
        if (weight.packed)
            NAME(packed_product)(scratch, k, weight.from, NAME(AS_THEY_ARE), first, NULL, products, width, n, k,
                                 weight.rows, width, 0, NULL);
        else
            NAME(loose_product)(scratch, k, weight.from + first * k, k, NULL, products, width, n, k, width, 1,
                                0, products + n * width);
        for (int64_t r = 0; r < width; r++)
            for (int64_t i = 0; i < images; i++) {
                const int64_t at = i * result + (j + r) * apart;
                const T start = bias ? bias[j + r] : 0;
                for (int64_t q = 0; q < each; q++) c[at + q] = products[(i * each + q) * width + r] + start;
                NAME(finish)(c + at, at, each, after);
            }
    }
}

/* One output plane of a group of few: four vectors of neighbouring windows, of one row or of
   several, stay in registers while every channel and tap is added. */
static void NAME(conv_plane)(const T *weight, T start, const T *planes, T *c, const rlx_window *w,
                             const rlx_layout *l, const int64_t *offsets)
{
    const int64_t channels = w->channels / w->groups;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    int64_t oz = 0, oy = 0, x = 0;
    while (oz < w->out[0]) {
        const T *from[4];
        T *to[4];
        int64_t length[4];
        _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) {
            if (oz == w->out[0]) { /* past the last one it is made again */
                from[s] = from[s - 1], to[s] = to[s - 1], length[s] = length[s - 1];
                continue;
            }
            /* The last vector of a row goes back into the one before, where there is one. */
            const int64_t left = w->out[2] - x, whole = left >= VL || x == 0;
            const int64_t at = whole ? x : w->out[2] - VL;
            from[s] = planes + oz * w->stride[0] * l->depth + oy * w->stride[1] * l->row + at;
            to[s] = c + at;
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

/* Parameters: a window (window.h), has bias, copied, how many images are made together (several where
   one has fewer windows than a panel has columns), columns of packed weights, whether they are packed, bytes from one
   group of them to the next, has residual, act, panels that are packed together. Scratch: the padded planes of a group of these images, a panel and the results of its
   columns, the offsets of the taps. */
static int NAME(conv_any)(const rlx_call *call, int direct)
{
    rlx_window w = read_window(call->p);
    const rlx_param *p = call->p + RLX_WINDOW_PARAMS;
    const int copied = (int)p[1].i;
    const T *bias = p[0].i ? call->in[2] : NULL;
    const T *residual = p[6].i ? call->in[3] : NULL;
    const int64_t channels = w.channels / w.groups, m = w.outputs / w.groups;
    const int64_t k = channels * w.kernel[0] * w.kernel[1] * w.kernel[2];
    const int64_t n = w.out[0] * w.out[1] * w.out[2], plane = w.dims[0] * w.dims[1] * w.dims[2];
    const int64_t together = p[2].i;
    const int64_t pieces = (w.batch + together - 1) / together * w.groups;
    const int few = !direct && (w.batch < together ? w.batch : together) * n <= FEW_WINDOWS;
    /* Parts are groups of images, else some outputs or windows of every one. */
    rlx_range some = {0, pieces}, rows = {0, m};
    int64_t from = 0, to = 0; /* where the windows begin, in the operand and in the result */
    if (RLX_RARELY(call->parts > 1)) {
        const rlx_strips strips = window_strips(&w);
        if (pieces >= call->parts)
            some = rlx_share(call, pieces, 1);
        else if (!direct && (few || n < 2 * MICRO_COLUMNS * call->parts || w.out[strips.axis] < 2 * call->parts))
            rows = rlx_share(call, m, few ? MICRO_COLUMNS : MICRO_ROWS);
        else {
            const rlx_layout whole = window_layout(&w, 0);
            const int64_t steps[] = {whole.depth, whole.row, 1};
            const rlx_range own = rlx_share(call, w.out[strips.axis], strips.axis == 2 ? MICRO_COLUMNS : 1);
            if (own.first == own.last) return RLX_OK;
            if (!copied) from = own.first * w.stride[strips.axis] * steps[strips.axis];
            to = own.first * strips.each;
            keep_strips(&w, strips.axis, own);
        }
    }
    const int64_t height = rows.last - rows.first, windows = w.out[0] * w.out[1] * w.out[2];
    const rlx_layout l = window_layout(&w, copied);
    int64_t *offsets = call->out[3];
    tap_offsets(offsets, &w, &l);
    const int64_t padded = channels * l.plane, own = w.groups * channels * plane;
    for (int64_t piece = some.first; piece < some.last && height; piece++) {
        const int64_t image = piece / w.groups * together, g = piece % w.groups;
        const int64_t images = w.batch - image < together ? w.batch - image : together;
        const T *x = (const T *)call->in[0] + (image * w.groups + g) * channels * plane + from;
        const NAME(rlx_filters) weight = {(const T *)((const char *)call->in[1] + g * p[5].i), rows.first, m,
                                            p[3].i, p[4].i, p[8].i};
        const T *start = bias ? bias + g * m + rows.first : NULL;
        const int64_t at = ((image * w.groups + g) * m + rows.first) * n + to, result = w.groups * m * n;
        const NAME(rlx_after) after = {residual ? residual + at : NULL, p[7].i};
        T *c = (T *)call->out[0] + at;
        int64_t apart = own;
        if (copied) {
            for (int64_t i = 0; i < images; i++)
                NAME(pad_planes)((T *)call->out[1] + i * padded, x + i * own, channels, &w, &l);
            x = call->out[1], apart = padded;
        }
        if (!direct && !few) {
            /* The copy has slack behind it, but a piece stops before: only the operand must not be
               read past its end, and the copy's slack is smaller than a piece and a vector. */
            NAME(conv_group)(weight, start, x, images, apart, x + (images - 1) * apart + padded - from,
                             c, result, height, n, &w, &l, offsets, call->out[2], after);
            continue;
        }
        if (few) {
            NAME(conv_few)(weight, start, x, images, apart, c, result, height, n, &w, &l, offsets, call->out[2],
                           after);
            continue;
        }
        for (int64_t o = 0; o < m; o++) {
            NAME(conv_plane)(weight.from + o * k, start ? start[o] : 0, x, c + o * n, &w, &l, offsets);
            NAME(finish)(c + o * n, o * n, windows, after);
        }
    }
    return RLX_OK;
}

static int NAME(kernel_conv)(const rlx_call *call) { return NAME(conv_any)(call, 0); }
static int NAME(kernel_conv_direct)(const rlx_call *call) { return NAME(conv_any)(call, 1); }
