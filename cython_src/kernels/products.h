/* Products of 8-bit integers in i32, exact. */

/* Parameters: m, k, n, batch, a signed, b signed, rank, dims[rank], a steps[rank], b steps[rank]. */
#define INTEGER_PRODUCT(A, B, name)                                                               \
    static void integer_product_##name(int32_t *y, const A *a, const B *b, int64_t m, int64_t k,  \
                                       int64_t n)                                                 \
    {                                                                                             \
        for (int64_t i = 0; i < m; i++, y += n, a += k) {                                         \
            memset(y, 0, (size_t)n * sizeof(*y));                                                 \
            for (int64_t j = 0; j < k; j++) {                                                     \
                const int32_t v = a[j];                                                           \
                const B *row = b + j * n;                                                         \
                _Pragma("GCC ivdep") for (int64_t c = 0; c < n; c++) y[c] += v * (int32_t)row[c]; \
            }                                                                                     \
        }                                                                                         \
    }
INTEGER_PRODUCT(int8_t, int8_t, ss)
INTEGER_PRODUCT(int8_t, uint8_t, su)
INTEGER_PRODUCT(uint8_t, int8_t, us)
INTEGER_PRODUCT(uint8_t, uint8_t, uu)

static int kernel_matmul_integer(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[0].i, k = p[1].i, n = p[2].i, batch = p[3].i;
    const int rank = (int)p[6].i;
    const rlx_param *dims = p + 7, *a_steps = dims + rank, *b_steps = a_steps + rank;
    const rlx_block own = rlx_share_block(call, batch, m, 1, 1, 1);
    const int64_t first = own.rows.first, height = own.rows.last - first;
    for (int64_t z = own.pieces.first; z < own.pieces.last; z++) {
        int64_t rest = z, at_a = 0, at_b = 0;
        for (int d = rank - 1; d >= 0; d--) {
            at_a += rest % dims[d].i * a_steps[d].i;
            at_b += rest % dims[d].i * b_steps[d].i;
            rest /= dims[d].i;
        }
        const void *a = (const char *)call->in[0] + (at_a * m + first) * k;
        const void *b = (const char *)call->in[1] + at_b * k * n;
        int32_t *y = (int32_t *)call->out[0] + (z * m + first) * n;
        if (p[4].i && p[5].i) integer_product_ss(y, a, b, height, k, n);
        else if (p[4].i) integer_product_su(y, a, b, height, k, n);
        else if (p[5].i) integer_product_us(y, a, b, height, k, n);
        else integer_product_uu(y, a, b, height, k, n);
    }
    return RLX_OK;
}

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
            memset(y, 0, (size_t)n * sizeof(T));                                                  \
            if (which < 0 && call->p[5].i) continue; /* a row that is made elsewhere */           \
            if (which < 0 || which >= e) return RLX_INDEX_OUT_OF_RANGE;                           \
            const T *w = (const T *)call->in[1] + which * k * n;                                  \
            for (int64_t j = 0; j < k; j++) {                                                     \
                const T v = x[j];                                                                 \
                _Pragma("GCC ivdep") for (int64_t c = 0; c < n; c++) y[c] += v * w[j * n + c];    \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
GROUPED(f32, float)
GROUPED(f64, double)
