/* Sizes that depend on those of a run: a table of steps over whole numbers, two words each. */
#ifndef RLX_SIZES_H
#define RLX_SIZES_H

#include <stdint.h>

/* a * b + c; a / b rounded down, for b above 0; the least and the largest of a and b; and a, which a double holds exactly,
   and which is above 0 where b says so. */
enum { RLX_SIZE_SUM, RLX_SIZE_QUOTIENT, RLX_SIZE_LEAST, RLX_SIZE_LARGEST, RLX_SIZE_REAL };
/* How a number is compared with 0. */
enum { RLX_SIZE_POSITIVE, RLX_SIZE_ZERO, RLX_SIZE_NONZERO };
enum { RLX_SIZES_KNOWN, RLX_SIZES_OVERFLOW, RLX_SIZES_DIVISION };
#define RLX_SIZE_LARGEST_REAL ((int64_t)1 << 53)

/* A step and its operands: numbers of registers, but for b of RLX_SIZE_REAL. */
typedef struct {
    int32_t op, a, b, c;
} rlx_size_step;

typedef struct {
    int32_t place, relation;
} rlx_size_check;

/* Computes the registers from `first` on, one for each step. */
static inline int rlx_compute_sizes(const rlx_size_step *steps, int64_t count, int64_t *registers, int64_t first)
{
    for (int64_t i = 0; i < count; i++) {
        const rlx_size_step step = steps[i];
        const int64_t a = registers[step.a];
        int64_t *result = &registers[first + i];
        switch (step.op) {
        case RLX_SIZE_SUM:
            if (__builtin_mul_overflow(a, registers[step.b], result)) return RLX_SIZES_OVERFLOW;
            if (__builtin_add_overflow(*result, registers[step.c], result)) return RLX_SIZES_OVERFLOW;
            break;
        case RLX_SIZE_QUOTIENT: {
            const int64_t b = registers[step.b];
            if (b <= 0) return RLX_SIZES_DIVISION;
            *result = a / b - (a % b < 0);
            break;
        }
        case RLX_SIZE_LEAST: *result = a < registers[step.b] ? a : registers[step.b]; break;
        case RLX_SIZE_LARGEST: *result = a > registers[step.b] ? a : registers[step.b]; break;
        default:
            if (step.b && a <= 0) return RLX_SIZES_DIVISION;
            if (a > RLX_SIZE_LARGEST_REAL || a < -RLX_SIZE_LARGEST_REAL) return RLX_SIZES_OVERFLOW;
            *result = a;
        }
    }
    return RLX_SIZES_KNOWN;
}

/* Whether all checks hold. */
static inline int rlx_sizes_hold(const rlx_size_check *checks, int64_t count, const int64_t *registers)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = registers[checks[i].place];
        if (checks[i].relation == RLX_SIZE_POSITIVE ? number <= 0 : (number == 0) != (checks[i].relation == RLX_SIZE_ZERO))
            return 0;
    }
    return 1;
}

#endif
