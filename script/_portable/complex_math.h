/* Complex functions of Microsoft's C library that wine 8 names but does not have, for NumPy in wine.
 *
 * Included once for each type T, its structure S and the suffix of its functions. They are structures, as Microsoft's
 * compiler passes complex numbers. The formulas are the plain ones: enough for tests, not for a C library.
 */
typedef struct {
    T x, y;
} S;

static S NAME(times)(S a, S b) { return (S){a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

static S NAME(over)(S a, S b) {
    T n = b.x * b.x + b.y * b.y;
    return (S){(a.x * b.x + a.y * b.y) / n, (a.y * b.x - a.x * b.y) / n};
}

T NAME(rlx_creal)(S z) { return z.x; }
T NAME(rlx_cimag)(S z) { return z.y; }
T NAME(rlx_cabs)(S z) { return REAL(hypot)(z.x, z.y); }
T NAME(rlx_carg)(S z) { return REAL(atan2)(z.y, z.x); }

S NAME(rlx_cexp)(S z) {
    T scale = REAL(exp)(z.x);
    return (S){scale * REAL(cos)(z.y), scale * REAL(sin)(z.y)};
}

S NAME(rlx_ccosh)(S z) {
    return (S){REAL(cosh)(z.x) * REAL(cos)(z.y), REAL(sinh)(z.x) * REAL(sin)(z.y)};
}

S NAME(rlx_csinh)(S z) {
    return (S){REAL(sinh)(z.x) * REAL(cos)(z.y), REAL(cosh)(z.x) * REAL(sin)(z.y)};
}

S NAME(rlx_ctanh)(S z) { return NAME(over)(NAME(rlx_csinh)(z), NAME(rlx_ccosh)(z)); }

S NAME(rlx_ccos)(S z) { return NAME(rlx_ccosh)((S){-z.y, z.x}); }

S NAME(rlx_csin)(S z) {
    S turned = NAME(rlx_csinh)((S){-z.y, z.x});
    return (S){turned.y, -turned.x};
}

S NAME(rlx_ctan)(S z) {
    S turned = NAME(rlx_ctanh)((S){-z.y, z.x});
    return (S){turned.y, -turned.x};
}

S NAME(rlx_cpow)(S z, S power) {
    S logarithm = {REAL(log)(NAME(rlx_cabs)(z)), NAME(rlx_carg)(z)};
    return NAME(rlx_cexp)(NAME(times)(power, logarithm));
}
