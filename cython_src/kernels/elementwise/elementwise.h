/* Elementwise loops made from the op table, and the region that runs a program of them in one pass.

   A region walks its result in blocks that stay in the first-level cache; each step of its program
   is one loop over the block. An operand of the result's own shape is read where it is, a scalar
   is spread once, another broadcast is gathered into a register block by block. */

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

/* A result may stand at its operand's address: each element is read before it is written. */
#define FOR_EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#define LOOP_OF(name) \
    RLX_MAYBE static void loop_##name(void *d, const void *a, const void *b, const void *c, int64_t n)
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

static void pick(char *d, const char *s, int64_t step, int64_t itemsize, int64_t n)
{
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

/* Elements at..at+n of an operand read through its strides, in the order of the result. */
static void gather_block(char *d, const char *s, int rank, const rlx_param *dims,
                         const rlx_param *steps, int64_t itemsize, int64_t at, int64_t n)
{
    const int64_t width = dims[rank - 1].i;
    while (n > 0) {
        int64_t rest = at, offset = 0;
        for (int axis = rank - 1; axis >= 0; axis--) {
            offset += rest % dims[axis].i * steps[axis].i;
            rest /= dims[axis].i;
        }
        int64_t run = width - at % width;
        if (run > n) run = n;
        pick(d, s + offset * itemsize, steps[rank - 1].i, itemsize, run);
        d += run * itemsize;
        at += run;
        n -= run;
    }
}

enum { DIRECT = 0, SCALAR = 1, STRIDED = 2 };
#define REGION_BYTES 49152
#define REGION_OPERANDS 48

/* Parameters: inputs, literals, steps, count, bytes of a result element, rank, block length,
   dims[rank]; per input: mode, itemsize, register, strides[rank]; per literal: itemsize, register,
   value; per step: loop, destination register (-1 is the result), three operand numbers.
   Operand numbers below ``inputs`` are inputs, the rest register numbers above it. */
static int kernel_region(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int inputs = (int)p[0].i, literals = (int)p[1].i, steps = (int)p[2].i;
    const int64_t count = p[3].i, out_size = p[4].i;
    const int rank = (int)p[5].i;
    const int64_t block = p[6].i;
    const rlx_param *dims = p + 7, *ins = dims + rank, *lits = ins + inputs * (3 + rank);
    const rlx_param *program = lits + 3 * literals;
    _Alignas(64) char registers[REGION_BYTES];
    const char *operand[REGION_OPERANDS];

#define REGISTER(number) (registers + (number) * block * 8)
    for (int k = 0; k < inputs; k++) {
        const rlx_param *in = ins + k * (3 + rank);
        if (in[0].i == SCALAR) {
            const int64_t n = block < count ? block : count;
            operand[k] = REGISTER(in[2].i);
            spread(REGISTER(in[2].i), call->in[k], in[1].i, n);
        } else if (in[0].i == STRIDED) {
            operand[k] = REGISTER(in[2].i);
        }
    }
    for (int k = 0; k < literals; k++) {
        const rlx_param *lit = lits + 3 * k;
        const int64_t n = block < count ? block : count;
        spread(REGISTER(lit[1].i), (const char *)&lit[2], lit[0].i, n);
    }
    const rlx_range own = rlx_share(call, count, block);
    for (int64_t at = own.first; at < own.last; at += block) {
        const int64_t n = own.last - at < block ? own.last - at : block;
        for (int k = 0; k < inputs; k++) {
            const rlx_param *in = ins + k * (3 + rank);
            if (in[0].i == DIRECT)
                operand[k] = (const char *)call->in[k] + at * in[1].i;
            else if (in[0].i == STRIDED)
                gather_block(REGISTER(in[2].i), call->in[k], rank, dims, in + 3, in[1].i, at, n);
        }
        for (int k = 0; k < steps; k++) {
            const rlx_param *step = program + 5 * k;
            const void *from[3];
            for (int j = 0; j < 3; j++) {
                const int64_t number = step[2 + j].i;
                from[j] = number < inputs ? operand[number] : REGISTER(number - inputs);
            }
            void *to = step[1].i < 0 ? (char *)call->out[0] + at * out_size : REGISTER(step[1].i);
            ((rlx_loop)step[0].p)(to, from[0], from[1], from[2], n);
        }
    }
#undef REGISTER
    return RLX_OK;
}
