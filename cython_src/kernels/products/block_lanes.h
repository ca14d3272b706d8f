/* Vectors of quantised weights in panels (block_forms.h): the codes of 32 weights, their scales and minimums. */
#include "products/block_forms.h"

/* Vectors of a line, which are those of 16 columns of floats. */
#define LINE_VECTORS (BLOCK_LINE / VECTOR_BYTES)

typedef uint8_t bytes_v __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t shorts_v __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t signed_shorts_v __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t line_v __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

/* Bytes of panels that are fetched ahead. Processors do so by themselves, but not far enough. */
#define BLOCK_AHEAD 4096
static RLX_INLINE void fetch_ahead(const uint8_t *at, const int bytes)
{
    _Pragma("GCC unroll 8") for (int i = 0; i < bytes; i += BLOCK_LINE) RLX_PREFETCH(at + BLOCK_AHEAD + i);
}

static RLX_INLINE bytes_v bytes_right(bytes_v v, int bits) { return (bytes_v)((shorts_v)v >> (uint16_t)bits); }
static RLX_INLINE bytes_v bytes_left(bytes_v v, int bits) { return (bytes_v)((shorts_v)v << (uint16_t)bits); }

/* The values whose places in the table are these codes, with what makes them unsigned. */
static RLX_INLINE bytes_v codebook_bytes(const int scheme, bytes_v codes)
{
    const int8_t *values = scheme == RLX_SCHEME_MXFP4 ? block_values_mxfp4 : block_values_iq4;
#if VECTOR_BYTES == 64
    codes = (bytes_v)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)values)), (__m512i)codes);
#elif VECTOR_BYTES == 32
    codes = (bytes_v)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)values)), (__m256i)codes);
#elif defined(NEON)
    codes = (bytes_v)vqtbl1q_s8(vld1q_s8(values), (uint8x16_t)codes);
#else
    for (int l = 0; l < VECTOR_BYTES; l++) codes[l] = (uint8_t)values[codes[l]];
#endif
    return codes + (uint8_t)block_forms[scheme].zero;
}

/* Group g of 32 weights of 16 rows, as unsigned bytes: vector v of each line. */
static RLX_INLINE bytes_v block_codes(const int scheme, const uint8_t *lines, int64_t v, const int g)
{
    const int bits = block_forms[scheme].low.bits, more = block_forms[scheme].high.bits;
    const uint8_t *at = lines + v * VECTOR_BYTES;
    bytes_v codes = (bytes_v)*(const line_v *)(at + block_line_of(bits, g) * BLOCK_LINE);
    if (bits < 8) codes = bytes_right(codes, block_shift_of(bits, g)) & (uint8_t)((1 << bits) - 1);
    if (more) {
        const bytes_v high = (bytes_v)*(const line_v *)(at + (bits + block_line_of(more, g)) * BLOCK_LINE);
        const int shift = block_shift_of(more, g) - bits;
        const uint8_t mask = (uint8_t)(((1 << more) - 1) << bits);
        codes |= (shift > 0 ? bytes_right(high, shift) : bytes_left(high, -shift)) & mask;
    }
    return block_has_codebook(scheme) ? codebook_bytes(scheme, codes) : codes;
}

/* The f16 scales of a chunk, of block e of 32, or of minimums: vector v of 16. */
static RLX_INLINE vf block_half_scales(const uint8_t *chunk, int at, int64_t v)
{
    return (vf)widened_f16((const rlx_f16 *)(chunk + at) + v * FLOATS);
}

/* The scales of weights 32 j to 32 j + 31 of a chunk, or of half of them (s is 0 or 1) where 16 share one. `whole` is the
   block's scale in formats with blocks of 256. */
static RLX_INLINE vf block_scale(const int scheme, const uint8_t *chunk, int64_t j, const int s, int64_t v, vf whole)
{
    if (scheme == RLX_SCHEME_MXFP4) return (vf)widened_bf16((const rlx_bf16 *)(chunk + 32 * j) + v * FLOATS);
    if (block_chunk(scheme) == 64) return block_half_scales(chunk, 32 * (int)j, v);
    const int64_t each = 32 / block_forms[scheme].step;
    vi factors = widened_i8(chunk + BLOCK_LINE + BLOCK_COLUMNS * (each * j + s) + v * FLOATS);
    if (block_both(scheme)) factors &= 15;
    return whole * __builtin_convertvector(factors, vf);
}

/* Their minimums, which are subtracted except in blocks of 32. */
static RLX_INLINE vf block_minimum(const int scheme, const uint8_t *chunk, int64_t j, const int s, int64_t v, vf whole)
{
    if (block_chunk(scheme) == 64) return block_half_scales(chunk, BLOCK_LINE + 32 * (int)j, v);
    const int64_t at = block_both(scheme) ? BLOCK_LINE + BLOCK_COLUMNS * (2 * j + s) : block_minimums_at(scheme) + BLOCK_COLUMNS * j;
    vi factors = widened_i8(chunk + at + v * FLOATS);
    if (block_both(scheme)) factors = factors >> 4 & 15;
    return -(whole * __builtin_convertvector(factors, vf));
}
