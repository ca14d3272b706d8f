// Joins the scores of the leaves of all trees for one row and target; one workgroup per result. For the least and the
// largest, a leaf without a score has the bits of NaN.
{{ bindings(access, leaves="i32", held="u32", y="f32") }}

var<workgroup> part: array<f32, 64>;
var<workgroup> given: array<u32, 64>;

// Joins a number with those of a lane, unless there is none.
fn next(lane: u32, value: f32, present: bool) {
    if (!present) { return; }
    let before = part[lane];
{% if join == "sum" %}
    part[lane] = before + value;
{% else %}
    part[lane] = select(value, {{ join }}(before, value), given[lane] == 1u);
{% endif %}
    given[lane] = 1u;
}

{{ by_group(64) }}
    let row = g / COUNT * TREES;
    part[lane] = 0.0;
    given[lane] = 0u;
    for (var tree = lane; tree < TREES; tree += 64u) { // trips: TREES / 64
        let bits = held[u32(leaves[row + tree]) * COUNT + g % COUNT];
        next(lane, bitcast<f32>(bits), {{ "true" if join == "sum" else "(bits & 0x7fffffffu) <= 0x7f800000u" }});
    }
    for (var half = 32u; half > 0u; half /= 2u) { // trips: 6
        workgroupBarrier();
        if (lane < half) { next(lane, part[lane + half], given[lane + half] == 1u); }
    }
    if (lane == 0u) { y[g] = part[0]; }
}
