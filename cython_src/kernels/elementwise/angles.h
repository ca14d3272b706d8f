/* Sines, cosines, tangents and their inverses of vectors of f32, as exact as functions.h says. The coefficients of sin and
   cos are Chebyshev interpolations, the others weighted least squares refitted until the largest error is even. */

/* x less the nearest multiple of pi / 2. The low bits of `shifted` are those of the multiple. */
static RLX_INLINE vf v_within_quadrant(vf x, vf *shifted)
{
    *shifted = v_fma(x, v_all(0.636619772367581343f), v_all(ROUNDING));
    const vf n = *shifted - ROUNDING;
#if VECTOR_BYTES >= 32
    /* pi/2 in three parts. The first subtraction is exact, the other two round once each. */
    vf r = v_fma(n, v_all(-1.57079637f), x);
    r = v_fma(n, v_all(4.37113883e-8f), r);
    r = v_fma(n, v_all(1.71512489e-15f), r);
#else
    vf r;
    for (int l = 0; l < FLOATS; l++)
        r[l] = (float)((x[l] - n[l] * 1.57079632673412561417) - n[l] * 6.0771005065061922e-11);
#endif
    return r;
}

/* The sine of r when the quadrant is even, its cosine when odd, |r| <= pi/4. */
static RLX_INLINE vf v_quadrant(vf r, vi quadrant)
{
    const vf z = r * r;
    vf s = v_all(2.717345361627713e-06f);
    s = TERM(s, z, -0.00019839202172159784f);
    s = TERM(s, z, 0.00833332878229936f);
    s = TERM(s, z, -0.16666666631589003f);
    s = v_fma(s * z, r, r);
    vf c = v_all(2.4379830963894595e-05f);
    c = TERM(c, z, -0.0013886617996113834f);
    c = TERM(c, z, 0.04166661669239419f);
    c = TERM(c, z, -0.4999999961485576f);
    c = TERM(c, z, 1.0f);
    return (vf)((vi)v_pick(v_odd(quadrant), c, s) ^ ((quadrant >> 1) << 31));
}

static RLX_INLINE vf v_near_sin(vf x)
{
    vf shifted, r = v_within_quadrant(x, &shifted);
    return v_quadrant(r, (vi)shifted);
}

static RLX_INLINE vf v_near_cos(vf x)
{
    vf shifted, r = v_within_quadrant(x, &shifted);
    return v_quadrant(r, (vi)shifted + 1);
}

static RLX_INLINE vf v_near_tan(vf x)
{
    vf shifted, r = v_within_quadrant(x, &shifted), z = r * r;
    vf p = v_all(4.430524e-03f);
    p = TERM(p, z, -1.7983019e-05f);
    p = TERM(p, z, 1.0918592e-02f);
    p = TERM(p, z, 2.1251079e-02f);
    p = TERM(p, z, 5.406577e-02f);
    p = TERM(p, z, 1.3332613e-01f);
    p = TERM(p, z, 3.3333352e-01f);
    const vf t = v_fma(p * z, r, r);
    return v_pick(v_odd((vi)shifted), -1.0f / t, t);
}

/* Large angles need more bits of pi than the three parts have. */
#define OF_ANGLES(name)                                                                           \
    static RLX_NOINLINE void far_##name(float *y, const float *x)                                 \
    {                                                                                             \
        for (int l = 0; l < FLOATS; l++)                                                          \
            if (!(fabsf(x[l]) < 2e4f)) y[l] = name##f(x[l]);                                      \
    }                                                                                             \
    static RLX_INLINE vf v_##name(vf x)                                                           \
    {                                                                                             \
        vf y = v_near_##name(x);                                                                  \
        if (RLX_UNLIKELY(!v_every(v_less(v_abs(x), v_all(2e4f))))) {                              \
            float from[FLOATS], to[FLOATS];                                                       \
            v_store(from, x), v_store(to, y);                                                     \
            far_##name(to, from);                                                                 \
            y = v_load(to);                                                                       \
        }                                                                                         \
        return y;                                                                                 \
    }
OF_ANGLES(sin)
OF_ANGLES(cos)
OF_ANGLES(tan)
#undef OF_ANGLES

/* asin(x) - x for |x| up to 1/2, where z is x^2. */
static RLX_INLINE vf v_asin_rest(vf x, vf z)
{
    vf p = v_all(4.2166334e-02f);
    p = TERM(p, z, 2.4179501e-02f);
    p = TERM(p, z, 4.547038e-02f);
    p = TERM(p, z, 7.4952975e-02f);
    p = TERM(p, z, 1.6666752e-01f);
    return p * z * x;
}

#define HALF_PI 1.57079637f
#define HALF_PI_REST -4.37113883e-8f /* pi / 2 less the float */

/* asin(s) for s = a up to 1/2, for s = sqrt((1 - a) / 2) from there on: asin(a) is pi / 2 less twice that. */
static RLX_INLINE vf v_asin_parts(vf a, vm *large, vf *s)
{
    *large = v_less(v_all(0.5f), a);
    const vf half = v_fma(a, v_all(-0.5f), v_all(0.5f)), z = v_pick(*large, half, a * a);
    *s = v_pick(*large, v_sqrt(half), a); /* NaN above 1 */
    return v_asin_rest(*s, z);
}

static RLX_INLINE vf v_asin(vf x)
{
    vm large;
    vf s, rest = v_asin_parts(v_abs(x), &large, &s);
    const vf upper = HALF_PI - (2.0f * s + v_fma(rest, v_all(2.0f), v_all(-HALF_PI_REST)));
    return v_signed(v_pick(large, upper, s + rest), x);
}

static RLX_INLINE vf v_acos(vf x)
{
    vm large;
    vf s, rest = v_asin_parts(v_abs(x), &large, &s);
    const vm below = v_less(x, (vf){0});
    const vf middle = HALF_PI - (v_signed(s, x) + (v_signed(rest, x) - HALF_PI_REST));
    const vf twice = 2.0f * (s + rest), least = 2.0f * HALF_PI - (2.0f * s + 2.0f * (rest - HALF_PI_REST));
    return v_pick(large, v_pick(below, least, twice), middle);
}

/* atan(x) - x for |x| up to 1. */
static RLX_INLINE vf v_atan_rest(vf x)
{
    const vf z = x * x;
    vf p = v_all(2.9206846e-03f);
    p = TERM(p, z, -1.63679e-02f);
    p = TERM(p, z, 4.3211814e-02f);
    p = TERM(p, z, -7.55221e-02f);
    p = TERM(p, z, 1.0666003e-01f);
    p = TERM(p, z, -1.4211056e-01f);
    p = TERM(p, z, 1.9993773e-01f);
    p = TERM(p, z, -3.3333153e-01f);
    return p * z * x;
}

static RLX_INLINE vf v_atan(vf x)
{
    /* From 1 on it is pi / 2 less the inverse tangent of 1 / a. */
    const vf a = v_abs(x);
    const vm large = v_less(v_all(1.0f), a);
    const vf s = v_pick(large, 1.0f / a, a), rest = v_atan_rest(s);
    return v_signed(v_pick(large, HALF_PI - (s + (rest - HALF_PI_REST)), s + rest), x);
}
