/* Convolution with 3x3 filters whose windows are next to each other, by minimal filtering: F(4x4, 3x3) of Winograd (1980),
   as Lavin and Gray (2016) use it. A tile of 6x6 elements gives 4x4 results by 36 products where the definition takes
   144. The points of the transforms are 0, +-sqrt(1/2), +-sqrt(2) and infinity, with which rounding errors are less than
   with whole numbers.

   If the elements of a filter are `apart` (its dilation), so are the elements and the results of a tile. As many tiles share
   a part of the plane: each begins one element after the one before, and their results alternate.

   Differences within a tile, and tiny weights, would be subnormal and count as 0. So elements and filters are multiplied by
   powers of two before they are transformed, and results are divided by them.

   Channels of the operand and of the result lie next to each other, and are the lanes of vectors. Each of the 36 points is a
   matrix product: tiles times packed weights, which are transformed when they are packed. */

enum { TILE = RLX_WINOGRAD_TILE, REACH = TILE + 2, POINTS = REACH * REACH };

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

/* A block of tiles of a convolution. It is made in three phases: transforms of elements, products, transforms of results.
   The threads of a team share the tiles, the panels, and the tiles again. */
typedef struct {
    const rlx_window *w;
    const rlx_winograd_last *p;
    const rlx_winograd_last_in *in;
    T *y;
    int64_t channels, outputs; /* of a group */
    int64_t across, down;      /* tiles of a plane */
    int64_t from_row, from_point; /* elements from one tile to the next, and from one point to the next */
    int64_t to_row, to_point;     /* the same of products */
    T *elements, *products;
    int64_t g, first, count, tasks; /* a group, tiles of it, and tasks of a phase */
    rlx_range columns;
} NAME(tiling);

/* The image, and the first element and result of a tile. */
typedef struct {
    int64_t image, y, x;
} NAME(tile);

static NAME(tile) NAME(tile_place)(const NAME(tiling) *f, int64_t tile)
{
    const int64_t tall = f->w->dilation[1], wide = f->w->dilation[2];
    const int64_t x = tile % f->across, y = tile / f->across % f->down;
    return (NAME(tile)){
        tile / f->across / f->down, y / tall * TILE * tall + y % tall, x / wide * TILE * wide + x % wide,
    };
}

static rlx_range NAME(own_items)(const NAME(tiling) *f, int64_t task, int64_t items)
{
    return (rlx_range){items * task / f->tasks, items * (task + 1) / f->tasks};
}

/* Tiles next to each other, whose first transforms are shared where they overlap, and the columns that they read. */
enum { RUN = 8, RUN_COLUMNS = TILE * RUN + REACH - TILE };

/* Transforms the elements of some tiles of a line. `from` has the address of each element of each column, NULL for padding. */
static void NAME(run_in)(const NAME(tiling) *f, const T *(*from)[REACH], int64_t count, int inside, T *to)
{
    for (int64_t c = 0; c < f->channels; c += VL, to += VL) {
        const int64_t lanes = f->channels - c < VL ? f->channels - c : VL;
        const int whole = inside && lanes == VL;
        VEC v[POINTS];
        T *place = to;
        for (int64_t i = 0; i < count; i++, place += f->from_row) {
            for (int64_t y = 0; i && y < REACH; y++) v[y * REACH] = v[y * REACH + TILE], v[y * REACH + 1] = v[y * REACH + TILE + 1];
            for (int64_t x = i ? REACH - TILE : 0; x < REACH; x++) {
                const T *const *column = from[i * TILE + x];
                for (int64_t y = 0; y < REACH; y++)
                    v[y * REACH + x] = whole ? *(const VEC *)(column[y] + c) : column[y] ? NAME(load_lanes)(column[y] + c, lanes) : (VEC){0};
                NAME(to_points)(v + x, REACH, RLX_ELEMENT_SCALE);
            }
            for (int64_t y = 0; y < REACH; y++) {
                VEC row[REACH];
                _Pragma("GCC unroll 6") for (int64_t x = 0; x < REACH; x++) row[x] = v[y * REACH + x];
                NAME(to_points)(row, 1, 1);
                _Pragma("GCC unroll 6") for (int64_t x = 0; x < REACH; x++)
                    *(VEC *)(place + (y * REACH + x) * f->from_point) = row[x];
            }
        }
    }
}

/* Transforms the elements of some tiles. */
static void NAME(tiles_in)(void *context, int64_t task)
{
    const NAME(tiling) *f = context;
    const rlx_window *w = f->w;
    const rlx_range tiles = NAME(own_items)(f, task, f->count);
    for (int64_t t = tiles.first, count; t < tiles.last; t += count) {
        const NAME(tile) tile = NAME(tile_place)(f, f->first + t);
        const int64_t left = f->across - (f->first + t) % f->across;
        count = w->dilation[2] > 1 ? 1 : tiles.last - t < left ? tiles.last - t : left;
        if (count > RUN) count = RUN;
        const T *plane = (const T *)f->in->x + tile.image * w->dims[1] * w->dims[2] * w->channels + f->g * f->channels;
        const T *from[RUN_COLUMNS][REACH];
        int inside = 1;
        for (int64_t i = 0; i < count * TILE + REACH - TILE; i++)
            for (int64_t j = 0; j < REACH; j++) {
                const int64_t y = tile.y - w->before[1] + j * w->dilation[1], x = tile.x - w->before[2] + i * w->dilation[2];
                const int met = y >= 0 && y < w->dims[1] && x >= 0 && x < w->dims[2];
                from[i][j] = met ? plane + (y * w->dims[2] + x) * w->channels : NULL;
                inside &= met;
            }
        NAME(run_in)(f, from, count, inside, f->elements + t * f->from_row);
    }
}

/* Products of tiles with the weights. An item is one panel of columns at one point. */
static void NAME(tile_products)(void *context, int64_t task)
{
    const NAME(tiling) *f = context;
    const int64_t panels = (f->columns.last - f->columns.first + MICRO_COLUMNS - 1) / MICRO_COLUMNS;
    const rlx_range items = NAME(own_items)(f, task, POINTS * panels);
    const char *weights = (const char *)f->in->filters + f->g * POINTS * f->p->packed_stride;
    for (int64_t item = items.first; item < items.last; item++) {
        const int64_t point = item / panels, j = f->columns.first + item % panels * MICRO_COLUMNS;
        const T *a = f->elements + point * f->from_point;
        const int64_t width = f->columns.last - j < MICRO_COLUMNS ? f->columns.last - j : MICRO_COLUMNS;
        const int64_t step = NAME(panel_columns)(width);
        const T *b = (const T *)(weights + point * f->p->packed_stride) + j * f->channels;
        for (int64_t p = 0; p < f->channels; p += MICRO_DEPTH) {
            const int64_t depth = f->channels - p < MICRO_DEPTH ? f->channels - p : MICRO_DEPTH;
            NAME(micro_rows)(a + p, f->from_row, b + p * step, step, f->products + point * f->to_point + j,
                             f->to_row, f->count, depth, p ? NULL : NAME(micro_zeros), step, 1);
        }
    }
}

/* One output of a tile by the definition, to every VL-th element. A transform spreads NaN and infinities over its tile, and a
   transform of large numbers may overflow. A result that is not finite is computed in this way, so that a NaN affects only
   the windows that contain it. */
static RLX_NOINLINE void NAME(tile_plainly)(const NAME(tiling) *f, const NAME(tile) *tile, int64_t output, T start, T *to)
{
    const rlx_window *w = f->w;
    const int64_t all = w->channels;
    const T *weight = (const T *)f->in->weight + output * f->channels * 9;
    const T *plane = (const T *)f->in->x + tile->image * w->dims[1] * w->dims[2] * all + f->g * f->channels;
    for (int64_t i = 0; i < TILE * TILE; i++) {
        T sum = start;
        for (int64_t c = 0; c < f->channels; c++)
            for (int64_t tap = 0; tap < 9; tap++) {
                const int64_t y = tile->y - w->before[1] + (i / TILE + tap / 3) * w->dilation[1];
                const int64_t x = tile->x - w->before[2] + (i % TILE + tap % 3) * w->dilation[2];
                const int inside = y >= 0 && y < w->dims[1] && x >= 0 && x < w->dims[2];
                sum += weight[c * 9 + tap] * (inside ? plane[(y * w->dims[2] + x) * all + c] : 0);
            }
        to[i * VL] = sum;
    }
}

/* Places of a tile, `apart` from each other, of which so many elements are left. */
static int64_t NAME(places)(int64_t left, int64_t apart)
{
    const int64_t places = (left + apart - 1) / apart;
    return places < 0 ? 0 : places < TILE ? places : TILE;
}

/* Transforms the products of some tiles, and stores results with the epilogue. */
static void NAME(tiles_out)(void *context, int64_t task)
{
    const NAME(tiling) *f = context;
    const rlx_window *w = f->w;
    const rlx_range tiles = NAME(own_items)(f, task, f->count);
    const T *bias = f->in->bias, *residual = f->in->residual;
    const T scale = (T)1 / RLX_ELEMENT_SCALE / RLX_FILTER_SCALE;
    for (int64_t t = tiles.first; t < tiles.last; t++) {
        const NAME(tile) tile = NAME(tile_place)(f, f->first + t);
        for (int64_t j = f->columns.first; j < f->columns.last; j += VL) {
            const int64_t left = f->columns.last - j, lanes = left < VL ? left : VL, o = f->g * f->outputs + j;
            const VEC start = bias ? NAME(load_lanes)(bias + o, lanes) : (VEC){0};
            VEC v[POINTS], rows[TILE * REACH], results[TILE * TILE];
            VEC wrong = (T)!f->p->packing - (VEC){0}; /* without transformed weights the definition is all there is */
            if (f->p->packing) {
                const T *products = f->products + t * f->to_row + j;
                for (int64_t i = 0; i < POINTS; i++) v[i] = *(const VEC *)(products + i * f->to_point);
                for (int64_t i = 0; i < REACH; i++) {
                    VEC made[TILE];
                    NAME(from_points)(made, v + i, REACH);
                    for (int64_t y = 0; y < TILE; y++) rows[y * REACH + i] = made[y];
                }
                for (int64_t y = 0; y < TILE; y++) NAME(from_points)(results + y * TILE, rows + y * REACH, 1);
                for (int64_t i = 0; i < TILE * TILE; i++)
                    results[i] = results[i] * scale + start, wrong += results[i] * 0;
            }
            for (int64_t l = 0; RLX_UNLIKELY(v_sum((vf)wrong) != 0) && l < lanes; l++)
                if (wrong[l] != 0) NAME(tile_plainly)(f, &tile, o + l, start[l], (T *)results + l);
            const int64_t tall = NAME(places)(w->out[1] - tile.y, w->dilation[1]), wide = NAME(places)(w->out[2] - tile.x, w->dilation[2]);
            const int64_t apart = f->p->apart ? f->p->apart : w->outputs;
            const int64_t index = ((tile.image * w->out[1] + tile.y) * w->out[2] + tile.x) * apart + o;
            const int64_t down = w->dilation[1] * w->out[2] * apart, along = w->dilation[2] * apart;
            for (int64_t y = 0; residual && y < tall; y++)
                for (int64_t x = 0; x < wide; x++)
                    results[y * TILE + x] += NAME(load_lanes)(residual + index + y * down + x * along, lanes);
            NAME(activate)((T *)results, TILE * TILE * VL, f->p->act);
            for (int64_t y = 0; y < tall; y++)
                for (int64_t x = 0; x < wide; x++)
                    NAME(store_lanes)(f->y + index + y * down + x * along, results[y * TILE + x], lanes);
        }
    }
}

/* Threads share blocks of tiles, or as a team the work of each block. A block is the same for any number of threads. */
static int NAME(kernel_winograd_last)(const rlx_call *call)
{
    RLX_ARGUMENTS(winograd_last, call);
    const rlx_window *w = &p->window;
    const int64_t wide = TILE * w->dilation[2], tall = TILE * w->dilation[1], whole = RLX_VECTOR_ELEMENTS;
    NAME(tiling) f = {
        .w = w, .p = p, .in = in, .y = (T *)out->y + p->begin,
        .channels = w->channels / w->groups, .outputs = w->outputs / w->groups,
        .across = (w->out[2] + wide - 1) / wide * w->dilation[2], .down = (w->out[1] + tall - 1) / tall * w->dilation[1],
        .elements = out->elements, .products = out->products, .tasks = rlx_tasks(call),
    };
    const int64_t tiles = w->batch * f.down * f.across, blocks = (tiles + p->block - 1) / p->block;
    f.from_row = (f.channels + whole - 1) / whole * whole, f.from_point = p->block * f.from_row + whole;
    f.to_row = (f.outputs + whole - 1) / whole * whole, f.to_point = p->block * f.to_row + whole;
    rlx_block own = {{0, w->groups}, {0, blocks}, {0, f.outputs}};
    if (!call->team) own = rlx_share_tiles(call, w->groups, blocks, f.outputs, 1, MICRO_COLUMNS);
    f.columns = own.columns;
    int64_t phase = 0;
    for (f.g = own.pieces.first; f.g < own.pieces.last; f.g++)
        for (int64_t index = own.rows.first; index < own.rows.last; index++) {
            f.first = index * p->block, f.count = tiles - f.first < p->block ? tiles - f.first : p->block;
            if (p->packing) rlx_phase(call, phase++, NAME(tiles_in), &f);
            if (p->packing) rlx_phase(call, phase++, NAME(tile_products), &f);
            rlx_phase(call, phase++, NAME(tiles_out), &f);
        }
    return RLX_OK;
}

/* Three taps of a filter at the six points, each `apart`. */
static RLX_INLINE void NAME(filter_points)(double *v, int64_t apart, double d0, double d1, double d2)
{
    const double even = (d0 + 0.5 * d2) / 1.5, odd = 0.70710678118654752440 / 1.5 * d1;
    const double more_even = (d0 + 2 * d2) / 6, more_odd = 1.41421356237309504880 / 6 * d1;
    v[0] = d0, v[apart] = -even - odd, v[2 * apart] = odd - even;
    v[3 * apart] = more_even + more_odd, v[4 * apart] = more_even - more_odd, v[5 * apart] = d2;
}

/* Filters at the 36 points, by the algorithm of Toom and Cook: `count` of each group, side by side. They are computed in
   float64 and rounded once. */
static int NAME(kernel_winograd_filters)(const rlx_call *call)
{
    RLX_ARGUMENTS(winograd_filters, call);
    const T *taps = in->taps;
    T *points = out->points;
    for (int64_t g = 0, count = p->count; g < p->groups; g++, taps += 9 * count, points += POINTS * count)
        for (int64_t i = 0; i < count; i += VL) {
            const int64_t some = count - i < VL ? count - i : VL;
            double rows[3 * REACH][VL] = {{0}}, columns[REACH][VL];
            for (int64_t y = 0; y < 3; y++)
                for (int64_t l = 0; l < some; l++) {
                    const T *tap = taps + 3 * y * count + i + l;
                    NAME(filter_points)(&rows[y * REACH][l], VL, tap[0], tap[count], tap[2 * count]);
                }
            for (int64_t x = 0; x < REACH; x++) {
                for (int64_t l = 0; l < VL; l++)
                    NAME(filter_points)(columns[0] + l, VL, rows[x][l], rows[REACH + x][l], rows[2 * REACH + x][l]);
                for (int64_t y = 0; y < REACH; y++)
                    for (int64_t l = 0; l < some; l++)
                        points[(y * REACH + x) * count + i + l] = (T)(RLX_FILTER_SCALE * columns[y][l]);
            }
        }
    return RLX_OK;
}

#undef ROOT_HALF
#undef ROOT_TWO
