// The boxes of each row of sorted scores that are kept; one workgroup per row. A lane looks after every 256th box: whether
// it is dropped, and which of its own is the next one that is not.
@group(0) @binding(0) var<storage, {{ access[0] }}> boxes: array<f32>;
@group(0) @binding(1) var<storage, {{ access[1] }}> scores: array<f32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> places: array<i32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> limit: array<vec2<u32>>;
@group(0) @binding(4) var<storage, {{ access[4] }}> overlap: array<f32>;
@group(0) @binding(5) var<storage, {{ access[5] }}> least: array<f32>;
@group(0) @binding(6) var<storage, {{ access[6] }}> kept: array<i32>;
@group(0) @binding(7) var<storage, {{ access[7] }}> dropped: array<i32>;

var<workgroup> first: atomic<u32>;
var<workgroup> chosen: u32;

// The low corner and the high one.
fn corners(place: u32) -> vec4<f32> {
    let box = vec4<f32>(boxes[place * 4u], boxes[place * 4u + 1u], boxes[place * 4u + 2u], boxes[place * 4u + 3u]);
{% if centred %}
    let half = box.zw * 0.5;
    let low = box.xy - half;
    let high = box.xy + half;
{% else %}
    let low = box.xy;
    let high = box.zw;
{% endif %}
    return vec4<f32>(min(low, high), max(low, high));
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
    for (var j = lane; j < N; j += 256u) { dropped[base + j] = 0; } // trips: N / 256 + 1
    var own = lane;
    var count = 0u;
    for (var k = 0u; k < MOST; k++) { // trips: MOST
        if (lane == 0u) { atomicStore(&first, N); }
        workgroupBarrier();
        while (own < N && dropped[base + own] != 0) { own += 256u; } // trips: N / 256 + 1
        if (own < N && scores[base + own] > least[0]) { atomicMin(&first, own); }
        workgroupBarrier();
        if (lane == 0u) { chosen = select(N, atomicLoad(&first), k < wanted); }
        let best = workgroupUniformLoad(&chosen);
        if (best >= N) { break; }
        let place = places[base + best];
        let box = corners(image + u32(place));
        if (lane == 0u) { kept[row * MOST + k] = place; }
        count = k + 1u;
        for (var j = own; j < N; j += 256u) { // trips: N / 256 + 1
            if (j == best || (dropped[base + j] == 0 && covers(box, corners(image + u32(places[base + j])), most))) {
                dropped[base + j] = 1;
            }
        }
    }
    for (var k = count + lane; k < MOST; k += 256u) { kept[row * MOST + k] = -1; } // trips: MOST / 256 + 1
}
