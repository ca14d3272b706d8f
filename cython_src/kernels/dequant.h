/* Block-quantised weights (rlx/ops/block_formats.py): decoding, and products that decode as they go.

   The layouts are those of GGUF files, little endian. A weight is scale * code, for some formats less
   or plus an offset; each decoder writes one block of floats. */

typedef struct {
    const uint8_t *codes;
    const void *scales, *zeros; /* of plain groups: one per group of a row; zeros may be NULL */
    int64_t scheme, row_bytes, group, scale_bytes, zero_bytes, k;
} rlx_packed;

static inline float block_half(const uint8_t *at)
{
    uint16_t h;
    memcpy(&h, at, 2);
    return rlx_from_f16(h);
}

/* --- 32 weights to a block ------------------------------------------------------------------------- */

#define LOW(b) ((int)((b) & 15))
#define HIGH(b) ((int)((b) >> 4))
#define DECODER(name)                                                                             \
    static void decode_##name(const uint8_t *restrict b, float *restrict w)
#define EACH(i, n) _Pragma("GCC ivdep") for (int i = 0; i < (n); i++)

DECODER(q4_0)
{
    const float d = block_half(b);
    EACH(i, 16) w[i] = d * (float)(LOW(b[2 + i]) - 8);
    EACH(i, 16) w[i + 16] = d * (float)(HIGH(b[2 + i]) - 8);
}

DECODER(q4_1)
{
    const float d = block_half(b), m = block_half(b + 2);
    EACH(i, 16) w[i] = d * (float)LOW(b[4 + i]) + m;
    EACH(i, 16) w[i + 16] = d * (float)HIGH(b[4 + i]) + m;
}

DECODER(q5_0)
{
    const float d = block_half(b);
    uint32_t fifth;
    memcpy(&fifth, b + 2, 4);
    EACH(i, 16) w[i] = d * (float)((LOW(b[6 + i]) | (int)(fifth >> i & 1) << 4) - 16);
    EACH(i, 16) w[i + 16] = d * (float)((HIGH(b[6 + i]) | (int)(fifth >> (i + 16) & 1) << 4) - 16);
}

DECODER(q5_1)
{
    const float d = block_half(b), m = block_half(b + 2);
    uint32_t fifth;
    memcpy(&fifth, b + 4, 4);
    EACH(i, 16) w[i] = d * (float)(LOW(b[8 + i]) | (int)(fifth >> i & 1) << 4) + m;
    EACH(i, 16) w[i + 16] = d * (float)(HIGH(b[8 + i]) | (int)(fifth >> (i + 16) & 1) << 4) + m;
}

DECODER(q8_0)
{
    const float d = block_half(b);
    EACH(i, 32) w[i] = d * (float)(int8_t)b[2 + i];
}

/* --- 256 weights to a block ------------------------------------------------------------------------ */

DECODER(q2_k)
{
    const float d = block_half(b + 80), least = block_half(b + 82);
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 16 + (s >> 3) * 32 + (s & 1) * 16;
        const float a = d * (float)LOW(b[s]), m = least * (float)HIGH(b[s]);
        const int shift = (s >> 1 & 3) * 2;
        EACH(i, 16) w[16 * s + i] = a * (float)(q[i] >> shift & 3) - m;
    }
}

DECODER(q3_k)
{
    const float d = block_half(b + 108);
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 32 + (s >> 3) * 32 + (s & 1) * 16, *third = b + (s & 1) * 16;
        const int low = b[96 + (s & 7)] >> (s >> 3) * 4 & 15, high = b[104 + (s & 3)] >> (s >> 2) * 2 & 3;
        const float a = d * (float)((low | high << 4) - 32);
        const int shift = (s >> 1 & 3) * 2, bit = s >> 1;
        EACH(i, 16) w[16 * s + i] = a * (float)((q[i] >> shift & 3) + (third[i] >> bit & 1) * 4 - 4);
    }
}

/* Scale and minimum j of the 8 that 12 bytes hold in 6 bits each (Q4_K, Q5_K). */
static inline void scale_k4(const uint8_t *s, int j, int *scale, int *least)
{
    if (j < 4) {
        *scale = s[j] & 63, *least = s[j + 4] & 63;
    } else {
        *scale = LOW(s[j + 4]) | s[j - 4] >> 6 << 4;
        *least = HIGH(s[j + 4]) | s[j] >> 6 << 4;
    }
}

DECODER(q4_k)
{
    const float d = block_half(b), dmin = block_half(b + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 16 + (j >> 1) * 32;
        const int shift = (j & 1) * 4;
        int scale, least;
        scale_k4(b + 4, j, &scale, &least);
        const float a = d * (float)scale, m = dmin * (float)least;
        EACH(i, 32) w[32 * j + i] = a * (float)(q[i] >> shift & 15) - m;
    }
}

DECODER(q5_k)
{
    const float d = block_half(b), dmin = block_half(b + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 48 + (j >> 1) * 32, *fifth = b + 16;
        const int shift = (j & 1) * 4;
        int scale, least;
        scale_k4(b + 4, j, &scale, &least);
        const float a = d * (float)scale, m = dmin * (float)least;
        EACH(i, 32) w[32 * j + i] = a * (float)((q[i] >> shift & 15) | (fifth[i] >> j & 1) << 4) - m;
    }
}

DECODER(q6_k)
{
    const float d = block_half(b + 208);
    for (int s = 0; s < 16; s++) {
        const int half = s >> 3, part = s >> 1 & 3, from = (s & 1) * 16;
        const uint8_t *low = b + half * 64 + (part & 1) * 32 + from, *high = b + 128 + half * 32 + from;
        const int low_shift = (part >> 1) * 4, high_shift = part * 2;
        const float a = d * (float)(int8_t)b[192 + s];
        EACH(i, 16)
        w[16 * s + i] = a * (float)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
    }
}

DECODER(q8_k)
{
    float d;
    memcpy(&d, b, 4);
    EACH(i, 256) w[i] = d * (float)(int8_t)b[4 + i];
}

static const struct {
    int64_t weights, nbytes;
    void (*decode)(const uint8_t *restrict, float *restrict);
} block_formats[] = {
    {32, 18, decode_q4_0},  {32, 20, decode_q4_1},   {32, 22, decode_q5_0},   {32, 24, decode_q5_1},
    {32, 34, decode_q8_0},  {256, 84, decode_q2_k},  {256, 110, decode_q3_k}, {256, 144, decode_q4_k},
    {256, 176, decode_q5_k}, {256, 210, decode_q6_k}, {256, 292, decode_q8_k},
};
enum { SCHEME_INT4 = 11, SCHEME_INT8 = 12 };

/* --- rows ------------------------------------------------------------------------------------------ */

/* Weights that are decoded at a time: a whole number of blocks and groups of every format. */
#define SPAN 256

static float group_value(const void *values, int64_t bytes, int64_t at)
{
    if (bytes == 1) return (float)((const uint8_t *)values)[at];
    if (bytes == 2) return rlx_from_f16(((const uint16_t *)values)[at]);
    return ((const float *)values)[at];
}

/* Weights from ... from + count of a row; from is a multiple of SPAN. */
static void decode_span(const rlx_packed *p, int64_t row, int64_t from, int64_t count, float *w)
{
    const uint8_t *codes = p->codes + row * p->row_bytes;
    if (p->scheme < SCHEME_INT4) {
        const int64_t weights = block_formats[p->scheme].weights, nbytes = block_formats[p->scheme].nbytes;
        codes += from / weights * nbytes;
        for (int64_t at = 0; at < count; at += weights, codes += nbytes)
            block_formats[p->scheme].decode(codes, w + at);
        return;
    }
    const int four = p->scheme == SCHEME_INT4;
    const int64_t first = row * (p->k / p->group) + from / p->group;
    codes += four ? from / 2 : from;
    for (int64_t at = 0; at < count; at += p->group, w += p->group) {
        const int64_t g = first + at / p->group;
        const float scale = group_value(p->scales, p->scale_bytes, g);
        const float zero = p->zeros ? group_value(p->zeros, p->zero_bytes, g) : four ? 8.0f : 128.0f;
        if (four) {
            for (int64_t i = 0; i < p->group / 2; i++) {
                w[2 * i] = scale * ((float)LOW(codes[i]) - zero);
                w[2 * i + 1] = scale * ((float)HIGH(codes[i]) - zero);
            }
            codes += p->group / 2;
        } else {
            EACH(i, p->group) w[i] = scale * ((float)codes[i] - zero);
            codes += p->group;
        }
    }
}

/* Parameters: scheme, rows of the result, rows of the table, bytes of an index (0: all rows in order),
   k, bytes of a row, group, bytes of a scale, bytes of a zero point. */
static int kernel_dequantize_blocks_u8(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t rows = p[1].i, table = p[2].i, index_bytes = p[3].i, k = p[4].i;
    const rlx_packed w = {call->in[0], call->in[1], call->in[2], p[0].i, p[5].i, p[6].i, p[7].i, p[8].i, k};
    float *y = call->out[0];
    for (int64_t r = 0; r < rows; r++, y += k) {
        int64_t from = r;
        if (index_bytes) {
            from = index_bytes == 4 ? ((const int32_t *)call->in[3])[r] : ((const int64_t *)call->in[3])[r];
            from += from < 0 ? table : 0;
            if (from < 0 || from >= table) return RLX_INDEX_OUT_OF_RANGE;
        }
        for (int64_t at = 0; at < k; at += SPAN) decode_span(&w, from, at, k - at < SPAN ? k - at : SPAN, y + at);
    }
    return RLX_OK;
}

/* --- products -------------------------------------------------------------------------------------- */

#define DEQUANT_LANES ((int64_t)(VECTOR_BYTES / sizeof(float)))
#define DEQUANT_NR (2 * DEQUANT_LANES) /* columns of a tile of matmul.h */
/* Up to here decoded weights are used once per row; above, in tiles of several columns. */
#define DEQUANT_FEW 16

/* Adds to a row's sums its products with a span of weights, whose length is a multiple of 16. */
static inline vec_f32 span_dot(vec_f32 sum, const float *x, const float *w, int64_t count)
{
    vec_f32 s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 * DEQUANT_LANES <= count; i += 4 * DEQUANT_LANES) {
        const float *a = x + i, *b = w + i;
        sum += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += DEQUANT_LANES, b += DEQUANT_LANES;
        s1 += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += DEQUANT_LANES, b += DEQUANT_LANES;
        s2 += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += DEQUANT_LANES, b += DEQUANT_LANES;
        s3 += *(const vec_f32 *)a * *(const vec_f32 *)b;
    }
    for (; i < count; i += DEQUANT_LANES) s1 += *(const vec_f32 *)(x + i) * *(const vec_f32 *)(w + i);
    return (sum + s1) + (s2 + s3);
}

static void dequant_few(const rlx_packed *p, const float *x, float *y, int64_t m, int64_t n)
{
    const int64_t k = p->k;
    float w[SPAN];
    for (int64_t j = 0; j < n; j++) {
        vec_f32 sums[DEQUANT_FEW] = {{0}};
        for (int64_t at = 0; at < k; at += SPAN) {
            const int64_t count = k - at < SPAN ? k - at : SPAN;
            decode_span(p, j, at, count, w);
            for (int64_t i = 0; i < m; i++) sums[i] = span_dot(sums[i], x + i * k + at, w, count);
        }
        for (int64_t i = 0; i < m; i++) {
            float total = 0;
            for (int64_t l = 0; l < DEQUANT_LANES; l++) total += sums[i][l];
            y[i * n + j] = total;
        }
    }
}

static void dequant_tiles(const rlx_packed *p, const float *x, float *y, int64_t m, int64_t n, float *scratch)
{
    const int64_t k = p->k;
    float *panel = scratch, *edge = panel + SPAN * DEQUANT_NR;
    float w[SPAN];
    static const float none[DEQUANT_NR] = {0};
    for (int64_t j = 0; j < n; j += DEQUANT_NR) {
        const int64_t width = n - j < DEQUANT_NR ? n - j : DEQUANT_NR;
        if (width < DEQUANT_NR) memset(panel, 0, SPAN * DEQUANT_NR * sizeof(float));
        for (int64_t at = 0; at < k; at += SPAN) {
            const int64_t depth = k - at < SPAN ? k - at : SPAN;
            for (int64_t v = 0; v < width; v++) {
                decode_span(p, j + v, at, depth, w);
                for (int64_t i = 0; i < depth; i++) panel[i * DEQUANT_NR + v] = w[i];
            }
            const float *first = at == 0 ? none : NULL;
            if (width == DEQUANT_NR) {
                tiles_f32(x + at, k, panel, y + j, n, m, depth, first);
                continue;
            }
            /* The last columns go through a buffer, a few rows at a time. */
            for (int64_t i = 0; i < m; i += TILE_ROWS) {
                const int64_t rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t v = 0; v < DEQUANT_NR; v++)
                        edge[r * DEQUANT_NR + v] = v < width && at ? y[(i + r) * n + j + v] : 0;
                tiles_f32(x + i * k + at, k, panel, edge, DEQUANT_NR, rows, depth, first);
                for (int64_t r = 0; r < rows; r++)
                    memcpy(y + (i + r) * n + j, edge + r * DEQUANT_NR, (size_t)width * sizeof(float));
            }
        }
    }
}

/* Parameters: scheme, m, n, k, bytes of a row, group, bytes of a scale, bytes of a zero point.
   Scratch: a panel and an edge tile. */
static int kernel_dequant_matmul_f32(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[1].i, n = p[2].i, k = p[3].i;
    const rlx_packed w = {call->in[1], call->in[2], call->in[3], p[0].i, p[4].i, p[5].i, p[6].i, p[7].i, k};
    if (m <= DEQUANT_FEW || k == 0)
        for (int64_t i = 0; i < m; i += DEQUANT_FEW)
            dequant_few(&w, (const float *)call->in[0] + i * k, (float *)call->out[0] + i * n,
                        m - i < DEQUANT_FEW ? m - i : DEQUANT_FEW, n);
    else
        dequant_tiles(&w, call->in[0], call->out[0], m, n, call->out[1]);
    return RLX_OK;
}
#undef LOW
#undef HIGH
#undef EACH
#undef DECODER
