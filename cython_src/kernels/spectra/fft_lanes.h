/* Transforms of VL rows at a time, one row in each lane of a vector, per type. Every step works on whole vectors,
   whatever the length and its factors. The layout is [element][real, imaginary][row]. rlx/ops/spectra/fft_plans.py says
   when this is used. */

/* The source of lane l when two vectors exchange groups of `by` lanes. */
#define LOW(l, by) ((l) & (by) ? (l) - (by) + VL : (l))
#define HIGH(l, by) ((l) & (by) ? (l) + VL : (l) + (by))
#define TWO(F, index, by) F(index, by), F(index + 1, by)
#define FOUR(F, index, by) TWO(F, index, by), TWO(F, index + 2, by)
#define EIGHT(F, index, by) FOUR(F, index, by), FOUR(F, index + 4, by)
#define SIXTEEN(F, index, by) EIGHT(F, index, by), EIGHT(F, index + 8, by)
#ifdef SINGLE
#define ENTRIES (VECTOR_BYTES / 4)
#else
#define ENTRIES (VECTOR_BYTES / 8)
#endif
/* One stage of a transposition in registers: lane i of vector j is exchanged with lane j of vector i, for one bit of i
   and j. */
#define STAGE(LIST, by)                                                                           \
    _Pragma("GCC unroll 16") for (int i = 0; i < ENTRIES; i++) if (!(i & (by)))                   \
    {                                                                                             \
        const VEC a = v[i], b = v[i + (by)];                                                      \
        v[i] = __builtin_shufflevector(a, b, LIST(LOW, 0, by));                                   \
        v[i + (by)] = __builtin_shufflevector(a, b, LIST(HIGH, 0, by));                           \
    }
#if VECTOR_BYTES == 64
#define STAGES_16 STAGE(SIXTEEN, 8) STAGE(SIXTEEN, 4) STAGE(SIXTEEN, 2) STAGE(SIXTEEN, 1)
#define STAGES_8 STAGE(EIGHT, 4) STAGE(EIGHT, 2) STAGE(EIGHT, 1)
#elif VECTOR_BYTES == 32
#define STAGES_16 STAGE(EIGHT, 4) STAGE(EIGHT, 2) STAGE(EIGHT, 1)
#define STAGES_8 STAGE(FOUR, 2) STAGE(FOUR, 1)
#else
#define STAGES_16 STAGE(FOUR, 2) STAGE(FOUR, 1)
#define STAGES_8 STAGE(TWO, 1)
#endif
static RLX_INLINE void NAME(transpose_lanes)(VEC *v)
{
#ifdef SINGLE
    STAGES_16
#else
    STAGES_8
#endif
}
#undef STAGES_16
#undef STAGES_8
#undef STAGE
#undef ENTRIES
#undef SIXTEEN
#undef EIGHT
#undef FOUR
#undef TWO
#undef HIGH
#undef LOW

/* Loads rows into lanes: element j of every row, times taper[j], to vector j * apart. */
static void NAME(lanes_in)(const T *const *row, const T *taper, int64_t n, T *to, int64_t apart)
{
    int64_t j = 0;
    for (; j + VL <= n; j += VL) {
        VEC v[VECTOR_BYTES / sizeof(T)];
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) v[l] = *(const VEC *)(row[l] + j);
        NAME(transpose_lanes)(v);
        if (taper)
            _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) v[l] *= taper[j + l];
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) *LANE(to, (j + l) * apart) = v[l];
    }
    for (; j < n; j++)
        for (int64_t l = 0; l < VL; l++) to[j * apart * VL + l] = row[l][j] * (taper ? taper[j] : 1);
}

/* Stores lanes to rows: vector j * apart, times scale, to element j of each row. */
static void NAME(lanes_out)(const T *from, int64_t apart, T scale, int64_t n, T *const *row, int64_t rows)
{
    int64_t j = 0;
    for (; j + VL <= n; j += VL) {
        VEC v[VECTOR_BYTES / sizeof(T)];
        _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) v[l] = *LANE(from, (j + l) * apart) * scale;
        NAME(transpose_lanes)(v);
        if (rows == VL)
            _Pragma("GCC unroll 16") for (int l = 0; l < VL; l++) *(VEC *)(row[l] + j) = v[l];
        else
            for (int64_t l = 0; l < rows; l++) memcpy(row[l] + j, (const T *)v + l * VL, VECTOR_BYTES);
    }
    for (; j < n; j++)
        for (int64_t l = 0; l < rows; l++) row[l][j] = from[j * apart * VL + l] * scale;
}

/* Butterflies: the DFT of the values ar[], ai[] of type VAL goes to br[], bi[]. */
#define BUTTERFLY2                                                                                \
    br[0] = ar[0] + ar[1], bi[0] = ai[0] + ai[1], br[1] = ar[0] - ar[1], bi[1] = ai[0] - ai[1];
#define BUTTERFLY4                                                                                    \
    const VAL sr = ar[0] + ar[2], si = ai[0] + ai[2], dr = ar[0] - ar[2], di = ai[0] - ai[2];     \
    const VAL tr = ar[1] + ar[3], ti = ai[1] + ai[3], er = ar[1] - ar[3], ei = ai[1] - ai[3];     \
    br[0] = sr + tr, bi[0] = si + ti, br[2] = sr - tr, bi[2] = si - ti;                           \
    br[1] = dr + ei, bi[1] = di - er, br[3] = dr - ei, bi[3] = di + er;
#define S3 (T)0.86602540378443864676 /* sin(2 pi / 3) */
#define BUTTERFLY3                                                                                \
    const VAL sr = ar[1] + ar[2], si = ai[1] + ai[2];                                             \
    const VAL dr = (ar[1] - ar[2]) * S3, di = (ai[1] - ai[2]) * S3;                               \
    const VAL mr = ar[0] - sr * (T)0.5, mi = ai[0] - si * (T)0.5;                                 \
    br[0] = ar[0] + sr, bi[0] = ai[0] + si;                                                       \
    br[1] = mr + di, bi[1] = mi - dr, br[2] = mr - di, bi[2] = mi + dr;
/* Cosines and sines of 2 pi / 5 and 4 pi / 5. */
#define C1 (T)0.30901699437494742410
#define C2 (T)-0.80901699437494742410
#define S1 (T)0.95105651629515357212
#define S2 (T)0.58778525229247312917
#define BUTTERFLY5                                                                                    \
    const VAL sr = ar[1] + ar[4], si = ai[1] + ai[4], dr = ar[1] - ar[4], di = ai[1] - ai[4];     \
    const VAL tr = ar[2] + ar[3], ti = ai[2] + ai[3], er = ar[2] - ar[3], ei = ai[2] - ai[3];     \
    const VAL ur = ar[0] + sr * C1 + tr * C2, ui = ai[0] + si * C1 + ti * C2;                     \
    const VAL vr = ar[0] + sr * C2 + tr * C1, vi_ = ai[0] + si * C2 + ti * C1;                    \
    const VAL pr = dr * S1 + er * S2, pi = di * S1 + ei * S2;                                     \
    const VAL qr = dr * S2 - er * S1, qi = di * S2 - ei * S1;                                     \
    br[0] = ar[0] + sr + tr, bi[0] = ai[0] + si + ti;                                             \
    br[1] = ur + pi, bi[1] = ui - pr, br[4] = ur - pi, bi[4] = ui + pr;                           \
    br[2] = vr + qi, bi[2] = vi_ - qr, br[3] = vr - qi, bi[3] = vi_ + qr;

/* One pass over vectors. The first entry of each butterfly has no twiddle factor. */
#define LANE_PASS(R, BUTTERFLY)                                                                   \
    static void NAME(lanes##R)(const T *x, T *y, int64_t length, int64_t stride, const T *wr,      \
                               const T *wi)                                                       \
    {                                                                                             \
        const int64_t m = length / R, step = 2 * m * stride;                                      \
        for (int64_t p = 0; p < m; p++) {                                                         \
            T cr[R], ci[R];                                                                       \
            _Pragma("GCC unroll 8") for (int j = 1; j < R; j++)                                   \
                cr[j] = wr[(j - 1) * m + p], ci[j] = wi[(j - 1) * m + p];                         \
            for (int64_t q = 0; q < stride; q++) {                                                \
                const VEC *from = LANE(x, 2 * (q + p * stride));                                  \
                VEC *to = LANE(y, 2 * (q + p * stride * R)), ar[R], ai[R], br[R], bi[R];          \
                _Pragma("GCC unroll 8") for (int i = 0; i < R; i++)                               \
                    ar[i] = from[i * step], ai[i] = from[i * step + 1];                           \
                BUTTERFLY                                                                         \
                to[0] = br[0], to[1] = bi[0];                                                     \
                if (p == 0)                                                                       \
                    _Pragma("GCC unroll 8") for (int j = 1; j < R; j++)                           \
                        to[2 * j * stride] = br[j], to[2 * j * stride + 1] = bi[j];               \
                else                                                                              \
                    _Pragma("GCC unroll 8") for (int j = 1; j < R; j++) {                         \
                        to[2 * j * stride] = br[j] * cr[j] - bi[j] * ci[j];                       \
                        to[2 * j * stride + 1] = br[j] * ci[j] + bi[j] * cr[j];                   \
                    }                                                                             \
            }                                                                                     \
        }                                                                                         \
    }
#define VAL VEC
LANE_PASS(2, BUTTERFLY2) LANE_PASS(3, BUTTERFLY3) LANE_PASS(4, BUTTERFLY4) LANE_PASS(5, BUTTERFLY5)
#undef VAL
#undef LANE_PASS

/* Radices 7, 11 and 13 by definition, with sums and differences of opposite entries computed once. */
static void NAME(lanes_odd)(int R, const T *x, T *y, int64_t length, int64_t stride, const T *wr,
                            const T *wi)
{
    const int64_t m = length / R, step = 2 * m * stride;
    T c[13], s[13];
    for (int r = 0; r < R; r++) {
        c[r] = (T)cos(6.283185307179586476925 * r / R);
        s[r] = (T)sin(6.283185307179586476925 * r / R);
    }
    for (int64_t p = 0; p < m; p++)
        for (int64_t q = 0; q < stride; q++) {
            const VEC *from = LANE(x, 2 * (q + p * stride));
            VEC *to = LANE(y, 2 * (q + p * stride * R)), sr[6], si[6], dr[6], di[6];
            VEC all_r = from[0], all_i = from[1];
            for (int i = 0; i < R / 2; i++) {
                const VEC *a = from + (i + 1) * step, *b = from + (R - 1 - i) * step;
                sr[i] = a[0] + b[0], si[i] = a[1] + b[1], dr[i] = a[0] - b[0], di[i] = a[1] - b[1];
                all_r += sr[i], all_i += si[i];
            }
            to[0] = all_r, to[1] = all_i;
            for (int j = 1; j <= R / 2; j++) {
                VEC ur = from[0], ui = from[1], pr = {0}, pi = {0};
                for (int i = 0, index = j; i < R / 2; i++, index = (index + j) % R) {
                    ur += sr[i] * c[index], ui += si[i] * c[index];
                    pr += dr[i] * s[index], pi += di[i] * s[index];
                }
                for (int side = 0; side < 2; side++, pr = -pr, pi = -pi) {
                    const int64_t k = side ? R - j : j;
                    const VEC r = ur + pi, i = ui - pr;
                    const T cr = wr[(k - 1) * m + p], ci = wi[(k - 1) * m + p];
                    to[2 * k * stride] = r * cr - i * ci;
                    to[2 * k * stride + 1] = r * ci + i * cr;
                }
            }
        }
}

/* All passes of `stride` interleaved transforms, from x with z as scratch. Returns where the results are. */
static T *NAME(lanes_transform)(T *x, T *z, int64_t n, int64_t stride, int passes, const int64_t *radices,
                                const T *twiddles, int64_t count)
{
    int64_t length = n;
    const T *wr = twiddles, *wi = twiddles + count;
    for (int index = 0; index < passes; index++) {
        const int radix = (int)radices[index];
        switch (radix) {
        case 2: NAME(lanes2)(x, z, length, stride, wr, wi); break;
        case 3: NAME(lanes3)(x, z, length, stride, wr, wi); break;
        case 4: NAME(lanes4)(x, z, length, stride, wr, wi); break;
        case 5: NAME(lanes5)(x, z, length, stride, wr, wi); break;
        default: NAME(lanes_odd)(radix, x, z, length, stride, wr, wi);
        }
        wr += (radix - 1) * (length / radix);
        wi += (radix - 1) * (length / radix);
        length /= radix;
        stride *= radix;
        T *t = x;
        x = z, z = t;
    }
    return x;
}

/* The spectra of real rows from complex transforms of half the length, scaled: real parts and then imaginary parts, or
   powers. c and s as in kernel_rfft. */
static void NAME(lanes_untangle)(const T *y, T *to, int64_t h, const T *c, const T *s, T scale, int power)
{
    const VEC *z = (const VEC *)y;
    VEC *re = (VEC *)to, *im = re + h + 1;
    const T half = scale / 2;
    for (int64_t k = 0; k <= h; k++) {
        const int64_t low = 2 * (k % h), high = 2 * ((h - k) % h);
        const VEC er = z[low] + z[high], ei = z[low + 1] - z[high + 1];
        const VEC dr = z[low] - z[high], di = z[low + 1] + z[high + 1];
        const VEC r = half * (er + c[k] * di + s[k] * dr), i = half * (ei - c[k] * dr + s[k] * di);
        if (power)
            re[k] = r * r + i * i;
        else
            re[k] = r, im[k] = i;
    }
}
