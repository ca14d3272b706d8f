/* Softmax and layer_norm, per type. */

static inline T NAME(row_max)(const T *x, int64_t n)
{
    T lane[16];
    for (int l = 0; l < 16; l++) lane[l] = -(T)INFINITY;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int l = 1; l < 16; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

static inline T NAME(row_sum)(const T *x, int64_t n)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += 1024) {
        const int64_t end = n - at < 1024 ? n - at : 1024;
        T lane[16] = {0};
        int64_t i = 0;
        for (; i + 16 <= end; i += 16)
            for (int l = 0; l < 16; l++) lane[l] += x[at + i + l];
        for (; i < end; i++) lane[0] += x[at + i];
        for (int l = 0; l < 16; l++) total += lane[l];
    }
    return (T)total;
}

/* y = exp(x - top), its sum returned. A NaN in the row reaches the sum, and so the whole row. */
static inline T NAME(row_exp)(T *y, const T *x, T top, int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = FN(exp)(x[i] - top);
    return NAME(row_sum)(y, n);
}

/* Parameters: outer, n, inner, whether the logarithm is wanted. */
static int NAME(kernel_softmax)(const rlx_call *call)
{
    const int64_t outer = call->p[0].i, n = call->p[1].i, inner = call->p[2].i;
    const int logarithm = (int)call->p[3].i;
    for (int64_t o = 0; o < outer; o++) {
        const T *x = (const T *)call->in[0] + o * n * inner;
        T *y = (T *)call->out[0] + o * n * inner;
        if (inner == 1) {
            const T top = NAME(row_max)(x, n), sum = NAME(row_exp)(y, x, top, n);
            const T scale = 1 / sum, shift = FN(log)(sum);
            if (logarithm)
                for (int64_t i = 0; i < n; i++) y[i] = x[i] - top - shift;
            else
                for (int64_t i = 0; i < n; i++) y[i] *= scale;
            continue;
        }
        for (int64_t j = 0; j < inner; j++) {
            T top = -(T)INFINITY;
            double sum = 0;
            for (int64_t i = 0; i < n; i++) top = x[i * inner + j] > top ? x[i * inner + j] : top;
            for (int64_t i = 0; i < n; i++)
                sum += y[i * inner + j] = FN(exp)(x[i * inner + j] - top);
            const T shift = FN(log)((T)sum);
            for (int64_t i = 0; i < n; i++)
                y[i * inner + j] = logarithm ? x[i * inner + j] - top - shift
                                             : y[i * inner + j] / (T)sum;
        }
    }
    return RLX_OK;
}

/* Parameters: rows, n, has weight, has bias, eps, whether the mean is left in (rms_norm). With a
   fourth operand the rows are those of its sum with the first: they stand in the second result, or
   where there is none in the first until they are normalised. */
static int NAME(kernel_layer_norm)(const rlx_call *call)
{
    const int64_t rows = call->p[0].i, n = call->p[1].i;
    const T *weight = call->in[1], *bias = call->in[2], *residual = call->in[3];
    T *kept = call->p[7].i ? call->out[1] : call->out[0];
    for (int64_t r = 0; r < rows; r++) {
        const T *x = (const T *)call->in[0] + r * n;
        T *y = (T *)call->out[0] + r * n;
        if (residual) {
            const T *other = residual + r * n;
            T *sum = kept + r * n;
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) sum[i] = x[i] + other[i];
            x = sum;
        }
        const T mean = call->p[5].i ? 0 : NAME(row_sum)(x, n) / (T)n;
        double squares = 0;
        for (int64_t at = 0; at < n; at += 1024) {
            const int64_t end = n - at < 1024 ? n - at : 1024;
            T lane[16] = {0};
            int64_t i = 0;
            for (; i + 16 <= end; i += 16)
                for (int l = 0; l < 16; l++) {
                    const T d = x[at + i + l] - mean;
                    lane[l] += d * d;
                }
            for (; i < end; i++) lane[0] += (x[at + i] - mean) * (x[at + i] - mean);
            for (int l = 0; l < 16; l++) squares += lane[l];
        }
        const T scale = (T)(1 / sqrt(squares / (double)n + call->p[4].f));
        if (weight && bias)
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        else
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - mean) * scale * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
    }
    return RLX_OK;
}
