// The boxes of each row of sorted scores that are kept; one workgroup per row. It goes through the row in blocks of 256: boxes
// that an earlier one covers are dropped, then those that a kept one of the block covers. A call does some blocks, and keeps
// in `progress` how many boxes are kept and how many blocks are done; calls behind the last block do nothing.
{{ bindings(access, boxes="f32", scores="f32", places="i32", limit="vec2<u32>", overlap="f32", least="f32",
            kept="i32", progress="vec2<u32>") }}

var<workgroup> corner: array<vec4<f32>, 256>;
// By word, then by box: a bit for each earlier box of the block that covers it.
var<workgroup> covered: array<u32, 2048>;
var<workgroup> open: array<u32, 256>;
var<workgroup> taken: array<u32, 8>;
// How many boxes are kept, how many blocks are done, and whether there is another one.
var<workgroup> state: vec3<u32>;

// The low corner and the high one. A box of a negative size around a centre stays inside out: it covers none.
fn corners(place: u32) -> vec4<f32> {
    let box = vec4<f32>(boxes[place * 4u], boxes[place * 4u + 1u], boxes[place * 4u + 2u], boxes[place * 4u + 3u]);
{% if centred %}
    let half = box.zw * 0.5;
    return vec4<f32>(box.xy - half, box.xy + half);
{% else %}
    return vec4<f32>(min(box.xy, box.zw), max(box.xy, box.zw));
{% endif %}
}

fn covers(a: vec4<f32>, b: vec4<f32>, most: f32) -> bool {
    let both = max(min(a.zw, b.zw) - max(a.xy, b.xy), vec2<f32>(0.0));
    let sides = a.zw - a.xy;
    let others = b.zw - b.xy;
    let shared_area = both.x * both.y;
    let whole = sides.x * sides.y + others.x * others.y - shared_area;
    return whole > 0.0 && shared_area / whole > most;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wid.x + wid.y * FOLD;
    if (row >= ROWS) { return; }
    let base = row * N;
    let image = row / CLASSES * N;
    let most = max(overlap[0], 0.0);
    let asked = select(limit[0].x, MOST, limit[0].y != 0u);
    let wanted = select(min(asked, MOST), 0u, (limit[0].y >> 31u) != 0u);
{% if first %}
    for (var k = lane; k < MOST; k += 256u) { kept[row * MOST + k] = -1; } // trips: MOST / 256 + 1
    storageBarrier();
{% endif %}
    if (lane == 0u) { state = vec3<u32>({{ "0u, 0u" if first else "progress[row]" }}, 0u); }
    for (var step = 0u; step < BLOCKS; step++) { // trips: BLOCKS
        if (lane == 0u) {
            let next = state.y * 256u;
            state.z = 0u;
            if (state.x < wanted && next < N) { state.z = u32(scores[base + next] > least[0]); }
        }
        let now = workgroupUniformLoad(&state);
        if (now.z == 0u) { break; }
        let begin = now.y * 256u;
        let own = min(begin + lane, N - 1u);
        let box = corners(image + u32(places[base + own]));
        var alive = begin + lane < N && scores[base + own] > least[0];
        corner[lane] = box;
        if (lane < 8u) { taken[lane] = 0u; }
        for (var k = 0u; k < now.x; k += 8u) { // trips: MOST_KEPT / 8 + 1
{% for c in range(8) %}
            alive = alive && !covers(corners(image + u32(kept[row * MOST + min(k + {{ c }}u, now.x - 1u)])), box, most);
{% endfor %}
        }
        open[lane] = u32(alive);
        workgroupBarrier();
        for (var word = 0u; word < 8u; word++) { // trips: 8
            var bits = 0u;
            let end = min(32u, max(lane, word * 32u) - word * 32u);
            for (var i = 0u; alive && i < end; i++) { // trips: 32
                bits |= u32(open[word * 32u + i] != 0u && covers(corner[word * 32u + i], box, most)) << i;
            }
            covered[word * 256u + lane] = bits;
        }
        workgroupBarrier();
        if (lane == 0u) {
            var count = now.x;
            for (var i = 0u; i < 256u; i++) { // trips: 256
                let hit = {% for w in range(8) %}(covered[{{ w * 256 }}u + i] & taken[{{ w }}]){{ " | " if not loop.last }}{% endfor %};
                if (open[i] != 0u && hit == 0u && count < wanted) {
                    taken[i / 32u] |= 1u << (i % 32u);
                    kept[row * MOST + count] = places[base + begin + i];
                    count++;
                }
            }
            state = vec3<u32>(count, now.y + 1u, 0u);
        }
        storageBarrier();
    }
    if (lane == 0u) { progress[row] = state.xy; }
}
