// Resizing along one axis by tables of taps and weights; a thread per result. Taps outside the given
// range belong to other calls, which add to the result.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> indices: array<i32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> weights: array<f32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    if (e >= OUTER * COUNT * INNER) { return; }
    let row = ((e / INNER) % COUNT) * TAPS;
    let base = (e / (INNER * COUNT)) * N * INNER + e % INNER;
    if (indices[row] < 0) {
        y[e] = OUTSIDE;
        return;
    }
    var sum = {{ "y[e]" if tap_from else "0.0" }};
    for (var t = row + TAP_FROM; t < row + TAP_TO; t++) { // trips: TAP_TO - TAP_FROM
        // A tap of weight 0 is not looked at: it may be infinite.
        if (weights[t] != 0.0) { sum += weights[t] * x[base + u32(indices[t]) * INNER]; }
    }
    y[e] = sum;
}
