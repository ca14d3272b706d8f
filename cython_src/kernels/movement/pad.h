/* Elements of 1, 2, 4 or 8 bytes with borders: of one value, or of elements that are repeated. */

#define PADS(SUFFIX, E)                                                                           \
    /* Pieces are the axes outside of the last two, whose rows follow each other by steps alone. */ \
    static int kernel_pad_##SUFFIX(const rlx_call *call)                                          \
    {                                                                                             \
        RLX_ARGUMENTS(pad, call);                                                                 \
        const int64_t last = p->rank - 1, middle = last - 1, *dims = p->dims;                     \
        const int64_t width = p->inside[last], tall = middle < 0 ? 1 : dims[middle];              \
        const int64_t rows_inside = middle < 0 ? 1 : p->inside[middle], top = middle < 0 ? 0 : p->before[middle]; \
        const E value = *(const E *)in->value;                                                    \
        int64_t rows = 1;                                                                         \
        for (int64_t a = 0; a < last; a++) rows *= dims[a];                                       \
        const rlx_block own = rlx_share_block(call, rows, 1, dims[last], 1, 64);                  \
        /* Columns [first, from) and [to, end) are padding. */                                    \
        const int64_t first = own.columns.first, end = own.columns.last;                          \
        int64_t from = p->before[last], to = from + width;                                        \
        from = from < first ? first : from > end ? end : from;                                    \
        to = to < from ? from : to > end ? end : to;                                              \
        for (int64_t row = own.pieces.first, stop; row < own.pieces.last; row = stop) {           \
            const int64_t index = row % tall;                                                     \
            int64_t rest = row / tall, source = 0, step = rows_inside * width;                    \
            int inside = 1;                                                                       \
            for (int64_t a = middle - 1; a >= 0; a--) {                                           \
                const int64_t c = rest % dims[a] - p->before[a];                                  \
                inside &= c >= 0 && c < p->inside[a];                                             \
                rest /= dims[a], source += c * step, step *= p->inside[a];                        \
            }                                                                                     \
            stop = row - index + tall < own.pieces.last ? row - index + tall : own.pieces.last;   \
            const E *x = (const E *)in->x + source + from - p->before[last];                      \
            for (int64_t r = row; r < stop; r++) {                                                \
                const int64_t c = r - row + index - top;                                          \
                E *y = (E *)out->y + r * dims[last];                                              \
                if (!inside || c < 0 || c >= rows_inside) {                                       \
                    copy_line_##SUFFIX(y + first, &value, end - first, 1, 0);                     \
                    continue;                                                                     \
                }                                                                                 \
                copy_line_##SUFFIX(y + first, &value, from - first, 1, 0);                        \
                copy_bytes((char *)(y + from), (const char *)(x + c * width), (to - from) * (int64_t)sizeof(E)); \
                copy_line_##SUFFIX(y + to, &value, end - to, 1, 0);                               \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
PADS(b1, uint8_t)
PADS(b2, uint16_t)
PADS(b4, uint32_t)
PADS(b8, uint64_t)
#undef PADS

/* Borders that repeat what is inside. A coordinate outside of an axis of n stands for one inside: the nearest one (edge),
   the one on the other side of the first or last one (reflect), or the one a multiple of n away (wrap). */
typedef struct {
    int64_t index, step, run; /* the coordinate, and the step to that of the next one, for `run` coordinates */
} pad_run;

/* The coordinate that `c` stands for, and how far the walk goes on from there. */
static pad_run pad_runs(int64_t c, int64_t n, int64_t mode)
{
    if (c >= 0 && c < n) return (pad_run){c, 1, n - c};
    if (mode == RLX_PAD_EDGE || n == 1) return (pad_run){c < 0 ? 0 : n - 1, 0, c < 0 ? -c : INT64_MAX};
    const int64_t period = mode == RLX_PAD_WRAP ? n : 2 * (n - 1);
    int64_t m = c < 0 ? c + period : c < period ? c : c - period;
    if (RLX_UNLIKELY(m < 0 || m >= period)) m = (c % period + period) % period; /* a border longer than the axis */
    if (mode == RLX_PAD_WRAP) return (pad_run){m, 1, n - m};
    return m < n - 1 ? (pad_run){m, 1, n - 1 - m} : (pad_run){period - m, -1, period - m};
}

/* Where a row has fewer than SHORT_PAD elements, and at most LISTED with its borders, the place that each element comes from
   is listed once for all rows. */
#define SHORT_PAD 16
#define LISTED 64

/* The last padded axis is made of rows of units: what lies side by side in the axes after it. */
#define PADS(SUFFIX, E)                                                                           \
    /* Units [from, to) of a row of n; `places` lists where they come from, or is NULL. */        \
    static RLX_INLINE void pad_units_##SUFFIX(E *y, const E *x, int64_t from, int64_t to, int64_t n, int64_t unit, \
                                              int64_t mode, const int32_t *places)                \
    {                                                                                             \
        if (places) {                                                                             \
            for (int64_t i = 0; i < to - from; i++) {                                             \
                RLX_SCALAR_LOOP;                                                                  \
                y[i] = x[places[i]];                                                              \
            }                                                                                     \
            return;                                                                               \
        }                                                                                         \
        while (from < to) {                                                                       \
            const pad_run some = pad_runs(from, n, mode);                                         \
            const int64_t count = to - from < some.run ? to - from : some.run;                    \
            const E *s = x + some.index * unit;                                                   \
            if (some.step == 1)                                                                   \
                copy_bytes((char *)y, (const char *)s, count * unit * (int64_t)sizeof(E));        \
            else if (unit > 1)                                                                    \
                for (int64_t i = 0; i < count; i++)                                               \
                    copy_bytes((char *)(y + i * unit), (const char *)(s + i * some.step * unit),  \
                               unit * (int64_t)sizeof(E));                                        \
            else                                                                                  \
                for (int64_t i = 0; i < count; i++) {                                             \
                    RLX_SCALAR_LOOP;                                                              \
                    y[i] = s[i * some.step];                                                      \
                }                                                                                 \
            from += count, y += count * unit;                                                     \
        }                                                                                         \
    }                                                                                             \
    static int kernel_pad_repeat_##SUFFIX(const rlx_call *call)                                   \
    {                                                                                             \
        RLX_ARGUMENTS(pad_repeat, call);                                                          \
        const int64_t last = p->rank - 1, middle = last - 1, *dims = p->dims, *inside = p->inside, unit = p->unit; \
        const int64_t tall = middle < 0 ? 1 : dims[middle];                                       \
        const int64_t width = inside[last] * unit;                                                \
        int64_t rows = 1;                                                                         \
        for (int64_t a = 0; a < last; a++) rows *= dims[a];                                       \
        const rlx_block own = rlx_share_block(call, rows, 1, dims[last], 1, 64);                  \
        const int64_t first = own.columns.first - p->before[last], end = own.columns.last - p->before[last]; \
        const int32_t *places = NULL;                                                             \
        int32_t listed[LISTED];                                                                   \
        if (unit == 1 && inside[last] < SHORT_PAD && end - first <= LISTED) {                     \
            for (int64_t i = 0; i < end - first; i++)                                             \
                listed[i] = (int32_t)pad_runs(first + i, inside[last], p->mode).index;            \
            places = listed;                                                                      \
        }                                                                                         \
        for (int64_t row = own.pieces.first, until; row < own.pieces.last; row = until) {         \
            const int64_t index = row % tall;                                                     \
            int64_t rest = row / tall, step = middle < 0 ? width : width * inside[middle];        \
            const E *x = in->x;                                                                   \
            for (int64_t a = middle - 1; a >= 0; a--) {                                           \
                x += pad_runs(rest % dims[a] - p->before[a], inside[a], p->mode).index * step;    \
                rest /= dims[a], step *= inside[a];                                               \
            }                                                                                     \
            until = row - index + tall < own.pieces.last ? row - index + tall : own.pieces.last;  \
            /* Rows inside first. Borders that stand for one of them are copies of it. */         \
            E *const plane = (E *)out->y + ((row - index) * dims[last] + own.columns.first) * unit; \
            const int64_t top = middle < 0 ? 0 : p->before[middle], end_row = index + until - row, pitch = dims[last] * unit; \
            int64_t from = index > top ? index : top, to = middle < 0 ? 1 : top + inside[middle]; \
            from = from < end_row ? from : end_row, to = to < end_row ? to : end_row;             \
            for (int64_t c = from; c < to; c++)                                                   \
                pad_units_##SUFFIX(plane + c * pitch, x + (c - top) * width, first, end, inside[last], unit, \
                                   p->mode, places);                                              \
            for (int64_t c = index; c < end_row; c++) {                                           \
                if (c >= from && c < to) continue;                                                \
                const int64_t other = pad_runs(c - top, inside[middle], p->mode).index, done = other + top; \
                if (done >= from && done < to)                                                    \
                    copy_bytes((char *)(plane + c * pitch), (const char *)(plane + done * pitch), \
                               (end - first) * unit * (int64_t)sizeof(E));                        \
                else                                                                              \
                    pad_units_##SUFFIX(plane + c * pitch, x + other * width, first, end, inside[last], unit, \
                                       p->mode, places);                                          \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
PADS(b1, uint8_t)
PADS(b2, uint16_t)
PADS(b4, uint32_t)
PADS(b8, uint64_t)
#undef PADS
#undef SHORT_PAD
#undef LISTED
