/* Sizes that depend on those of a run: a table of steps over whole numbers, two words each. */
#ifndef RLX_SIZES_H
#define RLX_SIZES_H

#include <stdint.h>
#include <string.h>

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

/* Steps with their registers, which hold values of dims, then constants, then results; and comparisons of registers. */
typedef struct {
    int64_t dims, first, step_count, check_count;
    int64_t *registers;
    rlx_size_step *steps;
    rlx_size_check *checks;
} rlx_size_table;

/* Computes all registers; how that went. */
static inline int rlx_compute_table(rlx_size_table *table, const int64_t *values)
{
    memcpy(table->registers, values, (size_t)table->dims * sizeof(int64_t));
    return rlx_compute_sizes(table->steps, table->step_count, table->registers, table->first);
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

/* Whether all checks of a table hold; a number that can't be computed breaks them. */
static inline int rlx_table_holds(rlx_size_table *table, const int64_t *values)
{
    return rlx_compute_table(table, values) == RLX_SIZES_KNOWN &&
           rlx_sizes_hold(table->checks, table->check_count, table->registers);
}

/* An axis that shows a dim: (size - more) * multiple / factor. */
typedef struct {
    int64_t input, axis, more, multiple, factor, least, most;
} rlx_shown;

/* The sizes of a program that computes for many. The table holds the numbers of those that it has now. */
typedef struct {
    rlx_size_table *table, *guards; /* the guards hold for what it serves; NULL until somebody says so */
    int64_t *now, *others;          /* values of dims, and room for those of the arrays of a run */
    rlx_shown *shown;               /* by dim */
    int64_t inputs;
    int *ranks; /* by input */
    int *axes;  /* the registers of the sizes of all inputs, then of all outputs */
    const intptr_t **shapes; /* by input, its shape in a run */
} rlx_run_sizes;

#define RLX_SIZE_LARGEST_AXIS ((int64_t)1 << 44)

static inline int rlx_fit_shapes(rlx_run_sizes *s)
{
    const intptr_t *const *shapes = s->shapes;
    int other = 0;
    for (int64_t i = 0; i < s->table->dims; i++) {
        const rlx_shown *shown = &s->shown[i];
        int64_t size = shapes[shown->input][shown->axis] - shown->more;
        if (size < 0 || size > RLX_SIZE_LARGEST_AXIS || size * shown->multiple % shown->factor) return 0;
        size = size * shown->multiple / shown->factor;
        if (size < shown->least || size > shown->most || size % shown->multiple) return 0;
        other |= size != s->now[i];
        s->others[i] = size;
    }
    if (!other || !rlx_table_holds(s->guards, s->others)) return 0;
    if (rlx_compute_table(s->table, s->others) != RLX_SIZES_KNOWN) return 0;
    const int *axis = s->axes;
    for (int64_t i = 0; i < s->inputs; i++)
        for (int k = 0; k < s->ranks[i]; k++)
            if (shapes[i][k] != s->table->registers[*axis++]) return 0;
    return 1;
}

/* Takes the sizes of other shapes. False, and nothing changes, where the program does not serve them. */
static inline int rlx_take_shapes(rlx_run_sizes *s)
{
    if (s->guards == NULL) return 0;
    const int fits = rlx_fit_shapes(s);
    if (fits)
        memcpy(s->now, s->others, (size_t)s->table->dims * sizeof(int64_t));
    else
        rlx_compute_table(s->table, s->now);
    return fits;
}

#endif
