/* Attention, per type, with a running softmax over tiles of keys: the scores of many queries against a tile are a
   matrix product, and so is what follows; few queries are taken one by one. */

/* Keys of a tile, and queries that meet it together: their scores stay in the cache. */
enum { NAME(KEYS) = 128, NAME(QUERIES) = 64 };

/* y[i] += dot(r[i], h) for rows of r, `apart` apart: one after the other, as they stand, so that memory is read in
   a stream; the sums of as many rows as a vector has entries are turned and added up together. */
static void NAME(add_dots)(const T *r, int64_t apart, int64_t rows, int64_t n, const T *h, T *y)
{
    for (int64_t i = 0; i < rows; i += VL) {
        const int64_t some = rows - i < VL ? rows - i : VL;
        VEC sums[VECTOR_BYTES / sizeof(T)] = {{0}};
        T rest[VECTOR_BYTES / sizeof(T)] = {0};
        for (int64_t k = 0; k < some; k++, r += apart) {
            VEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
            int64_t j = 0;
            for (; j + 4 * VL <= n; j += 4 * VL) {
                s0 += *LANE(r + j, 0) * *LANE(h + j, 0), s1 += *LANE(r + j, 1) * *LANE(h + j, 1);
                s2 += *LANE(r + j, 2) * *LANE(h + j, 2), s3 += *LANE(r + j, 3) * *LANE(h + j, 3);
            }
            for (; j + VL <= n; j += VL) s0 += *LANE(r + j, 0) * *LANE(h + j, 0);
            for (; j < n; j++) rest[k] += r[j] * h[j];
            sums[k] = (s0 + s1) + (s2 + s3);
        }
        NAME(turn)(sums);
        for (int64_t half = VL / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++) sums[l] += sums[l + half];
        for (int64_t k = 0; k < some; k++) y[i + k] += sums[0][k] + rest[k];
    }
}

/* y += s @ r for rows of r, `apart` apart; y stays in registers. */
static void NAME(add_rows)(const T *r, int64_t apart, int64_t rows, int64_t n, const T *s, T *y)
{
    int64_t e = 0;
    for (; e + 4 * VL <= n; e += 4 * VL) {
        VEC s0 = *LANE(y + e, 0), s1 = *LANE(y + e, 1), s2 = *LANE(y + e, 2), s3 = *LANE(y + e, 3);
        const T *row = r + e;
        for (int64_t j = 0; j < rows; j++, row += apart) {
            s0 += s[j] * *LANE(row, 0), s1 += s[j] * *LANE(row, 1);
            s2 += s[j] * *LANE(row, 2), s3 += s[j] * *LANE(row, 3);
        }
        *LANE(y + e, 0) = s0, *LANE(y + e, 1) = s1, *LANE(y + e, 2) = s2, *LANE(y + e, 3) = s3;
    }
    for (; e + VL <= n; e += VL) {
        VEC sum = *LANE(y + e, 0);
        for (int64_t j = 0; j < rows; j++) sum += s[j] * *LANE(r + j * apart + e, 0);
        *LANE(y + e, 0) = sum;
    }
    for (; e < n; e++)
        for (int64_t j = 0; j < rows; j++) y[e] += s[j] * r[j * apart + e];
}

/* Scores of a query against a tile of keys from j0 on to what they are scaled by and may see: those before
   ``from`` and from ``to`` on, counted from j0, are not seen. */
static void NAME(see)(T *s, const rlx_call *call, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t from, int64_t to)
{
    const rlx_param *p = call->p, *ms = p + 19;
    const int64_t kind = p[23].i;
    const T scale = (T)p[25].f, softcap = (T)p[26].f;
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
}

/* What is known of a query: the largest score so far, and the sum of exp(score - top). */
typedef struct {
    T top, sum;
} NAME(rlx_seen);

/* Scores of some keys to weights; what was found before is scaled to the new largest score. */
static void NAME(weigh)(T *s, int64_t count, int64_t from, int64_t to, NAME(rlx_seen) *seen, T *o, int64_t dv)
{
    for (int64_t j = 0; j < from; j++) s[j] = 0;
    for (int64_t j = to; j < count; j++) s[j] = 0;
    if (from >= to) return;
    const T most = NAME(row_max)(s + from, to - from), top = most > seen->top ? most : seen->top;
    /* Where nothing is seen all are -inf, and become 0. */
    const T base = top == -(T)INFINITY ? 0 : top, shrink = FN(exp)(seen->top - base);
    if (shrink != 1)
        for (int64_t e = 0; e < dv; e++) o[e] *= shrink;
    seen->top = top;
    seen->sum = seen->sum * shrink + NAME(row_exp)(s + from, s + from, base, to - from);
}

/* The queries begin to end - 1 of a head. Scratch: a tile of keys and one of values in panels, the scores of
   some queries, what is known of each. */
static void NAME(attend)(const rlx_call *call, int64_t b, int64_t h, int64_t begin, int64_t end, T *scratch)
{
    const rlx_param *p = call->p;
    const int64_t share = p[1].i / p[2].i, sq = p[3].i, sk = p[4].i, d = p[5].i, dv = p[6].i;
    const rlx_param *qs = p + 7, *ks = p + 10, *vs = p + 13, *os = p + 16;
    const int64_t kind = p[23].i, window = p[24].i, causal = kind == 1 || kind == 2, ahead = sk - sq;
    const T *q = (const T *)call->in[0] + b * qs[0].i + h * qs[1].i;
    const T *k = (const T *)call->in[1] + b * ks[0].i + h / share * ks[1].i;
    const T *v = (const T *)call->in[2] + b * vs[0].i + h / share * vs[1].i;
    T *o = (T *)call->out[0] + b * os[0].i + h * os[1].i;
    T *keys = scratch, *values = keys + NAME(KEYS) * d, *scores = values + NAME(KEYS) * (dv + VL);
    NAME(rlx_seen) *seen = (NAME(rlx_seen) *)(scores + NAME(QUERIES) * NAME(KEYS));
    for (int64_t i = begin; i < end; i++) {
        seen[i] = (NAME(rlx_seen)){-(T)INFINITY, 0};
        memset(o + i * os[2].i, 0, (size_t)dv * sizeof(T));
    }
    /* Tiles begin at multiples of their size, whichever queries are made. */
    const int64_t past = kind == 2 && begin + ahead > window ? begin + ahead - window : 0;
    const int64_t last = causal && end + ahead < sk ? end + ahead : sk;
    for (int64_t j0 = past / NAME(KEYS) * NAME(KEYS); j0 < last; j0 += NAME(KEYS)) {
        const int64_t tile = last - j0 < NAME(KEYS) ? last - j0 : NAME(KEYS);
        for (int64_t j = 0; j < tile; j += MICRO_COLUMNS)
            NAME(make_panel)(keys + j * d, k + (j0 + j) * ks[2].i, ks[2].i, d,
                             tile - j < MICRO_COLUMNS ? tile - j : MICRO_COLUMNS, 1);
        for (int64_t e = 0; e < dv; e += MICRO_COLUMNS)
            NAME(make_panel)(values + e * tile, v + j0 * vs[2].i + e, vs[2].i, tile,
                             dv - e < MICRO_COLUMNS ? dv - e : MICRO_COLUMNS, 0);
        for (int64_t i = begin; i < end; i += NAME(QUERIES)) {
            const int64_t rows = end - i < NAME(QUERIES) ? end - i : NAME(QUERIES);
            /* Keys of the tile that one of these queries may see: first to count - 1. */
            const int64_t most = i + rows + ahead - j0, least = i + ahead - window - j0;
            const int64_t count = !causal || most > tile ? tile : most;
            if (count <= 0 || (kind == 2 && least >= count)) continue;
            for (int64_t j = 0; j < count; j += MICRO_COLUMNS) {
                const int64_t whole = tile - j < MICRO_COLUMNS ? tile - j : MICRO_COLUMNS;
                NAME(micro_rows)(q + i * qs[2].i, qs[2].i, 1, keys + j * d, NAME(panel_columns)(whole), scores + j,
                                 NAME(KEYS), rows, d, NAME(micro_zeros), count - j < whole ? count - j : whole);
            }
            for (int64_t r = 0; r < rows; r++) {
                const int64_t at = i + r + ahead - j0; /* the last key that a causal query sees */
                const int64_t to = !causal || at + 1 > count ? count : at < 0 ? 0 : at + 1;
                const int64_t from = kind == 2 && at > window ? at - window : 0;
                T *s = scores + r * NAME(KEYS);
                NAME(see)(s, call, b, h, i + r, j0, from, to);
                NAME(weigh)(s, count, from < count ? from : count, to, seen + i + r, o + (i + r) * os[2].i, dv);
            }
            for (int64_t e = 0; e < dv; e += MICRO_COLUMNS) {
                const int64_t width = dv - e < MICRO_COLUMNS ? dv - e : MICRO_COLUMNS;
                NAME(micro_rows)(scores, NAME(KEYS), 1, values + e * tile, NAME(panel_columns)(width),
                                 o + i * os[2].i + e, os[2].i, rows, count, NULL, width);
            }
        }
    }
    for (int64_t i = begin; i < end; i++) {
        const T inverse = seen[i].sum == 0 ? 0 : 1 / seen[i].sum;
        for (int64_t e = 0; e < dv; e++) o[i * os[2].i + e] *= inverse;
    }
}

/* Parameters: batch, heads, kv heads, sq, sk, d, dv, q k v o steps (batch, head, position each),
   mask steps (batch, head, query, key), kind, window, scale, softcap, whether there are many queries.
   Scratch: see attend. */
static int NAME(kernel_attention)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t batch = p[0].i, heads = p[1].i, share = p[1].i / p[2].i;
    if (p[27].i) {
        const int64_t blocks = (p[3].i + NAME(QUERIES) - 1) / NAME(QUERIES);
        const rlx_range own = rlx_share(call, batch * heads * blocks, 1);
        for (int64_t at = own.first; at < own.last;) {
            const int64_t head = at / blocks, next = (head + 1) * blocks < own.last ? (head + 1) * blocks : own.last;
            const int64_t end = (next - head * blocks) * NAME(QUERIES);
            NAME(attend)(call, head / heads, head % heads, at % blocks * NAME(QUERIES), end < p[3].i ? end : p[3].i,
                         call->out[1]);
            at = next;
        }
        return RLX_OK;
    }
    const int64_t sq = p[3].i, sk = p[4].i, d = p[5].i, dv = p[6].i;
    const rlx_param *qs = p + 7, *ks = p + 10, *vs = p + 13, *os = p + 16;
    const int64_t kind = p[23].i, window = p[24].i;
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
        NAME(rlx_seen) seen = {-(T)INFINITY, 0};
        for (int64_t e = 0; e < dv; e++) o[e] = 0;
        for (int64_t j0 = first; j0 < last; j0 += NAME(KEYS)) {
            const int64_t n = last - j0 < NAME(KEYS) ? last - j0 : NAME(KEYS);
            T score[NAME(KEYS)] = {0};
            NAME(add_dots)(k + j0 * ks[2].i, ks[2].i, n, d, q, score);
            NAME(see)(score, call, b, h, i, j0, 0, n);
            NAME(weigh)(score, n, 0, n, &seen, o, dv);
            NAME(add_rows)(v + j0 * vs[2].i, vs[2].i, n, dv, score, o);
        }
        const T inverse = seen.sum == 0 ? 0 : 1 / seen.sum;
        for (int64_t e = 0; e < dv; e++) o[e] *= inverse;
    }
    return RLX_OK;
}
