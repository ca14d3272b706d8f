/* Attention with a running softmax over tiles of keys, per type. Many queries: the scores of a tile, and the sums of
   its values, are matrix products. Few queries: one after the other. */

/* Keys of a tile, and queries that are computed together against it, so that their scores stay in the cache. */
enum { NAME(KEYS) = RLX_ATTENTION_KEYS, NAME(QUERIES) = RLX_ATTENTION_QUERIES };

/* Rows of n elements of keys or values from element `at` on, `apart` elements apart: as they are, or widened to scratch
   memory, where they are n elements apart. */
static RLX_INLINE const T *NAME(seen_rows)(const void *from, int64_t format, int64_t at, int64_t apart, int64_t rows,
                                           int64_t n, T *wide)
{
#ifdef SINGLE
    for (int64_t r = 0; format && r < rows; r++) {
        if (format == RLX_KEPT_F16) widen_f16(wide + r * n, (const rlx_f16 *)from + at + r * apart, n);
        else widen_q8(wide + r * n, from, at + r * apart, n);
    }
#endif
    return format ? wide : (const T *)from + at;
}

/* score[i] += the product of q and key i, of the n from element `at` on. */
static RLX_INLINE void NAME(add_scores)(const void *from, int64_t format, int64_t at, int64_t apart, int64_t n, int64_t d,
                                        const T *q, T *score)
{
#ifdef SINGLE
    if (format == RLX_KEPT_F16) add_dots_f32_f16((const rlx_f16 *)from + at, apart, n, d, q, score);
    else if (format)
        add_dots_q8((const uint8_t *)from + at / Q8_ELEMENTS * Q8_BYTES, apart / Q8_ELEMENTS * Q8_BYTES, n, d, q, score);
    else
#endif
        NAME(add_dots)((const T *)from + at, apart, n, d, q, score);
}

/* o += the sum of n values from element `at` on, each times its weight. */
static RLX_INLINE void NAME(add_values)(const void *from, int64_t format, int64_t at, int64_t apart, int64_t n, int64_t dv,
                                        const T *weight, T *o)
{
#ifdef SINGLE
    if (format == RLX_KEPT_F16) add_rows_f32_f16((const rlx_f16 *)from + at, apart, n, dv, weight, o);
    else if (format)
        add_rows_q8((const uint8_t *)from + at / Q8_ELEMENTS * Q8_BYTES, apart / Q8_ELEMENTS * Q8_BYTES, n, dv, weight, o);
    else
#endif
        NAME(add_rows)((const T *)from + at, apart, n, dv, weight, o);
}

/* Scales the scores of a query against the keys of a tile, which begins at key j0, and applies softcap, mask and bias.
   Only keys [from, to) of the tile are visible. */
static void NAME(see)(T *s, const rlx_call *call, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t from, int64_t to)
{
    RLX_ARGUMENTS(attention, call);
    const int64_t *steps = p->mask_steps;
    const int64_t kind = p->kind;
    const T scale = (T)p->scale, softcap = (T)p->softcap;
    for (int64_t j = from; j < to; j++) s[j] *= scale;
    if (softcap != 0)
        for (int64_t j = from; j < to; j++) s[j] = softcap * SCALAR(tanh)(s[j] / softcap);
    if (kind == RLX_SEES_CUSTOM) {
        const uint8_t *visible = (const uint8_t *)in->mask + b * steps[0] + j0;
        for (int64_t j = from; j < to; j++) s[j] = visible[j] ? s[j] : -(T)INFINITY;
    }
    if (kind == RLX_SEES_BIAS) {
        const T *bias = (const T *)in->mask + b * steps[0] + h * steps[1] + i * steps[2] + j0 * steps[3];
        for (int64_t j = from; j < to; j++) s[j] += bias[j * steps[3]];
    }
}

/* The running softmax of a query: the largest score so far, and the sum of exp(score - top). */
typedef struct {
    T top, sum;
} NAME(rlx_seen);

/* Turns the scores of some keys into softmax weights. The sum and the result so far are rescaled to the new largest
   score. */
static void NAME(weigh)(T *s, int64_t count, int64_t from, int64_t to, NAME(rlx_seen) *seen, T *o, int64_t dv)
{
    for (int64_t j = 0; j < from; j++) s[j] = 0;
    for (int64_t j = to; j < count; j++) s[j] = 0;
    if (from >= to) return;
    const T largest = NAME(row_max)(s + from, to - from), top = largest > seen->top ? largest : seen->top;
    /* If no key is visible, all scores are -inf. The weights are then 0. */
    const T base = top == -(T)INFINITY ? 0 : top, shrink = SCALAR(exp)(seen->top - base);
    if (shrink != 1)
        for (int64_t e = 0; e < dv; e++) o[e] *= shrink;
    seen->top = top;
    seen->sum = seen->sum * shrink + NAME(row_exp)(s + from, s + from, base, to - from);
}

/* Queries [begin, end) of a head. Scratch: a tile of keys and one of values in panels, the scores of some queries, and
   the running softmax of each. */
static void NAME(attend)(const rlx_call *call, int64_t b, int64_t h, int64_t begin, int64_t end, T *scratch)
{
    RLX_ARGUMENTS(attention, call);
    const int64_t share = p->heads / p->kv_heads, sq = p->sq, sk = p->sk, d = p->d, dv = p->dv;
    const int64_t kind = p->kind, window = p->window, causal = kind == RLX_SEES_CAUSAL || kind == RLX_SEES_SLIDING, ahead = sk - sq;
    const T *q = (const T *)in->q + b * p->q_steps[0] + h * p->q_steps[1];
    const int64_t k = b * p->k_steps[0] + h / share * p->k_steps[1], k_step = p->k_steps[2], format = p->kv_format;
    const int64_t v = b * p->v_steps[0] + h / share * p->v_steps[1], v_step = p->v_steps[2];
    T *o = (T *)out->y + b * p->o_steps[0] + h * p->o_steps[1];
    T *keys = scratch, *values = keys + NAME(KEYS) * d, *scores = values + NAME(KEYS) * (dv + VL);
    NAME(rlx_seen) *seen = (NAME(rlx_seen) *)(scores + NAME(QUERIES) * NAME(KEYS));
    T *wide = (T *)(seen + sq);
    for (int64_t i = begin; i < end; i++) {
        seen[i] = (NAME(rlx_seen)){-(T)INFINITY, 0};
        memset(o + i * p->o_steps[2], 0, (size_t)dv * sizeof(T));
    }
    /* Tiles begin at multiples of their size, so that results do not depend on which queries a call makes. */
    const int64_t past = kind == RLX_SEES_SLIDING && begin + ahead > window ? begin + ahead - window : 0;
    const int64_t last = causal && end + ahead < sk ? end + ahead : sk;
    for (int64_t j0 = past / NAME(KEYS) * NAME(KEYS); j0 < last; j0 += NAME(KEYS)) {
        const int64_t tile = last - j0 < NAME(KEYS) ? last - j0 : NAME(KEYS);
        for (int64_t j = 0; j < tile; j += MICRO_COLUMNS) {
            const int64_t some = tile - j < MICRO_COLUMNS ? tile - j : MICRO_COLUMNS;
            const T *rows = NAME(seen_rows)(in->k, format, k + (j0 + j) * k_step, k_step, some, d, wide);
            NAME(make_panel)(keys + j * d, rows, format ? d : k_step, d, some, 1);
        }
        for (int64_t e = 0; e < dv; e += MICRO_COLUMNS) {
            const int64_t some = dv - e < MICRO_COLUMNS ? dv - e : MICRO_COLUMNS;
            const T *rows = NAME(seen_rows)(in->v, format, v + j0 * v_step + e, v_step, tile, some, wide);
            NAME(make_panel)(values + e * tile, rows, format ? some : v_step, tile, some, 0);
        }
        for (int64_t i = begin; i < end; i += NAME(QUERIES)) {
            const int64_t rows = end - i < NAME(QUERIES) ? end - i : NAME(QUERIES);
            /* Keys [first, count) of the tile are visible to at least one of these queries. */
            const int64_t key_end = i + rows + ahead - j0, key_start = i + ahead - window - j0;
            const int64_t count = !causal || key_end > tile ? tile : key_end;
            if (count <= 0 || (kind == RLX_SEES_SLIDING && key_start >= count)) continue;
            for (int64_t j = 0; j < count; j += MICRO_COLUMNS) {
                const int64_t whole = tile - j < MICRO_COLUMNS ? tile - j : MICRO_COLUMNS;
                NAME(micro_rows)(q + i * p->q_steps[2], p->q_steps[2], keys + j * d, NAME(panel_columns)(whole), scores + j,
                                 NAME(KEYS), rows, d, NAME(micro_zeros), count - j < whole ? count - j : whole, 0);
            }
            for (int64_t r = 0; r < rows; r++) {
                const int64_t index = i + r + ahead - j0; /* the last key that is visible to a causal query */
                const int64_t to = !causal || index + 1 > count ? count : index < 0 ? 0 : index + 1;
                const int64_t from = kind == RLX_SEES_SLIDING && index > window ? index - window : 0;
                T *s = scores + r * NAME(KEYS);
                NAME(see)(s, call, b, h, i + r, j0, from, to);
                NAME(weigh)(s, count, from < count ? from : count, to, seen + i + r, o + (i + r) * p->o_steps[2], dv);
            }
            for (int64_t e = 0; e < dv; e += MICRO_COLUMNS) {
                const int64_t width = dv - e < MICRO_COLUMNS ? dv - e : MICRO_COLUMNS;
                NAME(micro_rows)(scores, NAME(KEYS), values + e * tile, NAME(panel_columns)(width),
                                 o + i * p->o_steps[2] + e, p->o_steps[2], rows, count, NULL, width, 0);
            }
        }
    }
    for (int64_t i = begin; i < end; i++) {
        const T inverse = seen[i].sum == 0 ? 0 : 1 / seen[i].sum;
        for (int64_t e = 0; e < dv; e++) o[i * p->o_steps[2] + e] *= inverse;
    }
}

/* The parts of a call are blocks of queries (many) or single queries. */
static int NAME(kernel_attention)(const rlx_call *call)
{
    RLX_ARGUMENTS(attention, call);
    const int64_t batch = p->batch, heads = p->heads, share = p->heads / p->kv_heads;
    if (p->many) {
        const int64_t blocks = (p->sq + NAME(QUERIES) - 1) / NAME(QUERIES);
        const rlx_range own = rlx_share(call, batch * heads * blocks, 1);
        for (int64_t index = own.first; index < own.last;) {
            const int64_t head = index / blocks, next = (head + 1) * blocks < own.last ? (head + 1) * blocks : own.last;
            const int64_t end = (next - head * blocks) * NAME(QUERIES);
            NAME(attend)(call, head / heads, head % heads, index % blocks * NAME(QUERIES), end < p->sq ? end : p->sq,
                         out->tiles);
            index = next;
        }
        return RLX_OK;
    }
    const int64_t sq = p->sq, sk = p->sk, d = p->d, dv = p->dv;
    const int64_t kind = p->kind, window = p->window;
    const rlx_range own = rlx_share(call, batch * heads * sq, 1);
    for (int64_t row = own.first; row < own.last; row++) {
        const int64_t b = row / sq / heads, h = row / sq % heads, i = row % sq;
        const T *q = (const T *)in->q + b * p->q_steps[0] + h * p->q_steps[1] + i * p->q_steps[2];
        const int64_t k = b * p->k_steps[0] + h / share * p->k_steps[1], k_step = p->k_steps[2];
        const int64_t v = b * p->v_steps[0] + h / share * p->v_steps[1], v_step = p->v_steps[2];
        T *o = (T *)out->y + b * p->o_steps[0] + h * p->o_steps[1] + i * p->o_steps[2];
        /* Keys [first, last) are visible. */
        const int64_t index = i + sk - sq;
        int64_t first = 0, last = sk;
        if (kind == RLX_SEES_CAUSAL || kind == RLX_SEES_SLIDING) last = index + 1 < sk ? index + 1 : sk;
        if (kind == RLX_SEES_SLIDING && index - window > 0) first = index - window;
        NAME(rlx_seen) seen = {-(T)INFINITY, 0};
        for (int64_t e = 0; e < dv; e++) o[e] = 0;
        for (int64_t j0 = first; j0 < last; j0 += NAME(KEYS)) {
            const int64_t n = last - j0 < NAME(KEYS) ? last - j0 : NAME(KEYS);
            T score[NAME(KEYS)] = {0};
            NAME(add_scores)(in->k, p->kv_format, k + j0 * k_step, k_step, n, d, q, score);
            NAME(see)(score, call, b, h, i, j0, 0, n);
            NAME(weigh)(score, n, 0, n, &seen, o, dv);
            NAME(add_values)(in->v, p->kv_format, v + j0 * v_step, v_step, n, dv, score, o);
        }
        const T inverse = seen.sum == 0 ? 0 : 1 / seen.sum;
        for (int64_t e = 0; e < dv; e++) o[e] *= inverse;
    }
    return RLX_OK;
}
