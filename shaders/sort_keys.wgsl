// Keys and positions of rows that are too long for workgroup memory, padded to a power of two.
{% set T = type[0] %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> pairs: array<vec2<u32>>;

{% include "lib/sort_key.wgsl" %}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = (wid.x + wid.y * FOLD) * 256u + lane;
    if (t >= ROWS * M) { return; }
    let i = t % M;
    var key = 0xffffffffu;
    if (i < N) { key = sort_key(x[(t / M) * N + i]); }
    pairs[t] = vec2<u32>(key, i);
}
