/* Kernels that move elements of 1, 2, 4 or 8 bytes without looking at them. */

/* Offset of what an index tuple names, or -1 when it is out of range; negative indices count from
   the end. */
static inline int64_t index_offset(const void *indices, int64_t at, int64_t bytes, int depth,
                                   const rlx_param *sizes, const rlx_param *along)
{
    int64_t offset = 0;
    for (int d = 0; d < depth; d++) {
        int64_t i = bytes == 4 ? ((const int32_t *)indices)[at + d] : ((const int64_t *)indices)[at + d];
        if (i < 0) i += sizes[d].i;
        if (i < 0 || i >= sizes[d].i) return -1;
        offset += i * along[d].i;
    }
    return offset;
}

/* Parameters: rank, dims[rank], source steps[rank], target steps[rank], source offset, target
   offset, count, itemsize, source advance, target advance; steps and offsets in elements. A counter,
   the second input, moves both offsets by its advances. */
#define MOVEMENT(SUFFIX, E)                                                                       \
    RLX_APART static void copy_axes_##SUFFIX(E *d, const E *s, int rank, int64_t n,               \
                                             const rlx_param *dims, const rlx_param *from,        \
                                             const rlx_param *to)                                 \
    {                                                                                             \
        const int64_t a = from[0].i, b = to[0].i;                                                 \
        if (rank > 1) {                                                                           \
            for (int64_t i = 0; i < n; i++)                                                       \
                copy_axes_##SUFFIX(d + i * b, s + i * a, rank - 1, dims[1].i, dims + 1, from + 1, \
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
        const rlx_param *p = call->p;                                                             \
        const int rank = (int)p[0].i;                                                             \
        const rlx_param *dims = p + 1, *from = dims + rank, *to = from + rank;                    \
        const rlx_param *rest = to + rank;                                                        \
        const int64_t counter = call->in[1] ? *(const int32_t *)call->in[1] : 0;                  \
        E *d = (E *)call->out[0] + rest[1].i + counter * rest[5].i;                               \
        const E *s = (const E *)call->in[0] + rest[0].i + counter * rest[4].i;                    \
        /* Parts are stretches of the first axis, else of the second one. */                      \
        if (rank > 1 && dims[0].i < call->parts && dims[0].i < dims[1].i) {                       \
            const rlx_range own = rlx_share(call, dims[1].i, 1);                                  \
            d += own.first * to[1].i, s += own.first * from[1].i;                                 \
            for (int64_t i = 0; i < dims[0].i; i++, d += to[0].i, s += from[0].i)                 \
                copy_axes_##SUFFIX(d, s, rank - 1, own.last - own.first, dims + 1, from + 1,      \
                                   to + 1);                                                       \
            return RLX_OK;                                                                        \
        }                                                                                         \
        const rlx_range own = rlx_share(call, dims[0].i, 1);                                      \
        copy_axes_##SUFFIX(d + own.first * to[0].i, s + own.first * from[0].i, rank,              \
                           own.last - own.first, dims, from, to);                                 \
        return RLX_OK;                                                                            \
    }                                                                                             \
    /* Parameters: rank, depth, bytes of an index, count, dims[rank], data steps[rank], index           \
       steps[rank], sizes[depth], axis steps[depth]. The last dimension is walked in the inner loop. */ \
    static int kernel_gather_##SUFFIX(const rlx_call *call)                                       \
    {                                                                                             \
        const rlx_param *p = call->p;                                                             \
        const int rank = (int)p[0].i, depth = (int)p[1].i, last = rank - 1;                       \
        const int64_t bytes = p[2].i, count = p[3].i;                                             \
        const rlx_param *dims = p + 4, *data = dims + rank, *index = data + rank;                 \
        const rlx_param *sizes = index + rank, *along = sizes + depth;                            \
        const int64_t width = rank ? dims[last].i : 1;                                            \
        const rlx_range own = rlx_share(call, width ? count / width : 0, 1);                      \
        const E *x = call->in[0];                                                                 \
        E *y = (E *)call->out[0] + own.first * width;                                             \
        for (int64_t row = own.first; row < own.last; row++, y += width) {                        \
            int64_t rest = row, at = 0, which = 0;                                          \
            for (int d = last - 1; d >= 0; d--) {                                                 \
                at += rest % dims[d].i * data[d].i;                                               \
                which += rest % dims[d].i * index[d].i;                                           \
                rest /= dims[d].i;                                                                \
            }                                                                                     \
            const int64_t step = rank ? index[last].i : 0, move = rank ? data[last].i : 0;        \
            for (int64_t i = 0; i < width; i++) {                                                 \
                if (i == 0 || step != 0) {                                                        \
                    const int64_t place =                                                         \
                        index_offset(call->in[1], which + i * step, bytes, depth, sizes, along);  \
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
