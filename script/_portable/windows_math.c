/* Stands between NumPy and the C library of wine: complex functions are here, all others are passed on to it.
 *
 * What is exported is added by _portable/windows.py, which asks NumPy's modules what they need.
 */
#include <math.h>

#define T double
#define S complex_double
#define NAME(name) name
#define REAL(name) name
#include "complex_math.h"
#undef T
#undef S
#undef NAME
#undef REAL

#define T float
#define S complex_float
#define NAME(name) name##f
#define REAL(name) name##f
#include "complex_math.h"
