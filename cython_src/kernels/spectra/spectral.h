/* Welch's strongest bins, log-mel features and their gradient. f32 only. */

/* Keys that order by power, larger first, then by the lower bin. NaN orders last. */
static inline uint64_t peak_key(float power, int64_t bin)
{
    /* -0 is 0; the bits of negative numbers run the other way. */
    const uint32_t raw = (uint32_t)as_bits(power + 0.0f);
    const uint32_t bits = power != power ? 0 : raw >> 31 ? ~raw : raw | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~(uint32_t)bin;
}

/* A min-heap of the k best: the worst of them stands at 0. */
static void sift_down(uint64_t *heap, int64_t k, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= k) return;
        if (child + 1 < k && heap[child + 1] < heap[child]) child++;
        if (heap[at] <= heap[child]) return;
        const uint64_t t = heap[at];
        heap[at] = heap[child], heap[child] = t;
        at = child;
    }
}

/* Parameters: signals, segments, n_fft (the distance from real to imaginary parts), bins, k, whether
   the results are values and positions apart, of powers times in[1]. Scratch: powers, then keys on 8
   bytes. */
static int kernel_welch_peaks_f32(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t signals = p[0].i, segments = p[1].i, n_fft = p[2].i, bins = p[3].i, k = p[4].i;
    const int64_t apart = p[5].i;
    const float *weights = apart ? call->in[1] : NULL;
    uint64_t *heap = call->out[1 + apart];
    float *power = (float *)(heap + bins);
    for (int64_t s = 0; s < signals; s++) {
        const float *spec = (const float *)call->in[0] + s * segments * 2 * n_fft;
        float *y = (float *)call->out[0] + (apart ? 1 : 2) * s * k;
        int32_t *places = apart ? (int32_t *)call->out[1] + s * k : NULL;
        for (int64_t i = 0; i < bins; i++) power[i] = 0;
        for (int64_t g = 0; g < segments; g++) {
            const float *re = spec + g * 2 * n_fft, *im = re + n_fft;
            for (int64_t i = 0; i < bins; i++) power[i] += re[i] * re[i] + im[i] * im[i];
        }
        const float mean = 1.0f / (float)segments;
        if (apart)
            for (int64_t i = 0; i < bins; i++) power[i] *= mean * weights[i];
        else
            for (int64_t i = 0; i < bins; i++) power[i] *= i == 0 || i == bins - 1 ? mean : 2 * mean;
        for (int64_t i = 0; i < k; i++) heap[i] = peak_key(power[i], i);
        for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(heap, k, i);
        for (int64_t i = k; i < bins; i++) {
            const uint64_t key = peak_key(power[i], i);
            if (key > heap[0]) heap[0] = key, sift_down(heap, k, 0);
        }
        for (int64_t left = k; left > 0; left--) {
            const int64_t bin = (int64_t)(uint32_t)~(uint32_t)heap[0];
            if (apart)
                places[left - 1] = (int32_t)bin, y[left - 1] = power[bin];
            else
                y[2 * left - 2] = (float)bin, y[2 * left - 1] = power[bin];
            heap[0] = heap[left - 1];
            sift_down(heap, left - 1, 0);
        }
    }
    return RLX_OK;
}

/* Parameters: rows, n_fft (the distance from real to imaginary parts), bins, mels, floor over
   everything. Scratch: powers of some rows, then a panel. */
#define MEL_ROWS 128
static int kernel_log_mel_f32(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t rows = p[0].i, n_fft = p[1].i, bins = p[2].i, mels = p[3].i, all = p[4].i;
    const float *filters = call->in[1];
    float *power = call->out[1], *panel = power + MEL_ROWS * bins, *y = call->out[0];
    float top = -INFINITY;
    for (int64_t r0 = 0; r0 < rows; r0 += MEL_ROWS) {
        const int64_t some = rows - r0 < MEL_ROWS ? rows - r0 : MEL_ROWS;
        for (int64_t r = 0; r < some; r++) {
            const float *re = (const float *)call->in[0] + (r0 + r) * 2 * n_fft, *im = re + n_fft;
            for (int64_t i = 0; i < bins; i++) power[r * bins + i] = re[i] * re[i] + im[i] * im[i];
        }
        float *level = y + r0 * mels;
        if (some < 4)
            for (int64_t r = 0; r < some; r++) gemv_turned_f32(power + r * bins, filters, level + r * mels, bins, mels);
        else
            loose_product_f32(power, bins, filters, bins, NULL, level, mels, some, bins, mels, 1, 0, panel);
        /* NaN stays: a comparison with it is false. */
        _Pragma("GCC ivdep") for (int64_t i = 0; i < some * mels; i++)
            level[i] = rlx_log_f32(level[i] < 1e-10f ? 1e-10f : level[i]) * 0.434294481903251828f;
        for (int64_t r = 0; r < some; r++, level += mels) {
            if (!all) top = -INFINITY;
            for (int64_t j = 0; j < mels; j++) top = level[j] > top || level[j] != level[j] ? level[j] : top;
            for (int64_t j = 0; !all && j < mels; j++)
                level[j] = ((level[j] >= top - 8.0f ? level[j] : top - 8.0f) + 4.0f) * 0.25f;
        }
    }
    if (all)
        for (int64_t i = 0; i < rows * mels; i++) {
            const float floor = top - 8.0f;
            y[i] = ((y[i] >= floor ? y[i] : floor) + 4.0f) * 0.25f;
        }
    return RLX_OK;
}

/* Parameters: rows, n_fft, bins, mels, floor over everything. Inputs: spec, filters, dy. Scratch:
   the mels of every row, then the powers of one and later their gradients. */
static int kernel_log_mel_backward_f32(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t rows = p[0].i, n_fft = p[1].i, bins = p[2].i, mels = p[3].i, all = p[4].i;
    const float *filters = call->in[1];
    float *mel = call->out[1], *power = mel + rows * mels;
    float most = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *re = (const float *)call->in[0] + r * 2 * n_fft, *im = re + n_fft;
        for (int64_t i = 0; i < bins; i++) power[i] = re[i] * re[i] + im[i] * im[i];
        float *m = mel + r * mels;
        for (int64_t j = 0; j < mels; j++) m[j] = 0;
        add_dots_f32(filters, bins, mels, bins, power, m);
        for (int64_t j = 0; j < mels; j++) most = m[j] > most ? m[j] : most;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *re = (const float *)call->in[0] + r * 2 * n_fft, *im = re + n_fft;
        const float *dy = (const float *)call->in[2] + r * mels, *m = mel + r * mels;
        float *dre = (float *)call->out[0] + r * 2 * n_fft, *dim = dre + n_fft, top = all ? most : 0;
        for (int64_t j = 0; j < mels && !all; j++) top = m[j] > top ? m[j] : top;
        const float lowest = 1e-8f * top > 1e-10f ? 1e-8f * top : 1e-10f;
        for (int64_t i = 0; i < bins; i++) power[i] = 0;
        for (int64_t j = 0; j < mels; j++) {
            /* NaN passes on: a comparison with it is false. 1 / (4 ln 10). */
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
