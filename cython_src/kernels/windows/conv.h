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

/* Columns `own` of a group of some images, which are `image` apart and whose results `result`: [m, k] @
   [k, images x windows], the right side packed as it is needed. */
static void NAME(conv_group)(NAME(rlx_filters) weight, const T *bias, const T *planes, int64_t image,
                             const T *end, T *c, int64_t result, int64_t m, rlx_range own, int64_t images,
                             const rlx_window *w, const rlx_layout *l, const int64_t *offsets, T *scratch,
                             NAME(rlx_after) after)
{
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t each = w->out[0] * w->out[1] * w->out[2];
    const int64_t k = w->channels / w->groups * taps, n = own.last;
    /* A vector may be written past the last row of a panel. The results of a panel's columns stand
       side by side until they are whole: in c every row is on a page of its own. */
    const int64_t panel = (weight.deep + 1) * MICRO_COLUMNS;
    T *panels = scratch, *strips = panels + weight.together * panel;
    const T zeros[4 * VL] = {0};
    const int there = taps == 1 && images == 1 && l->phase == 0 && each == l->plane;
    for (int64_t j = own.first; j < n; j += weight.together * MICRO_COLUMNS) {
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
            const int64_t q = (j + v) % each, at = (j + v) / each * result + r * each + q;
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
static void NAME(conv_few)(NAME(rlx_filters) weight, const T *bias, const T *planes, int64_t images,
                           int64_t image, T *c, int64_t result, int64_t m, const rlx_window *w,
                           const rlx_layout *l, const int64_t *offsets, T *scratch,
                           NAME(rlx_after) after)
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
                const int64_t at = i * result + (j + r) * each;
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

/* What the kernels below are told. Parameters: a window (window.h), has bias, copied, how many images are
   made together (several where one has fewer windows than a panel has columns), columns of packed weights,
   whether they are packed, bytes from one group of them to the next, has residual, act, panels that are
   packed together. */
typedef struct {
    rlx_window w;
    const rlx_param *p;
    int64_t m, channels, k, windows, together, pieces; /* a piece is a group of some images */
} NAME(rlx_conv);

static NAME(rlx_conv) NAME(read_conv)(const rlx_call *call)
{
    NAME(rlx_conv) f = {read_window(call->p), call->p + RLX_WINDOW_PARAMS, 0, 0, 0, 0, 0, 0};
    f.m = f.w.outputs / f.w.groups, f.channels = f.w.channels / f.w.groups;
    f.k = f.channels * f.w.kernel[0] * f.w.kernel[1] * f.w.kernel[2];
    f.windows = f.w.out[0] * f.w.out[1] * f.w.out[2], f.together = f.p[2].i;
    f.pieces = (f.w.batch + f.together - 1) / f.together * f.w.groups;
    return f;
}

/* Where a piece begins, and what belongs to its outputs from `first` on. */
typedef struct {
    const T *x, *bias;
    T *c;
    NAME(rlx_filters) weight;
    NAME(rlx_after) after;
    int64_t images;
} NAME(rlx_piece);

static NAME(rlx_piece) NAME(piece_of)(const rlx_call *call, const NAME(rlx_conv) *f, int64_t piece, int64_t first)
{
    const rlx_window *w = &f->w;
    const int64_t image = piece / w->groups * f->together, g = piece % w->groups;
    const int64_t o = g * f->m + first, at = (image * w->outputs + o) * f->windows;
    const int64_t plane = w->dims[0] * w->dims[1] * w->dims[2];
    return (NAME(rlx_piece)){
        (const T *)call->in[0] + (image * w->groups + g) * f->channels * plane,
        f->p[0].i ? (const T *)call->in[2] + o : NULL,
        (T *)call->out[0] + at,
        {(const T *)((const char *)call->in[1] + g * f->p[5].i), first, f->m, f->p[3].i, f->p[4].i, f->p[8].i},
        {f->p[6].i ? (const T *)call->in[3] + at : NULL, f->p[7].i},
        w->batch - image < f->together ? w->batch - image : f->together,
    };
}

/* All planes with their padding, rows taken apart by phase (window.h): what the next kernel reads. Parameters:
   a window. */
static int NAME(kernel_conv_pad)(const rlx_call *call)
{
    const rlx_window w = read_window(call->p);
    const rlx_layout l = window_layout(&w, 1);
    const int64_t plane = w.dims[0] * w.dims[1] * w.dims[2];
    const rlx_range own = rlx_share(call, w.batch * w.channels, 1);
    NAME(pad_planes)((T *)call->out[0] + own.first * l.plane, (const T *)call->in[0] + own.first * plane,
                     own.last - own.first, &w, &l);
    return RLX_OK;
}

/* Many windows, of planes that are padded if they have to be. Scratch: panels and the results of their columns,
   the offsets of the taps. */
static int NAME(kernel_conv)(const rlx_call *call)
{
    const NAME(rlx_conv) f = NAME(read_conv)(call);
    const rlx_window *w = &f.w;
    const rlx_layout l = window_layout(w, (int)f.p[1].i);
    const int64_t image = w->channels * l.plane, group = f.channels * l.plane;
    const T *end = (const T *)call->in[0] + w->batch * image;
    int64_t *offsets = call->out[2];
    tap_offsets(offsets, w, &l);
    /* Parts are pieces, else some windows of every one. */
    const int whole = f.pieces >= call->parts;
    const rlx_range some = whole ? rlx_share(call, f.pieces, 1) : (rlx_range){0, f.pieces};
    for (int64_t piece = some.first; piece < some.last; piece++) {
        const NAME(rlx_piece) one = NAME(piece_of)(call, &f, piece, 0);
        const int64_t n = one.images * f.windows;
        const T *planes = (const T *)call->in[0] + piece / w->groups * f.together * image + piece % w->groups * group;
        const rlx_range own = whole ? (rlx_range){0, n} : rlx_share(call, n, 32);
        NAME(conv_group)(one.weight, one.bias, planes, image, end, one.c, w->outputs * f.windows, f.m, own,
                         one.images, w, &l, offsets, call->out[1], one.after);
    }
    return RLX_OK;
}

/* The planes of a piece as the taps read them: copied with their padding, or as they are. */
static const T *NAME(planes_of)(const rlx_call *call, const NAME(rlx_conv) *f, const rlx_window *w,
                                const rlx_layout *l, const NAME(rlx_piece) *one, int64_t *apart)
{
    const int64_t image = w->channels * w->dims[0] * w->dims[1] * w->dims[2];
    *apart = image;
    if (!f->p[1].i) return one->x;
    *apart = f->channels * l->plane;
    for (int64_t i = 0; i < one->images; i++)
        NAME(pad_planes)((T *)call->out[1] + i * *apart, one->x + i * image, f->channels, w, l);
    return call->out[1];
}

/* Few windows. Scratch: the padded planes of a piece, the windows and their results, the offsets of the taps. */
static int NAME(kernel_conv_few)(const rlx_call *call)
{
    const NAME(rlx_conv) f = NAME(read_conv)(call);
    const rlx_layout l = window_layout(&f.w, (int)f.p[1].i);
    int64_t *offsets = call->out[3], apart;
    tap_offsets(offsets, &f.w, &l);
    /* Parts are pieces, else some outputs of every one. */
    const int whole = f.pieces >= call->parts;
    const rlx_range some = whole ? rlx_share(call, f.pieces, 1) : (rlx_range){0, f.pieces};
    const rlx_range rows = whole ? (rlx_range){0, f.m} : rlx_share(call, f.m, MICRO_COLUMNS);
    for (int64_t piece = some.first; piece < some.last && rows.first < rows.last; piece++) {
        const NAME(rlx_piece) one = NAME(piece_of)(call, &f, piece, rows.first);
        const T *planes = NAME(planes_of)(call, &f, &f.w, &l, &one, &apart);
        NAME(conv_few)(one.weight, one.bias, planes, one.images, apart, one.c, f.w.outputs * f.windows,
                       rows.last - rows.first, &f.w, &l, offsets, call->out[2], one.after);
    }
    return RLX_OK;
}

/* Few outputs of a group. Scratch: the padded planes of a piece, nothing, the offsets of the taps. */
static int NAME(kernel_conv_direct)(const rlx_call *call)
{
    const NAME(rlx_conv) f = NAME(read_conv)(call);
    rlx_window w = f.w;
    rlx_range some = {0, f.pieces};
    int64_t from = 0, to = 0; /* where the windows begin, in the operand and in the result */
    /* Parts are pieces, else some windows of every one. */
    if (f.pieces >= call->parts) {
        some = rlx_share(call, f.pieces, 1);
    } else {
        const rlx_strips strips = window_strips(&w);
        const rlx_layout all = window_layout(&w, 0);
        const int64_t steps[] = {all.depth, all.row, 1};
        const rlx_range own = rlx_share(call, w.out[strips.axis], strips.axis == 2 ? MICRO_COLUMNS : 1);
        if (own.first == own.last) return RLX_OK;
        if (!f.p[1].i) from = own.first * w.stride[strips.axis] * steps[strips.axis];
        to = own.first * strips.each;
        keep_strips(&w, strips.axis, own);
    }
    const rlx_layout l = window_layout(&w, (int)f.p[1].i);
    const int64_t windows = w.out[0] * w.out[1] * w.out[2];
    int64_t *offsets = call->out[3], apart;
    tap_offsets(offsets, &w, &l);
    for (int64_t piece = some.first; piece < some.last; piece++) {
        const NAME(rlx_piece) one = NAME(piece_of)(call, &f, piece, 0);
        const T *planes = NAME(planes_of)(call, &f, &w, &l, &one, &apart) + from;
        for (int64_t o = 0; o < f.m; o++) {
            const int64_t at = o * f.windows + to;
            NAME(conv_plane)(one.weight.from + o * f.k, one.bias ? one.bias[o] : 0, planes, one.c + at, &w, &l,
                             offsets);
            NAME(finish)(one.c + at, at, windows, one.after);
        }
    }
    return RLX_OK;
}
