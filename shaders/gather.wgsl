// Picks entries of one axis by index; negative ones count from the end, others are clamped.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ type[0] }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> indices: array<{{ type[1] }}>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<{{ type[0] }}>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    if (e >= OUTER * COUNT * INNER) { return; }
    let inner = e % INNER;
    let rest = e / INNER;
    var index = i32(indices[rest % COUNT]);
    if (index < 0) { index += i32(AXIS_SIZE); }
    let pick = u32(clamp(index, 0, i32(AXIS_SIZE) - 1));
    y[e] = x[((rest / COUNT) * AXIS_SIZE + pick) * INNER + inner];
}
