/* Convolution along one axis with long filters, by Fourier transforms and overlap-save (Stockham 1966). Two blocks of a
   line are the real and the imaginary part of one transform, since the filter is real. A block has n = 16 m samples.
   Sample 16 j + l is in lane l of element j, so that a line is loaded as it is. The transform has two steps: m-point
   transforms of whole vectors, then, after a multiplication by twiddle factors, 16-point transforms across the lanes, for
   which tiles of 16 elements are transposed. A spectrum keeps the order of the tiles, [m / 16][16][real, imaginary][16],
   where entry (t, k, i) is bin m k + 16 t + i (rlx/ops/windows/fft_conv.py).

   Samples and spectra of filters are multiplied by powers of two, so that those of normal numbers are not subnormal, which
   would count as 0. Results are divided by them. */

#define LONG_FILTER_SCALE ((T)RLX_FILTER_SCALE * RLX_SPECTRUM_SCALE)
#define LONG_BACK ((T)1 / RLX_ELEMENT_SCALE / LONG_FILTER_SCALE)

enum { ACROSS = RLX_LONG_ACROSS, ACROSS_VECTORS = ACROSS / (VECTOR_BYTES / 4) };

typedef struct {
    int64_t m, count;
    int passes;
    const int64_t *radices;
    const T *twiddles, *cross, *small; /* factors of the passes, between the two steps, and of 16 points */
    T *x, *z;                          /* 2 n each */
} NAME(rlx_long);

/* Loads a tile of VL elements from k on, transposed: [lane][real, imaginary] of vectors of elements. And stores one. */
static RLX_INLINE void NAME(turn_tile)(T *index, int64_t k, T *tile, int back)
{
    for (int64_t half = 0; half < ACROSS_VECTORS; half++)
        for (int64_t part = 0; part < 2; part++) {
            VEC v[VECTOR_BYTES / sizeof(T)];
            for (int64_t i = 0; i < VL; i++)
                v[i] = back ? *LANE(tile, 2 * (half * VL + i) + part)
                            : *LANE(index, 2 * ((k + i) * ACROSS_VECTORS + half) + part);
            NAME(transpose_lanes)(v);
            for (int64_t i = 0; i < VL; i++)
                if (back) *LANE(index, 2 * ((k + i) * ACROSS_VECTORS + half) + part) = v[i];
                else *LANE(tile, 2 * (half * VL + i) + part) = v[i];
        }
}

/* Multiplies a tile by its twiddle factors. */
static RLX_INLINE void NAME(cross_tile)(T *tile, const T *factors)
{
    for (int64_t i = 0; i < ACROSS; i++) {
        const VEC c = *(const VEC *)(factors + 2 * i * ACROSS), s = *(const VEC *)(factors + (2 * i + 1) * ACROSS);
        const VEC re = *LANE(tile, 2 * i), im = *LANE(tile, 2 * i + 1);
        *LANE(tile, 2 * i) = re * c - im * s, *LANE(tile, 2 * i + 1) = re * s + im * c;
    }
}

/* 16-point transforms across a tile. The second pass has no twiddle factors. */
static RLX_INLINE void NAME(across_tile)(const NAME(rlx_long) *f, T *tile)
{
    VEC other[2 * ACROSS];
    NAME(lanes4)(tile, (T *)other, ACROSS, 1, f->small, f->small + 15);
    NAME(lanes4)((T *)other, tile, 4, 4, f->small + 12, f->small + 27);
}

/* Where bins [k, k + VL) are in a spectrum. */
static RLX_INLINE int64_t NAME(tile_at)(int64_t k) { return k / ACROSS * 2 * ACROSS * ACROSS + k % ACROSS; }

/* The spectrum of the block at x. */
static void NAME(long_forward)(const NAME(rlx_long) *f, T *spectrum)
{
    T *y = NAME(lanes_transform)(f->x, f->z, f->m, ACROSS_VECTORS, f->passes, f->radices, f->twiddles, f->count);
    for (int64_t k = 0; k < f->m; k += VL) {
        VEC tile[2 * ACROSS];
        NAME(turn_tile)(y, k, (T *)tile, 0);
        NAME(cross_tile)((T *)tile, f->cross + NAME(tile_at)(k));
        NAME(across_tile)(f, (T *)tile);
        T *to = spectrum + NAME(tile_at)(k);
        for (int64_t i = 0; i < 2 * ACROSS; i++) *(VEC *)(to + i * ACROSS) = tile[i];
    }
}

/* The block whose spectrum is the sum over channels of spectrum times filter. The inverse transform is the forward one
   with real and imaginary parts exchanged, so the imaginary part of the result comes first. */
static T *NAME(long_inverse)(const NAME(rlx_long) *f, const T *spectra, const T *filters, int64_t channels)
{
    const int64_t each = 2 * ACROSS * f->m;
    for (int64_t k = 0; k < f->m; k += VL) {
        VEC tile[2 * ACROSS];
        const T *s = spectra + NAME(tile_at)(k), *h = filters + NAME(tile_at)(k);
        for (int64_t i = 0; i < 2 * ACROSS; i += 2) {
            VEC re = {0}, im = {0};
            for (int64_t c = 0; c < channels; c++) {
                const T *a = s + c * each + i * ACROSS, *b = h + c * each + i * ACROSS;
                const VEC ar = *(const VEC *)a, ai = *(const VEC *)(a + ACROSS);
                const VEC br = *(const VEC *)b, bi = *(const VEC *)(b + ACROSS);
                re += ar * br - ai * bi, im += ar * bi + ai * br;
            }
            tile[i] = im, tile[i + 1] = re;
        }
        NAME(across_tile)(f, (T *)tile);
        NAME(cross_tile)((T *)tile, f->cross + NAME(tile_at)(k));
        NAME(turn_tile)(f->x, k, (T *)tile, 1);
    }
    return NAME(lanes_transform)(f->x, f->z, f->m, ACROSS_VECTORS, f->passes, f->radices, f->twiddles, f->count);
}

/* Loads samples [from, from + n) of a line, multiplied by a scale, into every second vector of a block; zeros outside of
   the line. */
static void NAME(long_read)(T *to, const T *line, int64_t from, int64_t n, int64_t samples, T scale)
{
    for (int64_t i = 0; i < n; i += VL, to += 2 * VL) {
        const int64_t index = from + i;
        if (index >= 0 && index + VL <= samples)
            *(VEC *)to = scale * *(const VEC *)(line + index);
        else
            for (int64_t v = 0; v < VL; v++) to[v] = index + v >= 0 && index + v < samples ? scale * line[index + v] : 0;
    }
}

/* Stores results from every second vector of a block. Returns whether all of them are finite. */
static int NAME(long_write)(T *to, const T *from, T start, int64_t count)
{
    VEC wrong = {0};
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        const VEC v = *(const VEC *)(from + 2 * i) * LONG_BACK + start;
        *(VEC *)(to + i) = v;
        wrong += v * 0;
    }
    T sum = 0;
    for (int64_t v = 0; v < VL; v++) sum += wrong[v];
    for (int64_t v = 0; i + v < count; v++) {
        to[i + v] = from[2 * i + v] * LONG_BACK + start;
        sum += to[i + v] * 0;
    }
    return sum == 0;
}

/* Results [from, from + count) of one filter by the definition. A transform spreads NaN and infinities over its block;
   such blocks are computed in this way, so that a NaN affects only the windows that contain it. */
static RLX_NOINLINE void NAME(long_plainly)(T *to, const T *lines, const T *weight, T start, int64_t channels,
                                         int64_t taps, int64_t samples, int64_t from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        T sum = start;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < taps; k++) {
                const int64_t index = from + i + k;
                if (index >= 0 && index < samples) sum += lines[c * samples + index] * weight[c * taps + k];
            }
        to[i] = sum;
    }
}

/* The filters are given as taps, and as spectra if they are packed (conjugated, since taps are not reversed). Scratch:
   two blocks, the spectra of the channels of a group, and those of its filters. Threads share pairs of blocks. */
static int NAME(kernel_conv_long)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_long, call);
    const rlx_window w = p->window;
    const T *bias = in->bias;
    const int64_t n = ACROSS * p->block, channels = w.channels / w.groups, outputs = w.outputs / w.groups;
    T *blocks = out->blocks, *spectra = blocks + 4 * n, *own = spectra + channels * 2 * n;
    const NAME(rlx_long) f = {p->block, p->twiddle_count, (int)p->passes, p->radices, in->twiddles, in->cross, in->small,
                              blocks, blocks + 2 * n};
    const int64_t taps = w.kernel[2], samples = w.dims[2], windows = w.out[2], valid = n - taps + 1;
    const int64_t pairs = (windows + 2 * valid - 1) / (2 * valid);
    const T *residual = in->residual;
    const rlx_range share = rlx_share(call, w.groups * w.batch * pairs, 1);
    int64_t known = -1; /* the group whose filters are transformed already */
    for (int64_t item = share.first; item < share.last; item++) {
        const int64_t g = item / (w.batch * pairs), image = item / pairs % w.batch, first = item % pairs * 2 * valid;
        const T *lines = (const T *)in->x + (image * w.groups + g) * channels * samples;
        const T *filters = (const T *)in->filters + g * outputs * channels * 2 * n;
        const T *weight = (const T *)in->weight + g * outputs * channels * taps;
        if (!p->packing) {
            for (int64_t c = 0; g != known && c < outputs * channels; c++) {
                NAME(long_read)(f.x, weight + c * taps, 0, n, taps, RLX_FILTER_SCALE);
                for (int64_t i = 0; i < n; i += VL) *LANE(f.x, 2 * (i / VL) + 1) = (VEC){0};
                T *to = own + c * 2 * n;
                NAME(long_forward)(&f, to);
                for (int64_t i = 0; i < 2 * n; i++) to[i] *= (i & ACROSS ? (T)-1 : (T)1) * RLX_SPECTRUM_SCALE / n;
            }
            filters = own, known = g;
        }
        for (int64_t c = 0; c < channels; c++) {
            const T *line = lines + c * samples;
            NAME(long_read)(f.x, line, first - w.before[2], n, samples, RLX_ELEMENT_SCALE);
            NAME(long_read)(f.x + VL, line, first + valid - w.before[2], n, samples, RLX_ELEMENT_SCALE);
            NAME(long_forward)(&f, spectra + c * 2 * n);
        }
        for (int64_t o = 0; o < outputs; o++) {
            const int64_t index = ((image * w.groups + g) * outputs + o) * windows;
            const T *block = NAME(long_inverse)(&f, spectra, filters + o * channels * 2 * n, channels);
            const T start = bias ? bias[g * outputs + o] : 0;
            for (int64_t half = 0; half < 2; half++) {
                const int64_t j = first + half * valid, count = windows - j < valid ? windows - j : valid;
                T *to = (T *)out->y + index + j;
                if (count <= 0) break;
                if (RLX_UNLIKELY(!NAME(long_write)(to, block + (1 - half) * VL, start, count)))
                    NAME(long_plainly)(to, lines, weight + o * channels * taps, start, channels, taps, samples,
                                       j - w.before[2], count);
                NAME(finish)(to, count, residual ? residual + index + j : NULL, p->act);
            }
        }
    }
    return RLX_OK;
}

#undef LONG_FILTER_SCALE
#undef LONG_BACK
