/* Rows that products with quantised weights read (block_dots.h): 8 bits an element, and a scale for every 32 of them. */

/* 256 elements of a row, in 8 bits or in bf16. Rows of a power of two bytes would share few lines of the cache. */
typedef union {
    struct {
        int8_t codes[256];
        float scales[8];
        float totals[8];  /* of 32 rounded elements */
        int16_t sums[16]; /* of 16 codes */
    };
    rlx_bf16 halves[256 + 32];
} rlx_rounded_block;
static_assert(sizeof(rlx_rounded_block) == RLX_ROUNDED_BYTES, "the size of a row's memory is computed from it");

/* Rounds 32 elements. The largest one is 127 of the scale. Elements below 2^-100 count as 0, since the inverse of their
   scale might be infinite. The scale of elements with NaN or infinity is NaN. */
static RLX_INLINE float round_32(const float *x, int8_t *codes)
{
    int32_t top = 0;
    for (int i = 0; i < 32; i++) {
        const int32_t bits = as_bits(x[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    const float largest = as_float(top);
    const int odd = top >= 0x7f800000, none = odd || largest < 0x1p-100f;
    const float times = none ? 0.0f : 127.0f / largest;
    for (int i = 0; i < 32; i++) {
        /* The last bits of this sum are the nearest integer. */
        const int32_t bits = none ? 0 : as_bits(x[i] * times + 0x1.8p23f);
        codes[i] = (int8_t)bits;
    }
    return odd ? NAN : none ? 0.0f : largest / 127.0f;
}

static void round_block(const float *x, int64_t count, rlx_rounded_block *to)
{
    float whole[256];
    if (count < 256) {
        memset(whole, 0, sizeof(whole));
        memcpy(whole, x, (size_t)count * sizeof(float));
        x = whole;
    }
    for (int j = 0; j < 8; j++) to->scales[j] = round_32(x + 32 * j, to->codes + 32 * j);
    for (int j = 0; j < 16; j++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) sum += to->codes[16 * j + i];
        to->sums[j] = (int16_t)sum;
    }
    for (int j = 0; j < 8; j++) to->totals[j] = to->scales[j] * (float)(to->sums[2 * j] + to->sums[2 * j + 1]);
}

static int kernel_round_rows_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(round_rows, call);
    const int64_t m = p->m, k = p->k;
    const float *x = in->x;
    rlx_rounded_block *to = out->rows;
    for (int64_t i = 0; i < m; i++, x += k)
        for (int64_t at = 0; at < k; at += 256) round_block(x + at, k - at < 256 ? k - at : 256, to++);
    return RLX_OK;
}
