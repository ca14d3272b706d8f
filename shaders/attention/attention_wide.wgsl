// softmax(q k^T * scale + mask) v for some queries of one head per workgroup, whose threads are in rows of 8. Keys are
// read in blocks of 64. A thread makes the scores of four or eight queries with eight keys, so that it uses each value
// that it reads from workgroup memory several times. A running maximum and sum make the softmax online (Milakov &
// Gimelshein 2018). The weights then go through workgroup memory, 16 keys at a time, and are multiplied by the values.
{% set lines = threads // 8 %}
{% set strips = queries // (4 * lines) %}
{% set across = threads // 4 %}
{% set brings = 16 * 8 * ((dv + 31) // 32) // threads %}
{% set pieces = (dv + 31) // 32 %}
{% set rows = queries // 4 %}
{% set cut = key_to is defined %}
{% set met = key_to - key_from if cut else [sk, window + queries]|min if kind == 2 else sk %}
{% set last_call = not cut or key_to >= sk %}
{% set wide = 8 * pieces %}
{% include "lib/attention.wgsl" %}

// 16 columns of queries, then the weights of 16 keys: queries by fours.
var<workgroup> left: array<vec4<f32>, {{ 16 * rows }}>;
// 16 columns of keys, keys by fours; then 16 values, columns by fours.
var<workgroup> right: array<vec4<f32>, {{ 16 * [16, wide]|max }}>;
var<workgroup> part: array<vec4<f32>, {{ 8 * rows }}>;

{% set skips = kind <= 2 and softcap == 0.0 %}
{% if skips %}
// Whether all of some queries see all of 64 keys, so that their scores stay as they are.
fn all_seen(key0: u32, row0: u32, rows: u32) -> bool {
    var all = key0 + 64u <= SK;
{% if kind in (1, 2) %}
    all = all & (i32(key0 + 63u) <= i32(row0) + i32(SK) - i32(SQ));
{% endif %}
{% if kind == 2 %}
    all = all & (i32(key0) >= i32(row0 + rows - 1u) + i32(SK) - i32(SQ) - i32(WINDOW));
{% endif %}
    return all;
}
{% endif %}

fn largest(x: vec4<f32>) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }

fn store(index: u32, column: u32, x: vec4<f32>) {
    if (column < DV) { y[index] = x.x; }
    if (column + 1u < DV) { y[index + 1u] = x.y; }
    if (column + 2u < DV) { y[index + 2u] = x.z; }
    if (column + 3u < DV) { y[index + 3u] = x.w; }
}

{# Four columns of row `r` go to four lines of a tile. #}
{% macro spread(tile, value, width) %}
            {
                let v = {{ value }};
                let index = quad * {{ 4 * width }}u + r / 4u;
{% for c in range(4) %}
                {{ tile }}[index + {{ c * width }}u][r % 4u] = v.{{ "xyzw"[c] }};
{% endfor %}
            }
{% endmacro %}
{{ by_group(threads) }}
{% include "lib/attention_order.wgsl" %}
    let tx = lane % 8u;
    let ty = lane / 8u;
    let quad = lane % 4u;
{% for i in range(strips) %}
    let mine{{ i }} = row0 + (ty + {{ lines * i }}u) * 4u;
    var top{{ i }} = vec4<f32>(LOWEST);
    var total{{ i }} = vec4<f32>(0.0);
{% for r in range(4) %}{% for p in range(pieces) %}
    var sum{{ i }}_{{ r }}_{{ p }} = vec4<f32>(0.0);
{% endfor %}{% endfor %}
{% if cut and key_from %}
{% for r in range(4) %}
    if (mine{{ i }} + {{ r }}u < SQ) {
        let row_state = state[states + mine{{ i }} + {{ r }}u];
        top{{ i }}[{{ r }}] = row_state.x;
        // One of the lanes that share a query writes the state of all of them.
        total{{ i }}[{{ r }}] = select(0.0, row_state.y, tx == 0u);
        let index = y_base + (mine{{ i }} + {{ r }}u) * {{ o_steps[2] }}u + tx * 4u;
{% for p in range(pieces) %}{% for c in range(4) %}
        if (tx * 4u + {{ 32 * p + c }}u < DV) { sum{{ i }}_{{ r }}_{{ p }}[{{ c }}] = y[index + {{ 32 * p + c }}u]; }
{% endfor %}{% endfor %}
    }
{% endfor %}
{% endif %}
{% endfor %}
    for (var block = low; block < high; block += 64u) { // trips: {{ met }} / 64 + 1
{% for i in range(strips) %}{% for r in range(4) %}{% for j in range(2) %}
        var s{{ i }}_{{ r }}_{{ j }} = vec4<f32>(0.0);
{% endfor %}{% endfor %}{% endfor %}
        for (var d0 = 0u; d0 < D; d0 += 16u) { // trips: D / 16
            let column = d0 + quad * 4u;
{% for n in range(queries // across) %}
            let q{{ n }} = load_q(q_base, row0 + lane / 4u + {{ across * n }}u, {{ q_steps[2] }}u, column) * SCALE;
{% endfor %}
{% for n in range(64 // across) %}
            let k{{ n }} = load_k(k_base, block + lane / 4u + {{ across * n }}u, {{ k_steps[2] }}u, column);
{% endfor %}
            workgroupBarrier();
{% for n in range(queries // across) %}
            {
                let r = lane / 4u + {{ across * n }}u;
{{ spread("left", "q" ~ n, rows) }}            }
{% endfor %}
{% for n in range(64 // across) %}
            {
                let r = lane / 4u + {{ across * n }}u;
{{ spread("right", "k" ~ n, 16) }}            }
{% endfor %}
            workgroupBarrier();
{% for c in range(16) %}
            {
{% for i in range(strips) %}
                let a{{ i }} = left[{{ c * rows + lines * i }}u + ty];
{% endfor %}
{% for j in range(2) %}
                let b{{ j }} = right[{{ c * 16 + 8 * j }}u + tx];
{% endfor %}
{% for i in range(strips) %}{% for r in range(4) %}{% for j in range(2) %}
                s{{ i }}_{{ r }}_{{ j }} += a{{ i }}.{{ "xyzw"[r] }} * b{{ j }};
{% endfor %}{% endfor %}{% endfor %}
            }
{% endfor %}
        }
{% if skips %}
        if (!all_seen(block, row0, {{ queries }}u)) {
{% else %}
        {
{% endif %}
{% for i in range(strips) %}{% for r in range(4) %}{% for j in range(2) %}
            s{{ i }}_{{ r }}_{{ j }} = masked(s{{ i }}_{{ r }}_{{ j }}, mine{{ i }} + {{ r }}u, block + (tx + {{ 8 * j }}u) * 4u, mask_base);
{% endfor %}{% endfor %}{% endfor %}
        }
{% for i in range(strips) %}
        part[tx * {{ rows }}u + ty + {{ lines * i }}u] = vec4<f32>({% for r in range(4) %}largest(max(s{{ i }}_{{ r }}_0, s{{ i }}_{{ r }}_1)){{ ", " if r < 3 }}{% endfor %});
{% endfor %}
        workgroupBarrier();
{% for i in range(strips) %}
        {
            var next = top{{ i }};
{% for t in range(8) %}
            next = max(next, part[{{ t * rows + lines * i }}u + ty]);
{% endfor %}
            let rescale = exp(top{{ i }} - next);
            top{{ i }} = next;
{% for r in range(4) %}{% for j in range(2) %}
            s{{ i }}_{{ r }}_{{ j }} = select(exp(s{{ i }}_{{ r }}_{{ j }} - next[{{ r }}]), vec4<f32>(0.0), s{{ i }}_{{ r }}_{{ j }} == vec4<f32>(LOWEST));
{% endfor %}{% endfor %}
            total{{ i }} = total{{ i }} * rescale + vec4<f32>({% for r in range(4) %}dot(s{{ i }}_{{ r }}_0 + s{{ i }}_{{ r }}_1, vec4<f32>(1.0)){{ ", " if r < 3 }}{% endfor %});
{% for r in range(4) %}{% for p in range(pieces) %}
            sum{{ i }}_{{ r }}_{{ p }} *= rescale[{{ r }}];
{% endfor %}{% endfor %}
        }
{% endfor %}
        for (var quarter = 0u; quarter < 4u; quarter++) { // trips: 4
{% for n in range(brings) %}
            let v{{ n }} = load_v(v_base, block + quarter * 16u + (lane + {{ threads * n }}u) / {{ wide }}u, {{ v_steps[2] }}u, ((lane + {{ threads * n }}u) % {{ wide }}u) * 4u);
{% endfor %}
            workgroupBarrier();
            // Lanes of these 16 keys hand out their weights.
            if (tx / 4u == quarter % 2u) {
{% for j in range(2) %}
                if (quarter / 2u == {{ j }}u) {
{% for i in range(strips) %}{% for c in range(4) %}
                    left[((tx % 4u) * 4u + {{ c }}u) * {{ rows }}u + ty + {{ lines * i }}u] = vec4<f32>({% for r in range(4) %}s{{ i }}_{{ r }}_{{ j }}.{{ "xyzw"[c] }}{{ ", " if r < 3 }}{% endfor %});
{% endfor %}{% endfor %}
                }
{% endfor %}
            }
{% for n in range(brings) %}
            right[lane + {{ threads * n }}u] = v{{ n }};
{% endfor %}
            workgroupBarrier();
{% for c in range(16) %}
            {
{% for i in range(strips) %}
                let a{{ i }} = left[{{ c * rows + lines * i }}u + ty];
{% endfor %}
{% for p in range(pieces) %}
                let b{{ p }} = right[{{ c * wide + 8 * p }}u + tx];
{% endfor %}
{% for i in range(strips) %}{% for r in range(4) %}{% for p in range(pieces) %}
                sum{{ i }}_{{ r }}_{{ p }} += a{{ i }}.{{ "xyzw"[r] }} * b{{ p }};
{% endfor %}{% endfor %}{% endfor %}
            }
{% endfor %}
        }
    }
    workgroupBarrier();
{% for i in range(strips) %}
    part[tx * {{ rows }}u + ty + {{ lines * i }}u] = total{{ i }};
{% endfor %}
    workgroupBarrier();
{% for i in range(strips) %}
    {
        var all = vec4<f32>(0.0);
{% for t in range(8) %}
        all += part[{{ t * rows + lines * i }}u + ty];
{% endfor %}
{% for r in range(4) %}
        if (mine{{ i }} + {{ r }}u < SQ) {
{% if last_call %}
            // A query that sees no key gives zeros; a NaN passes, since naga's comparison is false for it.
            var inverse = 0.0;
            if (!(all[{{ r }}] == 0.0)) { inverse = 1.0 / all[{{ r }}]; }
{% else %}
            let inverse = 1.0;
            if (tx == 0u) { state[states + mine{{ i }} + {{ r }}u] = vec2<f32>(top{{ i }}[{{ r }}], all[{{ r }}]); }
{% endif %}
            let index = y_base + (mine{{ i }} + {{ r }}u) * {{ o_steps[2] }}u + tx * 4u;
{% for p in range(pieces) %}
            store(index + {{ 32 * p }}u, tx * 4u + {{ 32 * p }}u, sum{{ i }}_{{ r }}_{{ p }} * inverse);
{% endfor %}
        }
{% endfor %}
    }
{% endfor %}
}
