/* Everything that is compiled once per floating-point type. Before each inclusion: T, SUFFIX,
   and SINGLE where T is float. */
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(name) JOIN(name, SUFFIX)
#define FN(name) JOIN(rlx_##name, SUFFIX)
#define LANES ((int64_t)(64 / sizeof(T)))

#include "products/matmul.h"
#include "spectra/fft_lanes.h"
#include "spectra/fft.h"
#include "products/gated.h"
#include "rows/rows.h"
#include "attention/attention.h"
#include "recurrent/recursive.h"
#include "spectra/peaks.h"
#include "windows/conv.h"
#ifdef SINGLE
#define DEPTHWISE_BYTES VECTOR_BYTES
#define DEPTHWISE(name) NAME(name)
#include "windows/depthwise.h"
#undef DEPTHWISE_BYTES
#undef DEPTHWISE
/* The same for rows of at most eight results: of a vector of 16 floats most lanes would be wasted. */
#define DEPTHWISE_BYTES (VECTOR_BYTES < 32 ? VECTOR_BYTES : 32)
#define DEPTHWISE(name) NAME(name##_narrow)
#include "windows/depthwise.h"
#undef DEPTHWISE_BYTES
#undef DEPTHWISE
#include "windows/long_conv.h"
#endif
#include "windows/conv_transpose.h"
#include "resize/interpolate.h"
#include "recurrent/recurrent.h"
#include "recurrent/state_space.h"

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
