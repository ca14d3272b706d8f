// Gradient of the log-mel spectrogram, one frame per workgroup and a bin per lane: the gradients of
// 256 mels at a time stand in workgroup memory. top holds the largest mel of the frame, or of all.
{{ bindings(access, spec="f32", filters="f32", dy="f32", mels="f32", top="f32", dx="f32") }}

var<workgroup> part: array<f32, 256>;

{{ by_group(256) }}
    let lowest = max(1e-8 * top[{{ "0" if floor_all else "g" }}], 1e-10);
    for (var bin0 = 0u; bin0 < N_FFT; bin0 += 256u) { // trips: N_FFT / 256
        let bin = bin0 + lane;
        var sum = 0.0;
        // Bins above half the sample rate have no part in the mels.
        for (var mel0 = 0u; mel0 < MELS && bin0 < BINS; mel0 += 256u) { // trips: MELS / 256
            let count = min(256u, MELS - mel0);
            if (lane < count) {
                let index = g * MELS + mel0 + lane;
                let m = mels[index];
                part[lane] = select(dy[index] * 0.10857362047581294 / m, 0.0, m <= lowest);
            }
            workgroupBarrier();
            if (bin < BINS) {
                for (var i = 0u; i < count; i++) { sum += part[i] * filters[(mel0 + i) * BINS + bin]; } // trips: min(256, MELS)
            }
            workgroupBarrier();
        }
        if (bin < N_FFT) {
            let index = g * {{ 2 * n_fft }}u + bin;
            dx[index] = 2.0 * spec[index] * sum;
            dx[index + N_FFT] = 2.0 * spec[index + N_FFT] * sum;
        }
    }
}
