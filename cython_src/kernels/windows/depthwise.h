/* Depthwise convolution: each plane has one filter. Four rows of results are computed together. For filters of 3, 5 or 7
   rows next to each other a vector of the operand is read once for all of them. Padding is not copied: lanes beyond a row are
   loaded as 0, and rows beyond a plane are a row of zeros. T is float. */

/* Whether all are numbers: weights of such can leave out padding. */
static int NAME(are_numbers)(const T *x, int64_t n)
{
    VEC sums = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) sums += *(const VEC *)(x + i) * 0;
    T sum = 0;
    for (; i < n; i++) sum += x[i] * 0;
    for (int64_t v = 0; v < VL; v++) sum += sums[v];
    return sum == 0;
}

/* The lanes [first, last) of a vector are loaded; the others are 0. */
#if VECTOR_BYTES == 64
#define SOME_LANES __mmask16
static inline __mmask16 NAME(lanes)(int64_t first, int64_t last)
{
    const int64_t low = first < 0 ? 0 : first < VL ? first : VL;
    const int64_t high = last < 0 ? 0 : last < VL ? last : VL;
    return (__mmask16)((0xffffu << low) & ~(0xffffu << high));
}
static inline VEC NAME(read_lanes)(const T *from, __mmask16 some) { return (VEC)_mm512_maskz_loadu_ps(some, from); }
#elif VECTOR_BYTES == 32
#define SOME_LANES __m256i
static inline __m256i NAME(lanes)(int64_t first, int64_t last)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int64_t low = first < -1 ? -1 : first - 1, high = last > VL ? VL : last;
    return _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32((int)low)),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32((int)high), lane));
}
static inline VEC NAME(read_lanes)(const T *from, __m256i some) { return (VEC)_mm256_maskload_ps(from, some); }
#elif defined(NEON)
/* A vector that is read where it is inside of its row, and which of its bytes go where; others become 0. A row has at least
   as many elements as a vector. */
typedef struct {
    uint8x16_t bytes;
    int64_t aside;
} NAME(some_lanes);
#define SOME_LANES NAME(some_lanes)
static inline SOME_LANES NAME(lanes)(int64_t first, int64_t last)
{
    const int64_t column = -first, most = last - first - VL, from = column < 0 ? 0 : column > most ? most : column;
    SOME_LANES some = {vdupq_n_u8(0xff), from - column};
    for (int l = 0; l < 16; l++)
        if (l / 4 >= first && l / 4 < last) some.bytes[l] = (uint8_t)(l - 4 * some.aside);
    return some;
}
static inline VEC NAME(read_lanes)(const T *from, SOME_LANES some)
{
    return (VEC)vqtbl1q_u8((uint8x16_t)*(const VEC *)(from + some.aside), some.bytes);
}
#else
#define SOME_LANES rlx_range
static inline rlx_range NAME(lanes)(int64_t first, int64_t last)
{
    return (rlx_range){first > 0 ? first : 0, last < VL ? last : VL};
}
static inline VEC NAME(read_lanes)(const T *from, rlx_range some)
{
    if (some.last - some.first == VL) return *(const VEC *)from;
    VEC v = {0};
    for (int64_t i = some.first; i < some.last; i++) v[i] = from[i];
    return v;
}
#endif

/* Stores a vector of which n entries are valid. Entries behind them belong to rows that are computed later, or are not
   written. */
static inline void NAME(store_before)(T *to, VEC v, int64_t n, const T *end)
{
    if (end - to >= VL)
        *(VEC *)to = v;
    else
        for (int64_t i = 0; i < n && i < VL; i++) to[i] = v[i];
}

/* Every second entry of two consecutive vectors. */
#if VECTOR_BYTES == 64
#define EVEN_LANES(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#elif VECTOR_BYTES == 32
#define EVEN_LANES(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#else
#define EVEN_LANES(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#endif

static_assert(sizeof(SOME_LANES) <= RLX_LANE_MASK_BYTES / 2, "scratch holds smaller masks");

#define DEPTHWISE_ROWS 4
#define DEPTHWISE_READ ((DEPTHWISE_ROWS - 1) * 2 + 7)

/* Four rows of results. `from` has the rows of the operand that they need, `inside` the valid lanes of the vectors of
   every tap. */
static RLX_INLINE void NAME(depthwise_rows)(const T *weight, T start, const T *const *from, T *c, const T *end,
                                            const rlx_window *w, const SOME_LANES *inside,
                                            const int high, const int step)
{
    const int64_t taps = w->kernel[2], out = w->out[2];
    for (int64_t x = 0; x < out; x += VL) {
        /* The last vector of a row overlaps the one before, where there is one. */
        const int64_t left = out - x, index = left >= VL || x == 0 ? x : out - VL;
        VEC sums[DEPTHWISE_ROWS];
        _Pragma("GCC unroll 4") for (int r = 0; r < DEPTHWISE_ROWS; r++) sums[r] = start - (VEC){0};
        for (int64_t k = 0; k < taps; k++, inside += 2) {
            const int64_t column = index * step - w->before[2] + k * w->dilation[2];
            VEC by[7];
            _Pragma("GCC unroll 7") for (int y = 0; y < high; y++)
                by[y] = weight[y * taps + k] - (VEC){0};
            _Pragma("GCC unroll 16") for (int y = 0; y < (DEPTHWISE_ROWS - 1) * step + high; y++)
            {
                VEC v = NAME(read_lanes)(from[y] + column, inside[0]);
                if (step == 2) v = EVEN_LANES(v, NAME(read_lanes)(from[y] + column + VL, inside[1]));
                _Pragma("GCC unroll 4") for (int r = 0; r < DEPTHWISE_ROWS; r++)
                    if (y >= r * step && y < r * step + high)
                        sums[r] += by[y - r * step] * v;
            }
        }
        _Pragma("GCC unroll 4") for (int r = 0; r < DEPTHWISE_ROWS; r++)
            NAME(store_before)(c + r * out + index, sums[r], out - index, end);
    }
}

/* Rows [first, first + count) of results, of a filter of any rows. */
static RLX_INLINE void NAME(depthwise_any)(const T *weight, T start, const T *x, const T *zeros, int64_t first, T *c,
                                                const T *end, const rlx_window *w, const SOME_LANES *inside,
                                                const int count, const int step)
{
    const int64_t high = w->kernel[1], taps = w->kernel[2], out = w->out[2], width = w->dims[2];
    const int64_t top = first * w->stride[1] - w->before[1], whole = NAME(are_numbers)(weight, high * taps);
    for (int64_t index = 0, next = 0; next < out; inside += 2 * taps) {
        /* The last vector of a row overlaps the one before, where there is one. */
        index = out - next >= VL || next == 0 ? next : out - VL;
        next += VL;
        VEC sums[DEPTHWISE_ROWS];
        _Pragma("GCC unroll 4") for (int r = 0; r < count; r++) sums[r] = start - (VEC){0};
        for (int64_t y = 0; y < high; y++) {
            const T *from[DEPTHWISE_ROWS];
            int met = 0;
            _Pragma("GCC unroll 4") for (int r = 0; r < count; r++)
            {
                const int64_t row = top + r * w->stride[1] + y * w->dilation[1];
                const int beyond = row < 0 || row >= w->dims[1];
                from[r] = (beyond ? zeros : x + row * width) + index * step - w->before[2];
                met |= !beyond;
            }
            if (!met && whole) continue;
            for (int64_t k = 0; k < taps; k++) {
                const VEC by = weight[y * taps + k] - (VEC){0};
                const int64_t column = k * w->dilation[2];
                _Pragma("GCC unroll 4") for (int r = 0; r < count; r++)
                {
                    VEC v = NAME(read_lanes)(from[r] + column, inside[2 * k]);
                    if (step == 2)
                        v = EVEN_LANES(v, NAME(read_lanes)(from[r] + column + VL, inside[2 * k + 1]));
                    sums[r] += by * v;
                }
            }
        }
        _Pragma("GCC unroll 4") for (int r = 0; r < count; r++)
            NAME(store_before)(c + r * out + index, sums[r], out - index, end);
    }
}

/* Windows of two axes, one or two columns apart. Scratch: a row of zeros, and masks of two vectors for every tap of every
   vector of a row. */
static int NAME(kernel_conv_depthwise)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_depthwise, call);
    const rlx_window w = p->window;
    const int64_t each = w.outputs / w.groups, width = w.dims[2], down = w.out[1];
    const int64_t high = w.kernel[1], step = w.stride[2], results = down * w.out[2];
    const int near = (high == 3 || high == 5 || high == 7) && w.dilation[1] == 1 && w.stride[1] == step && down >= DEPTHWISE_ROWS;
    const T *bias = in->bias;
    T *zeros = out->zeros;
    SOME_LANES *inside = out->masks, *next = inside;
    memset(zeros, 0, (size_t)width * sizeof(T));
    for (int64_t x = 0; x < w.out[2]; x += VL)
        for (int64_t k = 0; k < w.kernel[2]; k++) {
            const int64_t index = w.out[2] - x >= VL || x == 0 ? x : w.out[2] - VL;
            const int64_t column = index * step - w.before[2] + k * w.dilation[2];
            *next++ = NAME(lanes)(-column, width - column);
            *next++ = NAME(lanes)(-column - VL, width - column - VL);
        }
    const rlx_range own = rlx_share(call, w.batch * w.outputs, 1);
    const T *end = (const T *)out->y + own.last * results;
    const T *residual = in->residual;
    for (int64_t index = own.first; index < own.last; index++) {
        const int64_t o = index % w.outputs;
        const T *x = (const T *)in->x + index / each * w.dims[1] * width;
        const T *weight = (const T *)in->weight + o * high * w.kernel[2], start = bias ? bias[o] : 0;
        T *c = (T *)out->y + index * results;
        for (int64_t y = 0; y < down && !near; y += DEPTHWISE_ROWS) {
            T *to = c + y * w.out[2];
            const int64_t left = down - y;
#define ROWS(COUNT) \
    if (step == 1) NAME(depthwise_any)(weight, start, x, zeros, y, to, end, &w, inside, COUNT, 1); \
    else NAME(depthwise_any)(weight, start, x, zeros, y, to, end, &w, inside, COUNT, 2)
            if (left >= 4) ROWS(4);
            else if (left == 3) ROWS(3);
            else if (left == 2) ROWS(2);
            else ROWS(1);
#undef ROWS
        }
        for (int64_t y = 0; y < down && near; y += DEPTHWISE_ROWS) {
            /* The last group of rows overlaps the one before. */
            const int64_t first = down - y < DEPTHWISE_ROWS ? down - DEPTHWISE_ROWS : y;
            const T *from[DEPTHWISE_READ];
            for (int64_t i = 0; i < (DEPTHWISE_ROWS - 1) * step + high; i++) {
                const int64_t row = first * step - w.before[1] + i;
                from[i] = row < 0 || row >= w.dims[1] ? zeros : x + row * width;
            }
            T *to = c + first * w.out[2];
#define ROWS(HIGH) \
    if (step == 1) NAME(depthwise_rows)(weight, start, from, to, end, &w, inside, HIGH, 1); \
    else NAME(depthwise_rows)(weight, start, from, to, end, &w, inside, HIGH, 2)
            if (high == 3) ROWS(3);
            else if (high == 5) ROWS(5);
            else ROWS(7);
#undef ROWS
        }
        NAME(finish)(c, results, residual ? residual + index * results : NULL, p->act); /* while the plane is in the cache */
    }
    return RLX_OK;
}

#undef SOME_LANES
#undef EVEN_LANES
#undef DEPTHWISE_ROWS
#undef DEPTHWISE_READ
