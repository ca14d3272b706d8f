/* Attention, per type. Many queries: the scores of a block of them are a matrix product, and so is what follows.
   Few: a running softmax over blocks of keys. */

enum { NAME(KEYS) = 64 };

static inline T NAME(dot)(const T *a, const T *b, int64_t n)
{
    T lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++) lane[0] += a[i] * b[i];
    T sum = 0;
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

/* Scores of a query against keys j0 on to weights whose sum is returned: those before ``from`` and from ``to``
   on, counted from j0, are not seen. */
static T NAME(weigh)(T *s, const rlx_call *call, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t keys,
                     int64_t from, int64_t to)
{
    const rlx_param *p = call->p, *ms = p + 19;
    const int64_t kind = p[23].i;
    const T scale = (T)p[25].f, softcap = (T)p[26].f;
    for (int64_t j = 0; j < from; j++) s[j] = 0;
    for (int64_t j = to; j < keys; j++) s[j] = 0;
    if (from >= to) return 0;
    for (int64_t j = from; j < to; j++) s[j] *= scale;
    if (softcap != 0)
        for (int64_t j = from; j < to; j++) s[j] = softcap * FN(tanh)(s[j] / softcap);
    if (kind == 3) {
        const uint8_t *visible = (const uint8_t *)call->in[3] + b * ms[0].i + j0;
        for (int64_t j = from; j < to; j++) s[j] = visible[j] ? s[j] : -(T)INFINITY;
    }
    if (kind == 4) {
        const T *bias = (const T *)call->in[3] + b * ms[0].i + h * ms[1].i + i * ms[2].i + j0 * ms[3].i;
        for (int64_t j = from; j < to; j++) s[j] += bias[j * ms[3].i];
    }
    const T top = NAME(row_max)(s + from, to - from);
    /* Where nothing is seen all are -inf, and become 0. */
    return NAME(row_exp)(s + from, s + from, top == -(T)INFINITY ? 0 : top, to - from);
}

/* The queries i0 to i0 + rows - 1 of a head. Scratch: their scores, then a panel. */
static void NAME(attend)(const rlx_call *call, int64_t b, int64_t h, int64_t i0, int64_t rows, T *scratch)
{
    const rlx_param *p = call->p;
    const int64_t share = p[1].i / p[2].i, sq = p[3].i, sk = p[4].i, d = p[5].i, dv = p[6].i;
    const rlx_param *qs = p + 7, *ks = p + 10, *vs = p + 13, *os = p + 16;
    const int64_t kind = p[23].i, window = p[24].i, most = p[27].i;
    const T *q = (const T *)call->in[0] + b * qs[0].i + h * qs[1].i + i0 * qs[2].i;
    const T *k = (const T *)call->in[1] + b * ks[0].i + h / share * ks[1].i;
    const T *v = (const T *)call->in[2] + b * vs[0].i + h / share * vs[1].i;
    T *o = (T *)call->out[0] + b * os[0].i + h * os[1].i + i0 * os[2].i;
    /* Keys first..last - 1 may be seen by one of them. */
    int64_t first = 0, last = sk;
    if (kind == 1 || kind == 2) last = i0 + rows + sk - sq < sk ? i0 + rows + sk - sq : sk;
    if (kind == 2 && i0 + sk - sq > window) first = i0 + sk - sq - window;
    const int64_t keys = last > first ? last - first : 0;
    T *scores = scratch, *panel = scratch + most * sk, sums[64];
    NAME(loose_product)(q, qs[2].i, k + first * ks[2].i, ks[2].i, NULL, scores, keys, rows, d, keys, 1, 0, panel);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = i0 + r + sk - sq - first;
        const int64_t to = kind == 1 || kind == 2 ? (at + 1 < keys ? at + 1 : keys) : keys;
        const int64_t from = kind == 2 && at > window ? at - window : 0;
        sums[r] = NAME(weigh)(scores + r * keys, call, b, h, i0 + r, first, keys, from < keys ? from : keys,
                              to > 0 ? to : 0);
    }
    NAME(loose_product)(scores, keys, v + first * vs[2].i, vs[2].i, NULL, o, os[2].i, rows, keys, dv, 0, 0, panel);
    for (int64_t r = 0; r < rows; r++) {
        const T inverse = sums[r] == 0 ? 0 : 1 / sums[r];
        for (int64_t e = 0; e < dv; e++) o[r * os[2].i + e] *= inverse;
    }
}

/* Parameters: batch, heads, kv heads, sq, sk, d, dv, q k v o steps (batch, head, position each),
   mask steps (batch, head, query, key), kind, window, scale, softcap, queries of a block (0: one by one).
   Scratch: see attend. */
static int NAME(kernel_attention)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t block = p[27].i;
    const int64_t batch = p[0].i, heads = p[1].i, share = p[1].i / p[2].i;
    if (block) {
        const int64_t blocks = (p[3].i + block - 1) / block;
        const rlx_range own = rlx_share(call, batch * heads * blocks, 1);
        for (int64_t at = own.first; at < own.last; at++) {
            const int64_t head = at / blocks, i = at % blocks * block;
            NAME(attend)(call, head / heads, head % heads, i, p[3].i - i < block ? p[3].i - i : block,
                         call->out[1]);
        }
        return RLX_OK;
    }
    const int64_t sq = p[3].i, sk = p[4].i, d = p[5].i, dv = p[6].i;
    const rlx_param *qs = p + 7, *ks = p + 10, *vs = p + 13, *os = p + 16, *ms = p + 19;
    const int64_t kind = p[23].i, window = p[24].i;
    const T scale = (T)p[25].f, softcap = (T)p[26].f;
    const uint8_t *visible = call->in[3];
    const T *bias = call->in[3];

    const rlx_range own = rlx_share(call, batch * heads * sq, 1);
    for (int64_t row = own.first; row < own.last; row++) {
        const int64_t b = row / sq / heads, h = row / sq % heads, i = row % sq;
        const T *q = (const T *)call->in[0] + b * qs[0].i + h * qs[1].i + i * qs[2].i;
        const T *k = (const T *)call->in[1] + b * ks[0].i + h / share * ks[1].i;
        const T *v = (const T *)call->in[2] + b * vs[0].i + h / share * vs[1].i;
        T *o = (T *)call->out[0] + b * os[0].i + h * os[1].i + i * os[2].i;
        /* Keys first..last - 1 may be seen. */
        const int64_t at = i + sk - sq;
        int64_t first = 0, last = sk;
        if (kind == 1 || kind == 2) last = at + 1 < sk ? at + 1 : sk;
        if (kind == 2 && at - window > 0) first = at - window;
        T top = -(T)INFINITY, total = 0;
        for (int64_t e = 0; e < dv; e++) o[e] = 0;
        for (int64_t j0 = first; j0 < last; j0 += NAME(KEYS)) {
            const int64_t n = last - j0 < NAME(KEYS) ? last - j0 : NAME(KEYS);
            T score[NAME(KEYS)], block_top = -(T)INFINITY;
            for (int64_t j = 0; j < n; j++) {
                T s = NAME(dot)(q, k + (j0 + j) * ks[2].i, d) * scale;
                if (softcap != 0) s = softcap * FN(tanh)(s / softcap);
                if (kind == 3 && !visible[b * ms[0].i + j0 + j]) s = -(T)INFINITY;
                if (kind == 4)
                    s += bias[b * ms[0].i + h * ms[1].i + i * ms[2].i + (j0 + j) * ms[3].i];
                score[j] = s;
                block_top = s > block_top || s != s ? s : block_top;
            }
            const T new_top = block_top > top || block_top != block_top ? block_top : top;
            if (new_top == -(T)INFINITY) continue; /* nothing seen so far */
            const T shrink = FN(exp)(top - new_top);
            T sum = 0;
            for (int64_t j = 0; j < n; j++) score[j] = FN(exp)(score[j] - new_top);
            for (int64_t j = 0; j < n; j++) sum += score[j];
            for (int64_t e = 0; e < dv; e++) o[e] *= shrink;
            for (int64_t j = 0; j < n; j++) {
                const T *row = v + (j0 + j) * vs[2].i;
                const T weight = score[j];
                for (int64_t e = 0; e < dv; e++) o[e] += weight * row[e];
            }
            total = total * shrink + sum;
            top = new_top;
        }
        const T inverse = total == 0 ? 0 : 1 / total;
        for (int64_t e = 0; e < dv; e++) o[e] *= inverse;
    }
    return RLX_OK;
}
