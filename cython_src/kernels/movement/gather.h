/* Elements of 1, 2, 4 or 8 bytes at places that indices name. */

/* The offset of the place that an index tuple names, or -1 if it is out of range. Negative indices count from the end.
   */
static RLX_INLINE int64_t index_offset(const void *indices, int64_t position, int64_t bytes, int64_t depth,
                                   const int64_t *sizes, const int64_t *along)
{
    int64_t offset = 0;
    for (int64_t d = 0; d < depth; d++) {
        int64_t i = bytes == 4 ? ((const int32_t *)indices)[position + d] : ((const int64_t *)indices)[position + d];
        if (i < 0) i += sizes[d];
        if (i < 0 || i >= sizes[d]) return -1;
        offset += i * along[d];
    }
    return offset;
}

/* How many indices are looked up at a time. */
#define GATHER_BLOCK 512

/* Where n index tuples, `step` apart, point to, with `move` added for every one of them; -1 if one is out of range. */
static RLX_NOINLINE int gather_places(int64_t *places, const rlx_gather *p, const void *index, int64_t position,
                                      int64_t step, int64_t move, int64_t n)
{
    int64_t any = 0;
    const int64_t size = p->sizes[0], along = p->axis_steps[0]; /* of the only axis, often */
#define PLACES(TYPE)                                                                              \
    {                                                                                             \
        const TYPE *const one = (const TYPE *)index + position;                                   \
        for (int64_t i = 0; i < n; i++) {                                                         \
            const int64_t named = one[i * step], place = named < 0 ? named + size : named;        \
            any |= -(int64_t)((uint64_t)place >= (uint64_t)size);                                 \
            places[i] = place * along + i * move;                                                 \
        }                                                                                         \
    }
    if (p->depth != 1)
        for (int64_t i = 0; i < n; i++) {
            const int64_t place = index_offset(index, position + i * step, p->index_bytes, p->depth, p->sizes, p->axis_steps);
            any |= place, places[i] = place + i * move;
        }
    else if (p->index_bytes == 4) PLACES(int32_t)
    else PLACES(int64_t)
#undef PLACES
    return any < 0 ? -1 : 0;
}

/* The last axis is made of rows. Either a row is a run of the operand that one index tuple names, or each of its
   elements has a tuple of its own. Tuples that all rows share are looked up once. */
#define GATHER(SUFFIX, E)                                                                         \
    /* Rows of n neighbouring elements, each with its place. */                                   \
    static RLX_INLINE void gather_rows_##SUFFIX(E *y, const E *x, const int64_t *places, int64_t rows, int64_t n,\
                                                int64_t width)                                    \
    {                                                                                             \
        for (int64_t i = 0; i < rows; i++) {                                                      \
            RLX_SCALAR_LOOP;                                                                      \
            copy_bytes((char *)(y + i * width), (const char *)(x + places[i]), n * (int64_t)sizeof(E));\
        }                                                                                         \
    }                                                                                             \
    static int kernel_gather_##SUFFIX(const rlx_call *call)                                       \
    {                                                                                             \
        RLX_ARGUMENTS(gather, call);                                                              \
        const int64_t last = p->rank - 1, *dims = p->dims, width = dims[last];                    \
        const int64_t step = p->index_steps[last], move = p->data_steps[last];                    \
        /* Rows along the axis before follow each other by steps alone. */                        \
        const int64_t before = last - 1, length = before < 0 ? 1 : dims[before];                  \
        const int64_t onward = before < 0 ? 0 : p->data_steps[before];                            \
        const int64_t next = before < 0 ? 0 : p->index_steps[before];                             \
        const rlx_block own = rlx_share_block(call, width ? p->count / width : 0, 1, width, 1, 64); \
        int64_t places[GATHER_BLOCK];                                                             \
        int shared = step != 0;                                                                   \
        for (int64_t d = 0; d < last; d++) shared &= p->index_steps[d] == 0;                      \
        for (int64_t first = own.columns.first; first < own.columns.last; first += GATHER_BLOCK) { \
            const int64_t left = own.columns.last - first;                                        \
            const int64_t n = step == 0 || left < GATHER_BLOCK ? left : GATHER_BLOCK;             \
            if (shared && gather_places(places, p, in->index, first * step, step, move, n))       \
                return RLX_OUT_OF_RANGE;                                                    \
            for (int64_t row = own.pieces.first; row < own.pieces.last;) {                        \
                const int64_t begin = row % length, rows = own.pieces.last - row;                 \
                const int64_t end = length - begin < rows ? length : begin + rows;                \
                int64_t rest = row / length, from = first * move, which = first * step;           \
                for (int64_t d = before - 1; d >= 0; d--) {                                       \
                    const int64_t c = rest % dims[d];                                             \
                    rest /= dims[d], from += c * p->data_steps[d], which += c * p->index_steps[d]; \
                }                                                                                 \
                if (step == 0) {                                                                  \
                    /* A place for each row. */                                                   \
                    for (int64_t j = begin, rows; j < end; j += rows, row += rows) {              \
                        rows = end - j < GATHER_BLOCK ? end - j : GATHER_BLOCK;                   \
                        if (gather_places(places, p, in->index, which + j * next, next, onward, rows))\
                            return RLX_OUT_OF_RANGE;                                        \
                        const E *x = (const E *)in->x + from + j * onward;                        \
                        E *y = (E *)out->y + row * width + first;                                 \
                        if (move == 1)                                                            \
                            FOR_FEW(n, few, gather_rows_##SUFFIX(y, x, places, rows, few, width)) \
                        else                                                                      \
                            for (int64_t i = 0; i < rows; i++) copy_line_##SUFFIX(y + i * width, x + places[i], n, 1, move);\
                    }                                                                             \
                    continue;                                                                     \
                }                                                                                 \
                for (int64_t j = begin; j < end; j++, row++) {                                    \
                    const E *x = (const E *)in->x + from + j * onward;                            \
                    E *y = (E *)out->y + row * width + first;                                     \
                    if (!shared && gather_places(places, p, in->index, which + j * next, step, move, n))\
                        return RLX_OUT_OF_RANGE;                                            \
                    for (int64_t i = 0; i < n; i++) y[i] = x[places[i]];                          \
                }                                                                                 \
            }                                                                                     \
            if (step == 0) break;                                                                 \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
GATHER(b1, uint8_t)
GATHER(b2, uint16_t)
GATHER(b4, uint32_t)
GATHER(b8, uint64_t)
#undef GATHER
