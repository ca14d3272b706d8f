// The first k entries of a row in order: a bitonic sort in workgroup memory, one workgroup per row.
{% set T = type[0] %}
{{ bindings(access, x=T, values=T, indices="i32") }}

{% set last = "vec2<u32>(0xffffffffu)" if T == two_words else "0xffffffffu" %}
var<workgroup> key: array<{{ "vec2<u32>" if T == two_words else "u32" }}, {{ m }}>;
var<workgroup> place: array<u32, {{ m }}>;

{% include "lib/sort_key.wgsl" %}

{{ by_group(128, "row") }}
    for (var i = lane; i < M; i += 128u) { // trips: M / 128
        key[i] = {{ last }};
        place[i] = i;
        if (i < N) { key[i] = sort_key(x[row * N + i]); }
    }
    workgroupBarrier();
    for (var size = 2u; size <= M; size *= 2u) { // trips: bits(M)
        for (var stride = size / 2u; stride > 0u; stride /= 2u) { // trips: bits(M)
            for (var t = lane; t < M / 2u; t += 128u) { // trips: M / 256
                let i = 2u * t - (t & (stride - 1u));
                let j = i + stride;
                let up = (i & size) == 0u;
                if (comes_before(key[j], place[j], key[i], place[i]) == up) {
                    let k = key[i];
                    let p = place[i];
                    key[i] = key[j];
                    place[i] = place[j];
                    key[j] = k;
                    place[j] = p;
                }
            }
            workgroupBarrier();
        }
    }
    for (var i = lane; i < K; i += 128u) { // trips: K / 128
        values[row * K + i] = x[row * N + place[i]];
        indices[row * K + i] = i32(place[i]);
    }
}
