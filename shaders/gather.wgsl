// Picks entries of one axis by index; one element per invocation. An index out of range takes the
// nearest entry: a kernel can't raise.
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ type[0] }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> indices: array<i32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<{{ type[2] }}>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group(wid) * 256u + lane;
    if (i >= OUTER * COUNT * INNER) { return; }
    let inner_at = i % INNER;
    let pick = (i / INNER) % COUNT;
    let outer_at = i / INNER / COUNT;
    var at = indices[pick];
    if (at < 0) { at += i32(AXIS_SIZE); }
    at = clamp(at, 0, i32(AXIS_SIZE) - 1);
    y[i] = x[(outer_at * AXIS_SIZE + u32(at)) * INNER + inner_at];
}
