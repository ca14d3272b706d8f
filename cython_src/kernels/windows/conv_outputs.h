/* Convolutions in which the lanes of a vector are outputs, per type: windows times packed weights. A window is not copied.
   Its element of channel ch and tap i stands at[ch * taps + i] elements behind its first one, and the same distances hold
   for every window. This fits filters of many elements with enough outputs to fill the lanes, and few windows: there,
   packing windows takes longer than storing results that come window by window. */

/* Rows of a panel, and what they are multiplied by: `count` elements of each of some channels. Element i of a channel is
   at[i] behind the first of the channel in a window, and meets the row rows[i] behind the first of the channel. */
typedef struct {
    int64_t channels, count;
    int64_t plane, deep; /* from one channel to the next, in the operand and in the panel */
    int64_t ahead;       /* how far ahead of a row the panel is fetched */
    const int64_t *index, *rows;
} NAME(tap_list);

/* Windows whose addresses are kept in registers. Those of others are read in each step: the compiler would keep them in
   vector registers, and to fetch one from there takes a turn of a unit that multiplies and adds. */
#define IN_REGISTERS 7
/* Whether rows of a panel are fetched ahead. Beside narrow vectors that takes turns of the units that load. */
#define FETCH_AHEAD (MICRO_VECTORS == 4)

/* Multiplies ROWS windows by the rows of a panel that a list names, and adds to c or to `start`. Rows of c are
   MICRO_COLUMNS apart. */
#define WINDOWS(ROWS, VECTORS)                                                                     \
    static void NAME(windows_##ROWS##_##VECTORS)(const T *const *from, const NAME(tap_list) *list, const T *b, \
                                                 T *c, const T *start)                             \
    {                                                                                              \
        VEC acc[ROWS][VECTORS];                                                                    \
        const T *window[ROWS];                                                                     \
        const int64_t *index = list->index, *rows = list->rows, count = list->count, ahead = list->ahead; \
        int64_t plane = 0;                                                                         \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                                     \
        {                                                                                          \
            window[r] = from[r];                                                                   \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                acc[r][v] = *(const VEC *)((start ? start : c + r * MICRO_COLUMNS) + v * VL);      \
        }                                                                                          \
        for (int64_t ch = 0; ch < list->channels; ch++, plane += list->plane, b += list->deep)     \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const T *row = b + rows[i], *next = row + ahead;                                       \
            const int64_t place = plane + index[i];                                                \
            VEC right[VECTORS];                                                                    \
            RLX_ONE_REGISTER(next);                                                                \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                right[v] = *(const VEC *)(row + v * VL);                                           \
                if (FETCH_AHEAD && v * VECTOR_BYTES % 64 == 0) RLX_PREFETCH(next + v * VL);        \
            }                                                                                      \
            _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                                 \
            {                                                                                      \
                const T x = (r < IN_REGISTERS ? window[r] : *(const T *const volatile *)(from + r))[place]; \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) acc[r][v] += x * right[v]; \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                *(VEC *)(c + r * MICRO_COLUMNS + v * VL) = acc[r][v];                              \
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

/* Any number of windows times rows of a panel of `step` columns. */
static void NAME(windows_by_panel)(const T *const *from, int64_t windows, const NAME(tap_list) *list, const T *b,
                                   int64_t step, T *c, const T *start)
{
    typedef void (*micro)(const T *const *, const NAME(tap_list) *, const T *, T *, const T *);
#if MICRO_VECTORS == 4
    static const struct {
        int64_t windows;
        micro made;
    } widest[] = {{12, NAME(windows_12_1)}, {12, NAME(windows_12_2)}, {8, NAME(windows_8_3)}, {6, NAME(windows_6_4)}};
    const int64_t max_windows = widest[step / VL - 1].windows;
    for (; max_windows > 6 && windows >= max_windows; windows -= max_windows, from += max_windows,
         c += max_windows * MICRO_COLUMNS)
        widest[step / VL - 1].made(from, list, b, c, start);
#endif
#define WINDOWS(VECTORS) \
    {NAME(windows_1_##VECTORS), NAME(windows_2_##VECTORS), NAME(windows_4_##VECTORS), NAME(windows_6_##VECTORS)},
    static const micro table[][4] = {
        WINDOWS(1) WINDOWS(2)
#if MICRO_VECTORS == 4
        WINDOWS(3) WINDOWS(4)
#endif
    };
#undef WINDOWS
    while (windows) {
        /* 8 windows as 4 and 4 are faster than as 6 and 2. */
        const int64_t some = windows >= 6 && windows != 8 ? 6 : windows >= 4 ? 4 : windows >= 2 ? 2 : 1;
        table[step / VL - 1][some / 2](from, list, b, c, start);
        windows -= some, from += some, c += some * MICRO_COLUMNS;
    }
}

/* Where windows [first, first + count) of a piece begin. */
static void NAME(window_places)(const NAME(convolution) *f, const NAME(conv_piece) *one, const T **from, int64_t first,
                                int64_t count)
{
    const rlx_window *w = f->w;
    for (int64_t q = first; q < first + count; q++) {
        const int64_t x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const int64_t step = f->l.phase ? 1 : w->stride[2];
        *from++ = one->planes + q / f->windows * one->image + yz / w->out[1] * w->stride[0] * f->l.depth +
                  yz % w->out[1] * w->stride[1] * f->l.row + x * step;
    }
}

/* Products of `windows` windows with `outputs` outputs, from a row for each window to a row for each output. */
static void NAME(turn_products)(T *to, int64_t apart, const T *const *from, int64_t outputs, int64_t windows)
{
    int64_t j = 0;
#ifdef SINGLE
    for (; j + 4 <= outputs; j += 4, to += 4 * apart) {
        int64_t q = 0;
        for (; q + 4 <= windows; q += 4)
            turn_rows_f32(to + q, apart, from[q] + j, from[q + 1] + j, from[q + 2] + j, from[q + 3] + j);
        for (; q < windows; q++)
            for (int64_t r = 0; r < 4; r++) to[r * apart + q] = from[q][j + r];
    }
#endif
    for (; j < outputs; j++, to += apart)
        for (int64_t q = 0; q < windows; q++) to[q] = from[q][j];
}

/* Columns [j, j + width) of the weights of a piece, of one panel of them, and their bias, with zeros behind it. In a
   panel that is packed they stand `aside` of its first column. */
typedef struct {
    int64_t j, width, step, aside;
    T bias[RLX_CONV_COLUMNS];
} NAME(weight_panel);

/* Products of windows [first, first + count) of a piece with a panel of weights, to where they belong in the result, with the
   bias and the epilogue. `products` has a row for each window; rows[i] is that of window first + i. Where no residual is
   added, whole rows are activated before they are turned. */
static void NAME(store_windows)(const NAME(convolution) *f, const NAME(conv_piece) *one,
                                const NAME(weight_panel) *panel, T *products, const T *const *rows, int64_t first,
                                int64_t count)
{
    const int64_t result = f->w->outputs * f->windows; /* from one image of it to the next */
    const int64_t act = one->after.act, j = panel->j, width = panel->width;
    const int early = !one->after.residual;
    for (int64_t v = 0; v < count; v++) {
        T *row = products + v * MICRO_COLUMNS;
        for (int64_t i = 0; one->bias && i < width; i += VL) *(VEC *)(row + i) += *(const VEC *)(panel->bias + i);
        if (early && act && width < MICRO_COLUMNS) NAME(activate)(row, width, act);
    }
    if (early && width == MICRO_COLUMNS) NAME(activate)(products, count * MICRO_COLUMNS, act);
    for (int64_t v = 0, some; v < count; v += some) {
        const int64_t q = (first + v) % f->windows, index = (first + v) / f->windows * result + j * f->windows + q;
        some = count - v < f->windows - q ? count - v : f->windows - q;
        NAME(turn_products)(one->c + index, f->windows, rows + v, width, some);
        for (int64_t r = 0; !early && r < width; r++)
            NAME(finish)(one->c + index + r * f->windows, index + r * f->windows, some, one->after);
    }
}

/* As many columns from j on as one panel has, up to `last`. */
static NAME(weight_panel) NAME(panel_at)(const NAME(convolution) *f, const NAME(conv_piece) *one, int64_t j, int64_t last)
{
    NAME(weight_panel) panel = {.j = j, .aside = j % MICRO_COLUMNS};
    const int64_t whole = f->m - j + panel.aside < MICRO_COLUMNS ? f->m - j + panel.aside : MICRO_COLUMNS;
    panel.width = last - j < whole - panel.aside ? last - j : whole - panel.aside;
    panel.step = NAME(panel_columns)(f->packing ? whole : panel.width);
    for (int64_t v = 0; one->bias && v < panel.width; v++) panel.bias[v] = one->bias[j + v];
    return panel;
}

/* Rows [p, p + depth) of them, `step` apart. */
static const T *NAME(panel_rows)(const NAME(convolution) *f, const NAME(conv_piece) *one,
                                 const NAME(weight_panel) *panel, int64_t p, int64_t depth, T *scratch)
{
    if (f->packing) return one->weight + (panel->j - panel->aside) * f->k + p * panel->step + panel->aside;
    NAME(make_panel)(scratch, one->weight + panel->j * f->k + p, f->k, depth, panel->width, 1);
    return scratch;
}

/* Windows of a piece times columns [columns.first, columns.last) of its weights. RLX_CONV_DEPTH rows of a panel, and what
   some windows meet them with, stay in the first-level cache. */
static void NAME(windows_by_weights)(const NAME(convolution) *f, const NAME(conv_piece) *one, const int64_t *index,
                                     rlx_range windows, rlx_range columns, T *work)
{
    T *products = work, *scratch = work + MICRO_BLOCK * MICRO_COLUMNS;
    const T *from[MICRO_BLOCK], *made[MICRO_BLOCK];
    int64_t rows[RLX_CONV_DEPTH];
    /* Windows that are elements next to each other are columns of the operand. */
    const int columns_of_it = f->taps == 1 && one->images == 1 && f->l.phase == 0 && f->windows == f->l.plane;
    for (int64_t q = 0; q < MICRO_BLOCK; q++) made[q] = products + q * MICRO_COLUMNS;
    for (int64_t j = columns.first; j < columns.last; j += MICRO_COLUMNS) {
        const NAME(weight_panel) panel = NAME(panel_at)(f, one, j, columns.last);
        for (int64_t i = 0; i < RLX_CONV_DEPTH && i < f->k; i++) rows[i] = i * panel.step;
        for (int64_t q = windows.first, some; q < windows.last; q += some) {
            const int64_t left = windows.last - q;
            some = left < MICRO_BLOCK ? left : MICRO_BLOCK;
            NAME(window_places)(f, one, from, q, some);
            int64_t p = 0;
            do {
                const int64_t depth = f->k - p < RLX_CONV_DEPTH ? f->k - p : RLX_CONV_DEPTH;
                const NAME(tap_list) list = {.channels = 1, .count = depth, .ahead = MICRO_AHEAD * panel.step, .index = index + p, .rows = rows};
                const T *b = NAME(panel_rows)(f, one, &panel, p, depth, scratch);
                const T *start = p ? NULL : NAME(micro_zeros);
                if (columns_of_it)
                    NAME(micro_rows)(one->planes + p * f->l.plane + q, 1, f->l.plane, b, panel.step, products,
                                     MICRO_COLUMNS, some, depth, start, panel.step, MICRO_ONE_AS_MANY);
                else
                    NAME(windows_by_panel)(from, some, &list, b, panel.step, products, start);
                p += RLX_CONV_DEPTH;
            } while (p < f->k);
            NAME(store_windows)(f, one, &panel, products, made, q, some);
        }
    }
}

static int NAME(kernel_conv_by_outputs)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_by_outputs, call);
    NAME(convolution) f = CONVOLUTION(0, p->packing, p->packed_stride);
    int64_t *index = out->index;
    NAME(measure)(&f, p->copied, index);
    for (int64_t ch = 1; ch < f.channels; ch++)
        for (int64_t i = 0; i < f.taps; i++) index[ch * f.taps + i] = ch * f.l.plane + index[i];
    const int64_t image = f.w->channels * f.l.plane, group = f.channels * f.l.plane;
    const rlx_block own = rlx_share_tiles(call, f.pieces, f.together * f.windows, f.m, MICRO_ROWS, MICRO_COLUMNS);
    for (int64_t piece = own.pieces.first; piece < own.pieces.last; piece++) {
        NAME(conv_piece) one = NAME(piece_of)(&f, piece, (rlx_range){0, f.m});
        one.planes = f.x + piece / f.w->groups * f.together * image + piece % f.w->groups * group;
        one.image = image, one.end = f.x + f.w->batch * image;
        const int64_t n = one.images * f.windows;
        const rlx_range windows = {own.rows.first, own.rows.last < n ? own.rows.last : n};
        NAME(windows_by_weights)(&f, &one, index, windows, own.columns, out->work);
    }
    return RLX_OK;
}
