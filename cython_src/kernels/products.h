/* Products by expert: every row by a matrix of its own, per type. */

/* Row m times the matrix of its expert. Parameters: m, k, n, experts, bytes of an index. */
#define GROUPED(SUFFIX, T)                                                                        \
    static int kernel_grouped_matmul_##SUFFIX(const rlx_call *call)                               \
    {                                                                                             \
        const int64_t m = call->p[0].i, k = call->p[1].i, n = call->p[2].i, e = call->p[3].i;     \
        const T *x = call->in[0];                                                                 \
        T *y = call->out[0];                                                                      \
        for (int64_t i = 0; i < m; i++, x += k, y += n) {                                         \
            const int64_t which = call->p[4].i == 4 ? ((const int32_t *)call->in[2])[i]           \
                                                    : ((const int64_t *)call->in[2])[i];          \
            if (which < 0 && call->p[5].i) { /* a row that is made elsewhere */                   \
                memset(y, 0, (size_t)n * sizeof(T));                                              \
                continue;                                                                         \
            }                                                                                     \
            if (which < 0 || which >= e) return RLX_INDEX_OUT_OF_RANGE;                           \
            gemv_##SUFFIX(x, (const T *)call->in[1] + which * k * n, n, NULL, y, k, n);            \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
GROUPED(f32, float)
GROUPED(f64, double)
