/* Convolution with 3x3 filters whose windows are next to each other, by minimal filtering: F(4x4, 3x3) of Winograd (1980),
   as Lavin and Gray (2016) use it. A tile of 6x6 elements gives 4x4 results by 36 products where the definition takes
   144. The points of the transforms are 0, +-sqrt(1/2), +-sqrt(2) and infinity, with which rounding errors are less than
   with whole numbers.

   If the elements of a filter are `apart` (its dilation), so are the elements and the results of a tile. As many tiles share
   a part of the plane: each begins one element after the one before, and their results alternate.

   Differences within a tile, and tiny weights, would be subnormal and count as 0. So elements and filters are multiplied by
   powers of two before they are transformed, and results are divided by them.

   The lanes of a vector are channels while elements are transformed, and outputs while sums are. Between the two, each of
   the 36 points is a matrix product: tiles times packed weights, which are transformed already
   (rlx/ops/windows/winograd.py). */

enum { TILE = RLX_WINOGRAD_TILE, REACH = TILE + 2, POINTS = REACH * REACH };
/* Tiles next to each other that are transformed together, and the elements of a row that they read at most. */
enum { RUN = RLX_WINOGRAD_RUN, RUN_REACH = (TILE + 2) * RUN };
static_assert(RUN_REACH * REACH * 4 <= 1 << 13, "strips of a run are on the stack");

#define ROOT_HALF ((T)0.70710678118654752440)
#define ROOT_TWO ((T)1.41421356237309504880)

/* Six elements, `apart` from each other and multiplied by a scale, at the six points. In place. */
static RLX_INLINE void NAME(to_points)(VEC *v, int64_t apart, T scale)
{
    const VEC d0 = scale * v[0], d1 = scale * v[apart], d2 = scale * v[2 * apart];
    const VEC d3 = scale * v[3 * apart], d4 = scale * v[4 * apart], d5 = scale * v[5 * apart];
    const VEC even = d4 - 2 * d2, odd = ROOT_HALF * (d3 - 2 * d1);
    const VEC more_even = d4 - (T)0.5 * d2, more_odd = ROOT_TWO * (d3 - (T)0.5 * d1);
    v[0] = d0 + d4 - (T)2.5 * d2;
    v[apart] = even + odd, v[2 * apart] = even - odd;
    v[3 * apart] = more_even + more_odd, v[4 * apart] = more_even - more_odd;
    v[5 * apart] = d1 + d5 - (T)2.5 * d3;
}

/* Four results from six points, each `apart`. */
static RLX_INLINE void NAME(from_points)(VEC *to, const VEC *v, int64_t apart)
{
    const VEC m1 = v[apart], m2 = v[2 * apart], m3 = v[3 * apart], m4 = v[4 * apart];
    const VEC even = m1 + m2, odd = ROOT_HALF * (m1 - m2), more_even = m3 + m4, more_odd = ROOT_TWO * (m3 - m4);
    to[0] = v[0] + even + more_even;
    to[1] = odd + more_odd;
    to[2] = (T)0.5 * even + 2 * more_even;
    to[3] = (T)0.5 * odd + 2 * more_odd + v[5 * apart];
}

/* A convolution in tiles. */
typedef struct {
    const rlx_window *w;
    int64_t channels, outputs; /* of a group */
    int64_t across, down;      /* tiles of a plane */
    int64_t apart[2];          /* rows, and columns, from one element of a filter to the next */
    int64_t high, wide;        /* a plane of the operand */
    int64_t windows;           /* of a plane */
    int64_t from_row, from_point; /* elements from one tile to the next, and from one point to the next */
    int64_t to_row, to_point;     /* the same of products */
    T *elements, *products;
} NAME(tiling);

/* Tiles of a row of them. */
typedef struct {
    int64_t image, y, x, count; /* where the first begins, and how many there are: a multiple of apart[1] */
    int64_t rows, columns;      /* results of them */
    int64_t reach;              /* columns that they read */
} NAME(run);

/* The run that begins at a tile, of at most `max_tiles` tiles. */
static NAME(run) NAME(run_at)(const NAME(tiling) *f, int64_t tile, int64_t max_tiles)
{
    const int64_t tall = f->apart[0], wide = f->apart[1], whole = RUN / wide * wide;
    NAME(run) run = {tile / (f->across * f->down), tile / f->across % f->down, tile % f->across};
    run.count = f->across - run.x < whole ? f->across - run.x : whole;
    if (run.count > max_tiles) run.count = max_tiles;
    run.y = run.y / tall * TILE * tall + run.y % tall, run.x *= TILE;
    run.rows = (f->w->out[1] - run.y + tall - 1) / tall;
    run.rows = run.rows > TILE ? TILE : run.rows < 0 ? 0 : run.rows;
    run.columns = f->w->out[2] - run.x < TILE * run.count ? f->w->out[2] - run.x : TILE * run.count;
    run.reach = TILE * run.count + 2 * wide;
    return run;
}

/* Where the elements and the results of a tile of a run begin. */
static RLX_INLINE int64_t NAME(tile_begin)(const NAME(tiling) *f, int64_t tile)
{
    return f->apart[1] == 1 ? tile * TILE : tile / f->apart[1] * TILE * f->apart[1] + tile % f->apart[1];
}

/* The elements that a run reads of VL planes of the operand, with zeros around these. */
static void NAME(read_run)(const NAME(tiling) *f, const NAME(run) *run, const T *const *plane, const T *end, T *strip)
{
    const int64_t n = run->reach, begin = run->x - f->w->before[2];
    const int64_t first = begin < 0 ? -begin : 0, last = begin + n > f->wide ? f->wide - begin : n;
    for (int64_t y = 0; y < REACH; y++, strip += n * VL) {
        const int64_t row = run->y - f->w->before[1] + y * f->apart[0];
        int64_t written_end = 0; /* elements up to here are written */
        if (row >= 0 && row < f->high && first < last) {
            const T *from[VECTOR_BYTES / sizeof(T)];
            for (int64_t l = 0; l < VL; l++) from[l] = plane[l] + row * f->wide + begin + first;
            for (int64_t i = 0; i < first; i++) *LANE(strip, i) = (VEC){0};
            NAME(planes_in)(from, last - first, end, strip + first * VL);
            written_end = last;
        }
        for (int64_t i = written_end; i < n; i++) *LANE(strip, i) = (VEC){0};
    }
}

/* Transforms some channels of a run, and writes them to the elements from tile t on. `x` is the first plane of the group in
   the first image. */
static void NAME(run_in)(const NAME(tiling) *f, const NAME(run) *run, const T *x, int64_t t, rlx_range channels)
{
    const int64_t plane = f->high * f->wide, image = f->w->channels * plane, n = run->reach;
    const T *end = x + (f->w->batch - 1) * image + f->channels * plane;
    /* Behind the last row there is room for what planes_in writes too far. */
    VEC strip[REACH * RUN_REACH + VECTOR_BYTES / sizeof(T)];
    for (int64_t c = channels.first; c < channels.last; c += VL) {
        const T *from[VECTOR_BYTES / sizeof(T)];
        for (int64_t l = 0; l < VL; l++)
            from[l] = x + run->image * image + (c + l < f->channels ? c + l : f->channels - 1) * plane;
        NAME(read_run)(f, run, from, end, (T *)strip);
        for (int64_t i = 0; i < n; i++) NAME(to_points)(strip + i, n, RLX_ELEMENT_SCALE);
        T *to = f->elements + t * f->from_row + c;
        for (int64_t i = 0; i < run->count; i++, to += f->from_row) {
            const VEC *tile = strip + NAME(tile_begin)(f, i);
            for (int64_t y = 0; y < REACH; y++) {
                VEC v[REACH];
                _Pragma("GCC unroll 6") for (int64_t j = 0; j < REACH; j++) v[j] = tile[y * n + j * f->apart[1]];
                NAME(to_points)(v, 1, 1);
                _Pragma("GCC unroll 6") for (int64_t j = 0; j < REACH; j++)
                    *(VEC *)(to + (y * REACH + j) * f->from_point) = v[j];
            }
        }
    }
}

/* Panels that some columns of weights are in. */
static int64_t NAME(panels_of)(rlx_range columns)
{
    return (columns.last - columns.first + MICRO_COLUMNS - 1) / MICRO_COLUMNS;
}

/* Products of `count` tiles with the weights. Of the items, each of which is one panel of columns at one point, some are
   made. */
static void NAME(multiply_points)(const NAME(tiling) *f, const char *weights, int64_t stride, int64_t count,
                                  rlx_range columns, rlx_range items)
{
    const int64_t panels = NAME(panels_of)(columns);
    for (int64_t item = items.first; item < items.last; item++) {
        const int64_t point = item / panels, j = columns.first + item % panels * MICRO_COLUMNS;
        const T *a = f->elements + point * f->from_point;
        const int64_t width = columns.last - j < MICRO_COLUMNS ? columns.last - j : MICRO_COLUMNS;
        const int64_t step = NAME(panel_columns)(width);
        const T *b = (const T *)(weights + point * stride) + j * f->channels;
        for (int64_t p = 0; p < f->channels; p += MICRO_DEPTH) {
            const int64_t depth = f->channels - p < MICRO_DEPTH ? f->channels - p : MICRO_DEPTH;
            NAME(micro_rows)(a + p, f->from_row, 1, b + p * step, step, f->products + point * f->to_point + j,
                             f->to_row, count, depth, p ? NULL : NAME(micro_zeros), step, 1);
        }
    }
}

/* Results of a run for one output by the definition, to every VL-th element of rows of TILE * count. A transform spreads
   NaN and infinities over its tile, and a transform of large numbers may overflow. What is not finite is computed in this
   way, so that a NaN affects only the windows that contain it. */
static RLX_NOINLINE void NAME(run_plainly)(const NAME(tiling) *f, const NAME(run) *run, const T *x, const T *weight,
                                           T start, T *to)
{
    for (int64_t r = 0; r < run->rows; r++, to += TILE * run->count * VL) {
        T sums[TILE * RUN];
        for (int64_t i = 0; i < run->columns; i++) sums[i] = start;
        for (int64_t tap = 0; tap < 9 * f->channels; tap++) {
            const T by = weight[tap];
            const int64_t y = run->y + (r + tap / 3 % 3) * f->apart[0] - f->w->before[1];
            const int64_t begin = run->x + tap % 3 * f->apart[1] - f->w->before[2];
            const T *row = x + (tap / 9 * f->high + y) * f->wide + begin;
            const int inside = y >= 0 && y < f->high;
            const int64_t first = begin < 0 ? -begin : 0;
            const int64_t last = begin + run->columns > f->wide ? f->wide - begin : run->columns;
            for (int64_t i = 0; i < run->columns; i++)
                sums[i] += by * (inside && i >= first && i < last ? row[i] : 0);
        }
        for (int64_t i = 0; i < run->columns; i++) to[i * VL] = sums[i];
    }
}

/* Results of VL outputs of a run, from the products of its tiles, with the bias; those of each row are together. Returns 0
   in the lanes whose results are finite. */
static RLX_INLINE VEC NAME(run_results)(const NAME(tiling) *f, const NAME(run) *run, const T *products, VEC start,
                                        VEC *results)
{
    const int64_t n = TILE * run->count;
    const T scale = (T)1 / RLX_ELEMENT_SCALE / RLX_FILTER_SCALE;
    VEC wrong = {0};
    for (int64_t i = 0; i < run->count; i++, products += f->to_row) {
        VEC rows[TILE * REACH];
        for (int64_t x = 0; x < REACH; x++) {
            VEC v[REACH], made[TILE];
            _Pragma("GCC unroll 6") for (int64_t y = 0; y < REACH; y++)
                v[y] = *(const VEC *)(products + (y * REACH + x) * f->to_point);
            NAME(from_points)(made, v, 1);
            _Pragma("GCC unroll 4") for (int64_t y = 0; y < TILE; y++) rows[y * REACH + x] = made[y];
        }
        for (int64_t y = 0; y < run->rows; y++) {
            VEC *to = results + y * n + NAME(tile_begin)(f, i), made[TILE];
            NAME(from_points)(made, rows + y * REACH, 1);
            _Pragma("GCC unroll 4") for (int64_t x = 0; x < TILE; x++)
                made[x] = made[x] * scale + start, wrong += made[x] * 0, to[x * f->apart[1]] = made[x];
        }
    }
    return wrong;
}

/* Transforms the products of a run of group g, which begin at tile t, and stores the results of some outputs with the
   epilogue. */
static void NAME(run_out)(const NAME(tiling) *f, const NAME(run) *run, const rlx_conv_winograd *p,
                          const rlx_conv_winograd_in *in, T *y, int64_t g, int64_t t, rlx_range columns)
{
    const int64_t plane = f->high * f->wide, n = TILE * run->count, row = f->apart[0] * f->w->out[2];
    const T *bias = in->bias, *residual = in->residual, *weight = in->weight, *x = in->x;
    const T *residual_end = residual ? residual + f->w->batch * f->w->outputs * f->windows : NULL;
    VEC results[TILE * TILE * RUN + VECTOR_BYTES / sizeof(T)], added[TILE * RUN + VECTOR_BYTES / sizeof(T)];
    for (int64_t j = columns.first; j < columns.last; j += VL) {
        const int64_t lanes = columns.last - j < VL ? columns.last - j : VL, o = g * f->outputs + j;
        VEC start = {0};
        for (int64_t l = 0; bias && l < lanes; l++) start[l] = bias[o + l];
        VEC wrong = (T)1 - (VEC){0}; /* without transformed weights the definition is all there is */
        if (p->packing) wrong = NAME(run_results)(f, run, f->products + t * f->to_row + j, start, results);
        for (int64_t l = 0; l < lanes; l++)
            if (RLX_UNLIKELY(wrong[l] != 0))
                NAME(run_plainly)(f, run, x + (run->image * f->w->channels + g * f->channels) * plane,
                                  weight + (o + l) * f->channels * 9, start[l], (T *)results + l);
        const int64_t index = (run->image * f->w->outputs + o) * f->windows + run->y * f->w->out[2] + run->x;
        for (int64_t r = 0; residual && r < run->rows; r++) {
            const T *from[VECTOR_BYTES / sizeof(T)];
            for (int64_t l = 0; l < VL; l++)
                from[l] = residual + index + r * row + (l < lanes ? l : lanes - 1) * f->windows;
            NAME(planes_in)(from, run->columns, residual_end, (T *)added);
            for (int64_t i = 0; i < run->columns; i++) results[r * n + i] += added[i];
        }
        NAME(activate)((T *)results, run->rows * n * VL, p->act);
        for (int64_t r = 0; r < run->rows; r++)
            NAME(planes_out)((T *)(results + r * n), run->columns, y + index + r * row, f->windows, lanes);
    }
}

/* A block of tiles. It is made in three phases: transforms of elements, products, transforms of results. The threads of a
   team share the vectors of channels, the panels, and the vectors of outputs. */
typedef struct {
    NAME(tiling) f;
    const rlx_conv_winograd *p;
    const rlx_conv_winograd_in *in;
    T *y;
    int64_t g, first, count, runs, tasks;
    rlx_range columns;
} NAME(block);

static rlx_range NAME(own_items)(const NAME(block) *b, int64_t task, int64_t items)
{
    return (rlx_range){items * task / b->tasks, items * (task + 1) / b->tasks};
}

/* The lanes of run r that belong to some items. An item is a vector of lanes of a run. A run is never cut into tiles: where
   a result of it is not finite, all of its results are computed by the definition, and bits must not depend on threads. */
static rlx_range NAME(lanes_of_run)(rlx_range items, int64_t r, rlx_range lanes)
{
    const int64_t vectors = (lanes.last - lanes.first + VL - 1) / VL;
    const int64_t begin = items.first - r * vectors, end = items.last - r * vectors;
    rlx_range own = {lanes.first + (begin > 0 ? begin : 0) * VL, lanes.first + (end > 0 ? end : 0) * VL};
    if (own.last > lanes.last) own.last = lanes.last;
    return own;
}

static void NAME(block_in)(void *context, int64_t task)
{
    const NAME(block) *b = context;
    const rlx_range all = {0, b->f.channels};
    const rlx_range items = NAME(own_items)(b, task, b->runs * ((b->f.channels + VL - 1) / VL));
    const T *x = (const T *)b->in->x + b->g * b->f.channels * b->f.high * b->f.wide;
    for (int64_t r = 0, t = 0; t < b->count; r++) {
        const NAME(run) run = NAME(run_at)(&b->f, b->first + t, b->count - t);
        const rlx_range channels = NAME(lanes_of_run)(items, r, all);
        if (channels.first < channels.last) NAME(run_in)(&b->f, &run, x, t, channels);
        t += run.count;
    }
}

static void NAME(block_products)(void *context, int64_t task)
{
    const NAME(block) *b = context;
    const int64_t stride = b->p->packed_stride;
    const rlx_range items = NAME(own_items)(b, task, POINTS * NAME(panels_of)(b->columns));
    NAME(multiply_points)(&b->f, (const char *)b->in->filters + b->g * POINTS * stride, stride, b->count, b->columns, items);
}

static void NAME(block_out)(void *context, int64_t task)
{
    const NAME(block) *b = context;
    const rlx_range items = NAME(own_items)(b, task, b->runs * ((b->columns.last - b->columns.first + VL - 1) / VL));
    for (int64_t r = 0, t = 0; t < b->count; r++) {
        const NAME(run) run = NAME(run_at)(&b->f, b->first + t, b->count - t);
        const rlx_range columns = NAME(lanes_of_run)(items, r, b->columns);
        if (columns.first < columns.last) NAME(run_out)(&b->f, &run, b->p, b->in, b->y, b->g, t, columns);
        t += run.count;
    }
}

/* Threads share blocks of tiles, or as a team the work of each block. A block is the same for any number of threads. */
static int NAME(kernel_conv_winograd)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_winograd, call);
    const rlx_window *w = &p->window;
    NAME(tiling) f = {
        .w = w, .channels = w->channels / w->groups, .outputs = w->outputs / w->groups,
        .across = (w->out[2] + TILE * w->dilation[2] - 1) / (TILE * w->dilation[2]) * w->dilation[2],
        .down = (w->out[1] + TILE * w->dilation[1] - 1) / (TILE * w->dilation[1]) * w->dilation[1],
        .apart = {w->dilation[1], w->dilation[2]},
        .high = w->dims[1], .wide = w->dims[2], .windows = w->out[1] * w->out[2],
        .elements = out->elements, .products = out->products,
    };
    const int64_t whole = RLX_VECTOR_ELEMENTS, tiles = w->batch * f.down * f.across, blocks = (tiles + p->block - 1) / p->block;
    f.from_row = (f.channels + whole - 1) / whole * whole, f.from_point = p->block * f.from_row + whole;
    f.to_row = (f.outputs + whole - 1) / whole * whole, f.to_point = p->block * f.to_row + whole;
    rlx_block own = {{0, w->groups}, {0, blocks}, {0, f.outputs}};
    if (!call->team) own = rlx_share_tiles(call, w->groups, blocks, f.outputs, 1, MICRO_COLUMNS);
    NAME(block) b = {f, p, in, out->y, .tasks = rlx_tasks(call), .columns = own.columns};
    int64_t phase = 0;
    for (b.g = own.pieces.first; b.g < own.pieces.last; b.g++)
        for (int64_t index = own.rows.first; index < own.rows.last; index++) {
            b.first = index * p->block, b.count = tiles - b.first < p->block ? tiles - b.first : p->block, b.runs = 0;
            for (int64_t t = 0; t < b.count; b.runs++) t += NAME(run_at)(&f, b.first + t, b.count - t).count;
            if (p->packing) rlx_phase(call, phase++, NAME(block_in), &b);
            if (p->packing) rlx_phase(call, phase++, NAME(block_products), &b);
            rlx_phase(call, phase++, NAME(block_out), &b);
        }
    return RLX_OK;
}

#undef ROOT_HALF
#undef ROOT_TWO
