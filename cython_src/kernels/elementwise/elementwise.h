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

static void spread(char *d, const char *value, int64_t itemsize, int64_t n)
{
    switch (itemsize) {
    case 1: memset(d, *value, (size_t)n); break;
    case 2: for (int64_t i = 0; i < n; i++) ((int16_t *)d)[i] = *(const int16_t *)value; break;
    case 4: for (int64_t i = 0; i < n; i++) ((int32_t *)d)[i] = *(const int32_t *)value; break;
    default: for (int64_t i = 0; i < n; i++) ((int64_t *)d)[i] = *(const int64_t *)value; break;
    }
}

static RLX_INLINE void pick(char *d, const char *s, int64_t step, int64_t itemsize, int64_t n)
{
    if (step == 0 && itemsize == 4 && n < 16) {
        const int32_t value = *(const int32_t *)s;
        for (int64_t i = 0; i < n; i++) {
            RLX_SCALAR_LOOP;
            ((int32_t *)d)[i] = value;
        }
        return;
    }
    if (step == 1) {
        memcpy(d, s, (size_t)(n * itemsize));
    } else if (step == 0) {
        spread(d, s, itemsize, n);
    } else if (itemsize == 1) {
        for (int64_t i = 0; i < n; i++) d[i] = s[i * step];
    } else if (itemsize == 2) {
        for (int64_t i = 0; i < n; i++) ((int16_t *)d)[i] = ((const int16_t *)s)[i * step];
    } else if (itemsize == 4) {
        for (int64_t i = 0; i < n; i++) ((int32_t *)d)[i] = ((const int32_t *)s)[i * step];
    } else {
        for (int64_t i = 0; i < n; i++) ((int64_t *)d)[i] = ((const int64_t *)s)[i * step];
    }
}

/* Elements [at, at + n) of an operand, in the order of the result, read by its strides. Rows along the axis before the
   last follow each other by steps alone. */
static void gather_block(char *d, const char *s, int64_t rank, const int64_t *dims,
                         const int64_t *strides, int64_t itemsize, int64_t index, int64_t n)
{
    const int64_t last = rank - 1, width = dims[last];
    const int64_t rows = last ? dims[last - 1] : 1, onward = last ? strides[last - 1] * itemsize : 0;
    while (n > 0) {
        int64_t column = index % width, rest = index / width, row = rest % rows, offset = 0;
        rest /= rows;
        for (int64_t axis = last - 2; axis >= 0; axis--) {
            offset += rest % dims[axis] * strides[axis];
            rest /= dims[axis];
        }
        const char *from = s + offset * itemsize + row * onward;
        for (; row < rows && n > 0; row++, from += onward, column = 0) {
            const int64_t run = width - column < n ? width - column : n;
            pick(d, from + column * strides[last] * itemsize, strides[last], itemsize, run);
            d += run * itemsize, index += run, n -= run;
        }
    }
}

/* The one element of an operand that all of [at, at + n) read, as along an axis that it lacks; NULL where they read several. */
static const char *one_of_block(const char *s, int64_t rank, const int64_t *dims, const int64_t *strides,
                                int64_t itemsize, int64_t index, int64_t n)
{
    int64_t rest = index / dims[rank - 1], offset = 0;
    if (strides[rank - 1] || index % dims[rank - 1] + n > dims[rank - 1]) return NULL;
    for (int64_t axis = rank - 2; axis >= 0; axis--) {
        offset += rest % dims[axis] * strides[axis];
        rest /= dims[axis];
    }
    return s + offset * itemsize;
}

/* A program of steps on blocks of elements. Blocks are in registers on the stack. rlx/abi/elementwise.py explains the
   parameters. */
static int kernel_elementwise(const rlx_call *call)
{
    RLX_ARGUMENTS(elementwise, call);
    const int64_t block = p->block, count = p->count, inputs = p->inputs;
    _Alignas(64) char registers[RLX_REGISTER_BYTES];
    const char *operand[RLX_INPUTS], *held[RLX_INPUTS] = {NULL}; /* the element that fills a register, if one does */

#define REGISTER(number) (registers + (number) * block * 8)
    const int64_t max_count = block < count ? block : count;
    for (int64_t k = 0; k < inputs; k++) {
        if (p->modes[k] == RLX_MODE_DIRECT) continue;
        operand[k] = REGISTER(p->input_registers[k]);
        if (p->modes[k] == RLX_MODE_SCALAR)
            spread(REGISTER(p->input_registers[k]), call->in[k], p->input_bytes[k], max_count);
    }
    for (int64_t k = 0; k < p->literals; k++)
        spread(REGISTER(p->literal_registers[k]), (const char *)&p->literal_bits[k], p->literal_bytes[k], max_count);
    const rlx_range own = rlx_share(call, count, block);
    for (int64_t index = own.first; index < own.last; index += block) {
        const int64_t n = own.last - index < block ? own.last - index : block;
        for (int64_t k = 0; k < inputs; k++) {
            if (p->modes[k] == RLX_MODE_DIRECT)
                operand[k] = (const char *)call->in[k] + index * p->input_bytes[k];
            if (p->modes[k] != RLX_MODE_STRIDED) continue;
            char *to = REGISTER(p->input_registers[k]);
            const int64_t *strides = p->strides + k * p->rank;
            const char *one = one_of_block(call->in[k], p->rank, p->dims, strides, p->input_bytes[k], index, n);
            if (!one) gather_block(to, call->in[k], p->rank, p->dims, strides, p->input_bytes[k], index, n);
            else if (one != held[k]) spread(to, one, p->input_bytes[k], block);
            held[k] = one;
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
