// The first k entries of a row in order, for small k. A workgroup does one piece of a row; the first entries of the pieces
// are the candidates of the next call. In a short piece every entry counts the entries before it, which is its rank.
{% set short = piece <= 256 %}
{% set T = type[0] %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
{% set out = 1 if first else 2 %}
{% if not first %}
@group(0) @binding(1) var<storage, {{ access[1] }}> candidates: array<vec2<u32>>;
{% endif %}
{% if last %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> values: array<{{ T }}>;
@group(0) @binding({{ out + 1 }}) var<storage, {{ access[out + 1] }}> indices: array<i32>;
{% else %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> pairs: array<vec2<u32>>;
{% endif %}

var<workgroup> key: array<u32, {{ piece }}>;

{% include "lib/sort_key.wgsl" %}

{% if not short %}
{% set most = piece %}
{% include "lib/select.wgsl" %}
{% endif %}

// Writes the entry at i of the piece that begins at from0.
fn put(g: u32, row: u32, rank: u32, from0: u32, i: u32) {
    let place = {{ "from0 + i" if first else "candidates[row * COUNT + from0 + i].y" }};
{% if last %}
    values[row * K + rank] = x[row * N + place];
    indices[row * K + rank] = i32(place);
{% else %}
    pairs[g * K + rank] = vec2<u32>(key[i], place);
{% endif %}
}

{{ by_group(256) }}
    let row = g / PIECES;
    let from0 = (g % PIECES) * PIECE;
    let count = min(PIECE, COUNT - from0);
    for (var i = lane; i < count; i += 256u) { // trips: PIECE / 256
        let index = row * COUNT + from0 + i;
        key[i] = {{ "sort_key(x[index])" if first else "candidates[index].x" }};
    }
    workgroupBarrier();
{% if short %}
    if (lane < count) {
        let mine = key[lane];
        var rank = 0u;
        for (var j = 0u; j < count; j++) { rank += u32(comes_before(key[j], j, mine, lane)); } // trips: min(PIECE, 256)
        if (rank < K) { put(g, row, rank, from0, lane); }
    }
{% else %}
    let filled = select_firsts(count, lane);
    if (lane < filled) { put(g, row, rank_of(lane, filled), from0, list_at[lane]); }
{% endif %}
{% if not last %}
    // A last piece of fewer entries fills its list with entries that come after all others.
    for (var i = count + lane; i < K; i += 256u) { pairs[g * K + i] = vec2<u32>(0xffffffffu, 0u); } // trips: K / 256
{% endif %}
}
