// All exchanges of the bitonic sort of long rows whose partners lie in one block of 1,024, from step
// FIRST to step LAST, in workgroup memory.
{% set less = "(b.y < a.y || (b.y == a.y && (b.x < a.x || (b.x == a.x && b.z < a.z))))" if wide else "(b.x < a.x || (b.x == a.x && b.y < a.y))" %}
{% set PAIR = "vec4<u32>" if wide else "vec2<u32>" %}
@group(0) @binding(0) var<storage, {{ access[0] }}> pairs: array<{{ PAIR }}>;

var<workgroup> held: array<{{ PAIR }}, 1024>;

{{ by_group(256) }}
    let base = g * 1024u;
    for (var i = lane; i < 1024u; i += 256u) { held[i] = pairs[base + i]; } // trips: 4
    workgroupBarrier();
    for (var size = FIRST; size <= LAST; size *= 2u) { // trips: bits(LAST / FIRST)
        for (var stride = min(size / 2u, 512u); stride > 0u; stride /= 2u) { // trips: 10
            for (var t = lane; t < 512u; t += 256u) { // trips: 2
                let i = 2u * t - (t & (stride - 1u));
                let j = i + stride;
                let a = held[i];
                let b = held[j];
                let up = (((base + i) % M) & size) == 0u;
                if ({{ less }} == up) {
                    held[i] = b;
                    held[j] = a;
                }
            }
            workgroupBarrier();
        }
    }
    for (var i = lane; i < 1024u; i += 256u) { pairs[base + i] = held[i]; } // trips: 4
}
