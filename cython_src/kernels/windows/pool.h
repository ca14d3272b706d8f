/* Pools: the maximum or the sum of sliding windows. The kernels themselves are in pool_kind.h, those of small planes of
   floats in pool_lanes.h, where POOL_LANES is defined. */

/* The taps [*low, result) of a window that begins at `first` are inside [0, size). */
static inline int64_t taps_inside(int64_t first, int64_t step, int64_t taps, int64_t size,
                                  int64_t *low)
{
    const int64_t high = size > first ? (size - first + step - 1) / step : 0;
    *low = first < 0 ? (-first + step - 1) / step : 0;
    return high < taps ? high : taps;
}

/* Elements of window o along one axis, with or without padding, but without what extends beyond the padding. */
static inline int64_t count_inside(const rlx_window *w, int axis, int64_t o, int padded)
{
    int64_t low, first = o * w->stride[axis] - w->before[axis], size = w->dims[axis];
    if (padded) first += w->before[axis], size += w->before[axis] + w->after[axis];
    const int64_t high = taps_inside(first, w->dilation[axis], w->kernel[axis], size, &low);
    return high > low ? high - low : 0;
}

/* A NaN stays. */
#define TAKE_MAX(a, v) ((v) > (a) || (v) != (v) ? (v) : (a))
#define TAKE_SUM(a, v) ((a) + (v))
static RLX_INLINE vec_f32 larger_f32(vec_f32 a, vec_f32 v)
{
    return (vec_f32)v_pick(v_unordered((vf)v, (vf)v), (vf)v, v_max((vf)v, (vf)a));
}
#define LARGER_LANES(SUFFIX, BITS)                                                                \
    static RLX_INLINE vec_##SUFFIX larger_##SUFFIX(vec_##SUFFIX a, vec_##SUFFIX v)                \
    {                                                                                             \
        const vec_##BITS from_v = (vec_##BITS)((v > a) | (v != v));                               \
        return (vec_##SUFFIX)((from_v & (vec_##BITS)v) | (~from_v & (vec_##BITS)a));              \
    }
LARGER_LANES(f64, i64)
LARGER_LANES(i32, i32)
#undef LARGER_LANES

/* n elements, fewer than a vector has and at least 1. */
static RLX_INLINE vec_f32 pool_load_f32(const float *from, int64_t n) { return (vec_f32)v_load_some(from, n); }
static RLX_INLINE void pool_store_f32(float *to, vec_f32 v, int64_t n) { v_store_some(to, (vf)v, n); }
#define PARTIAL(SUFFIX, E)                                                                        \
    static RLX_INLINE vec_##SUFFIX pool_load_##SUFFIX(const E *from, int64_t n)                   \
    {                                                                                             \
        vec_##SUFFIX v = {0};                                                                     \
        memcpy(&v, from, (size_t)n * sizeof(E));                                                  \
        return v;                                                                                 \
    }                                                                                             \
    static RLX_INLINE void pool_store_##SUFFIX(E *to, vec_##SUFFIX v, int64_t n)                  \
    {                                                                                             \
        memcpy(to, &v, (size_t)n * sizeof(E));                                                    \
    }
PARTIAL(f64, double)
PARTIAL(i32, int32_t)
#undef PARTIAL

#define POOL_ARGUMENTS(kernel, call) RLX_ARGUMENTS(kernel, call)
#define POOL(name) JOIN(JOIN(name, WHICH), SUFFIX)
#define AT(address) (*(const VEC *)(address))

#define WHICH max
#define TAKE TAKE_MAX
#define TAKE_LANES NAME(larger)
#define START INT32_MIN
#define T int32_t
#define SUFFIX i32
#include "pool_kind.h"
#undef START
#define START -INFINITY
#define POOL_LANES
#define T float
#define SUFFIX f32
#include "pool_kind.h"
#define T double
#define SUFFIX f64
#include "pool_kind.h"
#undef WHICH
#undef TAKE
#undef TAKE_LANES
#undef START

#define WHICH sum
#define TAKE TAKE_SUM
#define TAKE_LANES TAKE_SUM
#define START 0
#define T float
#define SUFFIX f32
#include "pool_kind.h"
#define T double
#define SUFFIX f64
#include "pool_kind.h"
#undef WHICH
#undef TAKE
#undef TAKE_LANES
#undef START
#undef POOL_LANES
#undef AT
#undef POOL
#undef POOL_ARGUMENTS
#undef TAKE_MAX
#undef TAKE_SUM
