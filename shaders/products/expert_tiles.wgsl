// Sorts rows by expert and lists tiles of up to BM rows, for grouped_tiles.wgsl. One workgroup counts the rows of each
// expert, adds up the counts and writes the table. `table` holds the rows in their new order; then, for each tile, the
// expert, the first place and the place past the last. Tiles that are not needed are empty.
{{ bindings(access, idx=type[0], table="i32") }}

var<workgroup> count: array<atomic<u32>, {{ experts }}>;
// Where an expert's rows, and its tiles, begin.
var<workgroup> first: array<u32, {{ experts + 1 }}>;
var<workgroup> first_tile: array<u32, {{ experts + 1 }}>;

{% if type[0] == two_words %}
{% include "lib/wide_index.wgsl" %}

{% endif %}
fn expert_of(row: u32) -> u32 { return u32(clamp({{ index(type[0], "idx[row]") }}, 0, {{ experts - 1 }})); }

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    for (var e = lane; e < EXPERTS; e += 256u) { atomicStore(&count[e], 0u); } // trips: EXPERTS / 256
    workgroupBarrier();
    for (var row = lane; row < M; row += 256u) { atomicAdd(&count[expert_of(row)], 1u); } // trips: M / 256
    workgroupBarrier();
    if (lane == 0u) {
        var rows = 0u;
        var tiles = 0u;
        for (var e = 0u; e < EXPERTS; e++) { // trips: EXPERTS
            first[e] = rows;
            first_tile[e] = tiles;
            let here = atomicLoad(&count[e]);
            rows += here;
            tiles += (here + {{ bm - 1 }}u) / {{ bm }}u;
        }
        first[EXPERTS] = rows;
        first_tile[EXPERTS] = tiles;
    }
    workgroupBarrier();
    for (var e = lane; e < EXPERTS; e += 256u) { atomicStore(&count[e], first[e]); } // trips: EXPERTS / 256
    for (var t = first_tile[EXPERTS] + lane; t < TILES; t += 256u) { // trips: TILES / 256
        table[M + 3u * t] = 0;
        table[M + 3u * t + 1u] = 0;
        table[M + 3u * t + 2u] = 0;
    }
    for (var e = lane; e < EXPERTS; e += 256u) { // trips: EXPERTS / 256
        for (var t = first_tile[e]; t < first_tile[e + 1u]; t++) { // trips: TILES in all
            let begin = first[e] + (t - first_tile[e]) * {{ bm }}u;
            table[M + 3u * t] = i32(e);
            table[M + 3u * t + 1u] = i32(begin);
            table[M + 3u * t + 2u] = i32(min(begin + {{ bm }}u, first[e + 1u]));
        }
    }
    workgroupBarrier();
    for (var row = lane; row < M; row += 256u) { table[atomicAdd(&count[expert_of(row)], 1u)] = i32(row); } // trips: M / 256
}
