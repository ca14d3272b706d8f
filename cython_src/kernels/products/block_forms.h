/* Quantised weights in panels, which products read: the table of block formats, and where codes, scales and minimums of 16
   rows of weights stand. All instruction sets read the same layout.

   A panel holds 16 rows of weights. A line of it is 64 bytes: 16 rows by 4 weights, so that a lane of 32 bits holds 4
   neighbouring weights of one row, a group. Codes are unsigned. A code of 4 bits and 2 more, say, has its low bits in
   lines of nibbles and its high bits in lines of pairs: with n fields in a byte, line i of 8 / n lines holds the groups i,
   i + 8 / n, ... of 32 weights, the first one in the low bits.

   A chunk is what follows each other in a panel: 64 weights of a row in formats with blocks of 32, one block of 256 in the
   others. It begins with the scales, then come minimums, then the codes of 32 weights at a time:
   - blocks of 32: scales [2][16] in f16 (of MXFP4 in bf16), minimums [2][16] in f16;
   - blocks of 256: f16 scales [16], f16 scales of minimums [16], bytes of scales [256 / step][16], bytes of minimums
     [8][16]. Q2_K has both in one byte, the scale in its low half. */
#ifndef RLX_BLOCK_FORMS_H
#define RLX_BLOCK_FORMS_H

#include <stdint.h>

#include "../call.h"

#define BLOCK_COLUMNS 16
#define BLOCK_LINE 64

/* Fields of `bits` bits in a block of a file: byte base + run * (i / (run * n)) + i % run holds field i, n being those of a
   byte. */
typedef struct {
    int bits, base, run;
} rlx_bit_field;

typedef struct {
    int weights, nbytes; /* of a block of a file */
    rlx_bit_field low, high;
    int zero; /* the code that stands for 0; what is added to the values of a table to make them unsigned */
    int step; /* weights that share a scale */
    int minimums;
} rlx_block_form;

/* In the order of the schemes. Those without weights are not made into panels. */
static const rlx_block_form block_forms[] = {
    [RLX_SCHEME_Q4_0] = {32, 18, {4, 2, 16}, {0, 0, 1}, 8, 32, 0},
    [RLX_SCHEME_Q4_1] = {32, 20, {4, 4, 16}, {0, 0, 1}, 0, 32, 1},
    [RLX_SCHEME_Q5_0] = {32, 22, {4, 6, 16}, {1, 2, 1}, 16, 32, 0},
    [RLX_SCHEME_Q5_1] = {32, 24, {4, 8, 16}, {1, 4, 1}, 0, 32, 1},
    [RLX_SCHEME_Q8_0] = {32, 34, {8, 2, 32}, {0, 0, 1}, 128, 32, 0},
    [RLX_SCHEME_Q2_K] = {256, 84, {2, 16, 32}, {0, 0, 1}, 0, 16, 1},
    [RLX_SCHEME_Q3_K] = {256, 110, {2, 32, 32}, {1, 0, 32}, 4, 16, 0},
    [RLX_SCHEME_Q4_K] = {256, 144, {4, 16, 32}, {0, 0, 1}, 0, 32, 1},
    [RLX_SCHEME_Q5_K] = {256, 176, {4, 48, 32}, {1, 16, 32}, 0, 32, 1},
    [RLX_SCHEME_Q6_K] = {256, 210, {4, 0, 64}, {2, 128, 32}, 32, 16, 0},
    [RLX_SCHEME_IQ4_NL] = {32, 18, {4, 2, 16}, {0, 0, 1}, 128, 32, 0},
    [RLX_SCHEME_IQ4_XS] = {256, 136, {4, 8, 16}, {0, 0, 1}, 128, 32, 0},
    [RLX_SCHEME_MXFP4] = {32, 17, {4, 1, 16}, {0, 0, 1}, 12, 32, 0},
};

/* All that are made into panels. */
#define BLOCK_FORMATS(F) F(Q4_0) F(Q4_1) F(Q5_0) F(Q5_1) F(Q8_0) F(Q2_K) F(Q3_K) F(Q4_K) F(Q5_K) F(Q6_K) \
    F(IQ4_NL) F(IQ4_XS) F(MXFP4)

/* The tables of values whose places are codes of 4 bits. */
static const int8_t block_values_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t block_values_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The power of two that a byte of MXFP4 stands for, 2^(e - 128), as bf16. The two least ones are subnormal. */
static RLX_INLINE uint16_t block_power(uint8_t e) { return (uint16_t)(e < 2 ? 0x20 << e : (e - 1) << 7); }

/* What follows from a format; constants where the scheme is one. */
static RLX_INLINE int block_chunk(int scheme) { return block_forms[scheme].weights == 32 ? 64 : 256; }
static RLX_INLINE int block_lines(int scheme) { return block_forms[scheme].low.bits + block_forms[scheme].high.bits; }
static RLX_INLINE int block_factors(int scheme) { return 256 / block_forms[scheme].step; }
/* Whether codes are places in a table of 16 values. */
static RLX_INLINE int block_has_codebook(int scheme)
{
    return scheme == RLX_SCHEME_IQ4_NL || scheme == RLX_SCHEME_IQ4_XS || scheme == RLX_SCHEME_MXFP4;
}
/* Bits of a code, or of a value of the table with what is added. */
static RLX_INLINE int block_code_bits(int scheme)
{
    return scheme == RLX_SCHEME_MXFP4 ? 5 : block_has_codebook(scheme) ? 8 : block_lines(scheme);
}
/* Whether a byte holds the scale in its low half, and the minimum in its high half. */
static RLX_INLINE int block_both(int scheme) { return scheme == RLX_SCHEME_Q2_K; }

/* Bytes before the bytes of minimums, and before the codes. */
static RLX_INLINE int block_minimums_at(int scheme)
{
    return block_chunk(scheme) == 64 ? BLOCK_LINE : BLOCK_LINE + BLOCK_COLUMNS * block_factors(scheme);
}
static RLX_INLINE int block_head(int scheme)
{
    const int minimums = block_forms[scheme].minimums && !block_both(scheme);
    return block_minimums_at(scheme) + minimums * (block_chunk(scheme) == 64 ? BLOCK_LINE : BLOCK_COLUMNS * 8);
}
static RLX_INLINE int64_t block_chunk_bytes(int scheme)
{
    return block_head(scheme) + block_chunk(scheme) / 32 * BLOCK_LINE * block_lines(scheme);
}
static RLX_INLINE int64_t block_chunks(int scheme, int64_t k) { return (k + block_chunk(scheme) - 1) / block_chunk(scheme); }
/* Bytes of a panel of rows of k weights. */
static RLX_INLINE int64_t block_panel_bytes(int scheme, int64_t k) { return block_chunks(scheme, k) * block_chunk_bytes(scheme); }

/* The field of group g (0 to 7) in its lines: the line, and the shift. */
static RLX_INLINE int block_line_of(int bits, int g) { return bits ? g % bits : 0; }
static RLX_INLINE int block_shift_of(int bits, int g) { return bits ? bits * (g / bits) : 0; }

#endif
