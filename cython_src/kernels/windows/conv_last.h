/* Convolutions of an operand whose channels lie next to each other, per type: [batch, places, channels] to [batch, places,
   outputs]. A window is some runs of neighbouring elements. A table has the address of each run of each window; runs on
   padding are zeros. The lanes of a vector are outputs. */

/* Some runs of some windows, and the rows of a panel of weights that they meet. */
typedef struct {
    int64_t count, apart;  /* runs, and windows of the table: how far the addresses of two runs are apart */
    int64_t at, depth;     /* the first element of a run that is met, and how many are */
    int64_t step, next;    /* from one row of the panel to the next, and from those of a run to those of the next */
    int64_t ahead;         /* how far ahead of a row the panel is fetched */
    const T *skipped;      /* the address of runs that add nothing; NULL where they might add NaN */
} NAME(window_runs);

/* What sums begin with, and where they go. */
typedef struct {
    const T *from;         /* what sums begin with, which of the next window is `from_apart` behind */
    const T *residual;     /* is added; as far apart as the results; NULL for none */
    T *to;
    int64_t from_apart, to_apart, lanes; /* from one window to the next, and lanes of the last vector that are stored */
    int64_t relu;
} NAME(window_sums);

/* NaN stays NaN. */
static RLX_INLINE VEC NAME(at_least)(VEC x, VEC least)
{
#ifdef SINGLE
    return (VEC)v_max((vf)least, (vf)x);
#else
    for (int64_t l = 0; l < VL; l++) x[l] = x[l] < least[l] ? least[l] : x[l];
    return x;
#endif
}

/* Windows whose addresses are kept in registers. Those of others are read in each step: the compiler would keep them in
   vector registers, and to fetch one from there takes a turn of a unit that multiplies and adds. */
#define IN_REGISTERS 7
/* Whether rows of a panel are fetched ahead. Beside narrow vectors that takes turns of the units that load. */
#define FETCH_AHEAD (MICRO_VECTORS == 4)

/* Multiplies ROWS windows by the rows of a panel. */
#define WINDOWS(ROWS, VECTORS)                                                                     \
    static void NAME(windows_##ROWS##_##VECTORS)(const T *const *table, const NAME(window_runs) *runs, \
                                                 const T *b, const NAME(window_sums) *sums)        \
    {                                                                                              \
        VEC acc[ROWS][VECTORS];                                                                    \
        const int64_t depth = runs->depth, step = runs->step, ahead = runs->ahead;                 \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                                    \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                acc[r][v] = *(const VEC *)(sums->from + r * sums->from_apart + v * VL);            \
        for (int64_t run = 0; run < runs->count; run++, table += runs->apart, b += runs->next) {   \
            const T *window[ROWS], *begin[ROWS], *row = b;                                         \
            int any = 0;                                                                           \
            _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                                \
                any |= table[r] != runs->skipped, window[r] = begin[r] = table[r] + runs->at;      \
            if (!any) continue;                                                                    \
            for (int64_t i = 0; i < depth; i++, row += step) {                                     \
                const T *later = row + ahead;                                                      \
                VEC right[VECTORS];                                                                \
                RLX_ONE_REGISTER(later);                                                           \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                          \
                {                                                                                  \
                    right[v] = *(const VEC *)(row + v * VL);                                       \
                    if (FETCH_AHEAD && v * VECTOR_BYTES % 64 == 0) RLX_PREFETCH(later + v * VL);   \
                }                                                                                  \
                _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                            \
                {                                                                                  \
                    const T x = (r < IN_REGISTERS ? window[r] : *(const T *const volatile *)(begin + r))[i]; \
                    _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) acc[r][v] += x * right[v]; \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        T *to = sums->to;                                                                          \
        const T *residual = sums->residual;                                                        \
        const VEC least = (sums->relu ? (T)0 : -(T)INFINITY) - (VEC){0};                           \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++, to += sums->to_apart)                 \
        {                                                                                          \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                const int64_t lanes = v < VECTORS - 1 ? VL : sums->lanes;                          \
                if (residual) acc[r][v] += NAME(load_lanes)(residual + r * sums->to_apart + v * VL, lanes); \
                NAME(store_lanes)(to + v * VL, NAME(at_least)(acc[r][v], least), lanes);           \
            }                                                                                      \
        }                                                                                          \
    }

#define ALL_WINDOWS(VECTORS) WINDOWS(1, VECTORS) WINDOWS(2, VECTORS) WINDOWS(4, VECTORS) WINDOWS(6, VECTORS)
ALL_WINDOWS(1) ALL_WINDOWS(2)
#if MICRO_VECTORS == 4
ALL_WINDOWS(3) ALL_WINDOWS(4)
/* Narrow panels leave registers free for more windows, which share the loads of a row. */
WINDOWS(12, 1) WINDOWS(12, 2) WINDOWS(8, 3)
#endif
#undef ALL_WINDOWS
#undef WINDOWS
#undef IN_REGISTERS
#undef FETCH_AHEAD

/* Any number of windows times rows of a panel of some vectors. */
static void NAME(windows_by_panel)(const T *const *table, int64_t windows, int64_t vectors, const NAME(window_runs) *runs,
                                   const T *b, NAME(window_sums) sums)
{
    typedef void (*micro)(const T *const *, const NAME(window_runs) *, const T *, const NAME(window_sums) *);
    static const struct {
        int64_t most;
        micro made[5];
    } kernels[] = {
#if MICRO_VECTORS == 4
        {12, {NAME(windows_1_1), NAME(windows_2_1), NAME(windows_4_1), NAME(windows_6_1), NAME(windows_12_1)}},
        {12, {NAME(windows_1_2), NAME(windows_2_2), NAME(windows_4_2), NAME(windows_6_2), NAME(windows_12_2)}},
        {8, {NAME(windows_1_3), NAME(windows_2_3), NAME(windows_4_3), NAME(windows_6_3), NAME(windows_8_3)}},
        {6, {NAME(windows_1_4), NAME(windows_2_4), NAME(windows_4_4), NAME(windows_6_4), NAME(windows_6_4)}},
#else
        {6, {NAME(windows_1_1), NAME(windows_2_1), NAME(windows_4_1), NAME(windows_6_1), NAME(windows_6_1)}},
        {6, {NAME(windows_1_2), NAME(windows_2_2), NAME(windows_4_2), NAME(windows_6_2), NAME(windows_6_2)}},
#endif
    };
    const int64_t most = kernels[vectors - 1].most;
    for (int64_t some; windows; windows -= some, table += some) {
        /* 8 windows as 4 and 4 are faster than as 6 and 2. */
        some = windows >= most ? most : windows >= 6 && windows != 8 ? 6 : windows >= 4 ? 4 : windows >= 2 ? 2 : 1;
        kernels[vectors - 1].made[some == most ? 4 : some / 2](table, runs, b, &sums);
        sums.from += some * sums.from_apart, sums.to += some * sums.to_apart;
        if (sums.residual) sums.residual += some * sums.to_apart;
    }
}

/* A convolution: what its parts have in common. */
typedef struct {
    const rlx_window *w;
    int64_t channels, outputs, taps; /* of a group, and of a filter */
    int64_t joined;            /* taps of a row whose elements make one run */
    int64_t runs, depth;       /* of a window, and elements of a run */
    const T *x, *zeros, *skipped; /* skipped: zeros, where runs of zeros add nothing, else NULL */
} NAME(last_conv);

/* A run of which a part is on padding: a copy of the elements of a line from place `x` on, with zeros outside of it. */
static RLX_NOINLINE void NAME(copy_run)(const NAME(last_conv) *f, const T *line, int64_t x, T *to)
{
    for (int64_t i = 0; i < f->joined; i++, x++)
        for (int64_t c = 0; c < f->channels; c++) *to++ = x >= 0 && x < f->w->dims[2] ? line[x * f->w->channels + c] : 0;
}

/* The places [first, last) of a line of windows at which a run that begins at tap i begins inside of the operand. */
static RLX_INLINE rlx_range NAME(begins_inside)(const rlx_window *w, int64_t i)
{
    const int64_t step = w->stride[2], begin = w->before[2] - i * w->dilation[2], end = begin + w->dims[2];
    rlx_range inside = {begin > 0 ? begin : 0, end > 0 ? end : 0};
    if (step > 1) inside.first = (inside.first + step - 1) / step, inside.last = (inside.last + step - 1) / step;
    return inside;
}

/* The addresses of one run of `count` windows of a line, from place x on. `line` is what the run meets, NULL for padding.
   Returns where the next copy of a run goes. */
static T *NAME(run_addresses)(const NAME(last_conv) *f, const T *line, int64_t i, int64_t x, int64_t count, const T **entry, T *edges)
{
    const rlx_window *w = f->w;
    const rlx_range inside = NAME(begins_inside)(w, i);
    const int64_t step = w->stride[2] * w->channels, at = x * w->stride[2] - w->before[2] + i * w->dilation[2];
    int64_t first = inside.first - x, last = line ? inside.last - x : 0;
    first = first < 0 ? 0 : first > count ? count : first;
    last = last < first ? first : last > count ? count : last;
    for (int64_t q = 0; q < first; q++) entry[q] = f->zeros;
    const T *from = line + (line ? at * w->channels : 0);
    for (int64_t q = first; q < last; q++) entry[q] = from + q * step;
    for (int64_t q = last; q < count; q++) entry[q] = f->zeros;
    if (f->joined == 1 || !line) return edges;
    for (int64_t q = 0; q < count; q++) {
        const int64_t begin = at + q * w->stride[2];
        if (begin >= 0 && begin + f->joined <= w->dims[2]) continue;
        NAME(copy_run)(f, line, begin, edges);
        entry[q] = edges, edges += f->depth;
    }
    return edges;
}

/* The addresses of the runs of windows [first, first + count); those of each run are together. `edges` has room for runs that
   are copied. */
static void NAME(fill_table)(const NAME(last_conv) *f, const T **table, T *edges, int64_t first, int64_t count)
{
    const rlx_window *w = f->w;
    const int64_t row = w->dims[2] * w->channels, slice = w->dims[1] * row;
    for (int64_t q = 0, some; q < count; q += some) {
        const int64_t x = (first + q) % w->out[2], line = (first + q) / w->out[2];
        some = w->out[2] - x < count - q ? w->out[2] - x : count - q;
        const int64_t y = line % w->out[1], plane = line / w->out[1], z = plane % w->out[0], image = plane / w->out[0];
        const T **entry = table + q;
        for (int64_t k = 0; k < w->kernel[0]; k++)
        for (int64_t j = 0; j < w->kernel[1]; j++) {
            const int64_t at_z = z * w->stride[0] - w->before[0] + k * w->dilation[0];
            const int64_t at_y = y * w->stride[1] - w->before[1] + j * w->dilation[1];
            const int inside = at_z >= 0 && at_z < w->dims[0] && at_y >= 0 && at_y < w->dims[1];
            const T *begin = inside ? f->x + image * w->dims[0] * slice + at_z * slice + at_y * row : NULL;
            for (int64_t i = 0; i < w->kernel[2]; i += f->joined, entry += count)
                edges = NAME(run_addresses)(f, begin, i, x, some, entry, edges);
        }
    }
}

/* The rows of a panel that some runs meet, of weights that are not packed: columns [j, j + width), `step` apart. */
static RLX_NOINLINE void NAME(pack_taps)(const NAME(last_conv) *f, const T *weights, const NAME(window_runs) *runs, int64_t run,
                                         int64_t at, int64_t j, int64_t width, T *to)
{
    for (int64_t r = run; r < run + runs->count; r++)
        for (int64_t i = at; i < at + runs->depth; i++, to += runs->step)
            for (int64_t v = 0; v < runs->step; v++) {
                const int64_t tap = r * f->joined + i / f->channels, index = i % f->channels * f->taps + tap;
                to[v] = v < width ? weights[(j + v) * f->channels * f->taps + index] : 0;
            }
}

/* Some windows, whose addresses are in the table, times columns [j, j + width) of the weights of a group. Rows of a panel
   that stay in the cache are met by all windows before the next ones. */
static void NAME(last_panel)(const NAME(last_conv) *f, const rlx_conv_last *p, const T *weights, const T *const *table,
                             int64_t count, int64_t g, int64_t j, int64_t width, NAME(window_sums) results, T *panel)
{
    const int64_t vectors = (width + VL - 1) / VL, left = f->outputs - j;
    const int64_t whole = left < MICRO_COLUMNS ? NAME(panel_columns)(left) : MICRO_COLUMNS;
    const int64_t deep = f->depth < MICRO_DEPTH ? f->depth : MICRO_DEPTH, together = deep ? MICRO_DEPTH / deep : f->runs;
    NAME(window_runs) runs = {.apart = count, .skipped = f->skipped};
    runs.step = p->packing ? whole : vectors * VL, runs.ahead = MICRO_AHEAD * runs.step;
    int64_t from_apart = 0;
    const T *from = results.from;
    T *sums = panel + RLX_PANEL;
    results.lanes = width - (vectors - 1) * VL;
    for (int64_t run = 0; run < f->runs; run += together)
        for (int64_t at = 0; at == 0 || at < f->depth; at += MICRO_DEPTH) {
            runs.count = f->runs - run < together ? f->runs - run : together, runs.at = g * f->channels + at;
            runs.depth = f->depth - at < MICRO_DEPTH ? f->depth - at : MICRO_DEPTH;
            runs.next = p->packing ? p->packed_stride / (int64_t)sizeof(T) : runs.depth * runs.step;
            const T *b = panel;
            if (p->packing)
                b = weights + j * f->depth + run * runs.next + at * runs.step;
            else
                NAME(pack_taps)(f, weights, &runs, run, at, j, width, panel);
            NAME(window_sums) to = {.to = sums, .to_apart = MICRO_COLUMNS, .lanes = VL};
            if (run + together >= f->runs && at + MICRO_DEPTH >= f->depth) to = results;
            to.from = from, to.from_apart = from_apart;
            NAME(windows_by_panel)(table + run * count, count, vectors, &runs, b, to);
            from = sums, from_apart = MICRO_COLUMNS;
        }
}

/* Activates the results of a block of windows, which begin at y and are `apart`: all outputs, or some of each group. */
static void NAME(activate_block)(const rlx_block *own, int64_t outputs, int64_t apart, T *y, int64_t count, int64_t act)
{
    const int64_t first = own->columns.first, width = own->columns.last - first;
    if ((own->pieces.last - own->pieces.first) * width == apart) {
        NAME(activate)(y, count * apart, act);
        return;
    }
    for (int64_t r = 0; r < count; r++, y += apart)
        for (int64_t g = own->pieces.first; g < own->pieces.last; g++) NAME(activate)(y + g * outputs + first, width, act);
}

/* Threads share windows, or columns of the weights. Results may be columns of a wider matrix. */
static int NAME(kernel_conv_last)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_last, call);
    const rlx_window *w = &p->window;
    NAME(last_conv) f = {w, w->channels / w->groups, w->outputs / w->groups, .joined = p->joined, .x = in->x, .zeros = out->runs};
    f.taps = w->kernel[0] * w->kernel[1] * w->kernel[2], f.runs = f.taps / p->joined, f.depth = f.channels * p->joined;
    const int64_t group = p->packing ? f.runs * p->packed_stride / (int64_t)sizeof(T) : f.taps * f.channels * f.outputs;
    const int64_t windows = w->batch * w->out[0] * w->out[1] * w->out[2];
    const int64_t apart = p->apart ? p->apart : w->outputs;
    const T *bias = in->bias, *residual = in->residual, **table = (const T **)out->table;
    memset(out->runs, 0, (size_t)(w->channels * p->joined + 1) * sizeof(T));
    if (p->packing && *(const int64_t *)((const char *)in->weight + w->groups * f.runs * p->packed_stride)) f.skipped = f.zeros;
    const rlx_block own = rlx_share_tiles(call, w->groups, windows, f.outputs, 12, MICRO_COLUMNS);
    for (int64_t q = own.rows.first, count; q < own.rows.last && own.pieces.last; q += count) {
        count = own.rows.last - q < p->block ? own.rows.last - q : p->block;
        NAME(fill_table)(&f, table, (T *)out->runs + w->channels * p->joined + 1, q, count);
        for (int64_t g = own.pieces.first; g < own.pieces.last; g++)
        for (int64_t j = own.columns.first; j < own.columns.last; j += MICRO_COLUMNS) {
            const int64_t left = own.columns.last - j, width = left < MICRO_COLUMNS ? left : MICRO_COLUMNS;
            const int64_t o = g * f.outputs + j, index = q * apart + o;
            T start[RLX_CONV_COLUMNS] = {0}, *y = (T *)out->y + p->begin + index;
            for (int64_t v = 0; bias && v < width; v++) start[v] = bias[o + v];
            const NAME(window_sums) results = {
                start, residual ? residual + index : NULL, y, 0, apart, 0, p->act == RLX_ACT_RELU,
            };
            NAME(last_panel)(&f, p, (const T *)in->weight + g * group, table, count, g, j, width, results, out->work);
        }
        if (p->act && p->act != RLX_ACT_RELU)
            NAME(activate_block)(&own, f.outputs, apart, (T *)out->y + p->begin + q * apart, count, p->act);
    }
    return RLX_OK;
}
