// (x - mean) / sqrt(var + eps) * weight + bias over rows; one workgroup per row.
{% set names = ["x"] + (["weight"] if has_weight else []) + (["bias"] if has_bias else []) + ["y"] %}
{% for name in names %}
@group(0) @binding({{ loop.index0 }}) var<storage, {{ access[loop.index0] }}> {{ name }}: array<f32>;
{% endfor %}

var<workgroup> partial: array<f32, 256>;

fn total(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    partial[lane] = value;
    for (var width = 128u; width > 0u; width >>= 1u) {
        workgroupBarrier();
        if (lane < width) { partial[lane] += partial[lane + width]; }
    }
    workgroupBarrier();
    return partial[0];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = group(wid);
    if (g >= GROUPS) { return; }
    let first = g * N;
    var acc = 0.0;
    for (var i = lane; i < N; i += 256u) { acc += x[first + i]; }
    let mean = total(lane, acc) / f32(N);
    acc = 0.0;
    for (var i = lane; i < N; i += 256u) {
        let d = x[first + i] - mean;
        acc += d * d;
    }
    let scale = 1.0 / sqrt(total(lane, acc) / f32(N) + EPS);
    for (var i = lane; i < N; i += 256u) {
        var v = (x[first + i] - mean) * scale;
{% if has_weight %}
        v = v * weight[i];
{% endif %}
{% if has_bias %}
        v = v + bias[i];
{% endif %}
        y[first + i] = v;
    }
}
