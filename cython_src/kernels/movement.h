/* Kernels that move elements of 1, 2, 4 or 8 bytes without looking at them. */

/* Parameters: rank, dims[rank], source steps[rank], target steps[rank], source offset, target
   offset, count, itemsize; steps and offsets in elements. */
#define MOVEMENT(SUFFIX, E)                                                                       \
    static void copy_axes_##SUFFIX(E *d, const E *s, int rank, const rlx_param *dims,             \
                                   const rlx_param *from, const rlx_param *to)                    \
    {                                                                                             \
        const int64_t n = dims[0].i, a = from[0].i, b = to[0].i;                                  \
        if (rank > 1) {                                                                           \
            for (int64_t i = 0; i < n; i++)                                                       \
                copy_axes_##SUFFIX(d + i * b, s + i * a, rank - 1, dims + 1, from + 1, to + 1);   \
        } else if (a == 1 && b == 1) {                                                            \
            memcpy(d, s, (size_t)n * sizeof(E));                                                  \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) d[i * b] = s[i * a];                                  \
        }                                                                                         \
    }                                                                                             \
    static int kernel_strided_copy_##SUFFIX(const rlx_call *call)                                 \
    {                                                                                             \
        const rlx_param *p = call->p;                                                             \
        const int rank = (int)p[0].i;                                                             \
        const rlx_param *dims = p + 1, *from = dims + rank, *to = from + rank;                    \
        copy_axes_##SUFFIX((E *)call->out[0] + to[rank + 1].i,                                    \
                           (const E *)call->in[0] + to[rank].i, rank, dims, from, to);            \
        return RLX_OK;                                                                            \
    }                                                                                             \
    /* Parameters: outer, axis size, inner, count of indices, bytes of an index. */               \
    static int kernel_gather_##SUFFIX(const rlx_call *call)                                       \
    {                                                                                             \
        const rlx_param *p = call->p;                                                             \
        const int64_t outer = p[0].i, size = p[1].i, inner = p[2].i, count = p[3].i;              \
        const E *x = call->in[0];                                                                 \
        E *y = call->out[0];                                                                      \
        for (int64_t o = 0; o < outer; o++)                                                       \
            for (int64_t j = 0; j < count; j++, y += inner) {                                     \
                int64_t at = p[4].i == 4 ? ((const int32_t *)call->in[1])[j]                      \
                                         : ((const int64_t *)call->in[1])[j];                     \
                if (at < 0) at += size;                                                           \
                if (at < 0 || at >= size) return RLX_INDEX_OUT_OF_RANGE;                          \
                memcpy(y, x + (o * size + at) * inner, (size_t)inner * sizeof(E));                \
            }                                                                                     \
        return RLX_OK;                                                                            \
    }
MOVEMENT(b1, uint8_t)
MOVEMENT(b2, uint16_t)
MOVEMENT(b4, uint32_t)
MOVEMENT(b8, uint64_t)
