/* A monotonic clock in nanoseconds, for timing kernels. */
#ifndef RLX_CLOCK_H
#define RLX_CLOCK_H

#include <stdint.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static inline int64_t rlx_clock_ns(void) {
    LARGE_INTEGER now, each;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&each);
    /* In two parts, since ticks times 1e9 overflow 64 bits after some minutes. */
    return now.QuadPart / each.QuadPart * 1000000000 +
           now.QuadPart % each.QuadPart * 1000000000 / each.QuadPart;
}
#else
#include <time.h>

static inline int64_t rlx_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

#endif
