/* Softmax and layer_norm, per type. */

#ifdef SINGLE
/* The largest element of a row, NaN ignored. */
static inline float row_max_f32(const float *x, int64_t n)
{
    int64_t i = 0;
    if (n < FLOATS) {
        float top = -INFINITY;
        for (; i < n; i++) top = x[i] > top ? x[i] : top;
        return top;
    }
    vf a = v_all(-INFINITY), b = a, c = a, d = a;
    for (; i + 4 * FLOATS <= n; i += 4 * FLOATS) {
        a = v_max(v_load(x + i), a), b = v_max(v_load(x + i + FLOATS), b);
        c = v_max(v_load(x + i + 2 * FLOATS), c), d = v_max(v_load(x + i + 3 * FLOATS), d);
    }
    for (; i + FLOATS <= n; i += FLOATS) a = v_max(v_load(x + i), a);
    if (i < n) a = v_max(v_load(x + n - FLOATS), a); /* it reaches back */
    return v_top(v_max(v_max(a, b), v_max(c, d)));
}

/* Stores exp(x - top) to y, unless it is NULL, and returns the sum. No x is larger than top. A NaN reaches the sum, and
   through it the whole row. */
static inline float row_exp_f32(float *y, const float *x, float top, int64_t n)
{
    double total = 0;
    for (int64_t index = 0; index < n; index += 1024) {
        const int64_t end = n - index < 1024 ? n : index + 1024;
        vf sum = {0};
        for (int64_t i = index; i < end; i += FLOATS) {
            const int64_t left = end - i;
            const int some = RLX_UNLIKELY(left < FLOATS);
            vf e = v_exp_below((some ? v_load_some(x + i, left) : v_load(x + i)) - top);
            if (some) e = v_keep(e, left);
            sum += e;
            if (!y) continue;
            if (some) v_store_some(y + i, e, left);
            else v_store(y + i, e);
        }
        total += v_sum(sum);
    }
    return (float)total;
}
#else
static inline T NAME(row_max)(const T *x, int64_t n)
{
    T top = -(T)INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}
#endif

/* The sum of x - mean over a row, or of its square. With `other` the row is x + other, which is stored to `sum`.
   Explicit vectors, since the compiler vectorises none of these loops. */
static inline double NAME(row_total)(
    T *sum, const T *x, const T *other, T mean, int squared, int64_t n)
{
#define STEP(V, index, total)                                                                     \
    {                                                                                             \
        V v = *(const V *)(x + (index));                                                          \
        if (other) *(V *)(sum + (index)) = v += *(const V *)(other + (index));                    \
        v -= mean;                                                                                \
        total += squared ? v * v : v;                                                             \
    }
    double total = 0;
    int64_t i = 0;
    while (i < n) {
        const int64_t end = n - i < 1024 ? n : i + 1024;
        VEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        T rest = 0;
        for (; i + 4 * VL <= end; i += 4 * VL) {
            STEP(VEC, i, s0)
            STEP(VEC, i + VL, s1)
            STEP(VEC, i + 2 * VL, s2)
            STEP(VEC, i + 3 * VL, s3)
        }
        for (; i + VL <= end; i += VL) STEP(VEC, i, s0)
#ifdef SINGLE
        if (i < end) {
            const int64_t left = end - i;
            vf v = v_load_some(x + i, left);
            if (other) v_store_some(sum + i, v += v_load_some(other + i, left), left);
            v = v_keep(v - mean, left);
            s1 += squared ? v * v : v;
            i = end;
        }
        rest = v_sum((vf)((s0 + s1) + (s2 + s3)));
#else
        for (; i < end; i++) STEP(T, i, rest)
        s0 = (s0 + s1) + (s2 + s3);
        for (int64_t j = 0; j < VL; j++) rest += s0[j];
#endif
        total += rest;
    }
#undef STEP
    return total;
}

#ifndef SINGLE
static inline T NAME(row_exp)(T *y, const T *x, T top, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = SCALAR(exp)(x[i] - top);
    return (T)NAME(row_total)(NULL, y, NULL, 0, 0, n);
}
#endif

/* Stores exp(x - top) of a row of columns to y, unless it is NULL, and adds it to `total`. */
static RLX_INLINE void NAME(exp_columns)(T *y, const T *x, const T *top, T *total, int64_t width)
{
#ifdef SINGLE
    for (int64_t j = 0; j < width; j += FLOATS) {
        const int64_t left = width - j;
        if (left < FLOATS) {
            const vf e = v_exp_below(v_load_some(x + j, left) - v_load_some(top + j, left));
            v_store_some(total + j, v_load_some(total + j, left) + e, left);
            if (y) v_store_some(y + j, e, left);
        } else {
            const vf e = v_exp_below(v_load(x + j) - v_load(top + j));
            v_store(total + j, v_load(total + j) + e);
            if (y) v_store(y + j, e);
        }
    }
#else
    for (int64_t j = 0; j < width; j++) {
        const T e = SCALAR(exp)(x[j] - top[j]);
        total[j] += e;
        if (y) y[j] = e;
    }
#endif
}

/* Softmax of each of at most STRIP columns of n rows, `step` apart; the last row has `last` columns. Columns that are
   `period` apart belong to one line. x may be y. */
static void NAME(softmax_strip)(T *y, const T *x, int64_t n, int64_t step, int64_t width, int64_t last,
                                int64_t period, int logarithm)
{
    T top[STRIP], part[STRIP];
    double total[STRIP];
#define WIDTH(i) ((i) + 1 < n ? width : last)
    for (int64_t j = 0; j < width; j++) top[j] = -(T)INFINITY, total[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < WIDTH(i); j++) top[j] = x[i * step + j] > top[j] ? x[i * step + j] : top[j];
    for (int64_t j = width - 1; j >= period; j--) top[j - period] = top[j] > top[j - period] ? top[j] : top[j - period];
    for (int64_t j = period; j < width; j++) top[j] = top[j - period];
    for (int64_t i = 0; i < n;) {
        const int64_t end = n - i < 64 ? n : i + 64;
        for (int64_t j = 0; j < width; j++) part[j] = 0;
        for (; i < end; i++)
            NAME(exp_columns)(logarithm ? NULL : y + i * step, x + i * step, top, part, WIDTH(i));
        for (int64_t j = 0; j < width; j++) total[j] += part[j];
    }
    for (int64_t j = width - 1; j >= period; j--) total[j - period] += total[j];
    /* The subtrahend or the factor of each column. */
    for (int64_t j = 0; j < period; j++) part[j] = logarithm ? SCALAR(log)((T)total[j]) : 1 / (T)total[j];
    for (int64_t j = period; j < width; j++) part[j] = part[j - period];
    for (int64_t i = 0; i < n; i++, x += step, y += step) {
        const int64_t wide = WIDTH(i);
        if (logarithm)
            RLX_INDEPENDENT for (int64_t j = 0; j < wide; j++) y[j] = x[j] - top[j] - part[j];
        else
            RLX_INDEPENDENT for (int64_t j = 0; j < wide; j++) y[j] *= part[j];
    }
#undef WIDTH
}

/* Softmax of `width` columns of n rows, `inner` apart. */
static void NAME(softmax_columns)(T *y, const T *x, int64_t n, int64_t inner, int64_t width, int logarithm)
{
    const int64_t fold = rows_together(n, inner);
    if (fold > 1) {
        const int64_t rows = (n + fold - 1) / fold, wide = fold * inner;
        NAME(softmax_strip)(y, x, rows, wide, wide, (n - (rows - 1) * fold) * inner, inner, logarithm);
        return;
    }
    for (int64_t index = 0; index < width; index += STRIP) {
        const int64_t wide = width - index < STRIP ? width - index : STRIP;
        NAME(softmax_strip)(y + index, x + index, n, inner, wide, wide, wide, logarithm);
    }
}

static void NAME(softmax_row)(T *y, const T *x, int64_t n, int logarithm)
{
    T *kept = logarithm && sizeof(T) == 4 ? NULL : y;
    const T top = NAME(row_max)(x, n), sum = NAME(row_exp)(kept, x, top, n);
    if (logarithm) {
        const T shift = SCALAR(log)(sum);
        RLX_INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = x[i] - top - shift;
    } else {
        const T scale = 1 / sum;
        int64_t i = 0;
        for (; i + VL <= n; i += VL) *(VEC *)(y + i) *= scale;
        for (; i < n; i++) y[i] *= scale;
    }
}

static int NAME(kernel_softmax)(const rlx_call *call)
{
    RLX_ARGUMENTS(softmax, call);
    const int64_t n = p->n, inner = p->inner, size = n * inner;
    const int logarithm = (int)p->log;
    const rlx_block own = share_lines(call, p->outer, inner);
    const int64_t first = own.columns.first, width = own.columns.last - first;
    const T *x = (const T *)in->x + own.pieces.first * size;
    T *y = (T *)out->y + own.pieces.first * size;
    int64_t left = own.pieces.last - own.pieces.first;
    if (lie_apart(p->outer, n, inner, BESIDE)) {
        T beside[BUFFER];
        while (left > 0) {
            const int64_t lanes = lines_beside(left, size, inner), count = left < lanes ? left : lanes;
            NAME(bring)(beside, x, size, size, count, lanes);
            NAME(softmax_columns)(beside, beside, n, inner * lanes, inner * lanes, logarithm);
            NAME(send)(y, beside, size, size, count, lanes);
            left -= count, x += count * size, y += count * size;
        }
        return RLX_OK;
    }
    for (; left > 0; left--, x += size, y += size)
        if (inner == 1) NAME(softmax_row)(y, x, n, logarithm);
        else NAME(softmax_columns)(y + first, x + first, n, inner, width, logarithm);
    return RLX_OK;
}

/* Whether the rounding error of a mean may be large beside the n differences from it, the sum of whose squares is given. */
static inline int NAME(is_far)(T mean, double squares, int64_t n) { return (double)mean * mean * (double)n > 64 * squares; }

/* Normalises up to BESIDE rows of at most as many elements, side by side. */
static void NAME(norm_beside)(T *y, T *sum, const T *x, const T *other, const T *weight, const T *bias, int64_t n,
                              int64_t count, double eps, int rms)
{
    T v[BESIDE * BESIDE], total[BESIDE] = {0}, mean[BESIDE] = {0}, scale[BESIDE], rest[BESIDE] = {0};
    NAME(bring)(v, x, n, n, count, BESIDE);
    if (other) {
        T more[BESIDE * BESIDE];
        NAME(bring)(more, other, n, n, count, BESIDE);
        for (int64_t i = 0; i < n * BESIDE; i++) v[i] += more[i];
        if (sum) NAME(send)(sum, v, n, n, count, BESIDE);
    }
#define EACH(statement)                                                                           \
    for (int64_t i = 0; i < n; i++)                                                               \
        for (int64_t l = 0; l < BESIDE; l++) statement;
    if (!rms) {
        EACH(total[l] += v[i * BESIDE + l])
        for (int64_t l = 0; l < BESIDE; l++) mean[l] = (T)(total[l] / (double)n), total[l] = 0;
        EACH(rest[l] += v[i * BESIDE + l] - mean[l])
    }
    EACH(total[l] += (v[i * BESIDE + l] - mean[l]) * (v[i * BESIDE + l] - mean[l]))
    for (int64_t l = 0; l < BESIDE; l++) {
        scale[l] = (T)(1 / sqrt(total[l] / (double)n + eps));
        rest[l] = NAME(is_far)(mean[l], total[l], n) ? rest[l] / (T)n : 0;
    }
    for (int64_t i = 0; i < n; i++) {
        const T by = weight ? weight[i] : 1, more = bias ? bias[i] : 0;
        for (int64_t l = 0; l < BESIDE; l++) v[i * BESIDE + l] = (v[i * BESIDE + l] - mean[l] - rest[l]) * scale[l] * by + more;
    }
#undef EACH
    NAME(send)(y, v, n, n, count, BESIDE);
}

/* With a residual, x + residual is stored first: to the second result, or, if that is not wanted, to the first until it
   is normalised. */
static int NAME(kernel_layer_norm)(const rlx_call *call)
{
    RLX_ARGUMENTS(layer_norm, call);
    const int64_t rows = p->rows, n = p->n;
    const int rms = (int)p->rms;
    const T *weight = in->weight, *bias = in->bias;
    /* The number of rows is another in each part of a call, and does not decide. */
    const int beside = n <= BESIDE;
    for (int64_t r = 0; beside && r < rows; r += BESIDE) {
        T *sum = out->sum ? (T *)out->sum + r * n : NULL;
        const T *other = in->residual ? (const T *)in->residual + r * n : NULL;
        NAME(norm_beside)((T *)out->y + r * n, sum, (const T *)in->x + r * n, other, weight, bias, n,
                          rows - r < BESIDE ? rows - r : BESIDE, p->eps, rms);
    }
    for (int64_t r = 0; !beside && r < rows; r++) {
        const T *x = (const T *)in->x + r * n;
        T *y = (T *)out->y + r * n;
        T mean = 0;
        double squares = 0;
        if (in->residual) {
            const T *other = (const T *)in->residual + r * n;
            T *sum = (T *)(out->sum ? out->sum : out->y) + r * n;
            if (rms)
                squares = NAME(row_total)(sum, x, other, 0, 1, n);
            else
                mean = (T)(NAME(row_total)(sum, x, other, 0, 0, n) / (double)n);
            x = sum;
        } else if (!rms) {
            mean = (T)(NAME(row_total)(NULL, x, NULL, 0, 0, n) / (double)n);
        }
        if (!rms || !in->residual) squares = NAME(row_total)(NULL, x, NULL, mean, 1, n);
        const T scale = (T)(1 / sqrt(squares / (double)n + p->eps));
        const T rest = NAME(is_far)(mean, squares, n) ? (T)(NAME(row_total)(NULL, x, NULL, mean, 0, n) / (double)n) : 0;
#define EACH(more) RLX_INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean - rest) * scale more
        if (weight && bias)
            EACH(* weight[i] + bias[i]);
        else if (weight)
            EACH(* weight[i]);
        else if (bias)
            EACH(+ bias[i]);
        else
            EACH();
#undef EACH
    }
    return RLX_OK;
}
