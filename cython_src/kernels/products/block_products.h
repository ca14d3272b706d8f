/* Products with quantised weights in panels (block_forms.h): of rounded rows in integers, and of rows of f32 as they are. */
#include "products/block_lanes.h"
#include "products/block_rounding.h"
#include "products/block_floats.h"

/* 1, 2, 4 or 8 rows, `apart` blocks apart, times a panel of so many chunks; NULL in a table for a number that there is no
   function for. */
typedef void (*block_dots)(const uint8_t *panel, int64_t chunks, const rlx_rounded_block *x, int64_t apart, float *y, int64_t ldy);

/* --- one set of functions for each kind of instruction ----------------------------------------------- */

#define DOT_PAIRS 0
#define DOT_BYTES 1
#define DOT_FOURS 2

/* The same four bytes in every lane, and the same two integers of 16 bits. */
static RLX_INLINE vi every_lane(const void *four)
{
    int32_t bytes;
    memcpy(&bytes, four, 4);
    return bytes - (vi){0};
}
static RLX_INLINE vi all_pairs(int low, int high) { return (vi){0} + (int32_t)((uint32_t)(low & 65535) | (uint32_t)high << 16); }

#if VECTOR_BYTES == 64
static RLX_INLINE vi bytes_times(bytes_v codes, const int8_t *x)
{
    return (vi)_mm512_maddubs_epi16((__m512i)codes, (__m512i)every_lane(x));
}
/* The same for signed codes: the elements take their signs. */
static RLX_INLINE vi signed_bytes_times(bytes_v codes, const int8_t *x)
{
    const __m512i v = (__m512i)every_lane(x), none = _mm512_setzero_si512();
    const __m512i turned = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask((__m512i)codes), none, v);
    return (vi)_mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)codes), turned);
}
#elif VECTOR_BYTES == 32
static RLX_INLINE vi bytes_times(bytes_v codes, const int8_t *x)
{
    return (vi)_mm256_maddubs_epi16((__m256i)codes, (__m256i)every_lane(x));
}
static RLX_INLINE vi signed_bytes_times(bytes_v codes, const int8_t *x)
{
    const __m256i turned = _mm256_sign_epi8((__m256i)every_lane(x), (__m256i)codes);
    return (vi)_mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)codes), turned);
}
#endif

#define DOTS(name) block_##name
#define DOT_TARGET
#define DOT_KIND (VECTOR_BYTES > 16 ? DOT_BYTES : DOT_PAIRS)
#define DOT_CODES_SIGNED (VECTOR_BYTES > 16)
#include "products/block_dots.h"

#ifdef DOT_FEATURES
#define DOT_TARGET __attribute__((target(DOT_FEATURES)))
static DOT_TARGET RLX_INLINE vi dot_fours(vi sum, bytes_v codes, const int8_t *x)
{
#if VECTOR_BYTES == 64
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)every_lane(x));
#elif VECTOR_BYTES == 32
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)codes, (__m256i)every_lane(x));
#else
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(codes), "w"(every_lane(x)));
    return sum;
#endif
}
#define DOTS(name) block_four_##name
#define DOT_KIND DOT_FOURS
#ifdef NEON
#define DOT_CODES_SIGNED 1
#else
#define DOT_CODES_SIGNED 0
#endif
#include "products/block_dots.h"
#endif

#include "products/tiles.h"

/* --- products --------------------------------------------------------------------------------------- */

/* Rounded rows times the columns `own` of n, which begin with a panel. A panel stays in the cache while rows go by. */
static void rounded_product(const block_dots *dots, int scheme, const uint8_t *panels, const rlx_rounded_block *x, float *y,
                            int64_t m, int64_t n, int64_t k, rlx_range own)
{
    const int64_t chunks = block_chunks(scheme, k), apart = (k + 255) / 256, each = block_panel_bytes(scheme, k);
    panels += own.first / BLOCK_COLUMNS * each;
    for (int64_t j = own.first; j < own.last; j += BLOCK_COLUMNS, panels += each) {
        const int64_t width = own.last - j < BLOCK_COLUMNS ? own.last - j : BLOCK_COLUMNS;
        float part[8 * BLOCK_COLUMNS];
        for (int64_t i = 0, rows; i < m; i += rows) {
            int size = m - i >= 8 ? 3 : m - i >= 4 ? 2 : m - i >= 2 ? 1 : 0;
            while (!dots[size]) size--;
            rows = 1 << size;
            float *to = y + i * n + j;
            const int whole = width == BLOCK_COLUMNS;
            dots[size](panels, chunks, x + i * apart, apart, whole ? to : part, whole ? n : BLOCK_COLUMNS);
            for (int64_t r = 0; !whole && r < rows; r++)
                memcpy(to + r * n, part + r * BLOCK_COLUMNS, (size_t)width * sizeof(float));
        }
    }
}

/* Such products, by the instructions that the processor has. */
typedef void (*rounded_way)(int scheme, const uint8_t *panels, const rlx_rounded_block *x, float *y, int64_t m, int64_t n,
                            int64_t k, rlx_range own);
static void rounded_plain(int scheme, const uint8_t *panels, const rlx_rounded_block *x, float *y, int64_t m, int64_t n, int64_t k,
                          rlx_range own)
{
    rounded_product(block_all[scheme], scheme, panels, x, y, m, n, k, own);
}
#ifdef DOT_FEATURES
static void rounded_dots(int scheme, const uint8_t *panels, const rlx_rounded_block *x, float *y, int64_t m, int64_t n, int64_t k,
                         rlx_range own)
{
    rounded_product(block_four_all[scheme], scheme, panels, x, y, m, n, k, own);
}
#endif
#ifdef TILE_FEATURES
/* Reads weights of a panel as a tile_reader does. */
static TILED RLX_INLINE void tiles_of_panel(const int scheme, const uint8_t *panel, int64_t at, int64_t steps, tile_line *to)
{
    const int chunk = block_chunk(scheme), halves = 32 / block_forms[scheme].step;
    for (const int64_t end = at + steps * TILE_STEP; at < end; at += TILE_STEP) {
        const uint8_t *own = panel + at / chunk * block_chunk_bytes(scheme);
        const int64_t j = at % chunk / 32;
        const uint8_t *lines = own + block_head(scheme) + j * block_lines(scheme) * BLOCK_LINE;
        _Pragma("GCC unroll 2") for (int s = 0; s < halves; s++)
        {
            const block_affine by = affine_of(scheme, own, j, s, 0);
            _Pragma("GCC unroll 8") for (int g = 8 / halves * s; g < 8 / halves * (s + 1); g++)
            {
                const vi codes = signed_codes(scheme, lines, 0, g);
                _Pragma("GCC unroll 2") for (int b = 0; b < 4; b += 2)
                    put_tile_line(to++, v_fma(code_floats(codes, b), by.scale, by.minimum),
                                  v_fma(code_floats(codes, b + 1), by.scale, by.minimum));
            }
        }
    }
}
#define TILES_OF(format)                                                                                          \
    static TILED RLX_NOINLINE void tiles_of_##format(const tile_weights *w, int64_t column, int64_t at, int64_t steps, \
                                                     tile_line *to)                                               \
    {                                                                                                             \
        const int64_t each = block_panel_bytes(RLX_SCHEME_##format, w->k);                                        \
        tiles_of_panel(RLX_SCHEME_##format, (const uint8_t *)w->panels + column / TILE * each, at, steps, to);    \
    }
BLOCK_FORMATS(TILES_OF)
#undef TILES_OF
static const tile_reader block_tiles[] = {
#define ROW(format) [RLX_SCHEME_##format] = tiles_of_##format,
    BLOCK_FORMATS(ROW)
#undef ROW
};

/* The same of rows in bf16. */
static void rounded_tiles(int scheme, const uint8_t *panels, const rlx_rounded_block *x, float *y, int64_t m, int64_t n, int64_t k,
                          rlx_range own)
{
    const tile_weights weights = {panels, k, n, scheme};
    tile_product(block_tiles[scheme], &weights, x, y, m, own);
}
#endif

/* The weights of a panel that are widened at a time, for few rows and for more. */
#define WIDENED_FEW 64
#define WIDENED 256
static_assert(WIDENED * RLX_PANEL_COLUMNS <= RLX_PANEL, "scratch is made for so many");

/* Sums of 16 elements each of a row. */
static void add_sixteens(const float *x, int64_t k, float *totals)
{
    for (int64_t i = 0; i < k / 16; i++, x += 16) {
        float four[4] = {0};
        for (int l = 0; l < 16; l++) four[l % 4] += x[l];
        totals[i] = (four[0] + four[1]) + (four[2] + four[3]);
    }
}

/* Rows of f32 times these columns. Scratch: WIDENED rows of a panel of floats, or the sums of a single row. */
static void unrounded_product(int scheme, const uint8_t *panels, const float *x, float *y, int64_t m, int64_t n, int64_t k,
                              rlx_range own, float *scratch)
{
    const int64_t micro = MICRO_VECTORS * FLOATS, step = micro > BLOCK_COLUMNS ? micro : BLOCK_COLUMNS;
    const int64_t each = block_panel_bytes(scheme, k), most = m <= MICRO_ROWS ? WIDENED_FEW : WIDENED;
    panels += own.first / BLOCK_COLUMNS * each;
    if (m == 1) add_sixteens(x, k, scratch);
    for (int64_t j = own.first; j < own.last; j += step, panels += step / BLOCK_COLUMNS * each) {
        const int64_t width = own.last - j < step ? own.last - j : step;
        float part[BLOCK_COLUMNS];
        for (int64_t i = 0; m == 1 && i < width; i += BLOCK_COLUMNS) {
            const int64_t some = width - i < BLOCK_COLUMNS ? width - i : BLOCK_COLUMNS;
            float *to = some == BLOCK_COLUMNS ? y + j + i : part;
            block_floats[scheme].row(panels + i / BLOCK_COLUMNS * each, k, x, scratch, to);
            if (to == part) memcpy(y + j + i, part, (size_t)some * sizeof(float));
        }
        for (int64_t at = 0, depth; m > 1 && at < k; at += depth) {
            depth = k - at < most ? k - at : most;
            for (int64_t i = 0; i < width; i += BLOCK_COLUMNS)
                block_floats[scheme].floats(panels + i / BLOCK_COLUMNS * each, at, depth, scratch + i, step);
            for (int64_t i = 0, some; i < width; i += some) {
                some = width - i < micro ? width - i : micro;
                micro_rows_f32(x + at, k, scratch + i, step, y + j + i, n, m, depth, at ? NULL : micro_zeros_f32, some, 0);
            }
        }
    }
}
