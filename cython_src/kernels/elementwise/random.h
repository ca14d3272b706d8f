/* Philox 4x32-10 words, and uniform and normal numbers made from them (rlx/ops/elementwise/random.py). */

static inline void philox_block(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        const uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

static inline float normal_number(uint32_t bits, const uint32_t *table)
{
    uint32_t u = bits >> 1;
    u = u ? u : 1;
    int octave = 0;
    for (uint32_t v = u; !(v & 0x40000000u); v <<= 1) octave++;
    const uint32_t rest = (u << octave) & 0x3fffffffu, index = (uint32_t)octave * 257 + (rest >> 22);
    const uint32_t fraction = rest >> 9 & 8191;
    const uint32_t fine = table[index] - ((table[index] - table[index + 1]) * fraction >> 13);
    const float z = (float)((fine + 16) >> 5) * 4.76837158203125e-7f;
    return bits & 1 ? -z : z;
}

/* Word i of the seed counts as 0 where the seed has fewer words. */
static int kernel_philox(const rlx_call *call)
{
    RLX_ARGUMENTS(philox, call);
    const int64_t count = p->count;
    const int kind = (int)p->kind;
    const uint32_t *seed = in->seed, *table = in->table;
    const rlx_range own = rlx_share(call, count, 64);
    for (int64_t index = own.first; index < own.last; index += 4) {
        uint32_t c[4] = {(uint32_t)(index / 4), 0, (uint32_t)p->stream, 0};
        philox_block(c, seed[0], p->words > 1 ? seed[1] : 0);
        for (int j = 0; j < 4 && index + j < count; j++) {
            if (kind == RLX_PHILOX_BITS) ((uint32_t *)out->y)[index + j] = c[j];
            else if (kind == RLX_PHILOX_UNIFORM) ((float *)out->y)[index + j] = (float)(c[j] >> 8) * 0x1p-24f;
            else ((float *)out->y)[index + j] = normal_number(c[j], table);
        }
    }
    return RLX_OK;
}
