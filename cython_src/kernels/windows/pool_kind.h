/* One kind of pool for one type. The including file defines T and SUFFIX (generic.h), and by kind WHICH (max or sum), TAKE and
   TAKE_LANES (of two elements, of two vectors); START is the result of no elements.

   Results are made in strips of a row. The rows of the windows are joined first, in a line with its padding, since windows
   side by side share them. Then the taps along the line are joined, for a vector of windows at a time. Where windows are
   `stride` apart, the line is separated by phase before: element i goes to place i / stride of phase i % stride, so that
   windows side by side read elements side by side. */
#ifdef POOL_LANES
#include "pool_lanes.h"
#endif

/* n columns of `high` slices of `tall` rows. */
static RLX_INLINE void POOL(join_rows)(T *line, const T *from, int64_t n, int64_t high, int64_t tall,
                                       int64_t slice, int64_t row)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        VEC all = AT(from + i);
        for (int64_t z = 0; z < high; z++)
            for (int64_t y = z == 0; y < tall; y++) all = TAKE_LANES(all, AT(from + z * slice + y * row + i));
        *(VEC *)(line + i) = all;
    }
    if (i == n) return;
    VEC all = NAME(pool_load)(from + i, n - i);
    for (int64_t z = 0; z < high; z++)
        for (int64_t y = z == 0; y < tall; y++)
            all = TAKE_LANES(all, NAME(pool_load)(from + z * slice + y * row + i, n - i));
    NAME(pool_store)(line + i, all, n - i);
}

/* Some phases of a line, `length` elements each. With a step of 2, 3 or 4 that the compiler knows, the copies become shuffles
   of vectors; then all phases are made, also those that no window needs. */
static RLX_INLINE void POOL(separate)(T *to, const T *line, int64_t phases, int64_t step, int64_t length,
                                      int64_t apart)
{
    T *second = to + apart, *third = second + apart, *fourth = third + apart;
    if (step == 2 && phases == 2)
        RLX_INDEPENDENT for (int64_t i = 0; i < length; i++) to[i] = line[2 * i], second[i] = line[2 * i + 1];
    else if (step == 3 && phases > 1)
        RLX_INDEPENDENT for (int64_t i = 0; i < length; i++)
            to[i] = line[3 * i], second[i] = line[3 * i + 1], third[i] = line[3 * i + 2];
    else if (step == 4 && phases > 1)
        RLX_INDEPENDENT for (int64_t i = 0; i < length; i++) {
            to[i] = line[4 * i], second[i] = line[4 * i + 1];
            third[i] = line[4 * i + 2], fourth[i] = line[4 * i + 3];
        }
    else
        for (int64_t r = 0; r < phases; r++)
            RLX_INDEPENDENT for (int64_t i = 0; i < length; i++) to[r * apart + i] = line[i * step + r];
}

/* n windows by their taps in the phases. Sums are divided by `row` and by their columns, or multiplied by these factors; without
   columns they stay. Behind the columns there are others that may be read. */
static RLX_INLINE void POOL(join_phases)(T *y, const T *phases, const int64_t *places, int64_t taps, int64_t n,
                                         const T *columns, T row, int factors)
{
    for (int64_t i = 0; i < n; i += VL) {
        VEC all = AT(phases + i);
        for (int64_t k = 1; k < taps; k++) all = TAKE_LANES(all, AT(phases + places[k] + i));
        if (columns && factors) all *= AT(columns + i) * row;
        else if (columns) all /= AT(columns + i) * row;
        if (n - i >= VL) *(VEC *)(y + i) = all;
        else NAME(pool_store)(y + i, all, n - i);
    }
}

/* A window of n adjacent taps. */
static RLX_INLINE T POOL(take_taps)(const T *line, int64_t n)
{
    T total = START, lanes[VL];
    int64_t i = 0;
    if (n >= VL) {
        VEC all = AT(line);
        for (i = VL; i + VL <= n; i += VL) all = TAKE_LANES(all, AT(line + i));
        *(VEC *)lanes = all;
        for (int64_t l = 0; l < VL; l++) total = TAKE(total, lanes[l]);
    }
    for (; i < n; i++) total = TAKE(total, line[i]);
    return total;
}

/* The common part of all rows of a strip of windows. */
typedef struct {
    int64_t n, length;   /* windows of a row; elements of each phase of its line */
    int64_t left;        /* the column of the first element of the line */
    int64_t low, high;   /* the elements of the line that are not padding */
    int64_t rows, apart; /* lines that are worked on as one; elements from one phase of them to the next */
} POOL(strip);

static POOL(strip) POOL(strip_of)(const rlx_window *w, int64_t strip, int64_t strips, T *line, int64_t *places)
{
    POOL(strip) s;
    const int64_t step = w->stride[2], taps = w->kernel[2], begin = strip * RLX_POOL_STRIP;
    s.n = w->out[2] - begin < RLX_POOL_STRIP ? w->out[2] - begin : RLX_POOL_STRIP;
    s.left = begin * step - w->before[2];
    const int64_t reach = (s.n - 1) * step + (taps - 1) * w->dilation[2] + 1, beyond = w->dims[2] - s.left;
    s.length = (reach + step - 1) / step;
    s.low = s.left < 0 ? -s.left : 0, s.high = beyond < reach ? beyond : reach;
    if (s.high < s.low) s.high = s.low;
    s.rows = strips == 1 && s.n < 4 * VL && s.length < RLX_POOL_STRIP ? RLX_POOL_STRIP / s.length : 1;
    s.apart = s.rows * s.length + RLX_VECTOR_ELEMENTS;
    for (int64_t i = 0; i < s.apart * step; i++) line[i] = START; /* padding stays */
    for (int64_t k = 0; k < taps; k++) {
        const int64_t tap = k * w->dilation[2];
        places[k] = tap % step * s.apart + tap / step;
    }
    return s;
}

/* Slices or rows that are inside of each window, from the lower axis on: the first, how many, and the divisor. */
typedef struct {
    int64_t first, some, count;
} POOL(inside);

static POOL(inside) POOL(inside_of)(const rlx_window *w, int axis, int64_t o, int padded)
{
    POOL(inside) result;
    const int64_t first = o * w->stride[axis] - w->before[axis];
    const int64_t high = taps_inside(first, w->dilation[axis], w->kernel[axis], w->dims[axis], &result.first);
    result.some = high > result.first ? high - result.first : 0;
    result.first = first + result.first * w->dilation[axis];
    result.count = padded ? count_inside(w, axis, o, 1) : result.some;
    return result;
}

static int POOL(kernel_pool)(const rlx_call *call)
{
    POOL_ARGUMENTS(JOIN(pool, WHICH), call);
    const rlx_window *w = &p->window;
    /* The compiler knows that maxima are not divided. */
    const int64_t divide = START == 0 ? p->divide : RLX_DIVIDE_NO;
    const int padded = divide == RLX_DIVIDE_PADDED;
#ifdef POOL_LANES
    if (POOL(are_small)(w)) {
        POOL(pool_lanes)(call, w, divide, in->x, out->y);
        return RLX_OK;
    }
#endif
    const int64_t step = w->stride[2], taps = w->kernel[2], width = w->out[2], row = w->dims[2];
    const int64_t slice = w->dims[1] * row, strips = (width + RLX_POOL_STRIP - 1) / RLX_POOL_STRIP;
    const rlx_range own = rlx_share(call, w->channels * w->out[0] * w->out[1] * strips, 1);
    T *line = out->lines, *counts = out->counts, every[RLX_POOL_STRIP];
    int64_t *places = out->places, held = 0;
    POOL(inside) *inside = (POOL(inside) *)(places + taps), depth = {0, 0, 0};
    POOL(strip) s = POOL(strip_of)(w, 0, strips, line, places);
    int64_t others = 0; /* bits of counts that are no powers of two */
    for (int64_t o = 0; o < w->out[1]; o++)
        inside[o] = POOL(inside_of)(w, 1, o, padded), others |= inside[o].count & (inside[o].count - 1);
    for (int64_t o = 0; divide && o < w->out[0]; o++)
        depth = POOL(inside_of)(w, 0, o, padded), others |= depth.count & (depth.count - 1);
    for (int64_t i = 0; divide && i < width + VL; i++) {
        const int64_t first = i * step - w->before[2];
        const int whole = first >= 0 && first + (taps - 1) * w->dilation[2] < row;
        const int64_t count = i >= width ? 1 : whole ? taps : count_inside(w, 2, i, padded);
        counts[i] = (T)(count ? count : 1), others |= count & (count - 1);
    }
    /* To multiply by the inverse of a power of two gives the same bits. */
    const int factors = divide && !others;
    for (int64_t i = 0; factors && i < width + VL; i++) counts[i] = 1 / counts[i];
    for (int64_t item = own.first, rows; item < own.last; item += rows) {
        const int64_t index = item / strips, strip = item % strips, begin = strip * RLX_POOL_STRIP;
        if (strip != held) s = POOL(strip_of)(w, strip, strips, line, places), held = strip;
        const int64_t n = s.n, pitch = s.length * step, wide = s.high - s.low;
        rows = own.last - item < s.rows ? own.last - item : s.rows;
        int64_t oy = index % w->out[1], oz = index / w->out[1] % w->out[0], channel = index / w->out[1] / w->out[0];
        const T *x = (const T *)in->x + channel * w->dims[0] * slice;
        for (int64_t r = 0; r < rows; r++, oy++) {
            if (oy == w->out[1]) {
                oy = 0, oz++;
                if (oz == w->out[0]) oz = 0, x += w->dims[0] * slice;
            }
            if (r == 0 || oy == 0) depth = POOL(inside_of)(w, 0, oz, padded);
            T *to = line + r * pitch + s.low;
            const int64_t count = depth.count * inside[oy].count;
            every[r] = factors ? 1 / (T)(count ? count : 1) : (T)(count ? count : 1);
            if (depth.some && inside[oy].some)
                POOL(join_rows)(to, x + depth.first * slice + inside[oy].first * row + s.left + s.low, wide,
                                depth.some, inside[oy].some, w->dilation[0] * slice, w->dilation[1] * row);
            else
                for (int64_t i = 0; i < wide; i++) to[i] = START;
        }
        T *y = (T *)out->y + index * width + begin;
        T *phases = line + step * s.apart, *joined = phases + step * s.apart;
        const T *columns = divide ? counts + begin : NULL;
        /* Few windows of many taps are joined one by one. */
        const int few = w->dilation[2] == 1 && n * (taps / VL + VL) < (n + VL - 1) / VL * taps;
        const int64_t total = rows * s.length, used = w->dilation[2] == 1 && taps < step ? taps : step;
        for (int64_t r = 0; few && r < rows; r++)
            for (int64_t i = 0; i < n; i++)
                joined[r * s.length + i] = POOL(take_taps)(line + r * pitch + i * step, taps);
        if (!few && step > 1) POOL(separate)(phases, line, used, step, total, s.apart);
        if (!few && s.rows == 1) {
            POOL(join_phases)(y, step > 1 ? phases : line, places, taps, n, columns, every[0], factors);
            continue;
        }
        if (!few) POOL(join_phases)(joined, step > 1 ? phases : line, places, taps, total, NULL, 0, 0);
        for (int64_t r = 0; r < rows; r++)
            POOL(join_phases)(y + r * n, joined + r * s.length, places, 1, n, columns, every[r], factors);
    }
    return RLX_OK;
}
#undef T
#undef SUFFIX
