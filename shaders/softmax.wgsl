// exp(x - max) / sum along the middle axis of [outer, n, inner]; one workgroup per row.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> y: array<f32>;

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let first = g / INNER * N * INNER + g % INNER;
    var top = x[first];
    for (var i = lane; i < N; i += 256u) { top = max(top, x[first + i * INNER]); }
    partial[lane] = top;
    for (var width = 128u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) { partial[lane] = max(partial[lane], partial[lane + width]); }
    }
    workgroupBarrier();
    top = partial[0];
    workgroupBarrier();
    var sum = 0.0;
    for (var i = lane; i < N; i += 256u) {
        let e = exp(x[first + i * INNER] - top);
        y[first + i * INNER] = e;
        sum += e;
    }
    partial[lane] = sum;
    for (var width = 128u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) { partial[lane] += partial[lane + width]; }
    }
    workgroupBarrier();
    let scale = 1.0 / partial[0];
    for (var i = lane; i < N; i += 256u) { y[first + i * INNER] *= scale; }
}
