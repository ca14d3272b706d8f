// Welch's averaged power of one bin. Without weights it is one-sided: inner bins count twice.
fn welch(signal: u32, bin: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < SEGMENTS; s++) { // trips: SEGMENTS
        let index = (signal * SEGMENTS + s) * {{ 2 * n_fft }}u + bin;
        let re = spec[index];
        let im = spec[index + N_FFT];
        sum += re * re + im * im;
    }
{% if apart %}
    let weight = weights[bin];
{% else %}
    let weight = select(2.0, 1.0, bin == 0u || bin + 1u == BINS);
{% endif %}
    return weight * sum / f32(SEGMENTS);
}
