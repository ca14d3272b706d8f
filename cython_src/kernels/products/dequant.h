/* Block-quantised weights (rlx/ops/block_formats.py): decoding, and products that decode. The block layouts are those of GGUF
   files, little endian. Decoding takes three steps: codes to signed bytes, bytes to floats, and scale * code + offset for every
   16 weights. The first and the last step use explicit vectors; the compiler vectorises the second. */

/* A quantised matrix. */
typedef struct {
    const uint8_t *codes;
    const void *scales, *zeros; /* for plain groups: one per group of a row; zeros may be NULL */
    rlx_quantized as;
} rlx_packed;

typedef uint8_t u8x16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

static inline float block_half(const uint8_t *position)
{
    uint16_t h;
    memcpy(&h, position, 2);
    return rlx_from_f16(h);
}

/* Bits `shift` and up of each of 16 bytes, masked by `mask`. */
static inline u8x16 fields(const uint8_t *position, uint64_t shift, uint8_t mask)
{
    return (u8x16)((u64x2)*(const u8x16 *)position >> shift) & mask;
}

/* Each byte shifted left; the bits shifted out are 0. */
static inline u8x16 up(u8x16 v, uint64_t bits) { return (u8x16)((u64x2)v << bits); }

/* Each of 16 bits as the fifth bit of a code. */
static inline u8x16 fifth_bits(const uint8_t *position)
{
    const uint64_t every = 0x0101010101010101u, own = 0x8040201008040201u;
    const u64x2 spread = {position[0] * every & own, position[1] * every & own};
    return (u8x16)((u8x16)spread != 0) & 16;
}

static inline void put(int8_t *codes, u8x16 v) { memcpy(codes, &v, 16); }

/* Decodes one block: its codes, and a scale and an offset for each 16 of them. */
#define UNPACK(name)                                                                              \
    static void unpack_##name(const uint8_t *restrict b, int8_t *restrict codes,                  \
                              float *restrict scale, float *restrict offset)

/* --- 32 weights to a block: the low halves of 16 bytes, then the high halves ------------------- */

UNPACK(q4_0)
{
    put(codes, fields(b + 2, 0, 15) - 8);
    put(codes + 16, fields(b + 2, 4, 15) - 8);
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = 0;
}

UNPACK(q4_1)
{
    put(codes, fields(b + 4, 0, 15));
    put(codes + 16, fields(b + 4, 4, 15));
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = block_half(b + 2);
}

UNPACK(q5_0)
{
    put(codes, (fields(b + 6, 0, 15) | fifth_bits(b + 2)) - 16);
    put(codes + 16, (fields(b + 6, 4, 15) | fifth_bits(b + 4)) - 16);
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = 0;
}

UNPACK(q5_1)
{
    put(codes, fields(b + 8, 0, 15) | fifth_bits(b + 4));
    put(codes + 16, fields(b + 8, 4, 15) | fifth_bits(b + 6));
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = block_half(b + 2);
}

UNPACK(q8_0)
{
    memcpy(codes, b + 2, 32);
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = 0;
}

/* --- 256 weights to a block: 16 sub-blocks of 16 weights -------------------------------------- */

UNPACK(q2_k)
{
    const float d = block_half(b + 80), least = block_half(b + 82);
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 16 + (s >> 3) * 32 + (s & 1) * 16;
        put(codes + 16 * s, fields(q, (uint64_t)(s >> 1 & 3) * 2, 3));
        scale[s] = d * (float)(b[s] & 15);
        offset[s] = -least * (float)(b[s] >> 4);
    }
}

UNPACK(q3_k)
{
    const float d = block_half(b + 108);
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 32 + (s >> 3) * 32 + (s & 1) * 16, *third = b + (s & 1) * 16;
        const u8x16 top = up(fields(third, (uint64_t)(s >> 1), 1), 2);
        put(codes + 16 * s, (fields(q, (uint64_t)(s >> 1 & 3) * 2, 3) | top) - 4);
        const int low = b[96 + (s & 7)] >> (s >> 3) * 4 & 15;
        const int high = b[104 + (s & 3)] >> (s >> 2) * 2 & 3;
        scale[s] = d * (float)((low | high << 4) - 32);
        offset[s] = 0;
    }
}

/* The 6-bit scale and minimum of 32 weights, out of 12 bytes that hold eight of each (Q4_K, Q5_K). */
static inline void scales_k4(const uint8_t *b, int j, float *restrict scale,
                             float *restrict offset)
{
    const uint8_t *s = b + 4;
    const int wide = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    const int least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
    scale[2 * j] = scale[2 * j + 1] = block_half(b) * (float)wide;
    offset[2 * j] = offset[2 * j + 1] = -block_half(b + 2) * (float)least;
}

UNPACK(q4_k)
{
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 16 + (s >> 2) * 32 + (s & 1) * 16;
        put(codes + 16 * s, fields(q, (uint64_t)(s >> 1 & 1) * 4, 15));
    }
    for (int j = 0; j < 8; j++) scales_k4(b, j, scale, offset);
}

UNPACK(q5_k)
{
    for (int s = 0; s < 16; s++) {
        const uint8_t *q = b + 48 + (s >> 2) * 32 + (s & 1) * 16, *fifth = b + 16 + (s & 1) * 16;
        const u8x16 top = up(fields(fifth, (uint64_t)(s >> 1), 1), 4);
        put(codes + 16 * s, fields(q, (uint64_t)(s >> 1 & 1) * 4, 15) | top);
    }
    for (int j = 0; j < 8; j++) scales_k4(b, j, scale, offset);
}

UNPACK(q6_k)
{
    const float d = block_half(b + 208);
    for (int s = 0; s < 16; s++) {
        const int half = s >> 3, part = s >> 1 & 3, from = (s & 1) * 16;
        const uint8_t *low = b + half * 64 + (part & 1) * 32 + from;
        const uint8_t *high = b + 128 + half * 32 + from;
        const u8x16 top = up(fields(high, (uint64_t)part * 2, 3), 4);
        put(codes + 16 * s, (fields(low, (uint64_t)(part >> 1) * 4, 15) | top) - 32);
        scale[s] = d * (float)(int8_t)b[192 + s];
        offset[s] = 0;
    }
}

static void put_values(int8_t *codes, const uint8_t *b, uint64_t shift, const int8_t *values)
{
    const u8x16 places = fields(b, shift, 15);
    for (int i = 0; i < 16; i++) codes[i] = values[places[i]];
}

UNPACK(iq4_nl)
{
    put_values(codes, b + 2, 0, block_values_iq4);
    put_values(codes + 16, b + 2, 4, block_values_iq4);
    scale[0] = scale[1] = block_half(b);
    offset[0] = offset[1] = 0;
}

UNPACK(mxfp4)
{
    put_values(codes, b + 1, 0, block_values_mxfp4);
    put_values(codes + 16, b + 1, 4, block_values_mxfp4);
    scale[0] = scale[1] = rlx_from_bf16(block_power(b[0]));
    offset[0] = offset[1] = 0;
}

UNPACK(iq4_xs)
{
    for (int j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> j % 2 * 4 & 15, high = b[2 + j / 4] >> j % 4 * 2 & 3;
        put_values(codes + 32 * j, b + 8 + 16 * j, 0, block_values_iq4);
        put_values(codes + 32 * j + 16, b + 8 + 16 * j, 4, block_values_iq4);
        scale[2 * j] = scale[2 * j + 1] = block_half(b) * (float)((low | high << 4) - 32);
        offset[2 * j] = offset[2 * j + 1] = 0;
    }
}

UNPACK(q8_k)
{
    memcpy(codes, b + 4, 256);
    for (int s = 0; s < 16; s++) {
        memcpy(scale + s, b, 4);
        offset[s] = 0;
    }
}

static const struct {
    int64_t weights, nbytes;
    void (*unpack)(const uint8_t *restrict, int8_t *restrict, float *restrict, float *restrict);
} block_formats[] = {
    {32, 18, unpack_q4_0}, {32, 20, unpack_q4_1}, {32, 22, unpack_q5_0},
    {32, 24, unpack_q5_1}, {32, 34, unpack_q8_0}, {256, 84, unpack_q2_k},
    {256, 110, unpack_q3_k}, {256, 144, unpack_q4_k}, {256, 176, unpack_q5_k},
    {256, 210, unpack_q6_k}, {32, 18, unpack_iq4_nl}, {256, 136, unpack_iq4_xs},
    {32, 17, unpack_mxfp4}, {256, 292, unpack_q8_k},
};

/* --- rows ------------------------------------------------------------------------------------- */

#define LANES4 ((int64_t)(VECTOR_BYTES / sizeof(float)))
/* Weights that are decoded at a time: a multiple of the block and group sizes of all formats. */
#define SPAN RLX_DECODE_SPAN

static float group_value(const void *values, int64_t bytes, int64_t position)
{
    if (bytes == 1) return (float)((const uint8_t *)values)[position];
    if (bytes == 2) return rlx_from_f16(((const uint16_t *)values)[position]);
    return ((const float *)values)[position];
}

/* The first step for plain groups. Codes are reduced by half their range. */
static void unpack_groups(const rlx_packed *p, int64_t row, int64_t from, int64_t count,
                          int8_t *codes, float *scale, float *offset)
{
    const int four = p->as.scheme == RLX_SCHEME_INT4;
    const uint8_t *b = p->codes + row * p->as.row_bytes + (four ? from / 2 : from);
    if (four) {
        for (int64_t i = 0; i < count / 2; i++) {
            codes[2 * i] = (int8_t)((b[i] & 15) - 8);
            codes[2 * i + 1] = (int8_t)((b[i] >> 4) - 8);
        }
    } else {
        for (int64_t i = 0; i < count; i++) codes[i] = (int8_t)(b[i] ^ 128);
    }
    const int64_t first = row * (p->as.k / p->as.group);
    for (int64_t s = 0; s < count / 16; s++) {
        const int64_t g = first + (from + 16 * s) / p->as.group;
        scale[s] = group_value(p->scales, p->as.scale_bytes, g);
        const float middle = four ? 8.0f : 128.0f;
        offset[s] = p->zeros ? (middle - group_value(p->zeros, p->as.zero_bytes, g)) * scale[s] : 0;
    }
}

/* Decodes weights [from, from + count) of a row. `from` is a multiple of SPAN, `count` of 16. */
static void decode_span(const rlx_packed *p, int64_t row, int64_t from, int64_t count,
                        float *restrict w)
{
    int8_t codes[SPAN] = {0}; /* initialised, since some compilers warn otherwise */
    float scale[SPAN / 16], offset[SPAN / 16];
    if (p->as.scheme < RLX_SCHEME_INT4) {
        const int64_t weights = block_formats[p->as.scheme].weights;
        const int64_t nbytes = block_formats[p->as.scheme].nbytes;
        const uint8_t *b = p->codes + row * p->as.row_bytes + from / weights * nbytes;
        for (int64_t position = 0; position < count; position += weights, b += nbytes)
            block_formats[p->as.scheme].unpack(b, codes + position, scale + position / 16, offset + position / 16);
    } else {
        unpack_groups(p, row, from, count, codes, scale, offset);
    }
    for (int64_t i = 0; i < count; i++) w[i] = (float)codes[i];
    for (int64_t i = 0; i < count; i += LANES4) {
        vec_f32 *v = (vec_f32 *)(w + i);
        *v = *v * scale[i / 16] + offset[i / 16];
    }
}

/* Decodes a row out of its panel, whose columns are all widened for it. */
static void decode_packed_row(const rlx_packed *p, int64_t row, float *y)
{
    const int64_t k = p->as.k;
    const uint8_t *panel = p->codes + row / BLOCK_COLUMNS * block_panel_bytes((int)p->as.scheme, k);
    float w[WIDENED_FEW * BLOCK_COLUMNS];
    for (int64_t at = 0, some; at < k; at += some) {
        some = k - at < WIDENED_FEW ? k - at : WIDENED_FEW;
        block_floats[p->as.scheme].floats(panel, at, some, w, BLOCK_COLUMNS);
        for (int64_t i = 0; i < some; i++) y[at + i] = w[i * BLOCK_COLUMNS + row % BLOCK_COLUMNS];
    }
}

static int kernel_dequantize_blocks_u8(const rlx_call *call)
{
    RLX_ARGUMENTS(dequantize_blocks, call);
    const int64_t rows = p->count, table = p->table, index_bytes = p->index_bytes, k = p->weights.k;
    const rlx_packed w = {in->w, in->scales, in->zeros, p->weights};
    const rlx_range own = rlx_share(call, rows, 1);
    float *y = (float *)out->y + own.first * k;
    for (int64_t r = own.first; r < own.last; r++, y += k) {
        int64_t from = r;
        if (index_bytes) {
            from = index_bytes == 4 ? ((const int32_t *)in->index)[r]
                                    : ((const int64_t *)in->index)[r];
            from += from < 0 ? table : 0;
            if (from < 0 || from >= table) return RLX_OUT_OF_RANGE;
        }
        if (p->packing) decode_packed_row(&w, from, y);
        else for (int64_t position = 0; position < k; position += SPAN)
            decode_span(&w, from, position, k - position < SPAN ? k - position : SPAN, y + position);
    }
    return RLX_OK;
}

/* --- products --------------------------------------------------------------------------------- */

#define DEQUANT_COLUMNS (MICRO_VECTORS * LANES4) /* columns of a panel (micro.h) */
/* Up to this many rows of x, decoded weights are used at once; above, they go into panels first. */
#define DEQUANT_FEW 16

/* Adds the products of a row of x with a span of weights to its sums. `count` is a multiple of 16. */
static inline vec_f32 span_dot(vec_f32 sum, const float *x, const float *w, int64_t count)
{
    vec_f32 s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 * LANES4 <= count; i += 4 * LANES4) {
        const float *a = x + i, *b = w + i;
        sum += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += LANES4, b += LANES4;
        s1 += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += LANES4, b += LANES4;
        s2 += *(const vec_f32 *)a * *(const vec_f32 *)b;
        a += LANES4, b += LANES4;
        s3 += *(const vec_f32 *)a * *(const vec_f32 *)b;
    }
    for (; i < count; i += LANES4) s1 += *(const vec_f32 *)(x + i) * *(const vec_f32 *)(w + i);
    return (sum + s1) + (s2 + s3);
}

/* The same for four rows of x that are k apart. */
static inline void span_dot4(vec_f32 *sums, const float *x, int64_t k, const float *w,
                             int64_t count)
{
    vec_f32 s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    for (int64_t i = 0; i < count; i += LANES4) {
        const vec_f32 v = *(const vec_f32 *)(w + i);
        s0 += v * *(const vec_f32 *)(x + i);
        s1 += v * *(const vec_f32 *)(x + k + i);
        s2 += v * *(const vec_f32 *)(x + 2 * k + i);
        s3 += v * *(const vec_f32 *)(x + 3 * k + i);
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

static void dequant_few(const rlx_packed *p, const float *x, float *y, int64_t m, int64_t n,
                        rlx_range own)
{
    const int64_t k = p->as.k;
    float w[SPAN];
    for (int64_t j = own.first; j < own.last; j++) {
        vec_f32 sums[DEQUANT_FEW] = {{0}};
        for (int64_t position = 0; position < k; position += SPAN) {
            const int64_t count = k - position < SPAN ? k - position : SPAN;
            decode_span(p, j, position, count, w);
            int64_t i = 0;
            for (; i + 4 <= m; i += 4) span_dot4(sums + i, x + i * k + position, k, w, count);
            for (; i < m; i++) sums[i] = span_dot(sums[i], x + i * k + position, w, count);
        }
        for (int64_t i = 0; i < m; i++) {
            float total = 0;
            for (int64_t l = 0; l < LANES4; l++) total += sums[i][l];
            y[i * n + j] = total;
        }
    }
}

static void dequant_panels(const rlx_packed *p, const float *x, float *y, int64_t m, int64_t n, rlx_range own,
                           float *panel)
{
    const int64_t k = p->as.k;
    float w[SPAN];
    for (int64_t j = own.first; j < own.last; j += DEQUANT_COLUMNS) {
        const int64_t width = own.last - j < DEQUANT_COLUMNS ? own.last - j : DEQUANT_COLUMNS;
        const int64_t step = panel_columns_f32(width);
        if (width < step) memset(panel, 0, (size_t)(SPAN * step) * sizeof(float));
        for (int64_t position = 0; position < k; position += SPAN) {
            const int64_t depth = k - position < SPAN ? k - position : SPAN;
            for (int64_t v = 0; v < width; v++) {
                decode_span(p, j + v, position, depth, w);
                for (int64_t i = 0; i < depth; i++) panel[i * step + v] = w[i];
            }
            micro_rows_f32(x + position, k, panel, step, y + j, n, m, depth, position ? NULL : micro_zeros_f32, width, 0);
        }
    }
}

/* The products of m rows by columns `own` of an expert's weights; rows of results are `stride` apart. */
static void dequant_rows(const rlx_call *call, rounded_way way, const float *x, const rlx_rounded_block *rounded,
                         int64_t m, int64_t expert, float *y, int64_t stride, rlx_range own)
{
    RLX_ARGUMENTS(dequant_matmul, call);
    const int64_t n = p->n, k = p->weights.k, scheme = p->weights.scheme;
    if (p->packing) {
        const uint8_t *panels = (const uint8_t *)in->w;
        panels += expert * (n / BLOCK_COLUMNS) * block_panel_bytes((int)scheme, k);
        if (rounded) way((int)scheme, panels, rounded, y, m, stride, k, own);
        else unrounded_product((int)scheme, panels, x, y, m, stride, k, own, out->panel);
        return;
    }
    const uint8_t *codes = (const uint8_t *)in->w + expert * n * p->weights.row_bytes;
    const rlx_packed w = {codes, in->scales, in->zeros, p->weights};
    if (m <= DEQUANT_FEW || k == 0)
        for (int64_t i = 0; i < m; i += DEQUANT_FEW)
            dequant_few(&w, x + i * k, y + i * stride, m - i < DEQUANT_FEW ? m - i : DEQUANT_FEW, stride, own);
    else
        dequant_panels(&w, x, y, m, stride, own, out->panel);
}

/* The same for rows that a list names. Those that do not follow each other are copied to where they do. */
static void dequant_listed(const rlx_call *call, rounded_way way, const int64_t *rows, int64_t count,
                           int64_t expert, float *results, rlx_range own)
{
    RLX_ARGUMENTS(dequant_matmul, call);
    const int rounded = p->packing && in->rows;
    const int64_t n = p->n, k = p->weights.k, each = rounded ? (k + 255) / 256 * (int64_t)sizeof(rlx_rounded_block) : 4 * k;
    const char *from = rounded ? in->rows : in->x;
    const int apart = rows[count - 1] - rows[0] != count - 1;
    const void *x = apart ? out->listed : from + rows[0] * each;
    for (int64_t r = 0; apart && r < count; r++) memcpy((char *)out->listed + r * each, from + rows[r] * each, (size_t)each);
    for (int64_t j = own.first, width; j < own.last; j += width) {
        width = apart && own.last - j > RLX_EXPERT_COLUMNS ? RLX_EXPERT_COLUMNS : own.last - j;
        float *y = apart ? results - j : (float *)out->y + rows[0] * n;
        dequant_rows(call, way, x, rounded ? x : NULL, count, expert, y, apart ? width : n, (rlx_range){j, j + width});
        for (int64_t r = 0; apart && r < count; r++)
            memcpy((float *)out->y + rows[r] * n + j, y + r * width + j, (size_t)width * sizeof(float));
    }
}

static int dequant_product(const rlx_call *call, rounded_way few, rounded_way many)
{
    RLX_ARGUMENTS(dequant_matmul, call);
    const rounded_way way = p->bf16 ? many : few;
    const int64_t m = p->m, n = p->n, bytes = p->index_bytes, experts = p->experts;
    if (!bytes) {
        dequant_rows(call, way, in->x, in->rows, m, 0, out->y, n, rlx_share(call, n, BLOCK_COLUMNS)); /* parts are columns */
        return RLX_OK;
    }
    /* The rows in the order of their experts. ends[e] is where those of expert e begin, and end once all are listed. */
    const int64_t k = p->weights.k, bare = 4 * k, packed = (k + 255) / 256 * RLX_ROUNDED_BYTES, each = bare > packed ? bare : packed;
    float *results = (float *)((char *)out->listed + RLX_EXPERT_ROWS * each);
    int64_t *ends = (int64_t *)(results + RLX_EXPERT_ROWS * RLX_EXPERT_COLUMNS), *order = ends + experts + 1;
    memset(ends, 0, (size_t)(experts + 1) * sizeof(*ends));
#define EXPERT(i) (bytes == 4 ? ((const int32_t *)in->expert)[i] : ((const int64_t *)in->expert)[i])
    for (int64_t i = 0; i < m; i++) {
        if (EXPERT(i) < 0 || EXPERT(i) >= experts) return RLX_OUT_OF_RANGE;
        ends[EXPERT(i) + 1]++;
    }
    int64_t lists = 0;
    for (int64_t e = 0; e < experts; ends[e + 1] += ends[e], e++) lists += (ends[e + 1] + RLX_EXPERT_ROWS - 1) / RLX_EXPERT_ROWS;
    for (int64_t i = 0; i < m; i++) order[ends[EXPERT(i)]++] = i;
#undef EXPERT
    /* Parts are columns of lists of rows: a thread copies few lists, and their rows stay in its cache. */
    const int64_t blocks = (n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    const rlx_range all = rlx_share(call, lists * blocks, 1);
    for (int64_t e = 0, at = 0, before = 0; e < experts; e++)
        for (int64_t some; at < ends[e]; at += some, before += blocks) {
            some = ends[e] - at < RLX_EXPERT_ROWS ? ends[e] - at : RLX_EXPERT_ROWS;
            const int64_t first = (all.first - before) * BLOCK_COLUMNS, last = (all.last - before) * BLOCK_COLUMNS;
            const rlx_range own = {first > 0 ? first : 0, last < n ? last : n};
            if (own.first < own.last) dequant_listed(call, way, order + at, some, e, results, own);
        }
    return RLX_OK;
}

/* Up to three products of the same rows. The parts of the call are columns of all of them. A weight that another call reads
   in another format is not in panels, and is decoded here. */
static int dequant_joined(const rlx_call *call, rounded_way few, rounded_way many)
{
    RLX_ARGUMENTS(dequant_products, call);
    const rounded_way way = p->bf16 ? many : few;
    const void *const weights[] = {in->w, in->w1, in->w2};
    float *const results[] = {out->y, out->y1, out->y2};
    int64_t columns[3] = {0}, before = 0;
    for (int i = 0; i < 3 && results[i]; i++) columns[i] = (p->n[i] + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * BLOCK_COLUMNS;
    const rlx_range all = rlx_share(call, columns[0] + columns[1] + columns[2], BLOCK_COLUMNS);
    for (int i = 0; i < 3 && results[i]; before += columns[i++]) {
        const int64_t n = p->n[i], first = all.first - before, last = all.last - before;
        const rlx_range own = {first > 0 ? first : 0, last < n ? last : n};
        const rlx_packed w = {weights[i], NULL, NULL, {p->schemes[i], p->k, p->row_bytes[i], 1, 0, 0}};
        if (own.first >= own.last) continue;
        if (p->packing) way((int)w.as.scheme, w.codes, in->rows, results[i], p->m, n, p->k, own);
        else for (int64_t r = 0; r < p->m; r++) dequant_few(&w, (const float *)in->x + r * p->k, results[i] + r * n, 1, n, own);
    }
    return RLX_OK;
}
#define DEQUANT(VARIANT, few, many)                                                                          \
    static int kernel_dequant_matmul_f32##VARIANT(const rlx_call *call) { return dequant_product(call, few, many); } \
    static int kernel_dequant_products_f32##VARIANT(const rlx_call *call) { return dequant_joined(call, few, many); }
DEQUANT(, rounded_plain, rounded_plain)
#ifdef DOT_FEATURES
DEQUANT(_dots, rounded_dots, rounded_dots)
#endif
#ifdef TILE_FEATURES
DEQUANT(_tiles, rounded_dots, rounded_tiles)
#endif
#undef DEQUANT
#undef UNPACK
#undef SPAN
#undef LANES4
#undef DEQUANT_COLUMNS
#undef DEQUANT_FEW
