/* Convolutions in groups of one, two or four channels and as many outputs, per type, of an operand whose channels lie next to
   each other. The lanes of a vector are outputs. Weights are rows: one for each tap and channel of a group. */

/* What the windows of a call have in common. */
typedef struct {
    const rlx_window *w;
    const T *x, *weight, *bias, *residual;
    const T *zeros; /* a line that taps on padding read; NULL where they are left out, since they add nothing */
    T *y;
    int64_t step;   /* from the weights of one tap to those of the next */
    int64_t act, taps, each; /* each: channels of a group */
} NAME(depthwise_last);

/* Taps of windows: where their elements are, and how far their weights are behind the first. */
typedef struct {
    int64_t count, *rows;
    const T **from;
} NAME(tap_list);

/* Results of ROWS windows next to each other for VECTORS vectors of channels from `c` on; 0 VECTORS are one of which some
   lanes are channels. The elements of a tap begin at from[i] + c + `at`, and those of the next window are `apart` behind.
   `index` is that of the first result. */
#define DEPTHWISE(ROWS, VECTORS)                                                                   \
    static void NAME(depthwise_##ROWS##_##VECTORS)(const NAME(depthwise_last) *f, const NAME(tap_list) *taps, int64_t at, \
                                                   int64_t apart, int64_t c, int64_t index, int64_t lanes) \
    {                                                                                              \
        enum { ALL = VECTORS ? VECTORS : 1 };                                                      \
        VEC acc[ROWS][ALL];                                                                        \
        const T *weight = f->weight + c, *bias = f->bias ? f->bias + c : NULL;                     \
        const T *residual = f->residual ? f->residual + index + c : NULL;                          \
        const VEC least = (f->act == RLX_ACT_RELU ? (T)0 : -(T)INFINITY) - (VEC){0};               \
        T *to = f->y + index + c;                                                                  \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < ALL; v++) acc[r][v] = bias ? LOAD_##VECTORS(bias, v) : (VEC){0}; \
        for (int64_t i = 0; i < taps->count; i++) {                                                \
            const T *from = taps->from[i] + c + at, *row = weight + taps->rows[i];                 \
            VEC by[ALL];                                                                           \
            _Pragma("GCC unroll 4") for (int v = 0; v < ALL; v++) by[v] = LOAD_##VECTORS(row, v);  \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++, from += apart)                  \
                _Pragma("GCC unroll 4") for (int v = 0; v < ALL; v++) acc[r][v] += by[v] * LOAD_##VECTORS(from, v); \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++, to += f->w->channels)               \
            _Pragma("GCC unroll 4") for (int v = 0; v < ALL; v++)                                  \
            {                                                                                      \
                if (residual) acc[r][v] += LOAD_##VECTORS(residual + r * f->w->channels, v);       \
                acc[r][v] = NAME(at_least)(acc[r][v], least);                                      \
                if (VECTORS) *(VEC *)(to + v * VL) = acc[r][v];                                    \
                else NAME(store_lanes)(to, acc[r][v], lanes);                                      \
            }                                                                                      \
    }
#define LOAD_0(from, v) NAME(load_lanes)(from, lanes)
#define LOAD_1(from, v) (*(const VEC *)((from) + (v) * VL))
#define LOAD_2 LOAD_1
#define LOAD_4 LOAD_1
DEPTHWISE(1, 0) DEPTHWISE(4, 0) DEPTHWISE(1, 1) DEPTHWISE(4, 1) DEPTHWISE(1, 2) DEPTHWISE(4, 2)
#if MICRO_VECTORS == 4
DEPTHWISE(1, 4) DEPTHWISE(2, 4) DEPTHWISE(4, 4) DEPTHWISE(8, 2)
#endif
#undef DEPTHWISE
#undef LOAD_0
#undef LOAD_1
#undef LOAD_2
#undef LOAD_4

/* Channel c of each lane's group of `each`. */
#if defined(SINGLE) && defined(PERMUTES)
#define OF_GROUP(x, c) (VEC)v_permute((vf)(x), places[c])
#else
static RLX_INLINE VEC NAME(of_group)(VEC x, int64_t each, int64_t c)
{
    VEC y;
    for (int64_t l = 0; l < VL; l++) y[l] = x[l - l % each + c];
    return y;
}
#define OF_GROUP(x, c) NAME(of_group)(x, each, c)
#endif

/* As DEPTHWISE for groups of several channels, and one vector of them. */
#define GROUPED(ROWS)                                                                              \
    static void NAME(grouped_##ROWS)(const NAME(depthwise_last) *f, const NAME(tap_list) *taps, int64_t at, int64_t apart, \
                                     int64_t c, int64_t index, int64_t lanes)                      \
    {                                                                                              \
        VEC acc[ROWS];                                                                             \
        const int64_t each = f->each;                                                              \
        const T *residual = f->residual ? f->residual + index + c : NULL;                          \
        const VEC least = (f->act == RLX_ACT_RELU ? (T)0 : -(T)INFINITY) - (VEC){0};               \
        vi places[4] = {{0}};                                                                      \
        for (int64_t k = 0; k < each; k++)                                                         \
            for (int64_t l = 0; l < FLOATS; l++) places[k][l] = (int32_t)(l - l % each + k);       \
        (void)places;                                                                              \
        for (int64_t r = 0; r < ROWS; r++) acc[r] = f->bias ? NAME(load_lanes)(f->bias + c, lanes) : (VEC){0}; \
        for (int64_t i = 0; i < taps->count; i++) {                                                \
            const T *from = taps->from[i] + c + at, *row = f->weight + c + taps->rows[i];          \
            VEC x[ROWS];                                                                           \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) x[r] = NAME(load_lanes)(from + r * apart, lanes); \
            for (int64_t k = 0; k < each; k++, row += f->step) {                                   \
                const VEC by = NAME(load_lanes)(row, lanes);                                       \
                _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) acc[r] += by * OF_GROUP(x[r], k); \
            }                                                                                      \
        }                                                                                          \
        T *to = f->y + index + c;                                                                  \
        for (int64_t r = 0; r < ROWS; r++, to += f->w->channels) {                                 \
            if (residual) acc[r] += NAME(load_lanes)(residual + r * f->w->channels, lanes);        \
            NAME(store_lanes)(to, NAME(at_least)(acc[r], least), lanes);                           \
        }                                                                                          \
    }
GROUPED(1) GROUPED(4) GROUPED(8)
#undef GROUPED
#undef OF_GROUP

/* Some channels of windows [q, end) of a line, whose first result is at `line`. The tiles are as large as the registers have
   room for. */
static void NAME(depthwise_windows)(const NAME(depthwise_last) *f, const NAME(tap_list) *taps, int64_t q, int64_t end,
                                    rlx_range channels, int64_t line)
{
    const int64_t apart = f->w->stride[2] * f->w->channels;
    for (int64_t c = channels.first, some; c < channels.last; c += some) {
        const int64_t left = channels.last - c;
        some = left >= MICRO_COLUMNS ? MICRO_COLUMNS : left >= 2 * VL ? 2 * VL : left >= VL ? VL : left;
        if (f->each > 1 && some > VL) some = VL;
        for (int64_t x = q, count; x < end; x += count) {
            count = end - x >= 4 ? 4 : 1;
#define MADE(ROWS, VECTORS, AT) \
    NAME(depthwise_##ROWS##_##VECTORS)(f, taps, x * apart, apart, c + (AT), line + x * f->w->channels, some)
            if (f->each > 1) {
                const int64_t at = line + x * f->w->channels;
                count = end - x >= 8 ? 8 : count;
                if (count == 8) NAME(grouped_8)(f, taps, x * apart, apart, c, at, some);
                else if (count == 4) NAME(grouped_4)(f, taps, x * apart, apart, c, at, some);
                else NAME(grouped_1)(f, taps, x * apart, apart, c, at, some);
                continue;
            }
#if MICRO_VECTORS == 4
            if (some >= 2 * VL && end - x >= 8) {
                for (int64_t v = 0; v < some; v += 2 * VL) MADE(8, 2, v);
                count = 8;
                continue;
            }
            if (some == 4 * VL) {
                count = end - x >= 4 ? 4 : end - x >= 2 ? 2 : 1;
                if (count == 4) MADE(4, 4, 0);
                else if (count == 2) MADE(2, 4, 0);
                else MADE(1, 4, 0);
                continue;
            }
#endif
            if (some == 2 * VL && count == 4) MADE(4, 2, 0);
            else if (some == 2 * VL) MADE(1, 2, 0);
            else if (some == VL && count == 4) MADE(4, 1, 0);
            else if (some == VL) MADE(1, 1, 0);
            else if (count == 4) MADE(4, 0, 0);
            else MADE(1, 0, 0);
#undef MADE
        }
    }
}

/* The taps of a line of results, or of one window of it: x is -1 or that window. */
static NAME(tap_list) NAME(taps_of)(const NAME(depthwise_last) *f, int64_t line, int64_t x, const T **from, int64_t *rows)
{
    const rlx_window *w = f->w;
    const int64_t all = w->channels, row = w->dims[2] * all, first = x < 0 ? 0 : x * w->stride[2];
    const int64_t y = line % w->out[1], z = line / w->out[1] % w->out[0], image = line / w->out[1] / w->out[0];
    NAME(tap_list) list = {0, rows, from};
    int64_t weight = 0;
    for (int64_t k = 0; k < w->kernel[0]; k++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
        const int64_t at_z = z * w->stride[0] - w->before[0] + k * w->dilation[0];
        const int64_t at_y = y * w->stride[1] - w->before[1] + j * w->dilation[1];
        const int inside = at_z >= 0 && at_z < w->dims[0] && at_y >= 0 && at_y < w->dims[1];
        const T *begin = f->x + ((image * w->dims[0] + at_z) * w->dims[1] + at_y) * row;
        for (int64_t i = 0; i < w->kernel[2]; i++, weight += f->each * f->step) {
            const int64_t at = i * w->dilation[2] - w->before[2], met = first + at;
            const int read = inside && (x < 0 || (met >= 0 && met < w->dims[2]));
            if (!read && !f->zeros) continue;
            /* What is added to a place in the line of x is that of a window, or nothing for a single window on padding. */
            from[list.count] = read ? begin + at * all : f->zeros + (x < 0 ? at : -first) * all;
            rows[list.count++] = weight;
        }
    }
    return list;
}

/* Some channels of the windows of a line of results. `room` is for two lists of taps. */
static void NAME(depthwise_line)(const NAME(depthwise_last) *f, int64_t line, rlx_range channels, int64_t *room)
{
    const rlx_window *w = f->w;
    const int64_t step = w->stride[2], index = line * w->out[2] * w->channels;
    /* Windows [first, last) have no tap on padding in their line. */
    const int64_t inside = w->dims[2] + w->before[2] - (w->kernel[2] - 1) * w->dilation[2];
    int64_t first = (w->before[2] + step - 1) / step, last = inside > 0 ? (inside + step - 1) / step : 0;
    first = first < w->out[2] ? first : w->out[2], last = last < first ? first : last < w->out[2] ? last : w->out[2];
    for (int64_t q = 0; q < w->out[2]; q++) {
        if (q == first) q = last;
        if (q == w->out[2]) break;
        const NAME(tap_list) edge = NAME(taps_of)(f, line, q, (const T **)room, room + f->taps);
        NAME(depthwise_windows)(f, &edge, q, q + 1, channels, index);
    }
    const NAME(tap_list) taps = NAME(taps_of)(f, line, -1, (const T **)room, room + f->taps);
    NAME(depthwise_windows)(f, &taps, first, last, channels, index);
    if (f->act == RLX_ACT_NONE || f->act == RLX_ACT_RELU) return;
    const int64_t width = channels.last - channels.first;
    const int whole = width == w->channels; /* a line is one stretch then */
    for (int64_t q = 0; q < (whole ? 1 : w->out[2]); q++)
        NAME(activate)(f->y + index + q * w->channels + channels.first, whole ? w->out[2] * width : width, f->act);
}

/* Threads share lines of results, or channels. */
static int NAME(kernel_depthwise_last)(const rlx_call *call)
{
    RLX_ARGUMENTS(depthwise_last, call);
    const rlx_window *w = &p->window;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], lines = w->batch * w->out[0] * w->out[1];
    NAME(depthwise_last) f = {w, in->x, in->weight, in->bias, in->residual, out->zeros, out->y, w->channels, p->act, taps, w->channels / w->groups};
    if (p->packing) {
        f.step = NAME(panel_columns)(w->channels);
        if (*(const int64_t *)(f.weight + taps * f.each * f.step)) f.zeros = NULL;
    } else {
        T *weights = out->weights;
        for (int64_t o = 0; o < w->channels; o++)
            for (int64_t k = 0; k < f.each * taps; k++)
                weights[(k % taps * f.each + k / taps) * f.step + o] = f.weight[o * f.each * taps + k];
        f.weight = weights;
    }
    if (f.zeros) memset(out->zeros, 0, (size_t)(w->dims[2] * w->channels) * sizeof(T));
    const rlx_block own = rlx_share_tiles(call, 1, lines, w->channels, 1, MICRO_COLUMNS);
    for (int64_t line = own.rows.first; line < own.rows.last && own.pieces.last; line++)
        NAME(depthwise_line)(&f, line, own.columns, out->taps);
    return RLX_OK;
}
