// Resizing along one axis by tables of taps and weights; a thread per result. Other
// calls add the taps outside of the given range to the result.
{{ bindings(access, x="f32", indices="i32", weights="f32", y="f32") }}

{{ by_element(256, "e", "OUTER * COUNT * INNER") }}
    let row = ((e / INNER) % COUNT) * TAPS;
    let base = (e / (INNER * COUNT)) * N * INNER + e % INNER;
    if (indices[row] < 0) {
        y[e] = OUTSIDE;
        return;
    }
    var sum = {{ "y[e]" if tap_from else "0.0" }};
    for (var t = row + TAP_FROM; t < row + TAP_TO; t++) { // trips: TAP_TO - TAP_FROM
        // An entry with weight 0 is not read: it may be infinite.
        if (weights[t] != 0.0) { sum += weights[t] * x[base + u32(indices[t]) * INNER]; }
    }
    y[e] = sum;
}
