// The leaf that a row comes to in a tree; a thread for each row and tree. A node is the bits of its split, its feature
// (-1 for a leaf), the first of the two nodes that follow (or the leaf's number) and its question: 0 at most the split,
// 1 below it, 2 equal to it, and 4 more where NaN answers yes.
{{ bindings(access, x="f32", nodes="vec4<i32>", roots="i32", leaves="i32") }}

{% include "lib/nan.wgsl" %}

{{ by_group(64) }}
    let own = g * 64u + lane;
    if (own >= ROWS * TREES) { return; }
    let row = own / TREES * FEATURES;
    var node = nodes[roots[own % TREES]];
    for (var step = 0u; step < DEPTH; step++) { // trips: DEPTH
        if (node.y < 0) { break; }
        let value = x[row + u32(node.y)];
        let split = bitcast<f32>(node.x);
        let asked = node.w & 3;
        var yes = select(select(value == split, value < split, asked == 1), value <= split, asked == 0);
        // By bits: a driver may assume that there is no NaN.
        if (is_nan_s(value) || is_nan_s(split)) { yes = is_nan_s(value) && node.w >= 4; }
        node = nodes[node.z + select(1, 0, yes)];
    }
    leaves[own] = node.z;
}
