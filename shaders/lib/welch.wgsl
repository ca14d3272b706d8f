// Power of a bin: the mean over the segments, doubled but for the first and the last.
fn power_of(signal: u32, bin: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < SEGMENTS; s++) {
        let at = (signal * SEGMENTS + s) * 2u * N_FFT + bin;
        sum += x[at] * x[at] + x[at + N_FFT] * x[at + N_FFT];
    }
    let weight = select(2.0, 1.0, bin == 0u || bin == BINS - 1u);
    return sum * weight / f32(SEGMENTS);
}
