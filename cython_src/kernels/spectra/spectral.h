/* The strongest bins of Welch's method, log-mel features and their gradient, in f32. */

/* A key that sorts by descending power, then by ascending bin. NaN sorts last. */
static inline uint64_t peak_key(float power, int64_t bin)
{
    /* -0 becomes 0. The bits of negative numbers sort in descending order. */
    const uint32_t raw = (uint32_t)as_bits(power + 0.0f);
    const uint32_t bits = power != power ? 0 : raw >> 31 ? ~raw : raw | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~(uint32_t)bin;
}

/* A min-heap of the k largest keys; the smallest of them is at 0. */
static void sift_down(uint64_t *heap, int64_t k, int64_t index)
{
    for (;;) {
        int64_t child = 2 * index + 1;
        if (child >= k) return;
        if (child + 1 < k && heap[child + 1] < heap[child]) child++;
        if (heap[index] <= heap[child]) return;
        const uint64_t t = heap[index];
        heap[index] = heap[child], heap[child] = t;
        index = child;
    }
}

/* The mean powers of the segments of a signal, times weights. Without weights they are doubled, except for the first
   and the last bin, which have no conjugate. */
static void mean_powers(const float *spectra, const float *weights, const rlx_welch *of, float *power)
{
    const int64_t bins = of->bins;
    for (int64_t i = 0; i < bins; i++) power[i] = 0;
    for (int64_t g = 0; g < of->segments; g++) {
        const float *re = spectra + g * 2 * of->n_fft, *im = re + of->n_fft;
        for (int64_t i = 0; i < bins; i++) power[i] += re[i] * re[i] + im[i] * im[i];
    }
    const float mean = 1.0f / (float)of->segments;
    if (weights)
        for (int64_t i = 0; i < bins; i++) power[i] *= mean * weights[i];
    else
        for (int64_t i = 0; i < bins; i++) power[i] *= i == 0 || i == bins - 1 ? mean : 2 * mean;
}

/* Builds the heap of the k largest bins. */
static void keep_largest(uint64_t *heap, const float *power, int64_t k, int64_t bins)
{
    for (int64_t i = 0; i < k; i++) heap[i] = peak_key(power[i], i);
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(heap, k, i);
    for (int64_t i = k; i < bins; i++) {
        const uint64_t key = peak_key(power[i], i);
        if (key > heap[0]) heap[0] = key, sift_down(heap, k, 0);
    }
}

/* Removes the smallest of the `left` bins of a heap. */
static int64_t take_least(uint64_t *heap, int64_t left)
{
    const int64_t bin = (int64_t)(uint32_t)~(uint32_t)heap[0];
    heap[0] = heap[left - 1];
    sift_down(heap, left - 1, 0);
    return bin;
}

static int kernel_welch_peaks_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(welch_peaks, call);
    const rlx_welch *of = &p->of;
    const rlx_range own = rlx_share(call, of->signals, 1);
    float *power = out->power, *pair = (float *)out->peaks + own.first * 2 * of->k;
    for (int64_t s = own.first; s < own.last; s++, pair += 2 * of->k) {
        mean_powers((const float *)in->spectra + s * of->segments * 2 * of->n_fft, NULL, of, power);
        keep_largest(out->heap, power, of->k, of->bins);
        for (int64_t left = of->k; left > 0; left--) {
            const int64_t bin = take_least(out->heap, left);
            pair[2 * left - 2] = (float)bin, pair[2 * left - 1] = power[bin];
        }
    }
    return RLX_OK;
}

static int kernel_weighted_peaks_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(weighted_peaks, call);
    const rlx_welch *of = &p->of;
    const rlx_range own = rlx_share(call, of->signals, 1);
    float *power = out->power, *peaks = (float *)out->peaks + own.first * of->k;
    int32_t *places = (int32_t *)out->places + own.first * of->k;
    for (int64_t s = own.first; s < own.last; s++, peaks += of->k, places += of->k) {
        mean_powers((const float *)in->spectra + s * of->segments * 2 * of->n_fft, in->weights, of, power);
        keep_largest(out->heap, power, of->k, of->bins);
        for (int64_t left = of->k; left > 0; left--) {
            const int64_t bin = take_least(out->heap, left);
            places[left - 1] = (int32_t)bin, peaks[left - 1] = power[bin];
        }
    }
    return RLX_OK;
}

/* n_fft is the distance from real to imaginary parts. Rows come out the same in any part: only calls of few rows leave
   the product to another loop. */
#define MEL_ROWS RLX_MEL_ROWS
static int kernel_log_mel_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(log_mel, call);
    const int64_t rows = p->rows, n_fft = p->n_fft, bins = p->bins, mels = p->mels;
    const float *filters = in->filters;
    float *power = out->power, *panel = out->panel, *y = out->y;
    const rlx_range own = rlx_share(call, rows, RLX_MEL_UNIT);
    for (int64_t r0 = own.first; r0 < own.last; r0 += MEL_ROWS) {
        const int64_t some = own.last - r0 < MEL_ROWS ? own.last - r0 : MEL_ROWS;
        for (int64_t r = 0; r < some; r++) {
            const float *re = (const float *)in->spectra + (r0 + r) * 2 * n_fft, *im = re + n_fft;
            for (int64_t i = 0; i < bins; i++) power[r * bins + i] = re[i] * re[i] + im[i] * im[i];
        }
        float *level = y + r0 * mels;
        if (rows < 4)
            for (int64_t r = 0; r < some; r++) gemv_transposed_f32(power + r * bins, filters, 0, level + r * mels, bins, mels);
        else
            loose_product_f32(power, bins, filters, bins, NULL, level, mels, some, bins, mels, 1, 0, panel);
        /* NaN stays, since comparisons with it are false. */
        RLX_INDEPENDENT for (int64_t i = 0; i < some * mels; i++)
            level[i] = rlx_log_f32(level[i] < 1e-10f ? 1e-10f : level[i]) * 0.434294481903251828f;
        for (int64_t r = 0; p->floor && r < some; r++, level += mels) {
            float top = -INFINITY;
            for (int64_t j = 0; j < mels; j++) top = level[j] > top || level[j] != level[j] ? level[j] : top;
            for (int64_t j = 0; j < mels; j++)
                level[j] = ((level[j] >= top - 8.0f ? level[j] : top - 8.0f) + 4.0f) * 0.25f;
        }
    }
    return RLX_OK;
}

/* Scratch: the mel powers of every row; the powers of one row, later their gradients. */
static int kernel_log_mel_backward_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(log_mel_backward, call);
    const int64_t rows = p->rows, n_fft = p->n_fft, bins = p->bins, mels = p->mels, all = p->floor_all;
    const float *filters = in->filters;
    float *mel = out->mels, *power = out->power;
    float largest = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *re = (const float *)in->spectra + r * 2 * n_fft, *im = re + n_fft;
        for (int64_t i = 0; i < bins; i++) power[i] = re[i] * re[i] + im[i] * im[i];
        float *m = mel + r * mels;
        for (int64_t j = 0; j < mels; j++) m[j] = 0;
        add_dots_f32(filters, bins, mels, bins, power, m);
        for (int64_t j = 0; j < mels; j++) largest = m[j] > largest ? m[j] : largest;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *re = (const float *)in->spectra + r * 2 * n_fft, *im = re + n_fft;
        const float *dy = (const float *)in->dy + r * mels, *m = mel + r * mels;
        float *dre = (float *)out->dx + r * 2 * n_fft, *dim = dre + n_fft, top = all ? largest : 0;
        for (int64_t j = 0; j < mels && !all; j++) top = m[j] > top ? m[j] : top;
        const float lowest = 1e-8f * top > 1e-10f ? 1e-8f * top : 1e-10f;
        for (int64_t i = 0; i < bins; i++) power[i] = 0;
        for (int64_t j = 0; j < mels; j++) {
            /* NaN passes on, since comparisons with it are false. The factor is 1 / (4 ln 10). */
            if (m[j] <= lowest) continue;
            const float d = dy[j] * 0.108573620475812936f / m[j], *f = filters + j * bins;
            for (int64_t i = 0; i < bins; i++) power[i] += d * f[i];
        }
        memset(dre, 0, (size_t)(2 * n_fft) * sizeof(float));
        for (int64_t i = 0; i < bins; i++) {
            dre[i] = 2 * re[i] * power[i];
            dim[i] = 2 * im[i] * power[i];
        }
    }
    return RLX_OK;
}
