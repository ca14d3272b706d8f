/* Kernels that copy elements of 1, 2, 4 or 8 bytes, whatever their type. */

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

#define MOVEMENT(SUFFIX, E)                                                                       \
    RLX_NOINLINE static void copy_axes_##SUFFIX(E *d, const E *s, int64_t rank, int64_t n,        \
                                                const int64_t *dims, const int64_t *from,         \
                                                const int64_t *to)                                \
    {                                                                                             \
        const int64_t a = from[0], b = to[0];                                                     \
        if (rank > 1) {                                                                           \
            for (int64_t i = 0; i < n; i++)                                                       \
                copy_axes_##SUFFIX(d + i * b, s + i * a, rank - 1, dims[1], dims + 1, from + 1,   \
                                   to + 1);                                                       \
        } else if (a == 1 && b == 1) {                                                            \
            memcpy(d, s, (size_t)n * sizeof(E));                                                  \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                d[i * b] = s[i * a];                                                              \
            }                                                                                     \
        }                                                                                         \
    }                                                                                             \
    static int kernel_strided_copy_##SUFFIX(const rlx_call *call)                                 \
    {                                                                                             \
        RLX_ARGUMENTS(strided_copy, call);                                                        \
        const int64_t rank = p->rank, *dims = p->dims;                                            \
        const int64_t *from = p->source_steps, *to = p->target_steps;                         \
        const int64_t counter = in->counter ? *(const int32_t *)in->counter : 0;                  \
        E *d = (E *)out->target + p->target_offset + counter * p->target_advance;                 \
        const E *s = (const E *)in->source + p->source_offset + counter * p->source_advance;      \
        /* Threads share the first axis, or the second one if that is longer. */                  \
        if (rank > 1 && dims[0] < call->parts && dims[0] < dims[1]) {                             \
            const rlx_range own = rlx_share(call, dims[1], 1);                                    \
            d += own.first * to[1], s += own.first * from[1];                                     \
            for (int64_t i = 0; i < dims[0]; i++, d += to[0], s += from[0])                       \
                copy_axes_##SUFFIX(d, s, rank - 1, own.last - own.first, dims + 1, from + 1,      \
                                   to + 1);                                                       \
            return RLX_OK;                                                                        \
        }                                                                                         \
        const rlx_range own = rlx_share(call, dims[0], 1);                                        \
        copy_axes_##SUFFIX(d + own.first * to[0], s + own.first * from[0], rank,                  \
                           own.last - own.first, dims, from, to);                                 \
        return RLX_OK;                                                                            \
    }                                                                                             \
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
MOVEMENT(b1, uint8_t)
MOVEMENT(b2, uint16_t)
MOVEMENT(b4, uint32_t)
MOVEMENT(b8, uint64_t)
#undef MOVEMENT
