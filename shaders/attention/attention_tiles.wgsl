// softmax(q k^T * scale + mask) v for 64 queries of one head per workgroup. Keys are read in blocks of 64. Their scores
// are a tiled product, 4 x 4 scores per thread. A running maximum and sum make the softmax online (Milakov & Gimelshein
// 2018). The weights then go through workgroup memory, 16 keys at a time, and are multiplied by the values.
{% set pieces = (dv + 63) // 64 %}
{% set cut = key_to is defined %}
{% set met = key_to - key_from if cut else [sk, window + 64]|min if kind == 2 else sk %}
{% set last_call = not cut or key_to >= sk %}
{% include "lib/attention.wgsl" %}

// Queries, then weights: row r at r * 5, one vector of padding keeps rows in different banks.
var<workgroup> left: array<vec4<f32>, 320>;
// Keys, of which a thread's four stand 16 rows apart, then values.
var<workgroup> right: array<vec4<f32>, 320>;
var<workgroup> part: array<vec4<f32>, 256>;
{{ by_group(256) }}
{% include "lib/attention_order.wgsl" %}
    let tx = lane % 16u;
    let ty = lane / 16u;
    let row = row0 + ty * 4u;
    var top = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
{% for p in range(pieces) %}{% for i in range(4) %}
    var sum{{ p }}_{{ i }} = vec4<f32>(0.0);
{% endfor %}{% endfor %}
{% if cut and key_from %}
{% for i in range(4) %}
    if (row + {{ i }}u < SQ) {
        let row_state = state[states + row + {{ i }}u];
        top[{{ i }}] = row_state.x;
        // One of the lanes that share a query writes the state of all of them.
        total[{{ i }}] = select(0.0, row_state.y, tx == 0u);
        let index = y_base + (row + {{ i }}u) * {{ o_steps[2] }}u + tx * 4u;
{% for p in range(pieces) %}{% for c in range(4) %}
        if (tx * 4u + {{ 64 * p + c }}u < DV) { sum{{ p }}_{{ i }}[{{ c }}] = y[index + {{ 64 * p + c }}u]; }
{% endfor %}{% endfor %}
    }
{% endfor %}
{% endif %}
    for (var block = low; block < high; block += 64u) { // trips: {{ met }} / 64 + 1
{% for i in range(4) %}
        var s{{ i }} = vec4<f32>(0.0);
{% endfor %}
        for (var d0 = 0u; d0 < D; d0 += 16u) { // trips: D / 16
            let part_row = lane / 4u;
            let column = d0 + (lane % 4u) * 4u;
            left[part_row * 5u + lane % 4u] = load_q(q_base, row0 + part_row, {{ q_steps[2] }}u, column) * SCALE;
            right[((part_row % 4u) * 16u + part_row / 4u) * 5u + lane % 4u] =
                load_k(k_base, block + part_row, {{ k_steps[2] }}u, column);
            workgroupBarrier();
{% for part in range(4) %}
            {
{% for c in range(4) %}
                let b{{ c }} = right[({{ c * 16 }}u + tx) * 5u + {{ part }}u];
{% endfor %}
{% for i in range(4) %}
                let a{{ i }} = left[(ty * 4u + {{ i }}u) * 5u + {{ part }}u];
                s{{ i }} += vec4<f32>(dot(a{{ i }}, b0), dot(a{{ i }}, b1), dot(a{{ i }}, b2), dot(a{{ i }}, b3));
{% endfor %}
            }
{% endfor %}
            workgroupBarrier();
        }
        let key = block + tx * 4u;
{% for i in range(4) %}
        s{{ i }} = masked(s{{ i }}, row + {{ i }}u, key, mask_base);
{% endfor %}
        part[tx * 16u + ty] = vec4<f32>({% for i in range(4) %}max(max(s{{ i }}.x, s{{ i }}.y), max(s{{ i }}.z, s{{ i }}.w)){{ ", " if i < 3 }}{% endfor %});
        workgroupBarrier();
        var next = top;
        for (var t = 0u; t < 16u; t++) { next = max(next, part[t * 16u + ty]); } // trips: 16
        let rescale = exp(top - next);
        top = next;
{% for i in range(4) %}
        s{{ i }} = select(exp(s{{ i }} - next[{{ i }}]), vec4<f32>(0.0), s{{ i }} == vec4<f32>(LOWEST));
{% endfor %}
        total = total * rescale + vec4<f32>({% for i in range(4) %}dot(s{{ i }}, vec4<f32>(1.0)){{ ", " if i < 3 }}{% endfor %});
{% for p in range(pieces) %}{% for i in range(4) %}
        sum{{ p }}_{{ i }} *= rescale[{{ i }}];
{% endfor %}{% endfor %}
        for (var quarter = 0u; quarter < 4u; quarter++) { // trips: 4
            // Lanes of these 16 keys hand out their weights.
            if (tx / 4u == quarter) {
{% for i in range(4) %}
                left[(ty * 4u + {{ i }}u) * 5u + tx % 4u] = s{{ i }};
{% endfor %}
            }
{% for p in range(pieces) %}
            right[lane] = load_v(v_base, block + quarter * 16u + ty, {{ v_steps[2] }}u, {{ 64 * p }}u + tx * 4u);
            workgroupBarrier();
{% for part in range(4) %}
            {
{% for j in range(4) %}
                let b{{ j }} = right[{{ (part * 4 + j) * 16 }}u + tx];
{% endfor %}
{% for i in range(4) %}
                let a{{ i }} = left[(ty * 4u + {{ i }}u) * 5u + {{ part }}u];
                sum{{ p }}_{{ i }} += a{{ i }}.x * b0 + a{{ i }}.y * b1 + a{{ i }}.z * b2 + a{{ i }}.w * b3;
{% endfor %}
            }
{% endfor %}
            workgroupBarrier();
{% endfor %}
        }
    }
    part[tx * 16u + ty] = total;
    workgroupBarrier();
    var all = vec4<f32>(0.0);
    for (var t = 0u; t < 16u; t++) { all += part[t * 16u + ty]; } // trips: 16
{% for i in range(4) %}
    if (row + {{ i }}u < SQ) {
{% if last_call %}
        // A query that sees no key gives zeros; a NaN passes, since naga's comparison is false for it.
        var inverse = 0.0;
        if (!(all[{{ i }}] == 0.0)) { inverse = 1.0 / all[{{ i }}]; }
{% else %}
        let inverse = 1.0;
        if (tx == 0u) { state[states + row + {{ i }}u] = vec2<f32>(top[{{ i }}], all[{{ i }}]); }
{% endif %}
        let index = y_base + (row + {{ i }}u) * {{ o_steps[2] }}u + tx * 4u;
{% for p in range(pieces) %}{% for c in range(4) %}
        if (tx * 4u + {{ 64 * p + c }}u < DV) { y[index + {{ 64 * p + c }}u] = sum{{ p }}_{{ i }}[{{ c }}] * inverse; }
{% endfor %}{% endfor %}
    }
{% endfor %}
}
