/* Elementwise loops, made from the table of rlx/ops/elementwise, and the kernel that runs a program of them in one pass
   over memory. The result is computed in blocks that fit the first-level cache. Each step of the program is one loop over
   a block. An operand with the shape of the result is read in place, a scalar is copied to every entry of a block once,
   and any other operand is gathered block by block. */

#define ADD(x, y) ((T)((x) + (y)))
#define SUB(x, y) ((T)((x) - (y)))
#define MUL(x, y) ((T)((x) * (y)))
#define NEG(x) ((T)(-(x)))
#define CAST_PLAIN(D, x) ((D)(x))
#define CAST_BOOL(D, x) ((x) != 0)
#define CAST_FROM_f16(D, x) rlx_from_f16(x)
#define CAST_TO_f16(D, x) rlx_to_f16(x)
#define CAST_FROM_bf16(D, x) rlx_from_bf16(x)
#define CAST_TO_bf16(D, x) rlx_to_bf16(x)
#define CAST_f16_OF_f64(D, x) rlx_to_f16(rlx_odd(x))
#define CAST_bf16_OF_f64(D, x) rlx_to_bf16(rlx_odd(x))
#define CAST_bf16_OF_i32(D, x) rlx_to_bf16(rlx_odd(x))
#define CAST_bf16_OF_u32(D, x) rlx_to_bf16(rlx_odd(x))
#define CAST_bf16_OF_i64(D, x) rlx_to_bf16(rlx_odd(rlx_odd_i64(x)))

/* The result may be at the address of an operand: each element is read before it is written. */
#define FOR_EACH RLX_INDEPENDENT for (int64_t i = 0; i < n; i++)

#define LOOP_OF(name) \
    RLX_MAYBE_UNUSED static void loop_##name(void *d, const void *a, const void *b, const void *c, int64_t n)
#define LOOP1(name, OUT, expression)                                                              \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const T *xs = a;                                                                          \
        OUT *o = d;                                                                               \
        (void)b, (void)c;                                                                         \
        FOR_EACH { const T x = xs[i]; o[i] = (OUT)expression; }                                   \
    }
#define LOOP2(name, OUT, expression)                                                              \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const T *xs = a, *ys = b;                                                                 \
        OUT *o = d;                                                                               \
        (void)c;                                                                                  \
        FOR_EACH { const T x = xs[i], y = ys[i]; o[i] = (OUT)expression; }                        \
    }
#define LOOP3(name, OUT, expression)                                                              \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const T *xs = a, *ys = b, *zs = c;                                                        \
        OUT *o = d;                                                                               \
        FOR_EACH { const T x = xs[i], y = ys[i], z = zs[i]; o[i] = (OUT)expression; }             \
    }
/* The second and third operand are one number each. */
#define LOOP_LITERALS(name, expression)                                                           \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const T *xs = a, y = *(const T *)b, z = *(const T *)c;                                    \
        T *o = d;                                                                                 \
        FOR_EACH { const T x = xs[i]; o[i] = expression; }                                        \
    }
#define LOOP_WHERE(name)                                                                          \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const uint8_t *xs = a;                                                                    \
        const T *ys = b, *zs = c;                                                                 \
        T *o = d;                                                                                 \
        FOR_EACH { const T y = ys[i], z = zs[i]; o[i] = xs[i] ? y : z; }                          \
    }
#define LOOP_CAST(name, S, D, CONVERT)                                                            \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        const S *xs = a;                                                                          \
        D *o = d;                                                                                 \
        (void)b, (void)c;                                                                         \
        FOR_EACH { const S x = xs[i]; o[i] = CONVERT(D, x); }                                     \
    }

#define LOOP_HALF(name, S, D, FUNCTION)                                                           \
    LOOP_OF(name)                                                                                 \
    {                                                                                             \
        (void)b, (void)c;                                                                         \
        FUNCTION((D *)d, (const S *)a, n);                                                        \
    }

#include "elementwise_ops.h"

#define ENTRY(name) {#name, loop_##name},
static const rlx_named_loop loop_table[] = {LOOPS(ENTRY) {NULL, NULL}};
#undef ENTRY

/* n elements that are `step` apart. */
static RLX_INLINE void pick(char *d, const char *s, int64_t step, int64_t itemsize, int64_t n)
{
    switch (itemsize) {
    case 1: copy_line_b1((uint8_t *)d, (const uint8_t *)s, n, 1, step); break;
    case 2: copy_line_b2((uint16_t *)d, (const uint16_t *)s, n, 1, step); break;
    case 4: copy_line_b4((uint32_t *)d, (const uint32_t *)s, n, 1, step); break;
    default: copy_line_b8((uint64_t *)d, (const uint64_t *)s, n, 1, step); break;
    }
}

/* Rows that repeat one element as a whole are made of so many elements at a time, up to so many times. */
#define REPEATED (VECTOR_BYTES / (int64_t)sizeof(int32_t))
#define MOST_REPEATS 16

static RLX_INLINE vec_i32 picked_lanes(vec_i32 v, vec_i32 places)
{
#if VECTOR_BYTES == 64 && defined(__x86_64__)
    return (vec_i32)_mm512_permutexvar_epi32((__m512i)places, (__m512i)v);
#elif VECTOR_BYTES == 32 && defined(__x86_64__)
    return (vec_i32)_mm256_permutevar8x32_epi32((__m256i)v, (__m256i)places);
#else
    vec_i32 result = v;
    for (int l = 0; l < REPEATED; l++) result[l] = v[places[l]];
    return result;
#endif
}

/* Repeats each of `rows` neighbours, whole vectors of them, `times` times. Returns how many neighbours that were. */
static int64_t repeat_each(char *d, const char *from, int64_t rows, int64_t times, const int32_t *places)
{
    int64_t row = 0;
    for (; row + REPEATED <= rows; row += REPEATED)
        for (int64_t i = 0; i < times; i++, d += VECTOR_BYTES)
            *(vec_i32 *)d = picked_lanes(((const vec_i32 *)from)[row / REPEATED], ((const vec_i32 *)places)[i]);
    return row;
}

/* Elements [index, index + n) of an operand, in the order of the result: where they lie, if they follow each other, otherwise
   in d. Rows along the axis before the last follow each other by steps alone. */
static const char *gather_block(char *d, const char *s, int64_t rank, const int64_t *dims,
                                const int64_t *strides, int64_t itemsize, int64_t index, int64_t n)
{
    const char *const result = d;
    const int64_t step = strides[rank - 1];
    int64_t last = rank - 1, width = dims[last];
    for (; last && strides[last - 1] == step * width; last--) width *= dims[last - 1]; /* one axis, for this operand */
    const int64_t rows = last ? dims[last - 1] : 1, onward = last ? strides[last - 1] * itemsize : 0;
    const int64_t alike = step == 0 && itemsize == sizeof(int32_t);
    const int64_t repeats = alike && width <= MOST_REPEATS && onward == itemsize ? width : 0;
    int32_t places[MOST_REPEATS * REPEATED], *place = places;
    for (int32_t lane = 0; repeats && lane < REPEATED; lane++)
        for (int64_t i = 0; i < repeats; i++) *place++ = lane;
    while (n > 0) {
        int64_t column = index % width, rest = index / width, row = rest % rows, offset = 0;
        rest /= rows;
        for (int64_t axis = last - 2; axis >= 0; axis--) {
            offset += rest % dims[axis] * strides[axis];
            rest /= dims[axis];
        }
        const char *from = s + offset * itemsize + row * onward;
        if (d == result && step == 1 && n <= width - column) return from + column * itemsize;
        for (int64_t some, run; row < rows && n > 0; row += some, from += some * onward, column = 0) {
            const int64_t left = rows - row < n / width ? rows - row : n / width;
            some = repeats && !column ? repeat_each(d, from, left, width, places) : 0;
            run = some * width;
            if (!some) {
                some = 1, run = width - column < n ? width - column : n;
                /* A row of one element is whole vectors, the last of which reaches into the rows that follow. */
                if (alike && n >= run + REPEATED)
                    for (int64_t i = 0; i < run; i += REPEATED) *(vec_i32 *)(d + i * itemsize) = (vec_i32){0} + *(const int32_t *)from;
                else pick(d, from + column * step * itemsize, step, itemsize, run);
            }
            d += run * itemsize, index += run, n -= run;
        }
    }
    return result;
}

/* A strided operand repeats the same elements along axes that it lacks: in each stretch of the result with a period. */
typedef struct {
    int64_t period, stretch;
    int64_t held; /* the stretch that the block in the register is from; -1 for several */
} rlx_repeats;

/* The longest period that fits a block. */
static rlx_repeats repeats_of(int64_t rank, const int64_t *dims, const int64_t *strides, int64_t block)
{
    rlx_repeats result = {1, 1, -1};
    int64_t inner = 1;
    int lacked = 0;
    for (int64_t axis = rank - 1; axis >= 0 && (lacked || inner <= block); axis--) {
        if (strides[axis] == 0 && !lacked) result.period = inner;
        lacked = strides[axis] == 0;
        inner *= dims[axis];
        if (lacked) result.stretch = inner;
    }
    return result;
}

/* A program of steps on blocks of elements. Blocks are in registers on the stack. rlx/abi/elementwise.py explains the
   parameters. */
static int kernel_elementwise(const rlx_call *call)
{
    RLX_ARGUMENTS(elementwise, call);
    const int64_t count = p->count, inputs = p->inputs, max_count = p->block < count ? p->block : count;
    _Alignas(64) char registers[RLX_REGISTER_BYTES];
    const char *operand[RLX_INPUTS];
    rlx_repeats repeats[RLX_INPUTS];
    int64_t period = 1;

#define REGISTER(number) (registers + (number) * p->block * 8)
    for (int64_t k = 0; k < inputs; k++) {
        if (p->modes[k] == RLX_MODE_DIRECT) continue;
        operand[k] = REGISTER(p->input_registers[k]);
        if (p->modes[k] == RLX_MODE_SCALAR) {
            pick(REGISTER(p->input_registers[k]), call->in[k], 0, p->input_bytes[k], max_count);
            continue;
        }
        repeats[k] = repeats_of(p->rank, p->dims, p->strides + k * p->rank, p->block);
        if (repeats[k].period > period) period = repeats[k].period;
    }
    /* All periods divide the longest one, so that blocks begin where they do. */
    const int64_t block = p->block / period * period;
    for (int64_t k = 0; k < p->literals; k++)
        pick(REGISTER(p->literal_registers[k]), (const char *)&p->literal_bits[k], 0, p->literal_bytes[k], max_count);
    const rlx_range own = rlx_share(call, count, block);
    for (int64_t index = own.first; index < own.last; index += block) {
        const int64_t n = own.last - index < block ? own.last - index : block;
        for (int64_t k = 0; k < inputs; k++) {
            if (p->modes[k] == RLX_MODE_DIRECT)
                operand[k] = (const char *)call->in[k] + index * p->input_bytes[k];
            if (p->modes[k] != RLX_MODE_STRIDED) continue;
            const int64_t stretch = index / repeats[k].stretch;
            const int whole = index + n <= (stretch + 1) * repeats[k].stretch;
            if (whole && stretch == repeats[k].held) continue;
            operand[k] = gather_block(REGISTER(p->input_registers[k]), call->in[k], p->rank, p->dims,
                                      p->strides + k * p->rank, p->input_bytes[k], index, n);
            repeats[k].held = whole ? stretch : -1;
        }
        const int64_t *numbers = p->operands;
        for (int64_t k = 0; k < p->steps; k++, numbers += 3) {
            const void *from[3];
            for (int j = 0; j < 3; j++)
                from[j] = numbers[j] < inputs ? operand[numbers[j]] : REGISTER(numbers[j] - inputs);
            const int64_t target = p->targets[k];
            void *to = target < 0 ? (char *)out->y + index * p->result_bytes : REGISTER(target);
            ((rlx_loop)p->loops[k])(to, from[0], from[1], from[2], n);
        }
    }
#undef REGISTER
    return RLX_OK;
}
