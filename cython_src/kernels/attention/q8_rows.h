/* Rows in blocks of Q8_0: 34 bytes for 32 elements, a scale in 16 bits and then codes of 8 bits. */
enum { Q8_ELEMENTS = 32, Q8_BYTES = 34 };

static inline float q8_scale(const uint8_t *block)
{
    rlx_f16 half;
    memcpy(&half, block, 2);
#if VECTOR_BYTES > 16 && defined(__x86_64__)
    return _cvtsh_ss(half);
#else
    return rlx_from_f16(half);
#endif
}

/* A vector of codes as floats. */
static inline vf q8_codes(const uint8_t *from) { return __builtin_convertvector(widened_i8(from), vf); }

/* Widens elements [at, at + n). */
static void widen_q8(float *to, const uint8_t *from, int64_t at, int64_t n)
{
    for (int64_t i = 0, some; i < n; i += some) {
        const int64_t first = (at + i) % Q8_ELEMENTS;
        const uint8_t *block = from + (at + i) / Q8_ELEMENTS * Q8_BYTES;
        const float scale = q8_scale(block);
        some = Q8_ELEMENTS - first < n - i ? Q8_ELEMENTS - first : n - i;
        for (int64_t l = 0; l < some; l++) to[i + l] = scale * (float)(int8_t)block[2 + first + l];
    }
}

/* y[i] += dot(r[i], h) for rows of n elements that are `apart` bytes apart. */
static void add_dots_q8(const uint8_t *r, int64_t apart, int64_t rows, int64_t n, const float *h, float *y)
{
    for (int64_t i = 0; i < rows; i += VL) {
        const int64_t some = rows - i < VL ? rows - i : VL;
        VEC sums[VECTOR_BYTES / sizeof(float)] = {{0}};
        for (int64_t k = 0; k < some; k++, r += apart)
            for (int64_t j = 0; j < n; j += Q8_ELEMENTS) {
                const uint8_t *block = r + j / Q8_ELEMENTS * Q8_BYTES;
                VEC sum = {0};
                _Pragma("GCC unroll 8") for (int l = 0; l < Q8_ELEMENTS; l += VL) sum += q8_codes(block + 2 + l) * *LANE(h + j + l, 0);
                sums[k] += q8_scale(block) * sum;
            }
        NAME(transpose_lanes)(sums);
        for (int64_t half = VL / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++) sums[l] += sums[l + half];
        for (int64_t l = 0; l < some; l++) y[i + l] += sums[0][l];
    }
}

/* y += s @ r. */
static void add_rows_q8(const uint8_t *r, int64_t apart, int64_t rows, int64_t n, const float *s, float *y)
{
    for (int64_t e = 0; e < n; e += Q8_ELEMENTS, r += Q8_BYTES) {
        VEC sums[Q8_ELEMENTS * sizeof(float) / VECTOR_BYTES];
        _Pragma("GCC unroll 8") for (int l = 0; l < Q8_ELEMENTS / VL; l++) sums[l] = *LANE(y + e, l);
        for (int64_t j = 0; j < rows; j++) {
            const uint8_t *block = r + j * apart;
            const float factor = s[j] * q8_scale(block);
            _Pragma("GCC unroll 8") for (int l = 0; l < Q8_ELEMENTS / VL; l++) sums[l] += factor * q8_codes(block + 2 + l * VL);
        }
        _Pragma("GCC unroll 8") for (int l = 0; l < Q8_ELEMENTS / VL; l++) *LANE(y + e, l) = sums[l];
    }
}

static int kernel_quantize_q8_0_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(quantize_q8_0, call);
    const float *x = in->x;
    uint8_t *y = out->y;
    for (int64_t b = 0; b < p->count; b++, x += Q8_ELEMENTS, y += Q8_BYTES) {
        float largest = 0;
        int finite = 1;
        for (int l = 0; l < Q8_ELEMENTS; l++) {
            const float size = fabsf(x[l]);
            largest = size > largest ? size : largest;
            finite &= size < INFINITY;
        }
        rlx_f16 half = rlx_to_f16(largest * (1 / 127.0f));
        if (!finite || rlx_from_f16(half) > 65504) half = 0x7e00;
        memcpy(y, &half, 2);
        const double scale = finite && half && half < 0x7c00 ? rlx_from_f16(half) : INFINITY;
        for (int l = 0; l < Q8_ELEMENTS; l++) {
            const double code = finite ? rint(x[l] / scale) : 0;
            y[2 + l] = (uint8_t)(int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
        }
    }
    return RLX_OK;
}
