/* Convolutions, per type: as matrix products whose right operand is read through the windows, and by a direct loop for
   groups of few outputs. */

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

/* Epilogue applied before the store: an optional residual is added, then the activation. */
typedef struct {
    const T *residual; /* at the same distance from the first result's as the results are; NULL for none */
    int64_t act;
} NAME(epilogue);

/* Applies the epilogue to `count` contiguous results, the first of which is `at` entries behind the one that the
   residual begins with. */
static inline void NAME(finish)(T *c, int64_t index, int64_t count, NAME(epilogue) after)
{
    if (after.residual)
        for (int64_t i = 0; i < count; i++) c[i] += after.residual[index + i];
    NAME(activate)(c, count, after.act);
}

/* Whether all are numbers: weights of such can leave out padding. */
static int NAME(are_numbers)(const T *x, int64_t n)
{
    VEC sums = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) sums += *(const VEC *)(x + i) * 0;
    T sum = 0;
    for (; i < n; i++) sum += x[i] * 0;
    for (int64_t v = 0; v < VL; v++) sum += sums[v];
    return sum == 0;
}

/* A convolution: what its kernels have in common. */
typedef struct {
    const rlx_window *w;
    rlx_layout l;           /* of the planes that the taps read */
    const int64_t *offsets; /* of the taps of the first window in such a plane */
    int64_t m, channels, k; /* of a group: outputs, channels, and channels x taps */
    int64_t taps, windows;  /* taps of a filter, windows of a plane */
    int64_t together;       /* images that are made together */
    int64_t pieces;         /* pieces of the whole: a piece is one group of these images */
    int64_t panels;         /* panels of windows that are packed together */
    int64_t packing, weight_stride; /* how weights are packed; bytes from one group of them to the next */
    const T *x, *bias, *residual;
    const char *weight;
    T *y;
    int64_t act;
} NAME(convolution);

/* Fills a convolution from the arguments p and in of a kernel. The result, the layout and the offsets follow. */
#define CONVOLUTION(PANELS, PACKING, PACKED_STRIDE)                                               \
    {                                                                                             \
        .w = &p->window, .together = p->together, .panels = PANELS, .packing = PACKING,           \
        .weight_stride = PACKED_STRIDE, .x = in->x, .bias = in->bias, .residual = in->residual,   \
        .weight = in->weight, .y = out->y, .act = p->act,                                         \
    }

/* The sizes of a group, and where its taps read. `offsets` is scratch. */
static void NAME(measure)(NAME(convolution) *f, int64_t copied, int64_t *offsets)
{
    const rlx_window *w = f->w;
    f->m = w->outputs / w->groups, f->channels = w->channels / w->groups;
    f->taps = w->kernel[0] * w->kernel[1] * w->kernel[2], f->k = f->channels * f->taps;
    f->windows = w->out[0] * w->out[1] * w->out[2];
    f->pieces = (w->batch + f->together - 1) / f->together * w->groups;
    if (!f->packing) f->weight_stride = f->m * f->k * (int64_t)sizeof(T);
    f->l = window_layout(w, (int)copied);
    tap_offsets(offsets, w, &f->l);
    f->offsets = offsets;
}

/* A group of some images. */
typedef struct {
    int64_t images;
    const T *planes; /* of the first image, as the taps read them */
    int64_t image;   /* from one image to the next */
    const T *end;    /* of the memory that the planes are in */
    const T *weight, *bias; /* of all outputs of the group */
    int64_t first, outputs; /* the first output that is made, and how many are */
    T *c;            /* the result of the first output */
    NAME(epilogue) after;
} NAME(conv_piece);

/* Some outputs of a group of some images. Its planes are those of the operand itself. */
static NAME(conv_piece) NAME(images_of)(const NAME(convolution) *f, int64_t image, int64_t images, int64_t g,
                                        rlx_range outputs)
{
    const rlx_window *w = f->w;
    const int64_t o = g * f->m + outputs.first, index = (image * w->outputs + o) * f->windows;
    const int64_t plane = w->dims[0] * w->dims[1] * w->dims[2];
    return (NAME(conv_piece)){
        .images = images,
        .planes = f->x + (image * w->groups + g) * f->channels * plane,
        .image = w->channels * plane,
        .weight = (const T *)(f->weight + g * f->weight_stride),
        .bias = f->bias ? f->bias + o : NULL,
        .first = outputs.first,
        .outputs = outputs.last - outputs.first,
        .c = f->y + index,
        .after = {f->residual ? f->residual + index : NULL, f->act},
    };
}

/* Some outputs of a piece of a convolution. */
static NAME(conv_piece) NAME(piece_of)(const NAME(convolution) *f, int64_t piece, rlx_range outputs)
{
    const int64_t image = piece / f->w->groups * f->together, left = f->w->batch - image;
    return NAME(images_of)(f, image, left < f->together ? left : f->together, piece % f->w->groups, outputs);
}

/* A panel of windows: its rows, and one more, since a vector may be written past the last row. */
#define WINDOW_PANEL ((RLX_CONV_DEPTH + 1) * MICRO_COLUMNS)

/* Rows [p, p + depth) of the right matrix, columns [j, j + width), as panels: column q is a window of an image, all
   of one image and then those of the next; row i is the i-th of channels x taps. Windows of one row are copied by
   whole vectors; what is copied too much is overwritten by the next stretch or row, or is beyond the last one. */
static void NAME(pack_windows)(const NAME(convolution) *f, const NAME(conv_piece) *one, T *panels, int64_t p,
                               int64_t depth, int64_t j, int64_t width)
{
    const rlx_window *w = f->w;
    struct { int64_t index, from, length; } stretch[RLX_CONV_PANELS * MICRO_COLUMNS];
    int64_t stretches = 0;
    for (int64_t v = 0; v < width; stretches++) {
        const int64_t q = j + v, x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const int64_t left = w->out[2] - x, free = MICRO_COLUMNS - v % MICRO_COLUMNS;
        stretch[stretches].index = v / MICRO_COLUMNS * WINDOW_PANEL + v % MICRO_COLUMNS;
        stretch[stretches].from = q / f->windows * one->image + yz / w->out[1] * w->stride[0] * f->l.depth +
                                  yz % w->out[1] * w->stride[1] * f->l.row + x;
        stretch[stretches].length = left < free ? left : free;
        if (stretch[stretches].length > width - v) stretch[stretches].length = width - v;
        v += stretch[stretches].length;
    }
    int64_t tap = p % f->taps;
    const int64_t last = (width - 1) / MICRO_COLUMNS * WINDOW_PANEL, some = (width - 1) % MICRO_COLUMNS + 1;
    const T *plane = one->planes + p / f->taps * f->l.plane, *end = one->end;
    for (int64_t i = 0; i < depth; i++, panels += MICRO_COLUMNS) {
        const T *source = plane + f->offsets[tap];
        for (int64_t s = 0; s < stretches; s++) {
            const T *from = source + stretch[s].from;
            T *to = panels + stretch[s].index;
            const int64_t n = stretch[s].length;
            if (from + n + VL <= end)
                for (int64_t v = 0; v < n; v += VL) *(VEC *)(to + v) = *(const VEC *)(from + v);
            else
                for (int64_t v = 0; v < n; v++) to[v] = from[v];
        }
        for (int64_t v = some; v < NAME(panel_columns)(some); v++) panels[last + v] = 0;
        if (++tap == f->taps) tap = 0, plane += f->l.plane;
    }
}

/* The products of columns [j, j + width) of a piece, in strips of MICRO_COLUMNS columns. The strips stand apart from
   the result, each row of which is on a page of its own. Channels and then taps are added in order, then the bias, then the
   residual: conv_by_outputs and conv_inside do the same, so that the choice of a kernel changes no bits. */
static void NAME(conv_columns)(const NAME(convolution) *f, const NAME(conv_piece) *one, T *panels, T *strips,
                               int64_t j, int64_t width)
{
    const T zeros[4 * VL] = {0};
    const int64_t m = one->outputs, k = f->k;
    /* Windows of one tap that lie one after the other are columns of the operand itself, and need no copy. */
    const int in_place = f->taps == 1 && one->images == 1 && f->l.phase == 0 && f->windows == f->l.plane;
    const int64_t whole = in_place ? width / MICRO_COLUMNS * MICRO_COLUMNS : 0;
    if (k == 0) memset(strips, 0, (size_t)(f->panels * m * MICRO_COLUMNS) * sizeof(T));
    for (int64_t p = 0; p < k; p += RLX_CONV_DEPTH) {
        const int64_t depth = k - p < RLX_CONV_DEPTH ? k - p : RLX_CONV_DEPTH;
        /* Packed weights: RLX_CONV_DEPTH columns of all rows, then the next ones. */
        const T *a = one->weight + (f->packing ? p * f->m + one->first * depth : one->first * k + p);
        if (whole < width) NAME(pack_windows)(f, one, panels, p, depth, j + whole, width - whole);
        for (int64_t v = 0; v < width; v += MICRO_COLUMNS) {
            const T *packed = panels + (v - whole) / MICRO_COLUMNS * WINDOW_PANEL;
            NAME(micro_rows)(a, f->packing ? depth : k, !f->packing,
                             v < whole ? one->planes + p * f->l.plane + j + v : packed,
                             v < whole ? f->l.plane : MICRO_COLUMNS, strips + v * m, MICRO_COLUMNS, m, depth,
                             p ? NULL : zeros,
                             NAME(panel_columns)(width - v < MICRO_COLUMNS ? width - v : MICRO_COLUMNS),
                             MICRO_ONE_AS_MANY);
        }
    }
}

/* A whole strip of neighbouring windows, in one pass: `at` is where its first result belongs. `act` is constant. */
static RLX_INLINE void NAME(store_whole)(const NAME(convolution) *f, const NAME(conv_piece) *one, const T *strip,
                                         int64_t index, const int64_t act)
{
    const T *residual = one->after.residual;
    for (int64_t r = 0; r < one->outputs; r++, strip += MICRO_COLUMNS, index += f->windows) {
        const T start = one->bias ? one->bias[r] : 0;
        _Pragma("GCC unroll 4") for (int64_t i = 0; i < MICRO_COLUMNS; i += VL) {
            VEC v = *(const VEC *)(strip + i) + start;
            if (residual) v += *(const VEC *)(residual + index + i);
#ifdef SINGLE
            /* NaN stays NaN: v_min and v_max give their second operand then. */
            if (act == RLX_ACT_RELU) v = (VEC)v_max((vf){0}, (vf)v);
            if (act == RLX_ACT_HARD_SWISH)
                v *= (VEC)v_min(v_all(1), v_max((vf){0}, (vf)(v * (T)0.16666666666666666667 + (T)0.5)));
#endif
            *(VEC *)(one->c + index + i) = v;
        }
    }
}

/* A strip of columns [j, j + width), to where they belong in the result, with the bias and the epilogue. These are
   applied to the strip, which is in the cache: rows of the result are apart, and are written only. */
static void NAME(store_strip)(const NAME(convolution) *f, const NAME(conv_piece) *one, T *strip, int64_t j,
                              int64_t width)
{
    const int64_t result = f->w->outputs * f->windows; /* from one image of it to the next */
    const int64_t act = one->after.act, begin = j % f->windows;
    const T *residual = one->after.residual;
    if (width == MICRO_COLUMNS && begin + width <= f->windows) {
        const int64_t index = j / f->windows * result + begin;
        if (!act) {
            NAME(store_whole)(f, one, strip, index, 0);
            return;
        }
#ifdef SINGLE
        if (act == RLX_ACT_RELU) {
            NAME(store_whole)(f, one, strip, index, RLX_ACT_RELU);
            return;
        }
        if (act == RLX_ACT_HARD_SWISH) {
            NAME(store_whole)(f, one, strip, index, RLX_ACT_HARD_SWISH);
            return;
        }
#endif
    }
    for (int64_t v = 0, some; v < width; v += some) {
        const int64_t q = (j + v) % f->windows, index = (j + v) / f->windows * result + q;
        some = width - v < f->windows - q ? width - v : f->windows - q;
        T *from = strip + v;
        for (int64_t r = 0; r < one->outputs; r++, from += MICRO_COLUMNS) {
            const T start = one->bias ? one->bias[r] : 0, *added = residual ? residual + index + r * f->windows : NULL;
            if (some == MICRO_COLUMNS)
                for (int64_t i = 0; i < MICRO_COLUMNS; i += VL)
                    *(VEC *)(from + i) = *(VEC *)(from + i) + start + (residual ? *(const VEC *)(added + i) : (VEC){0});
            else
                for (int64_t i = 0; i < some; i++) from[i] = from[i] + start + (residual ? added[i] : 0);
        }
    }
    NAME(activate)(strip, one->outputs * MICRO_COLUMNS, act);
    for (int64_t v = 0, some; v < width; v += some) {
        const int64_t q = (j + v) % f->windows, index = (j + v) / f->windows * result + q;
        some = width - v < f->windows - q ? width - v : f->windows - q;
        const T *from = strip + v;
        T *to = one->c + index;
        for (int64_t r = 0; r < one->outputs; r++, from += MICRO_COLUMNS, to += f->windows)
            if (some == MICRO_COLUMNS)
                for (int64_t i = 0; i < MICRO_COLUMNS; i += VL) *(VEC *)(to + i) = *(const VEC *)(from + i);
            else
                for (int64_t i = 0; i < some; i++) to[i] = from[i];
    }
}

/* Fetches the residual of columns [j, j + width) while they are made: its rows are on pages of their own. */
static void NAME(fetch_residual)(const NAME(convolution) *f, const NAME(conv_piece) *one, int64_t j, int64_t width)
{
    if (!one->after.residual) return;
    const int64_t result = f->w->outputs * f->windows, line = 64 / (int64_t)sizeof(T);
    for (int64_t v = 0; v < width; v += line) {
        const T *index = one->after.residual + (j + v) / f->windows * result + (j + v) % f->windows;
        for (int64_t r = 0; r < one->outputs; r++, index += f->windows) RLX_PREFETCH(index);
    }
}

/* All strips of columns [j, j + width). */
static void NAME(store_columns)(const NAME(convolution) *f, const NAME(conv_piece) *one, T *strips, int64_t j,
                                int64_t width)
{
    for (int64_t v = 0; v < width; v += MICRO_COLUMNS)
        NAME(store_strip)(f, one, strips + v * one->outputs, j + v, width - v < MICRO_COLUMNS ? width - v : MICRO_COLUMNS);
}

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

/* --- the kernels ---------------------------------------------------------------------------------- */

/* Rows of padded planes are apart by phase of the stride (window.h). */
static int NAME(kernel_conv_pad)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_pad, call);
    const rlx_window *w = &p->window;
    const rlx_layout l = window_layout(w, 1);
    const int64_t plane = w->dims[0] * w->dims[1] * w->dims[2];
    const rlx_range own = rlx_share(call, w->batch * w->channels, 1);
    NAME(pad_planes)((T *)out->y + own.first * l.plane, (const T *)in->x + own.first * plane, own.last - own.first, w,
                     &l);
    return RLX_OK;
}

static int NAME(kernel_conv)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv, call);
    NAME(convolution) f = CONVOLUTION(p->panels, p->packing, p->packed_stride);
    NAME(measure)(&f, p->copied, out->offsets);
    const int64_t image = f.w->channels * f.l.plane, group = f.channels * f.l.plane;
    const int64_t wide = f.panels * MICRO_COLUMNS;
    /* Packed weights can be parted where 6 and 4 rows made together both end. */
    const rlx_block own = rlx_share_tiles(call, f.pieces, f.m, f.together * f.windows, 12, 32);
    for (int64_t piece = own.pieces.first; piece < own.pieces.last; piece++) {
        NAME(conv_piece) one = NAME(piece_of)(&f, piece, own.rows);
        one.planes = f.x + piece / f.w->groups * f.together * image + piece % f.w->groups * group;
        one.image = image, one.end = f.x + f.w->batch * image;
        const int64_t n = one.images * f.windows, last = own.columns.last < n ? own.columns.last : n;
        for (int64_t j = own.columns.first; j < last; j += wide) {
            const int64_t width = last - j < wide ? last - j : wide;
            NAME(fetch_residual)(&f, &one, j, width);
            NAME(conv_columns)(&f, &one, out->panels, out->strips, j, width);
            NAME(store_columns)(&f, &one, out->strips, j, width);
        }
    }
    return RLX_OK;
}

/* The planes of a piece become copies with their padding. */
static void NAME(pad_piece)(const NAME(convolution) *f, NAME(conv_piece) *one, const rlx_window *w, T *planes)
{
    const int64_t image = f->channels * f->l.plane;
    for (int64_t i = 0; i < one->images; i++)
        NAME(pad_planes)(planes + i * image, one->planes + i * one->image, f->channels, w, &f->l);
    one->planes = planes, one->image = image;
}

static int NAME(kernel_conv_direct)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_direct, call);
    NAME(convolution) f = CONVOLUTION(0, RLX_PACKING_NONE, 0);
    NAME(measure)(&f, p->copied, out->offsets);
    rlx_window w = p->window; /* those windows that this part makes */
    rlx_range some = {0, f.pieces};
    int64_t from = 0, to = 0; /* where they begin, in the operand and in the result */
    /* Parts are pieces, or where these are few, some windows of every piece. */
    if (f.pieces >= call->parts) {
        some = rlx_share(call, f.pieces, 1);
    } else {
        const rlx_strips strips = window_strips(&w);
        const rlx_layout all = window_layout(&w, 0);
        const int64_t strides[] = {all.depth, all.row, 1};
        const rlx_range own = rlx_share(call, w.out[strips.axis], strips.axis == 2 ? MICRO_COLUMNS : 1);
        if (own.first == own.last) return RLX_OK;
        if (!p->copied) from = own.first * w.stride[strips.axis] * strides[strips.axis];
        to = own.first * strips.each;
        keep_strips(&w, strips.axis, own);
        f.l = window_layout(&w, (int)p->copied);
        tap_offsets(out->offsets, &w, &f.l);
    }
    const int64_t windows = w.out[0] * w.out[1] * w.out[2];
    for (int64_t piece = some.first; piece < some.last; piece++) {
        NAME(conv_piece) one = NAME(piece_of)(&f, piece, (rlx_range){0, f.m});
        if (p->copied) NAME(pad_piece)(&f, &one, &w, out->planes);
        NAME(convolution) part = f;
        part.w = &w;
        for (int64_t o = 0; o < f.m; o++) {
            const int64_t index = o * f.windows + to;
            NAME(conv_plane)(&part, one.weight + o * f.k, one.bias ? one.bias[o] : 0, one.planes + from, one.c + index);
            NAME(finish)(one.c + index, index, windows, one.after);
        }
    }
    return RLX_OK;
}

#include "windows/conv_outputs.h"
#include "windows/conv_inside.h"

#undef CONVOLUTION
#undef WINDOW_PANEL
