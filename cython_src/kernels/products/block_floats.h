/* Quantised weights in panels (block_forms.h) as floats: a row of f32 times a panel, and the weights of a panel. */

/* Weight b (0 to 3) of a group of signed codes, as floats of CODE_UNIT. Its byte is moved to the top of the lane. */
#define CODE_UNIT 0x1p24f
static RLX_INLINE vf code_floats(vi codes, const int b)
{
#if VECTOR_BYTES >= 32
    const int none = -128, places[] = {b, 4 + b, 8 + b, 12 + b};
    const __m128i top = _mm_setr_epi8(none, none, none, places[0], none, none, none, places[1], none, none, none, places[2],
                                      none, none, none, places[3]);
    if (b == 3) return __builtin_convertvector(codes & (int32_t)0xff000000, vf);
    if (b == 0) return __builtin_convertvector(codes << 24, vf);
#if VECTOR_BYTES == 64
    return __builtin_convertvector((vi)_mm512_shuffle_epi8((__m512i)codes, _mm512_broadcast_i32x4(top)), vf);
#else
    return __builtin_convertvector((vi)_mm256_shuffle_epi8((__m256i)codes, _mm256_broadcastsi128_si256(top)), vf);
#endif
#else
    return __builtin_convertvector((codes << (24 - 8 * b)) & (int32_t)0xff000000, vf);
#endif
}

/* Group g of 32 weights, as signed bytes. */
static RLX_INLINE vi signed_codes(const int scheme, const uint8_t *lines, int64_t v, const int g)
{
    return (vi)(block_codes(scheme, lines, v, g) - (uint8_t)block_forms[scheme].zero);
}

/* The factor of CODE_UNIT and the addend of 16 or 32 weights: vector v of the columns. */
typedef struct {
    vf scale, minimum;
} block_affine;

static RLX_INLINE block_affine affine_of(const int scheme, const uint8_t *chunk, int64_t j, const int s, int64_t v)
{
    const int of_256 = block_chunk(scheme) == 256, minimums = block_forms[scheme].minimums;
    const vf whole = of_256 ? block_half_scales(chunk, 0, v) : (vf){0};
    const vf least = of_256 && minimums ? block_half_scales(chunk, 32, v) : (vf){0};
    return (block_affine){block_scale(scheme, chunk, j, s, v, whole) * (1 / CODE_UNIT),
                          minimums ? block_minimum(scheme, chunk, j, s, v, least) : (vf){0}};
}

/* A row of k elements times a panel. Products with codes that share a scale are summed before they are scaled. `totals` are
   the sums of 16 elements each. */
static RLX_INLINE void row_by_panel(const int scheme, const uint8_t *panel, int64_t k, const float *x, const float *totals,
                                    float *y)
{
    const int per = block_chunk(scheme) / 32, halves = 32 / block_forms[scheme].step;
    vf sums[LINE_VECTORS] = {{0}};
    for (int64_t at = 0; at < k; at += 32, x += 32) {
        const int64_t j = at / 32 % per;
        if (at && !j) panel += block_chunk_bytes(scheme);
        if (!j) fetch_ahead(panel, block_head(scheme));
        const uint8_t *lines = panel + block_head(scheme) + j * block_lines(scheme) * BLOCK_LINE;
        const float *own = totals + at / 16;
        fetch_ahead(lines, block_lines(scheme) * BLOCK_LINE);
        _Pragma("GCC unroll 4") for (int v = 0; v < LINE_VECTORS; v++)
            _Pragma("GCC unroll 2") for (int s = 0; s < halves; s++)
            {
                const block_affine by = affine_of(scheme, panel, j, s, v);
                vf even = {0}, odd = {0};
                _Pragma("GCC unroll 8") for (int g = 8 / halves * s; g < 8 / halves * (s + 1); g++)
                {
                    const vi codes = signed_codes(scheme, lines, v, g);
                    even = v_fma(code_floats(codes, 0), v_all(x[4 * g]), even);
                    odd = v_fma(code_floats(codes, 1), v_all(x[4 * g + 1]), odd);
                    even = v_fma(code_floats(codes, 2), v_all(x[4 * g + 2]), even);
                    odd = v_fma(code_floats(codes, 3), v_all(x[4 * g + 3]), odd);
                }
                sums[v] = v_fma(even + odd, by.scale, sums[v]);
                const float total = halves == 2 ? own[s] : own[0] + own[1];
                if (block_forms[scheme].minimums) sums[v] = v_fma(by.minimum, v_all(total), sums[v]);
            }
    }
    _Pragma("GCC unroll 4") for (int v = 0; v < LINE_VECTORS; v++) v_store(y + v * FLOATS, sums[v]);
}

/* `depth` weights of all columns from weight `at` on, both multiples of 32, to rows that are `step` apart. */
static RLX_INLINE void floats_of_panel(const int scheme, const uint8_t *panel, int64_t at, int64_t depth, float *to, int64_t step)
{
    const int chunk = block_chunk(scheme), halves = 32 / block_forms[scheme].step;
    for (const int64_t end = at + depth; at < end; at += 32) {
        const uint8_t *own = panel + at / chunk * block_chunk_bytes(scheme);
        const int64_t j = at % chunk / 32;
        const uint8_t *lines = own + block_head(scheme) + j * block_lines(scheme) * BLOCK_LINE;
        _Pragma("GCC unroll 2") for (int s = 0; s < halves; s++)
            for (int v = 0; v < LINE_VECTORS; v++) {
                const block_affine by = affine_of(scheme, own, j, s, v);
                float *row = to + v * FLOATS + 32 / halves * s * step;
                _Pragma("GCC unroll 8") for (int g = 8 / halves * s; g < 8 / halves * (s + 1); g++)
                {
                    const vi codes = signed_codes(scheme, lines, v, g);
                    _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++, row += step)
                        v_store(row, code_floats(codes, b) * by.scale + by.minimum);
                }
            }
        to += 32 * step;
    }
}

#define FLOATS_OF(format)                                                                                           \
    static RLX_NOINLINE void row_by_##format(const uint8_t *panel, int64_t k, const float *x, const float *totals, float *y) \
    {                                                                                                               \
        row_by_panel(RLX_SCHEME_##format, panel, k, x, totals, y);                                                  \
    }                                                                                                               \
    static RLX_NOINLINE void floats_of_##format(const uint8_t *panel, int64_t at, int64_t depth, float *to, int64_t step) \
    {                                                                                                               \
        floats_of_panel(RLX_SCHEME_##format, panel, at, depth, to, step);                                           \
    }
BLOCK_FORMATS(FLOATS_OF)
#undef FLOATS_OF

static const struct {
    void (*row)(const uint8_t *panel, int64_t k, const float *x, const float *totals, float *y);
    void (*floats)(const uint8_t *panel, int64_t at, int64_t depth, float *to, int64_t step);
} block_floats[] = {
#define ROW(format) [RLX_SCHEME_##format] = {row_by_##format, floats_of_##format},
    BLOCK_FORMATS(ROW)
#undef ROW
};
