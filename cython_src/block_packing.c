/* Packs quantised weights into panels (kernels/products/block_forms.h), and unpacks them to the same bytes. */
#include "block_packing.h"

#include <string.h>

#include "kernels/products/block_forms.h"

/* Each function works both ways: it packs, or with `back` it restores what the file had. */
#define MOST 256 /* weights of a block at most */

/* --- codes ------------------------------------------------------------------------------------------ */

/* Adds a field of every code of a block to `codes`, shifted left, or with `back` writes it to the block. */
static RLX_INLINE void move_field(rlx_bit_field field, int weights, uint8_t *restrict block, uint8_t *restrict codes, int left, int back)
{
    if (!field.bits) return;
    const int fields = 8 / field.bits, mask = (1 << field.bits) - 1;
    for (int i = 0; i < weights; i += field.run) {
        uint8_t *bytes = block + field.base + i / (field.run * fields) * field.run;
        const int shift = field.bits * (i / field.run % fields);
        if (back)
            for (int t = 0; t < field.run; t++) bytes[t] |= (uint8_t)((codes[i + t] >> left & mask) << shift);
        else
            for (int t = 0; t < field.run; t++) codes[i + t] |= (uint8_t)((bytes[t] >> shift & mask) << left);
    }
}

/* The codes of a block as unsigned bytes, or the opposite. */
static RLX_INLINE void move_codes(const rlx_block_form *form, uint8_t *block, uint8_t *codes, int back)
{
    const int is_signed = form->low.bits == 8;
    if (back && is_signed) for (int i = 0; i < form->weights; i++) codes[i] ^= 128;
    if (!back) memset(codes, 0, MOST);
    move_field(form->low, form->weights, block, codes, 0, back);
    move_field(form->high, form->weights, block, codes, form->low.bits, back);
    if (!back && is_signed) for (int i = 0; i < form->weights; i++) codes[i] ^= 128;
}

/* 32 codes of one row, 4 to a word, into lines of a field, or out of them; `lane` is the row's first word. */
static RLX_INLINE void move_lines(uint32_t *lane, int bits, int left, uint32_t *words, int back)
{
    const uint32_t mask = 0x01010101u * (uint32_t)((1 << bits) - 1);
    _Pragma("GCC unroll 8") for (int g = 0; g < 8 && bits; g++) {
        uint32_t *word = lane + block_line_of(bits, g) * BLOCK_COLUMNS;
        const int shift = block_shift_of(bits, g);
        if (back) words[g] |= (*word >> shift & mask) << left;
        else *word |= (words[g] >> left & mask) << shift;
    }
}

/* --- scales and minimums ---------------------------------------------------------------------------- */

typedef struct {
    uint8_t halves[4]; /* the block's scale, then that of minimums, as they stand in the file */
    uint8_t factors[16], minimums[8];
} block_scales;

/* The eight scales and minimums of 6 bits in 12 bytes (Q4_K, Q5_K): the first four of each have bytes of their own, whose top
   bits hold the top bits of the others. */
static void read_scales_k4(const uint8_t *b, block_scales *s)
{
    for (int j = 0; j < 4; j++) {
        s->factors[j] = b[j] & 63, s->minimums[j] = b[j + 4] & 63;
        s->factors[j + 4] = (uint8_t)((b[j + 8] & 15) | b[j] >> 6 << 4);
        s->minimums[j + 4] = (uint8_t)(b[j + 8] >> 4 | b[j + 4] >> 6 << 4);
    }
}

static void write_scales_k4(uint8_t *b, const block_scales *s)
{
    for (int j = 0; j < 4; j++) {
        b[j] = (uint8_t)(s->factors[j] | s->factors[j + 4] >> 4 << 6);
        b[j + 4] = (uint8_t)(s->minimums[j] | s->minimums[j + 4] >> 4 << 6);
        b[j + 8] = (uint8_t)((s->factors[j + 4] & 15) | (s->minimums[j + 4] & 15) << 4);
    }
}

/* The 16 scales of Q3_K: 4 low bits in 8 bytes, 2 high ones in 4 more; 32 stands for 0. */
static void move_scales_q3(uint8_t *b, block_scales *s, int back)
{
    for (int j = 0; j < 16; j++) {
        uint8_t *low = b + (j & 7), *high = b + 8 + (j & 3);
        const int at = j >> 3 << 2, above = j >> 2 << 1;
        if (back) {
            const int v = s->factors[j] + 32;
            *low |= (uint8_t)((v & 15) << at), *high |= (uint8_t)((v >> 4 & 3) << above);
        } else {
            s->factors[j] = (uint8_t)((*low >> at & 15) + ((*high >> above & 3) << 4) - 32);
        }
    }
}

/* The 8 scales of IQ4_XS: 2 high bits in 2 bytes, 4 low ones in 4 more; 32 stands for 0. */
static RLX_INLINE void move_scales_iq4(uint8_t *b, block_scales *s, int back)
{
    for (int j = 0; j < 8; j++) {
        uint8_t *high = b + j / 4, *low = b + 2 + j / 2;
        const int above = j % 4 * 2, at = j % 2 * 4;
        if (back) {
            const int v = s->factors[j] + 32;
            *low |= (uint8_t)((v & 15) << at), *high |= (uint8_t)((v >> 4 & 3) << above);
        } else {
            s->factors[j] = (uint8_t)((*low >> at & 15) + ((*high >> above & 3) << 4) - 32);
        }
    }
}

/* The power of two of MXFP4 as bf16, or the opposite. */
static RLX_INLINE void move_scale_mxfp4(uint8_t *b, uint8_t *half, int back)
{
    uint16_t bits = block_power(*b);
    memcpy(back ? (void *)&bits : half, back ? half : (void *)&bits, 2);
    if (back) *b = (uint8_t)(bits < 0x80 ? bits >> 6 : (bits >> 7) + 1);
}

/* The scales of a block of a file, or the opposite. */
static RLX_INLINE void move_scales(int scheme, uint8_t *b, block_scales *s, int back)
{
    /* Where the half of the scale stands, and that of minimums behind it. */
    static const uint8_t at[] = {[RLX_SCHEME_Q2_K] = 80, [RLX_SCHEME_Q3_K] = 108, [RLX_SCHEME_Q6_K] = 208, [RLX_SCHEME_MXFP4] = 0};
    const size_t halves = block_forms[scheme].minimums ? 4 : 2;
    if (scheme == RLX_SCHEME_MXFP4) return move_scale_mxfp4(b, s->halves, back);
    if (scheme == RLX_SCHEME_IQ4_XS) move_scales_iq4(b + 2, s, back);
    if (back) memcpy(b + at[scheme], s->halves, halves);
    else memcpy(s->halves, b + at[scheme], halves);
    if (scheme == RLX_SCHEME_Q4_K || scheme == RLX_SCHEME_Q5_K) back ? write_scales_k4(b + 4, s) : read_scales_k4(b + 4, s);
    if (scheme == RLX_SCHEME_Q3_K) move_scales_q3(b + 96, s, back);
    uint8_t *bytes = scheme == RLX_SCHEME_Q2_K ? b : scheme == RLX_SCHEME_Q6_K ? b + 192 : NULL;
    if (bytes) memcpy(back ? bytes : s->factors, back ? s->factors : bytes, 16);
}

static RLX_INLINE void move_bytes(uint8_t *a, uint8_t *b, size_t n, int back) { memcpy(back ? b : a, back ? a : b, n); }

/* The scales of row `row`, of block `e` of its chunk, in the head of the chunk, or the opposite. */
static RLX_INLINE void move_head(int scheme, uint8_t *head, int row, int e, block_scales *s, int back)
{
    const int few = block_chunk(scheme) == 64, minimums = block_forms[scheme].minimums;
    uint8_t *factors = head + BLOCK_LINE + row, *least = head + block_minimums_at(scheme) + row;
    move_bytes(head + 32 * e + 2 * row, s->halves, 2, back);
    if (minimums) move_bytes(head + (few ? BLOCK_LINE + 32 * e : 32) + 2 * row, s->halves + 2, 2, back);
    const int bytes = few ? 0 : block_factors(scheme) < 16 ? block_factors(scheme) : 16;
    for (int j = 0; j < bytes; j++) move_bytes(factors + BLOCK_COLUMNS * j, s->factors + j, 1, back);
    for (int j = 0; !few && minimums && !block_both(scheme) && j < 8; j++)
        move_bytes(least + BLOCK_COLUMNS * j, s->minimums + j, 1, back);
}

/* --- panels ----------------------------------------------------------------------------------------- */

static RLX_INLINE void move_block(int scheme, uint8_t *chunk, int row, int e, uint8_t *block, int back)
{
    const rlx_block_form *form = &block_forms[scheme];
    uint8_t codes[MOST];
    block_scales scales = {{0}, {0}, {0}};
    if (back) memset(block, 0, (size_t)form->nbytes), memset(codes, 0, sizeof(codes));
    else move_codes(form, block, codes, 0), move_scales(scheme, block, &scales, 0);
    move_head(scheme, chunk, row, e, &scales, back);
    const int lines = block_lines(scheme);
    for (int j = 0; j < form->weights / 32; j++) {
        uint32_t words[8], *lane = (uint32_t *)(chunk + block_head(scheme) + (e + j) * lines * BLOCK_LINE) + row;
        memcpy(words, codes + 32 * j, sizeof(words));
        move_lines(lane, form->low.bits, 0, words, back);
        move_lines(lane + form->low.bits * BLOCK_COLUMNS, form->high.bits, form->low.bits, words, back);
        if (back) memcpy(codes + 32 * j, words, sizeof(words));
    }
    if (back) move_codes(form, block, codes, 1), move_scales(scheme, block, &scales, 1);
}

static RLX_INLINE void move_blocks(int scheme, int64_t n, int64_t k, uint8_t *panels, uint8_t *rows, int back)
{
    const rlx_block_form *form = &block_forms[scheme];
    const int64_t each = block_panel_bytes(scheme, k), blocks = k / form->weights, chunk = block_chunk(scheme) / form->weights;
    if (!back) memset(panels, 0, (size_t)((n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * each));
    for (int64_t j = 0; j < n; j++) {
        uint8_t *panel = panels + j / BLOCK_COLUMNS * each;
        for (int64_t b = 0; b < blocks; b++, rows += form->nbytes)
            move_block(scheme, panel + b / chunk * block_chunk_bytes(scheme), (int)(j % BLOCK_COLUMNS), (int)(b % chunk), rows, back);
    }
}

/* The loops are compiled for each format by itself. */
#define PACK_FORMAT(format)                                                                                    \
    static void pack_##format(int64_t n, int64_t k, uint8_t *panels, uint8_t *rows)                       \
    {                                                                                                     \
        move_blocks(RLX_SCHEME_##format, n, k, panels, rows, 0);                                          \
    }                                                                                                     \
    static void unpack_##format(int64_t n, int64_t k, uint8_t *panels, uint8_t *rows)                     \
    {                                                                                                     \
        move_blocks(RLX_SCHEME_##format, n, k, panels, rows, 1);                                          \
    }
BLOCK_FORMATS(PACK_FORMAT)
#define ROW(format) [RLX_SCHEME_##format] = {pack_##format, unpack_##format},
static void (*const move_format[][2])(int64_t, int64_t, uint8_t *, uint8_t *) = {BLOCK_FORMATS(ROW)};

int64_t rlx_panels_bytes(int scheme, int64_t n, int64_t k)
{
    if (scheme < 0 || scheme >= (int)(sizeof(move_format) / sizeof(*move_format)) || !move_format[scheme][0]) return 0;
    return (n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * block_panel_bytes(scheme, k);
}

void rlx_move_blocks(int scheme, int64_t n, int64_t k, void *panels, void *rows, int back)
{
    move_format[scheme][back](n, k, panels, rows);
}
