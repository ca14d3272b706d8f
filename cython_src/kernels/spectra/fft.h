/* Fourier transforms in Stockham passes of mixed radix, on separate real and imaginary parts, and by Bluestein, per
   type. rlx/ops/spectra/fft_plans.py defines the passes and their tables. */

typedef struct {
    const T *re, *im;
} NAME(in_parts);
typedef struct {
    T *re, *im;
} NAME(out_parts);

/* Unrolled, so that the values of one butterfly stay in registers. */
#define WRITTEN_OUT _Pragma("GCC unroll 5")

/* One pass. BUTTERFLY computes the DFT of the values ar[], ai[] into br[], bi[]. */
#define PASS(R, BUTTERFLY)                                                                        \
    static void NAME(pass##R)(NAME(in_parts) x, NAME(out_parts) y, int64_t length, int64_t stride,  \
                              const T *wr, const T *wi)                                           \
    {                                                                                             \
        const int64_t m = length / R, step = m * stride;                                          \
        for (int64_t p = 0; p < m; p++) {                                                         \
            T cr[R], ci[R];                                                                       \
            WRITTEN_OUT                                                                           \
            for (int j = 1; j < R; j++) cr[j] = wr[(j - 1) * m + p], ci[j] = wi[(j - 1) * m + p]; \
            const T *xr = x.re + p * stride, *xi = x.im + p * stride;                             \
            T *yr = y.re + p * stride * R, *yi = y.im + p * stride * R;                           \
            RLX_INDEPENDENT for (int64_t q = 0; q < stride; q++)                             \
            {                                                                                     \
                T ar[R], ai[R], br[R], bi[R];                                                     \
                WRITTEN_OUT                                                                       \
                for (int i = 0; i < R; i++) ar[i] = xr[q + i * step], ai[i] = xi[q + i * step];   \
                BUTTERFLY                                                                         \
                yr[q] = br[0], yi[q] = bi[0];                                                     \
                WRITTEN_OUT                                                                       \
                for (int j = 1; j < R; j++) {                                                     \
                    yr[q + j * stride] = br[j] * cr[j] - bi[j] * ci[j];                           \
                    yi[q + j * stride] = br[j] * ci[j] + bi[j] * cr[j];                           \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
    }

#define VAL T
PASS(2, BUTTERFLY2)
PASS(3, BUTTERFLY3)
PASS(4, BUTTERFLY4)
PASS(5, BUTTERFLY5)

/* The first pass (stride 1) of radix 4. Its loop runs along p, so that it vectorises. */
static void NAME(first4)(NAME(in_parts) x, NAME(out_parts) y, int64_t length, const T *wr,
                         const T *wi)
{
    const int64_t m = length / 4;
    RLX_INDEPENDENT for (int64_t p = 0; p < m; p++)
    {
        T ar[4], ai[4], br[4], bi[4];
        WRITTEN_OUT
        for (int i = 0; i < 4; i++) ar[i] = x.re[p + i * m], ai[i] = x.im[p + i * m];
        BUTTERFLY4
        y.re[4 * p] = br[0], y.im[4 * p] = bi[0];
        WRITTEN_OUT
        for (int j = 1; j < 4; j++) {
            const T c = wr[(j - 1) * m + p], s = wi[(j - 1) * m + p];
            y.re[4 * p + j] = br[j] * c - bi[j] * s;
            y.im[4 * p + j] = br[j] * s + bi[j] * c;
        }
    }
}

/* Radices 7, 11 and 13 by definition: R^2 products with the roots of unity. */
static void NAME(pass_odd)(int R, NAME(in_parts) x, NAME(out_parts) y, int64_t length, int64_t stride,
                           const T *wr, const T *wi)
{
    const int64_t m = length / R, step = m * stride;
    T roots_re[13], roots_im[13], ar[13], ai[13];
    for (int r = 0; r < R; r++) {
        roots_re[r] = (T)cos(-6.283185307179586476925 * r / R);
        roots_im[r] = (T)sin(-6.283185307179586476925 * r / R);
    }
    for (int64_t p = 0; p < m; p++)
        for (int64_t q = 0; q < stride; q++) {
            const int64_t index = q + p * stride, to = q + p * stride * R;
            for (int i = 0; i < R; i++) ar[i] = x.re[index + i * step], ai[i] = x.im[index + i * step];
            for (int j = 0; j < R; j++) {
                T tr = ar[0], ti = ai[0];
                for (int i = 1, root = j; i < R; i++, root = root + j < R ? root + j : root + j - R) {
                    const T c = roots_re[root], s = roots_im[root];
                    tr += ar[i] * c - ai[i] * s, ti += ar[i] * s + ai[i] * c;
                }
                const T c = j ? wr[(j - 1) * m + p] : 1, s = j ? wi[(j - 1) * m + p] : 0;
                y.re[to + j * stride] = tr * c - ti * s;
                y.im[to + j * stride] = tr * s + ti * c;
            }
        }
}

/* All passes of one transform, from x to y. z is scratch. */
static void NAME(transform)(NAME(in_parts) x, NAME(out_parts) y, NAME(out_parts) z, int64_t n,
                            int passes, const int64_t *radices, const T *twiddles, int64_t count)
{
    int64_t length = n, stride = 1;
    const T *wr = twiddles, *wi = twiddles + count;
    if (passes == 0) y.re[0] = x.re[0], y.im[0] = x.im[0];
    for (int index = 0; index < passes; index++) {
        const int radix = (int)radices[index];
        const NAME(out_parts) to = (passes - 1 - index) % 2 == 0 ? y : z;
        switch (radix) {
        case 2: NAME(pass2)(x, to, length, stride, wr, wi); break;
        case 3: NAME(pass3)(x, to, length, stride, wr, wi); break;
        case 5: NAME(pass5)(x, to, length, stride, wr, wi); break;
        case 4:
            if (stride == 1) NAME(first4)(x, to, length, wr, wi);
            else NAME(pass4)(x, to, length, stride, wr, wi);
            break;
        default: NAME(pass_odd)(radix, x, to, length, stride, wr, wi);
        }
        wr += (radix - 1) * (length / radix);
        wi += (radix - 1) * (length / radix);
        length /= radix;
        stride *= radix;
        x.re = to.re;
        x.im = to.im;
    }
}

/* A transform of length n, operands apart. m is the length of its Bluestein convolution, or 0. */
typedef struct {
    int64_t n, m, count;
    int passes;
    const int64_t *radices;
    const T *twiddles, *chirp, *filter;
} NAME(fft_plan);

/* One transform. Scratch: 2 n elements, or 6 m. */
static void NAME(fft_row)(const NAME(fft_plan) *f, NAME(in_parts) x, NAME(out_parts) y, T *s)
{
    const int64_t n = f->n, m = f->m;
    if (m == 0) {
        const NAME(out_parts) z = {s, s + n};
        NAME(transform)(x, y, z, n, f->passes, f->radices, f->twiddles, f->count);
        return;
    }
    const T *cr = f->chirp, *ci = cr + n, *fr = f->filter, *fi = fr + m;
    T *ar = s, *ai = s + m, *br = s + 2 * m, *bi = s + 3 * m;
    const NAME(out_parts) b = {br, bi}, swapped = {bi, br}, z = {s + 4 * m, s + 5 * m};
    RLX_INDEPENDENT for (int64_t i = 0; i < n; i++) {
        ar[i] = x.re[i] * cr[i] - x.im[i] * ci[i];
        ai[i] = x.re[i] * ci[i] + x.im[i] * cr[i];
    }
    for (int64_t i = n; i < m; i++) ar[i] = ai[i] = 0;
    NAME(transform)((NAME(in_parts)){ar, ai}, b, z, m, f->passes, f->radices, f->twiddles, f->count);
    RLX_INDEPENDENT for (int64_t i = 0; i < m; i++) {
        ar[i] = br[i] * fr[i] - bi[i] * fi[i];
        ai[i] = br[i] * fi[i] + bi[i] * fr[i];
    }
    NAME(transform)((NAME(in_parts)){ai, ar}, swapped, z, m, f->passes, f->radices, f->twiddles,
                    f->count);
    RLX_INDEPENDENT for (int64_t i = 0; i < n; i++) {
        y.re[i] = br[i] * cr[i] - bi[i] * ci[i];
        y.im[i] = br[i] * ci[i] + bi[i] * cr[i];
    }
}

/* With `lanes`, VL rows are transformed side by side. The inverse transform is the forward one with real and imaginary
   parts exchanged. */
static int NAME(kernel_fft)(const rlx_call *call)
{
    RLX_ARGUMENTS(fft, call);
    const int64_t n = p->n, inverse = p->inverse, lanes = p->lanes;
    const T scale = (T)p->scale;
    const NAME(fft_plan) plan = {n, p->m, p->twiddle_count, (int)p->passes, p->radices,
                                 in->twiddles, in->chirp, in->filter};
    const rlx_range own = rlx_share(call, p->rows, lanes ? LANES : 1);
    const T *x = in->x;
    T *y = out->y, *s = out->work;
    for (int64_t r = own.first; lanes && r < own.last; r += VL) {
        const int64_t some = own.last - r < VL ? own.last - r : VL;
        const T *row[VECTOR_BYTES / sizeof(T)];
        T *to[VECTOR_BYTES / sizeof(T)];
        for (int part = 0; part < 2; part++) {
            for (int64_t l = 0; l < VL; l++)
                row[l] = x + 2 * n * (r + (l < some ? l : 0)) + (part == inverse ? 0 : n);
            NAME(lanes_in)(row, NULL, n, s + part * VL, 2);
        }
        const T *z = NAME(lanes_transform)(s, s + 2 * n * VL, n, 1, plan.passes, plan.radices,
                                           plan.twiddles, plan.count);
        for (int part = 0; part < 2; part++) {
            for (int64_t l = 0; l < some; l++) to[l] = y + 2 * n * (r + l) + (part == inverse ? 0 : n);
            NAME(lanes_out)(z + part * VL, 2, scale, n, to, some);
        }
    }
    for (int64_t r = own.first; !lanes && r < own.last; r++) {
        const T *row = x + 2 * n * r;
        T *to = y + 2 * n * r;
        const NAME(in_parts) from = {row + (inverse ? n : 0), row + (inverse ? 0 : n)};
        const NAME(out_parts) parts = {to + (inverse ? n : 0), to + (inverse ? 0 : n)};
        NAME(fft_row)(&plan, from, parts, s);
        if (scale != 1)
            for (int64_t i = 0; i < 2 * n; i++) to[i] *= scale;
    }
    return RLX_OK;
}

/* One-sided transforms of real rows, which are frames of signals times a taper, or their powers. A row of even length n
   is transformed as n / 2 complex numbers and then separated (Cooley, Lewis & Welch 1970): with a = Z[k], b = conj Z[n / 2
   - k] and w = exp(-2 pi i k / n), X[k] = (a + b) / 2 - i w (a - b) / 2. */
typedef struct {
    NAME(fft_plan) plan;
    int64_t n, bins, width; /* samples of a row, bins of a spectrum, elements of a result */
    const T *cos, *sin, *taper;
    T scale;
    int power;
} NAME(rfft);

/* The spectrum of z, the transform of a row as complex numbers: real parts, then imaginary parts. */
static void NAME(separate)(const NAME(rfft) *f, const T *zr, const T *zi, T *re)
{
    const int64_t h = f->plan.n;
    const T *c = f->cos, *s = f->sin, scale = f->scale, half = scale / 2;
    T *im = re + f->bins;
    if (h == f->n) {
        RLX_INDEPENDENT for (int64_t k = 0; k < f->bins; k++) re[k] = scale * zr[k], im[k] = scale * zi[k];
        return;
    }
    re[0] = scale * (zr[0] + zi[0]), im[0] = 0;
    re[h] = scale * (zr[0] - zi[0]), im[h] = 0;
    RLX_INDEPENDENT for (int64_t k = 1; k < h; k++) {
        const T er = zr[k] + zr[h - k], ei = zi[k] - zi[h - k];
        const T dr = zr[k] - zr[h - k], di = zi[k] + zi[h - k];
        re[k] = half * (er + c[k] * di + s[k] * dr);
        im[k] = half * (ei - c[k] * dr + s[k] * di);
    }
}

/* One row. Scratch: a spectrum, two copies of the row, and what fft_row needs. */
static void NAME(rfft_row)(const NAME(rfft) *f, const T *x, T *to, T *work)
{
    const int64_t n = f->n, h = f->plan.n;
    const T *taper = f->taper;
    T *zr = work + 2 * f->bins, *zi = zr + h, *yr = zi + h, *yi = yr + h;
    if (h == n) {
        for (int64_t i = 0; i < n; i++) zr[i] = taper ? x[i] * taper[i] : x[i], zi[i] = 0;
    } else {
        RLX_INDEPENDENT for (int64_t i = 0; i < h; i++) zr[i] = x[2 * i], zi[i] = x[2 * i + 1];
        RLX_INDEPENDENT for (int64_t i = 0; taper && i < h; i++) zr[i] *= taper[2 * i], zi[i] *= taper[2 * i + 1];
    }
    NAME(fft_row)(&f->plan, (NAME(in_parts)){zr, zi}, (NAME(out_parts)){yr, yi}, yi + h);
    T *re = f->power ? work : to, *im = re + f->bins;
    NAME(separate)(f, yr, yi, re);
    for (int64_t k = 0; f->power && k < f->bins; k++) to[k] = re[k] * re[k] + im[k] * im[k];
}

/* VL rows side by side, of which `some` results are stored. Scratch: two copies of the rows. */
static void NAME(rfft_lanes)(const NAME(rfft) *f, const T *const *row, T **to, int64_t some, T *work)
{
    const int64_t n = f->n, h = f->plan.n, bins = f->bins;
    const NAME(fft_plan) *plan = &f->plan;
    T *x = work, *z = x + 2 * (h + 1) * VL;
    NAME(lanes_in)(row, f->taper, n, x, h == n ? 2 : 1);
    if (h == n)
        for (int64_t i = 0; i < n; i++) *LANE(x, 2 * i + 1) = (VEC){0};
    T *y = NAME(lanes_transform)(x, z, h, 1, plan->passes, plan->radices, plan->twiddles, plan->count);
    z = y == x ? z : x;
    if (h != n) {
        NAME(lanes_untangle)(y, z, h, f->cos, f->sin, f->scale, f->power);
        NAME(lanes_out)(z, 1, 1, f->width, to, some);
        return;
    }
    if (f->power)
        for (int64_t k = 0; k < bins; k++) {
            const VEC re = *LANE(y, 2 * k) * f->scale, im = *LANE(y, 2 * k + 1) * f->scale;
            *LANE(y, 2 * k) = re * re + im * im;
        }
    NAME(lanes_out)(y, 2, f->power ? 1 : f->scale, bins, to, some);
    for (int64_t l = 0; l < some; l++) to[l] += bins;
    if (!f->power) NAME(lanes_out)(y + VL, 2, f->scale, bins, to, some);
}

static int NAME(kernel_rfft)(const rlx_call *call)
{
    RLX_ARGUMENTS(rfft, call);
    const int64_t bins = p->n / 2 + 1, width = p->power ? bins : 2 * bins;
    const NAME(rfft) f = {
        .plan = {p->length, p->m, p->twiddle_count, (int)p->passes, p->radices, in->twiddles, in->chirp, in->filter},
        .n = p->n, .bins = bins, .width = width,
        .cos = in->roots, .sin = (const T *)in->roots + bins, .taper = in->taper,
        .scale = (T)p->scale, .power = (int)p->power,
    };
    const rlx_range own = rlx_share(call, p->rows, p->lanes ? LANES : 1);
#define ROW(r) ((const T *)in->x + (r) / p->frames * p->samples + (r) % p->frames * p->hop)
    for (int64_t r = own.first; p->lanes && r < own.last; r += VL) {
        const int64_t some = own.last - r < VL ? own.last - r : VL;
        const T *row[VECTOR_BYTES / sizeof(T)];
        T *to[VECTOR_BYTES / sizeof(T)];
        /* Missing rows repeat the first one. */
        for (int64_t l = 0; l < VL; l++) {
            row[l] = ROW(r + (l < some ? l : 0));
            to[l] = (T *)out->y + width * (r + l);
        }
        NAME(rfft_lanes)(&f, row, to, some, out->work);
    }
    for (int64_t r = own.first; !p->lanes && r < own.last; r++)
        NAME(rfft_row)(&f, ROW(r), (T *)out->y + width * r, out->work);
#undef ROW
    return RLX_OK;
}

#undef VAL
#undef S3
#undef C1
#undef C2
#undef S1
#undef S2
#undef BUTTERFLY5
#undef BUTTERFLY4
#undef BUTTERFLY3
#undef BUTTERFLY2
#undef PASS
