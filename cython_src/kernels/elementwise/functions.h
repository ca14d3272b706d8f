/* Functions of vectors of f32, each within 4 units in the last place of every argument
   (tests/test_vector_functions.py measures each); NaN, infinities and subnormals follow C.

   The coefficients are weighted least squares in float64, refitted until the largest error is even (Lawson
   1961). */

/* Horner's scheme over coefficients from the highest power down. */
#define TERM(p, x, c) v_fma(p, x, v_all(c))
#define ROUNDING 12582912.0f /* adding 1.5 * 2^23 rounds to the nearest integer */

/* c0 + c1 x + c2 x^2 with x^2 given. On NEON a fused product and sum overwrites its addend, so that Horner's scheme copies
   every coefficient first; in groups of powers only the first of each group is copied. */
#define GROUP(x, x2, c0, c1, c2) v_fma(x2, v_all(c2), v_fma(x, v_all(c1), v_all(c0)))

/* (exp(r) - 1 - r) / r^2 and exp(r) for |r| up to log(2) / 2. */
#if defined(NEON)
static RLX_INLINE vf v_exp_rest(vf r)
{
    const vf r2 = r * r, high = GROUP(r, r2, 4.166720062e-2f, 8.366528898e-3f, 1.388251898e-3f);
    return v_fma(high, r2, TERM(r, v_all(1.666654348e-1f), 4.999999702e-1f));
}
static RLX_INLINE vf v_exp_near(vf r) { return v_fma(v_exp_rest(r) * r, r, r) + 1.0f; }
#else
static RLX_INLINE vf v_exp_rest(vf r)
{
    vf p = v_all(1.388251898e-3f);
    p = TERM(p, r, 8.366528898e-3f);
    p = TERM(p, r, 4.166720062e-2f);
    p = TERM(p, r, 1.666654348e-1f);
    return TERM(p, r, 4.999999702e-1f);
}
static RLX_INLINE vf v_exp_near(vf r) { return TERM(TERM(v_exp_rest(r), r, 1.0f), r, 1.0f); }
#endif

/* exp(x + more) as p * 2^n, for |x| within the range of v_scale. `more` is a small correction. */
static RLX_INLINE vf v_exp_sum(vf x, vf more, vf *n)
{
    *n = v_fma(x, v_all(1.44269504088896341f), v_all(ROUNDING)) - ROUNDING;
    const vf r = v_fma(*n, v_all(-0.693359375f), x) + v_fma(*n, v_all(2.12194440054690583e-4f), more);
    return v_exp_near(r);
}

static RLX_INLINE vf v_exp_parts(vf x, vf *n)
{
    *n = v_fma(x, v_all(1.44269504088896341f), v_all(ROUNDING)) - ROUNDING;
    const vf r = v_fma(*n, v_all(-0.693359375f), x);
    return v_exp_near(v_fma(*n, v_all(2.12194440054690583e-4f), r));
}

static RLX_INLINE vf v_exp(vf x)
{
    /* Outside of this range the result is infinite or zero. */
    vf n, p = v_exp_parts(v_max(v_all(-105.0f), v_min(v_all(89.0f), x)), &n);
    return v_scale(p, n);
}

/* The same for x up to 0. */
static RLX_INLINE vf v_exp_below(vf x)
{
    vf n, p = v_exp_parts(v_max(v_all(-105.0f), x), &n);
    return v_scale(p, n);
}

static RLX_INLINE vf v_exp2(vf x)
{
    const vf t = v_max(v_all(-152.0f), v_min(v_all(129.0f), x)), n = (t + ROUNDING) - ROUNDING;
    return v_scale(v_exp_near((t - n) * 0.693147180559945309f), n);
}

static RLX_INLINE vf v_expm1(vf x)
{
    const vf t = v_max(v_all(-18.0f), v_min(v_all(88.9f), x));
    const vf shifted = v_fma(t, v_all(1.44269504088896341f), v_all(ROUNDING)), n = shifted - ROUNDING;
    const vf r = v_fma(n, v_all(2.12194440054690583e-4f), v_fma(n, v_all(-0.693359375f), t));
    /* 2^(n - 1), since 2^128 overflows. The low bits of the sum are those of n. */
    const vf half = (vf)(((vi)shifted << 23) + 0x3f000000);
    return 2.0f * v_fma(half, v_fma(v_exp_rest(r) * r, r, r), half - 0.5f);
}

static RLX_INLINE vf v_tanh(vf x)
{
    /* y / (y + 1) with 2 y = exp(2 a) - 1. It is 1 from a = 10 on, so log 2 in f32 is precise enough. */
    const vf a = v_abs(x), t = v_min(v_all(20.0f), a + a);
    const vf shifted = v_fma(t, v_all(1.44269504088896341f), v_all(ROUNDING)), n = shifted - ROUNDING;
    const vf r = v_fma(n, v_all(-0.693147180559945309f), t);
    const vf half = (vf)(((vi)shifted << 23) + 0x3f000000);
    const vf y = v_fma(half, v_fma(v_exp_rest(r) * r, r, r), half - 0.5f);
    return v_signed(y / (y + 1.0f), x);
}

/* log(1 + f) + k log 2 for 1 + f from sqrt(1/2) to sqrt(2). */
static RLX_INLINE vf v_log_parts(vf f, vf k)
{
    vf p = v_all(-7.634474337e-2f);
    p = TERM(p, f, 1.276156753e-1f);
    p = TERM(p, f, -1.316018701e-1f);
    p = TERM(p, f, 1.420175880e-1f);
    p = TERM(p, f, -1.662335694e-1f);
    p = TERM(p, f, 2.000122666e-1f);
    p = TERM(p, f, -2.500081956e-1f);
    p = TERM(p, f, 3.333333135e-1f);
    const vf z = f * f;
    p = v_fma(k, v_all(-2.12194440054690583e-4f), p * z * f);
    p = v_fma(z, v_all(-0.5f), p) + f;
    return v_fma(k, v_all(0.693359375f), p);
}

/* The logarithm of any x, where y is the result for positive finite x. */
static RLX_INLINE vf v_log_ends(vf x, vf y)
{
    const vf zero = {0}, infinity = v_all(INFINITY);
    y = v_pick(v_less(x, infinity), y, x);
    return v_pick(v_less(zero, x), y, v_pick(v_less(x, zero), v_all(NAN), x - infinity));
}

static RLX_INLINE vf v_log(vf x)
{
    const vm tiny = v_less(x, v_all(1.17549435e-38f));
    const vi bits = (vi)v_pick(tiny, x * 8388608.0f, x), e = (bits - 0x3f3504f3) >> 23;
    const vf k = __builtin_convertvector(e, vf) - v_pick(tiny, v_all(23.0f), (vf){0});
    return v_log_ends(x, v_log_parts((vf)(bits - (e << 23)) - 1.0f, k));
}

/* log(1 + x) for x from -1 + 2^-24 up, infinity excluded. */
static RLX_INLINE vf v_log1p_inner(vf x)
{
    const vf u = x + 1.0f;
    const vi e = ((vi)u - 0x3f3504f3) >> 23;
    /* The rounding error of 1 + x is added back at the scale of the mantissa. Large x lose nothing. */
    const vf least = v_min(v_all(1.0f), x), lost = least - (u - v_max(v_all(1.0f), x));
    const vf scale = v_max((vf){0}, (vf)((127 << 23) - (e << 23)));
    return v_log_parts(v_fma(lost, scale, (vf)((vi)u - (e << 23)) - 1.0f),
                       __builtin_convertvector(e, vf));
}

static RLX_INLINE vf v_log1p(vf x)
{
    const vf y = v_log_ends(x + 1.0f, v_log1p_inner(x));
    return v_pick(v_less(v_abs(x), v_all(1e-30f)), x, y); /* -0, and subnormal x, for which x + 1 - 1 is 0 */
}

static RLX_INLINE vf v_softplus(vf x)
{
    return v_max((vf){0}, x) + v_log1p_inner(v_exp(-v_abs(x)));
}

static RLX_INLINE vf v_sigmoid(vf x)
{
    const vf e = v_exp(-v_abs(x));
    return v_pick(v_less(x, (vf){0}), e, v_all(1.0f)) / (e + 1.0f);
}

/* exp(-a) * 2^32. Products with it that are scaled by 2^-32 afterwards keep their digits where exp(-a) is subnormal. */
#define BACK 2.3283064365386963e-10f
static RLX_INLINE vf v_exp_raised(vf a)
{
    vf n, p = v_exp_parts(-v_min(v_all(130.0f), a), &n);
    return v_scale(p, n + 32.0f);
}

static RLX_INLINE vf v_silu(vf x)
{
    const vf e = v_exp_raised(v_abs(x));
    return v_pick(v_less(x, (vf){0}), x * e * BACK, x) / v_fma(e, v_all(BACK), v_all(1.0f));
}

static RLX_INLINE vf v_mish(vf x)
{
    /* tanh(log(1 + t)) = t (t + 2) / (t (t + 2) + 2), with e = t below zero and e = 1 / t above. low is t (t + 2) * 2^32,
       so that its digits stay where t is subnormal. */
    const vm below = v_less(x, (vf){0});
    const vf raised = v_exp_raised(v_abs(x)), e = raised * BACK;
    const vf low = v_fma(raised, e, raised * 2.0f), high = v_fma(e, v_all(2.0f), v_all(1.0f));
    const vf top = v_pick(below, low, high);
    const vf bottom = v_pick(below, v_fma(low, v_all(BACK), v_all(2.0f)), v_fma(e * 2.0f, e, high));
    const vf quotient = top / bottom;
    /* The rounding error of the division, by a reciprocal that is right to an eighth. With it only the sum rounds. */
    const vf rest = v_fma(-quotient, bottom, top) * (vf)(0x7ef311c3 - (vi)bottom);
    const vf y = v_fma(x, quotient, v_min(v_all(3.0e38f), x) * rest);
    return v_pick(below, y * BACK, y);
}

static RLX_INLINE vf v_selu(vf x)
{
    const vf zero = {0};
    return v_pick(v_less(zero, x), 1.0507009873554805f * x, 1.7580993408473766f * v_expm1(v_min(zero, x)));
}

static RLX_INLINE vf v_erf(vf x)
{
    const vf a = v_abs(x), z = x * x, t = v_min(v_all(3.95f), a) - 2.4f;
    vf p = v_all(-5.862109037e-4f);
    p = TERM(p, z, 4.967513581e-3f);
    p = TERM(p, z, -2.674887046e-2f);
    p = TERM(p, z, 1.128132094e-1f);
    p = TERM(p, z, -3.761244598e-1f);
    p = TERM(p, z, 1.128379142e+0f);
    /* The eighth root of 1 - erf(a). From 3.95 on erf is 1. */
    vf q = v_all(1.438577107e-4f);
    q = TERM(q, t, -3.358158577e-4f);
    q = TERM(q, t, -3.797071955e-3f);
    q = TERM(q, t, 1.187232589e-2f);
    q = TERM(q, t, 3.656237210e-2f);
    q = TERM(q, t, -2.597977709e-1f);
    q = TERM(q, t, 4.024762591e-1f);
    q *= q, q *= q;
    return v_pick(v_less(v_all(0.965f), a), v_signed(v_fma(-q, q, v_all(1.0f)), x), x * p);
}

/* x where it is positive, 0 where it is negative, and NaN for minus infinity, as x * 0 is. */
static RLX_INLINE vf v_positive(vf x) { return v_fma(v_all(0.5f), v_abs(x), 0.5f * x); }

/* The factor Q of the normal distribution's tail, for u from -1 to 1. */
static RLX_INLINE vf v_tail(vf u)
{
#if defined(NEON)
    const vf u2 = u * u, u3 = u2 * u;
    const vf low = GROUP(u, u2, 7.444160581e-1f, -5.655617118e-1f, 3.154250681e-1f);
    const vf middle = GROUP(u, u2, -1.160531193e-1f, 1.740604639e-2f, 6.493493915e-3f);
    const vf high = GROUP(u, u2, -3.173820209e-3f, -4.950233269e-4f, 4.197311937e-4f);
    return v_fma(v_fma(v_fma(u3, v_all(1.094858526e-4f), high), u3, middle), u3, low);
#else
    vf q = v_all(1.094858526e-4f);
    q = TERM(q, u, 4.197311937e-4f);
    q = TERM(q, u, -4.950233269e-4f);
    q = TERM(q, u, -3.173820209e-3f);
    q = TERM(q, u, 6.493493915e-3f);
    q = TERM(q, u, 1.740604639e-2f);
    q = TERM(q, u, -1.160531193e-1f);
    q = TERM(q, u, 3.154250681e-1f);
    q = TERM(q, u, -5.655617118e-1f);
    return TERM(q, u, 7.444160581e-1f);
#endif
}

static RLX_INLINE vf v_gelu(vf x)
{
    /* x below zero times the normal distribution's lower tail: exp(-a^2 / 2) Q(u) / (a + 3.5) for
       u = (a - 3.5) / (a + 3.5); above zero what is missing of x is as much. */
    const vf a = v_min(v_all(14.8f), v_abs(x)), h = -0.5f * a, z = h * a;
    const vf d = a + 3.5f, w = v_reciprocal(d);
    /* w + w_rest is 1 / d to more than f32 precision: an error in w would reach the result three times as large. */
    const vf w_rest = w * v_fma(w, (d - 3.5f) - a, v_lack(w, d, v_all(1.0f)));
    const vf u = v_fma(w_rest, v_all(-7.0f), v_fma(w, v_all(-7.0f), v_all(1.0f)));
    vf n, p = v_exp_sum(z, v_rest(h, a, z), &n);
    const vf tail = p * v_tail(u) * a;
    return v_positive(x) - v_scale(v_fma(tail, w_rest, tail * w), n);
}

static RLX_INLINE vf v_gelu_approx(vf x)
{
    /* x * sigmoid(v) with v = 2 sqrt(2 / pi) (x + 0.044715 x^3). v is computed to twice the precision, since it is up
       to 100. */
    const vf a = v_min(v_all(11.0f), v_abs(x)), c1 = v_all(1.59576912160573f), c3 = v_all(0.0713548162726f);
    const vf z = a * a, y = z * a, y_rest = v_fma(v_rest(a, a, z), a, v_rest(z, a, y));
    const vf one = c1 * a, three = c3 * y, v = one + three, back = v - one;
    vf more = (one - (v - back)) + (three - back);
    more += v_fma(v_all(-4.534068e-8f), a, v_rest(c1, a, one)); /* what the constants lack */
    more += v_fma(c3, y_rest, v_fma(v_all(2.398832e-9f), y, v_rest(c3, y, three)));
    vf n, p = v_exp_sum(-v, -more, &n);
    const vf e = v_scale(p, n + 32.0f);
    return v_positive(x) - a * e * BACK / v_fma(e, v_all(BACK), v_all(1.0f));
}

/* exp(a) / 4 - 1 / 4 for a from 0 to 89.5: a quarter, since the whole overflows before sinh does. */
static RLX_INLINE vf v_expm1_quarter(vf a)
{
    const vf shifted = v_fma(a, v_all(1.44269504088896341f), v_all(ROUNDING)), n = shifted - ROUNDING;
    const vf r = v_fma(n, v_all(2.12194440054690583e-4f), v_fma(n, v_all(-0.693359375f), a));
    const vf quarter = (vf)(((vi)shifted << 23) + 0x3e800000); /* 2^(n - 2) */
    return v_fma(quarter, v_fma(v_exp_rest(r) * r, r, r), quarter - 0.25f);
}

static RLX_INLINE vf v_sinh(vf x)
{
    /* (E + E / (E + 1)) / 2 with E = exp(a) - 1. Below 1e-4 sinh(x) is x, and a quarter of it might be subnormal. */
    const vf a = v_abs(x), q = v_expm1_quarter(v_min(v_all(89.5f), a));
    const vf y = 2.0f * (q + q / v_fma(q, v_all(4.0f), v_all(1.0f)));
    return v_pick(v_less(a, v_all(1e-4f)), x, v_signed(y, x));
}

static RLX_INLINE vf v_cosh(vf x)
{
    /* (E + 1 / E) / 2 with E = exp(a), by a quarter of E. */
    const vf q = v_expm1_quarter(v_min(v_all(89.5f), v_abs(x))) + 0.25f;
    return 2.0f * (q + 0.0625f / q);
}

/* log(1 + 2 t) for large arguments t of asinh and acosh, whose squares would overflow; log(1 + t) for others. */
#define FAR 1073741824.0f
static RLX_INLINE vf v_area(vf a, vf t)
{
    const vm far = v_less(v_all(FAR), a);
    const vf y = v_log1p_inner(v_pick(far, a, t)) + v_pick(far, v_all(0.693147180559945309f), (vf){0});
    return v_pick(v_less(a, v_all(INFINITY)), y, a); /* infinity and NaN */
}

static RLX_INLINE vf v_asinh(vf x)
{
    /* log(a + sqrt(a^2 + 1)) = log(1 + a + a^2 / (1 + sqrt(a^2 + 1))) */
    const vf a = v_abs(x), near = v_min(v_all(FAR), a), z = near * near;
    const vf y = v_area(a, near + z / (1.0f + v_sqrt(v_fma(near, near, v_all(1.0f)))));
    return v_pick(v_less(a, v_all(1e-4f)), x, v_signed(y, x));
}

static RLX_INLINE vf v_acosh(vf x)
{
    /* log(x + sqrt(x^2 - 1)) = log(1 + u + sqrt(u (u + 2))) with u = x - 1 */
    const vf u = v_min(v_all(FAR), x) - 1.0f, y = v_area(x, u + v_sqrt(v_fma(u, u, u + u)));
    return v_pick(v_less(x, v_all(1.0f)), v_all(NAN), y);
}

static RLX_INLINE vf v_atanh(vf x)
{
    /* log((1 + a) / (1 - a)) / 2 = log(1 + 2 a / (1 - a)) / 2 */
    const vf a = v_abs(x), below = v_min(v_all(0.99999994f), a);
    vf y = 0.5f * v_log1p_inner((below + below) / (1.0f - below));
    y = v_pick(v_less(a, v_all(1.0f)), y, v_pick(v_less(v_all(1.0f), a), v_all(NAN), a * INFINITY));
    return v_pick(v_less(a, v_all(1e-4f)), x, v_signed(y, x));
}

/* Vectors that a turn of a loop makes: the loop itself takes as long as a third of a short function where vectors are
   short. */
#define TOGETHER (VECTOR_BYTES == 16 ? 2 : 1)

/* A loop over whole vectors, then over the remaining entries. */
#define LOOP_VECTOR(name, function)                                                               \
    static void loop_##name(void *d, const void *a, const void *b, const void *c, int64_t n)      \
    {                                                                                             \
        const float *x = a;                                                                       \
        float *y = d;                                                                             \
        int64_t i = 0;                                                                            \
        (void)b, (void)c;                                                                         \
        for (; TOGETHER > 1 && i + TOGETHER * FLOATS <= n; i += TOGETHER * FLOATS) {              \
            const vf one = function(v_load(x + i)), two = function(v_load(x + i + FLOATS));       \
            v_store(y + i, one), v_store(y + i + FLOATS, two);                                    \
        }                                                                                         \
        for (; i < n; i += FLOATS) {                                                              \
            const int64_t left = n - i;                                                           \
            const int some = left < FLOATS;                                                       \
            const vf v = function(RLX_UNLIKELY(some) ? v_load_some(x + i, left) : v_load(x + i)); \
            if (RLX_UNLIKELY(some)) v_store_some(y + i, v, left);                                 \
            else v_store(y + i, v);                                                               \
        }                                                                                         \
    }
