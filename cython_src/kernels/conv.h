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

/* Rows [p, p + depth) of the right side, columns [j, j + width): column q is a window of an image, all
   of one image and then those of the next, row i the i-th of channels x taps. Windows of one row are
   copied by whole vectors; what is too much is overwritten by the next piece, or is beyond the width. */
static void NAME(pack_windows)(T *panel, const T *planes, int64_t image, const T *end,
                               const rlx_window *w, const rlx_layout *l, const int64_t *offsets,
                               int64_t taps, int64_t p, int64_t depth, int64_t j, int64_t width)
{
    struct { int64_t at, from, length; } piece[NR];
    int64_t pieces = 0;
    for (int64_t v = 0; v < width; pieces++) {
        const int64_t q = j + v, x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const int64_t left = w->out[2] - x, room = width - v;
        piece[pieces].at = v;
        piece[pieces].from = q / (w->out[0] * w->out[1] * w->out[2]) * image +
                             yz / w->out[1] * w->stride[0] * l->depth +
                             yz % w->out[1] * w->stride[1] * l->row + x;
        piece[pieces].length = left < room ? left : room;
        v += piece[pieces].length;
    }
    int64_t tap = p % taps;
    const T *plane = planes + p / taps * l->plane;
    for (int64_t i = 0; i < depth; i++, panel += NR) {
        const T *source = plane + offsets[tap];
        for (int64_t s = 0; s < pieces; s++) {
            const T *from = source + piece[s].from;
            T *to = panel + piece[s].at;
            const int64_t n = piece[s].length;
            if (from + n + VL <= end)
                for (int64_t v = 0; v < n; v += VL) *(VEC *)(to + v) = *(const VEC *)(from + v);
            else
                for (int64_t v = 0; v < n; v++) to[v] = from[v];
        }
        for (int64_t v = width; v < NR; v++) panel[v] = 0;
        if (++tap == taps) tap = 0, plane += l->plane;
    }
}

/* One group of some images, whose planes are `image` apart and whose results `result`: [m, k] @
   [k, images x windows], the right side packed as it is needed. */
static void NAME(conv_group)(const T *weight, const T *bias, const T *planes, int64_t images,
                             int64_t image, const T *end, T *c, int64_t result, int64_t m,
                             int64_t apart, const rlx_window *w, const rlx_layout *l,
                             const int64_t *offsets, T *scratch)
{
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t each = w->out[0] * w->out[1] * w->out[2];
    const int64_t k = w->channels / w->groups * taps, n = images * each;
    /* A vector may be written past the last row of the panel. The results of a panel's columns stand
       side by side until they are whole: in c every row is on a page of its own. */
    T *panel = scratch, *strip = panel + KC * NR + VL;
    const T zeros[NR] = {0};
    for (int64_t j = 0; j < n; j += NR) {
        const int64_t width = n - j < NR ? n - j : NR;
        if (k == 0) memset(strip, 0, (size_t)(m * NR) * sizeof(T));
        for (int64_t p = 0; p < k; p += KC) {
            const int64_t depth = k - p < KC ? k - p : KC;
            NAME(pack_windows)(panel, planes, image, end, w, l, offsets, taps, p, depth, j, width);
            NAME(tiles)(weight + p, k, panel, strip, NR, m, depth, p ? NULL : zeros);
        }
        for (int64_t r = 0; r < m; r++) {
            const T start = bias ? bias[r] : 0;
            const T *from = strip + r * NR;
            if (images == 1) {
                T *to = c + r * apart + j;
                if (width == NR)
                    for (int64_t v = 0; v < NR; v += VL)
                        *(VEC *)(to + v) = *(const VEC *)(from + v) + start;
                else
                    for (int64_t v = 0; v < width; v++) to[v] = from[v] + start;
                continue;
            }
            int64_t at = j % each;
            T *to = c + j / each * result + r * apart;
            for (int64_t v = 0; v < width; v++) {
                to[at] = from[v] + start;
                if (++at == each) at = 0, to += result;
            }
        }
    }
}

/* The same for at most FEW_WINDOWS columns. Each is packed along k, so that weights are multiplied with it as
   they lie, some rows with four columns at a time, and no column of a panel is empty. */
#define FEW_WINDOWS 8
#define FEW_ROWS (VECTOR_BYTES == 64 ? 4 : 2)
static void NAME(conv_few)(const T *weight, const T *bias, const T *planes, int64_t images,
                           int64_t image, T *c, int64_t result, int64_t m, const rlx_window *w,
                           const rlx_layout *l, const int64_t *offsets, T *scratch)
{
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t each = w->out[0] * w->out[1] * w->out[2];
    const int64_t channels = w->channels / w->groups, k = channels * taps, n = images * each;
    const int64_t line = (k + VL - 1) / VL * VL, quads = (n + 3) / 4 * 4;
    for (int64_t q = 0; q < quads; q++) {
        T *to = scratch + q * line;
        const int64_t own = q < n ? q : n - 1, x = own % w->out[2];
        const int64_t yz = own / w->out[2] % (w->out[0] * w->out[1]);
        const T *plane = planes + own / each * image + yz / w->out[1] * w->stride[0] * l->depth +
                         yz % w->out[1] * w->stride[1] * l->row + x;
        for (int64_t ch = 0; ch < channels; ch++, plane += l->plane)
            for (int64_t i = 0; i < taps; i++) *to++ = plane[offsets[i]];
        for (int64_t i = k; i < line; i++) *to++ = 0;
    }
    for (int64_t r = 0; r < m; r += FEW_ROWS)
    for (int64_t j = 0; j < quads; j += 4) {
        const T *rows[FEW_ROWS], *columns = scratch + j * line;
        VEC sums[FEW_ROWS][4] = {{{0}}};
        for (int64_t a = 0; a < FEW_ROWS; a++) rows[a] = weight + (r + a < m ? r + a : m - 1) * k;
        int64_t i = 0;
        for (; i + VL <= k; i += VL) {
            _Pragma("GCC unroll 4") for (int a = 0; a < FEW_ROWS; a++) {
                const VEC by = *(const VEC *)(rows[a] + i);
                _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++)
                    sums[a][b] += by * *(const VEC *)(columns + b * line + i);
            }
        }
        if (i < k)
            _Pragma("GCC unroll 4") for (int a = 0; a < FEW_ROWS; a++) {
                VEC by = {0};
                memcpy(&by, rows[a] + i, (size_t)(k - i) * sizeof(T));
                _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++)
                    sums[a][b] += by * *(const VEC *)(columns + b * line + i);
            }
        for (int64_t a = 0; a < FEW_ROWS && r + a < m; a++)
            for (int64_t b = 0; b < 4 && j + b < n; b++) {
                T total = bias ? bias[r + a] : 0;
                for (int64_t v = 0; v < VL; v++) total += sums[a][b][v];
                c[(j + b) / each * result + (r + a) * each + (j + b) % each] = total;
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

/* Parameters: a window (window.h), has bias, copied, and how many images are made together: several where
   one has fewer windows than a panel has columns. Scratch: the padded planes of a group of these
   images, a panel and the results of its columns, the offsets of the taps. */
static int NAME(conv_any)(const rlx_call *call, int direct)
{
    rlx_window w = read_window(call->p);
    const int copied = (int)call->p[RLX_WINDOW_PARAMS + 1].i;
    const T *bias = call->p[RLX_WINDOW_PARAMS].i ? call->in[2] : NULL;
    const int64_t channels = w.channels / w.groups, m = w.outputs / w.groups;
    const int64_t k = channels * w.kernel[0] * w.kernel[1] * w.kernel[2];
    const int64_t n = w.out[0] * w.out[1] * w.out[2], plane = w.dims[0] * w.dims[1] * w.dims[2];
    const int64_t together = call->p[RLX_WINDOW_PARAMS + 2].i;
    const int64_t pieces = (w.batch + together - 1) / together * w.groups;
    const int few = !direct && (w.batch < together ? w.batch : together) * n <= FEW_WINDOWS;
    /* Parts are groups of images, else some outputs or windows of every one. */
    rlx_range some = {0, pieces}, rows = {0, m};
    int64_t from = 0, to = 0; /* where the windows begin, in the operand and in the result */
    if (RLX_RARELY(call->parts > 1)) {
        const rlx_strips strips = window_strips(&w);
        if (pieces >= call->parts)
            some = rlx_share(call, pieces, 1);
        else if (!direct && (few || n < 4 * NR * call->parts || w.out[strips.axis] < 2 * call->parts))
            rows = rlx_share(call, m, few ? FEW_ROWS : TILE_ROWS);
        else {
            const rlx_layout whole = window_layout(&w, 0);
            const int64_t steps[] = {whole.depth, whole.row, 1};
            const rlx_range own = rlx_share(call, w.out[strips.axis], strips.axis == 2 ? NR : 1);
            if (own.first == own.last) return RLX_OK;
            if (!copied) from = own.first * w.stride[strips.axis] * steps[strips.axis];
            to = own.first * strips.each;
            keep_strips(&w, strips.axis, own);
        }
    }
    const int64_t height = rows.last - rows.first;
    const rlx_layout l = window_layout(&w, copied);
    int64_t *offsets = call->out[3];
    tap_offsets(offsets, &w, &l);
    const int64_t padded = channels * l.plane, own = w.groups * channels * plane;
    for (int64_t piece = some.first; piece < some.last && height; piece++) {
        const int64_t image = piece / w.groups * together, g = piece % w.groups;
        const int64_t images = w.batch - image < together ? w.batch - image : together;
        const T *x = (const T *)call->in[0] + (image * w.groups + g) * channels * plane + from;
        const T *weight = (const T *)call->in[1] + (g * m + rows.first) * k;
        const T *start = bias ? bias + g * m + rows.first : NULL;
        T *c = (T *)call->out[0] + ((image * w.groups + g) * m + rows.first) * n + to;
        int64_t apart = own;
        if (copied) {
            for (int64_t i = 0; i < images; i++)
                NAME(pad_planes)((T *)call->out[1] + i * padded, x + i * own, channels, &w, &l);
            x = call->out[1], apart = padded;
        }
        /* The copy has slack behind it, but a piece stops before: only the operand must not be
           read past its end, and the copy's slack is smaller than a piece and a vector. */
        if (!direct && images * n <= FEW_WINDOWS)
            NAME(conv_few)(weight, start, x, images, apart, c, w.groups * m * n, height, &w, &l,
                           offsets, call->out[2]);
        else if (!direct)
            NAME(conv_group)(weight, start, x, images, apart, x + (images - 1) * apart + padded - from,
                             c, w.groups * m * n, height, n, &w, &l, offsets, call->out[2]);
        else
            for (int64_t o = 0; o < m; o++)
                NAME(conv_plane)(weight + o * k, start ? start[o] : 0, x, c + o * n, &w, &l,
                                 offsets);
    }
    return RLX_OK;
}

static int NAME(kernel_conv)(const rlx_call *call) { return NAME(conv_any)(call, 0); }
static int NAME(kernel_conv_direct)(const rlx_call *call) { return NAME(conv_any)(call, 1); }
