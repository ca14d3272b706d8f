/* Everything that is compiled once per floating-point type. Before each inclusion: T, SUFFIX,
   and SINGLE where T is float. */
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(name) JOIN(name, SUFFIX)
#define FN(name) JOIN(rlx_##name, SUFFIX)
#define LANES ((int64_t)(64 / sizeof(T)))

#include "matmul.h"
#if !defined(ONLY_WIDE) || defined(SINGLE)
RLX_RARE_FOR_SIZE
#include "fft_lanes.h"
#include "fft.h"
RLX_RARE_FOR_SPEED
/* Built for size: doubles, which are more often checked than waited for, and what hardly any processor runs. */
#if !defined(SINGLE) || defined(RARELY)
RLX_FOR_SIZE
#endif
#include "gated.h"
#include "rows.h"
#include "attention.h"
#include "recursive.h"
#include "peaks.h"
#include "conv.h"
#ifdef SINGLE
#include "depthwise.h"
#include "long_conv.h"
#endif
#include "conv_transpose.h"
#include "interpolate.h"
#include "recurrent.h"
#include "state_space.h"
#if !defined(SINGLE) || defined(RARELY)
RLX_FOR_SPEED
#endif
#endif

#undef EIGHT
#undef SIXTEEN
#undef FOUR
#undef TWO
#undef LOW
#undef HIGH
#undef LANE
#undef WRITTEN_OUT
#undef MICRO_ROWS
#undef MICRO_COLUMNS
#undef MICRO_AHEAD
#undef MICRO_DEPTH
#undef MICRO_BLOCK
#undef VL
#undef VEC
#undef LANES
#undef FN
#undef NAME
