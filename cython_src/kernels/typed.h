/* The kernels of one floating-point type. The including file defines T, SUFFIX, and SINGLE where T is float; they are
   undefined at the end. */
#include "spectra/fft_lanes.h"
#include "products/dots.h"
#ifdef SINGLE
#define HELD rlx_f16
#define OF(name) JOIN(NAME(name), f16)
#define READ(place) widened_f16(place)
#define READ_ONE(place) rlx_from_f16(*(place))
#include "products/dots.h"
#include "attention/q8_rows.h"
#endif
#include "products/matmul.h"
#include "products/gated.h"
#include "spectra/fft.h"
#include "spectra/peaks.h"
#include "rows/rows.h"
#include "rows/trees.h"
#include "attention/attention.h"
#include "windows/planes.h"
#include "windows/conv_direct.h"
#include "windows/conv_last.h"
#include "windows/depthwise_last.h"
#include "windows/conv_transpose.h"
#ifdef SINGLE
#include "windows/long_conv.h"
#include "windows/winograd_last.h"
#include "windows/depthwise.h"
#endif
#include "resize/interpolate.h"
#include "resize/nearest.h"
#include "resize/taps.h"
#include "recurrent/recurrent.h"
#include "recurrent/recursive.h"
#include "recurrent/state_space.h"

#undef T
#undef SUFFIX
#undef SINGLE
