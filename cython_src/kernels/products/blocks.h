/* Weights of Q8_0 and Q4_0 in panels (rlx/backends/cpu/layouts.py). For 32 rows of a panel: the f16 scales of all
   columns, then the codes row by row. In Q4_0, rows 0 to 15 are in the low halves of the bytes and rows 16 to 31 in the
   high halves. */

#define BLOCK_ROWS 32
#define BLOCK_LANES ((int64_t)(VECTOR_BYTES / 4))

typedef int8_t few_i8 __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));
typedef uint8_t few_u8 __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));
typedef int32_t block_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef float loose_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

static inline wide_f32 code_floats(few_i8 codes)
{
    /* Written out, since GCC 12 widens bytes to 32-bit integers one by one. */
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (wide_f32)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (wide_f32)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)codes)));
#else
    return __builtin_convertvector(__builtin_convertvector(codes, block_i32), wide_f32);
#endif
}

/* Bytes of one column of that many rows. */
static inline int64_t block_bytes(int64_t rows, int64_t four) { return rows / BLOCK_ROWS * (four ? 18 : 34); }

/* Decodes rows of a panel of `step` columns to floats. The number of rows is a multiple of BLOCK_ROWS. */
static void widen_blocks(float *to, const uint8_t *from, int64_t rows, int64_t step, int64_t four)
{
    for (; rows > 0; rows -= BLOCK_ROWS, to += BLOCK_ROWS * step, from += block_bytes(BLOCK_ROWS, four) * step)
        for (int64_t v = 0; v < step; v += BLOCK_LANES) {
            const wide_f32 scale = widened_f16((const rlx_f16 *)from + v);
            const uint8_t *codes = from + 2 * step + v;
            float *index = to + v;
            for (int i = 0; four && i < 16; i++, codes += step, index += step) {
                const few_u8 both = *(const few_u8 *)codes;
                *(loose_f32 *)index = scale * code_floats((few_i8)((both & 15) - 8));
                *(loose_f32 *)(index + 16 * step) = scale * code_floats((few_i8)((both >> 4) - 8));
            }
            for (int i = 0; !four && i < BLOCK_ROWS; i++, codes += step, index += step)
                *(loose_f32 *)index = scale * code_floats(*(const few_i8 *)codes);
        }
}

/* One row times a whole panel. Products with the codes of a block are summed before they are scaled. */
static RLX_INLINE void row_of_blocks(const float *a, const uint8_t *b, int64_t depth, float *c, const int four)
{
    enum { COLUMNS = MICRO_VECTORS * VECTOR_BYTES / 4 };
    wide_f32 sums[MICRO_VECTORS] = {{0}};
    for (int64_t k = 0; k < depth; k += BLOCK_ROWS, a += BLOCK_ROWS) {
        wide_f32 even[MICRO_VECTORS] = {{0}}, odd[MICRO_VECTORS] = {{0}};
        const rlx_f16 *scales = (const rlx_f16 *)b;
        b += 2 * COLUMNS;
        for (int i = 0; i < 16; i++, b += four ? COLUMNS : 2 * COLUMNS) {
            RLX_PREFETCH(b + 2048);
            if (!four) RLX_PREFETCH(b + 2048 + COLUMNS);
            _Pragma("GCC unroll 4") for (int v = 0; v < MICRO_VECTORS; v++)
            {
                if (four) {
                    const few_u8 both = *(const few_u8 *)(b + v * BLOCK_LANES);
                    even[v] += a[i] * code_floats((few_i8)((both & 15) - 8));
                    odd[v] += a[i + 16] * code_floats((few_i8)((both >> 4) - 8));
                } else {
                    even[v] += a[2 * i] * code_floats(*(const few_i8 *)(b + v * BLOCK_LANES));
                    odd[v] += a[2 * i + 1] * code_floats(*(const few_i8 *)(b + COLUMNS + v * BLOCK_LANES));
                }
            }
        }
        _Pragma("GCC unroll 4") for (int v = 0; v < MICRO_VECTORS; v++)
            sums[v] += (even[v] + odd[v]) * widened_f16(scales + v * BLOCK_LANES);
    }
    _Pragma("GCC unroll 4") for (int v = 0; v < MICRO_VECTORS; v++)
        *(loose_f32 *)(c + v * BLOCK_LANES) = sums[v];
}

static void row_of_q8(const float *a, const uint8_t *b, int64_t depth, float *c) { row_of_blocks(a, b, depth, c, 0); }
static void row_of_q4(const float *a, const uint8_t *b, int64_t depth, float *c) { row_of_blocks(a, b, depth, c, 1); }
