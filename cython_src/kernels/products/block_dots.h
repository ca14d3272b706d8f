/* Products of rounded rows (block_rounding.h) with quantised weights in panels, by one kind of instruction. all.h includes
   this once for each: DOTS(name) names a function of it, DOT_TARGET is what its functions are compiled for, and

   DOT_KIND   says how four products of bytes are added up:
     DOT_PAIRS   by products of 16-bit integers;
     DOT_BYTES   by sums of two products of bytes in 16 bits, as many as do not exceed them (AVX2, AVX-512);
     DOT_FOURS   in one instruction (VNNI, ARM's dot product);
   DOT_CODES_SIGNED   whether codes of 8 bits are made signed first: 128 less. */

/* Adds products of `count` groups of weights, from group `from` on, to the sums of some rows, whose elements are at x. */
static DOT_TARGET RLX_INLINE void DOTS(add)(const int scheme, const int rows, vi *sums, const uint8_t *lines, int64_t v,
                                            const rlx_rounded_block *x, int64_t apart, int64_t at, const int from, const int count)
{
    const int bits = block_code_bits(scheme);
    /* Groups whose sums fit into 16 bits: 8 of 4-bit codes, 4 of 5 bits, 2 of 6 bits, 1 of 8 bits. */
    const int safe = DOT_KIND != DOT_BYTES ? 1 : bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    const int together = safe < count ? safe : count;
    _Pragma("GCC unroll 8") for (int g = from; g < from + count; g += together)
    {
        vi pairs[8] = {{0}};
        _Pragma("GCC unroll 8") for (int i = 0; i < together; i++)
        {
            bytes_v codes = block_codes(scheme, lines, v, g + i);
            if (DOT_CODES_SIGNED && bits == 8) codes ^= 128;
            _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
            {
                const int8_t *four = x[r * apart].codes + at + 4 * (g + i);
#if DOT_KIND == DOT_FOURS
                sums[r] = dot_fours(sums[r], codes, four);
#elif DOT_KIND == DOT_BYTES
                const vi more = bits < 8 ? bytes_times(codes, four) : signed_bytes_times(codes, four);
                pairs[r] = i ? (vi)((signed_shorts_v)pairs[r] + (signed_shorts_v)more) : more;
#else
                const signed_shorts_v both = (signed_shorts_v)every_lane(four);
                sums[r] += (vi)add_pairs((vec_i16)((shorts_v)codes & 255), (vec_i16)(both << 8 >> 8));
                sums[r] += (vi)add_pairs((vec_i16)((shorts_v)codes >> 8), (vec_i16)(both >> 8));
#endif
            }
        }
        _Pragma("GCC unroll 8") for (int r = 0; r < rows && DOT_KIND == DOT_BYTES; r++)
            sums[r] += (vi)add_pairs((vec_i16)pairs[r], (vec_i16)all_pairs(1, 1));
    }
}

/* A panel times 1 to 8 rows that are `apart` blocks apart: vectors v0, ... of the columns. */
static DOT_TARGET RLX_INLINE void DOTS(panel)(const int scheme, const int rows, const int vectors, const int v0,
                                              const uint8_t *panel, int64_t chunks, const rlx_rounded_block *x,
                                              int64_t apart, float *y, int64_t ldy)
{
    const int of_256 = block_chunk(scheme) == 256, per = of_256 ? 8 : 2, lines = block_lines(scheme);
    const int halves = 32 / block_forms[scheme].step, minimums = block_forms[scheme].minimums;
    const int zero = block_forms[scheme].zero - (DOT_CODES_SIGNED && block_code_bits(scheme) == 8 ? 128 : 0);
    /* Of few rows, two sums do not wait for each other. */
    const int twice = rows <= 2 && halves == 1 && DOT_KIND == DOT_FOURS;
    vf sums[8][4];
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[r][v] = (vf){0};
    for (int64_t c = 0; c < chunks; c++, panel += block_chunk_bytes(scheme)) {
        vf whole[4] = {{0}}, least[4] = {{0}};
        fetch_ahead(panel, block_head(scheme));
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors && of_256; v++)
        {
            whole[v] = block_half_scales(panel, 0, v0 + v);
            if (minimums) least[v] = block_half_scales(panel, 32, v0 + v);
        }
        const rlx_rounded_block *block = x + (of_256 ? c : c >> 2);
        const uint8_t *codes = panel + block_head(scheme);
        for (int64_t j = 0; j < per; j++, codes += lines * BLOCK_LINE) {
            const int64_t at = of_256 ? j : (c & 3) * 2 + j;
            fetch_ahead(codes, lines * BLOCK_LINE);
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)
                _Pragma("GCC unroll 2") for (int s = 0; s < halves; s++)
                {
                    vi dots[8], second[8];
                    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
                    {
                        /* Minus the code that stands for 0, times the sum of the elements. */
                        const vi own = every_lane(block[r * apart].sums + 2 * at);
                        const vi zeros = all_pairs(s == 0 ? -zero : 0, s == 0 && halves == 2 ? 0 : -zero);
                        dots[r] = zero ? (vi)add_pairs((vec_i16)zeros, (vec_i16)own) : (vi){0};
                        second[r] = (vi){0};
                    }
                    const int count = halves == 2 || twice ? 4 : 8;
                    DOTS(add)(scheme, rows, dots, codes, v0 + v, block, apart, 32 * at, 4 * s, count);
                    if (twice) DOTS(add)(scheme, rows, second, codes, v0 + v, block, apart, 32 * at, 4, 4);
                    const vf scale = block_scale(scheme, panel, j, s, v0 + v, whole[v]);
                    const vf minimum = minimums ? block_minimum(scheme, panel, j, s, v0 + v, least[v]) : scale;
                    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
                    {
                        const rlx_rounded_block *own = block + r * apart;
                        const vi sum = twice ? dots[r] + second[r] : dots[r];
                        sums[r][v] = v_fma(__builtin_convertvector(sum, vf), scale * own->scales[at], sums[r][v]);
                        if (!minimums) continue;
                        const float part = halves == 1 ? own->totals[at] : own->scales[at] * (float)own->sums[2 * at + s];
                        sums[r][v] = v_fma(minimum, v_all(part), sums[r][v]);
                    }
                }
        }
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) v_store(y + r * ldy + (v0 + v) * FLOATS, sums[r][v]);
}

/* The same for all columns of the panel, compiled for each format and number of rows. Few rows read a line at once. */
#define DOT_PANEL(format, ROWS)                                                                                     \
    static DOT_TARGET RLX_NOINLINE void DOTS(format##_##ROWS)(const uint8_t *panel, int64_t chunks,                 \
                                                              const rlx_rounded_block *x, int64_t apart, float *y, int64_t ldy) \
    {                                                                                                               \
        const int at_once = ROWS > 2 ? 1 : LINE_VECTORS;                                                            \
        _Pragma("GCC unroll 4") for (int v = 0; v < LINE_VECTORS; v += at_once)                                     \
            DOTS(panel)(RLX_SCHEME_##format, ROWS, at_once, v, panel, chunks, x, apart, y, ldy);                    \
    }
#if DOT_KIND == DOT_PAIRS /* more rows gain little there, and are much code */
#define DOT_PANELS(format) DOT_PANEL(format, 1) DOT_PANEL(format, 2)
#define DOT_ROW(format) [RLX_SCHEME_##format] = {DOTS(format##_1), DOTS(format##_2)},
#else
#define DOT_PANELS(format) DOT_PANEL(format, 1) DOT_PANEL(format, 2) DOT_PANEL(format, 4) DOT_PANEL(format, 8)
#define DOT_ROW(format) [RLX_SCHEME_##format] = {DOTS(format##_1), DOTS(format##_2), DOTS(format##_4), DOTS(format##_8)},
#endif
BLOCK_FORMATS(DOT_PANELS)
static const block_dots DOTS(all)[][4] = {BLOCK_FORMATS(DOT_ROW)};
#undef DOT_ROW
#undef DOT_PANELS
#undef DOT_PANEL
#undef DOTS
#undef DOT_TARGET
#undef DOT_KIND
#undef DOT_CODES_SIGNED
