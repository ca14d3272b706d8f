/* Elements of 1, 2, 4 or 8 bytes at places that indices name. */

/* The offset of the place that an index tuple names, or -1 if it is out of range. Negative indices count from the end.
   */
static inline int64_t index_offset(const void *indices, int64_t at, int64_t bytes, int64_t depth,
                                   const int64_t *sizes, const int64_t *along)
{
    int64_t offset = 0;
    for (int64_t d = 0; d < depth; d++) {
        int64_t i = bytes == 4 ? ((const int32_t *)indices)[at + d] : ((const int64_t *)indices)[at + d];
        if (i < 0) i += sizes[d];
        if (i < 0 || i >= sizes[d]) return -1;
        offset += i * along[d];
    }
    return offset;
}

#define GATHER(SUFFIX, E)                                                                         \
    /* The inner loop runs over the last dimension. */                                            \
    static int kernel_gather_##SUFFIX(const rlx_call *call)                                       \
    {                                                                                             \
        RLX_ARGUMENTS(gather, call);                                                              \
        const int64_t rank = p->rank, last = rank - 1, *dims = p->dims;                           \
        const int64_t width = rank ? dims[last] : 1;                                              \
        const rlx_range own = rlx_share(call, width ? p->count / width : 0, 1);                   \
        const E *x = in->x;                                                                       \
        E *y = (E *)out->y + own.first * width;                                                   \
        for (int64_t row = own.first; row < own.last; row++, y += width) {                        \
            int64_t rest = row, at = 0, which = 0;                                                \
            for (int64_t d = last - 1; d >= 0; d--) {                                             \
                at += rest % dims[d] * p->data_steps[d];                                        \
                which += rest % dims[d] * p->index_steps[d];                                    \
                rest /= dims[d];                                                                  \
            }                                                                                     \
            const int64_t step = rank ? p->index_steps[last] : 0;                               \
            const int64_t move = rank ? p->data_steps[last] : 0;                                \
            for (int64_t i = 0; i < width; i++) {                                                 \
                if (i == 0 || step != 0) {                                                        \
                    const int64_t place = index_offset(in->index, which + i * step,               \
                                                       p->index_bytes, p->depth, p->sizes,        \
                                                       p->axis_steps);                          \
                    if (place < 0) return RLX_INDEX_OUT_OF_RANGE;                                 \
                    if (step == 0 && move == 1) {                                                 \
                        memcpy(y, x + at + place, (size_t)width * sizeof(E));                     \
                        break;                                                                    \
                    }                                                                             \
                    at += place;                                                                  \
                    y[i] = x[at + i * move];                                                      \
                    if (step != 0) at -= place;                                                   \
                } else {                                                                          \
                    y[i] = x[at + i * move];                                                      \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
GATHER(b1, uint8_t)
GATHER(b2, uint16_t)
GATHER(b4, uint32_t)
GATHER(b8, uint64_t)
#undef GATHER
