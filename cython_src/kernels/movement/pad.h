/* Elements of 1, 2, 4 or 8 bytes with one value around them. */

#define PADS(SUFFIX, E)                                                                           \
    static RLX_INLINE void fill_##SUFFIX(E *y, int64_t n, E value)                                \
    {                                                                                             \
        if (n >= 16)                                                                              \
            for (int64_t i = 0; i < n; i++) y[i] = value;                                         \
        else                                                                                      \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                y[i] = value;                                                                     \
            }                                                                                     \
    }                                                                                             \
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
            const int64_t at = row % tall;                                                        \
            int64_t rest = row / tall, source = 0, step = rows_inside * width;                    \
            int inside = 1;                                                                       \
            for (int64_t a = middle - 1; a >= 0; a--) {                                           \
                const int64_t c = rest % dims[a] - p->before[a];                                  \
                inside &= c >= 0 && c < p->inside[a];                                             \
                rest /= dims[a], source += c * step, step *= p->inside[a];                        \
            }                                                                                     \
            stop = row - at + tall < own.pieces.last ? row - at + tall : own.pieces.last;         \
            const E *x = (const E *)in->x + source + from - p->before[last];                      \
            for (int64_t r = row; r < stop; r++) {                                                \
                const int64_t c = r - row + at - top;                                             \
                E *y = (E *)out->y + r * dims[last];                                              \
                if (!inside || c < 0 || c >= rows_inside) {                                       \
                    fill_##SUFFIX(y + first, end - first, value);                                 \
                    continue;                                                                     \
                }                                                                                 \
                fill_##SUFFIX(y + first, from - first, value);                                    \
                copy_bytes((char *)(y + from), (const char *)(x + c * width), (to - from) * (int64_t)sizeof(E)); \
                fill_##SUFFIX(y + to, end - to, value);                                           \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
PADS(b1, uint8_t)
PADS(b2, uint16_t)
PADS(b4, uint32_t)
PADS(b8, uint64_t)
#undef PADS
