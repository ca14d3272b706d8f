// Attention of few queries. A workgroup takes {{ keys }} keys of one key-value head and up to {{ rows }} rows: the
// queries of all heads that share it. It reads keys and values once, as whole cache lines. It writes the largest score
// of each row, the sum of its weights and the weighted values; attention_join adds those of all workgroups. With few
// keys a workgroup takes all of them, in several trips, and writes the results.
{% import "lib/attention_reads.wgsl" as reads with context %}
{% set has_mask = kind >= 3 %}
{% set out = 4 if has_mask else 3 %}
{% set joined = access|length > out + 1 %}
{% set groups = threads // 8 %}
{% set dq = d // 4 %}
{% set chunks = (dq + 7) // 8 %}
{% set burst = 2 if rows > 4 else 4 %}
{% set vq = dv // 4 %}
{% set per = keys * columns // threads %}
{% set step = [per, 8 if rows > 4 else 16]|min %}
{% set ragged = (sk - first) % keys != 0 %}
{% set per_kv_head = heads // kv_heads %}
{{ bindings(access, q="vec4<f32>", k=reads.unit(true), v=reads.unit(true)) }}
{% if has_mask %}
@group(0) @binding(3) var<storage, {{ access[3] }}> mask: array<{{ type[3] }}>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> y: array<vec4<f32>>;
{% if joined %}
@group(0) @binding({{ out + 1 }}) var<storage, {{ access[out + 1] }}> some: array<vec4<f32>>;
@group(0) @binding({{ out + 2 }}) var<storage, {{ access[out + 2] }}> stats: array<vec2<f32>>;
{% endif %}

{{ reads.functions() }}
var<workgroup> query: array<vec4<f32>, {{ rows * dq }}>;
// First partial scores; then the weights, followed by partial sums of weighted values.
var<workgroup> part: array<vec4<f32>, {{ 2 * threads }}>;
var<workgroup> edge: array<vec4<f32>, {{ threads // 4 }}>;
// Factors by row for the sums so far, since the largest score may have grown.
var<workgroup> rescale: array<f32, 8>;
{% if softcap != 0.0 %}
{% include "lib/math.wgsl" %}
{% endif %}

// Below every score, and finite: the difference of two infinities would be NaN.
const LOWEST: f32 = -3.0e38;

// Row r of the workgroup: (head, query). Rows behind the last repeat it.
fn place(block: u32, r: u32, kv_head: u32) -> vec2<u32> {
    let row = min(block * {{ rows }}u + r, {{ per_kv_head * sq - 1 }}u);
    return vec2<u32>(kv_head * {{ per_kv_head }}u + row / {{ sq }}u, row % {{ sq }}u);
}

{{ by_group(threads) }}
    let block = g % {{ blocks }}u;
    let split = (g / {{ blocks }}u) % {{ splits }}u;
    let kv_head = (g / {{ blocks * splits }}u) % {{ kv_heads }}u;
    let batch = g / {{ blocks * splits * kv_heads }}u;
    for (var i = lane; i < {{ rows * dq }}u; i += {{ threads }}u) { // trips: {{ rows * dq }} / {{ threads }}
        let index = place(block, i / {{ dq }}u, kv_head);
        query[i] = q[batch * {{ q_steps[0] // 4 }}u + index.x * {{ q_steps[1] // 4 }}u + index.y * {{ q_steps[2] // 4 }}u + i % {{ dq }}u] * SCALE;
    }
    workgroupBarrier();

{% for r in range(rows) %}
    var sum{{ r }} = vec4<f32>(0.0);
{% endfor %}
    let my_row = lane / {{ groups }}u;
    let index = place(block, my_row, kv_head);
    var top = LOWEST;
    var own_total = 0.0;
    for (var trip = 0u; trip < TRIPS; trip++) { // trips: TRIPS
        let start = {{ first }}u + (split * TRIPS + trip) * {{ keys }}u;

        // Scores: eight lanes share a key and take its elements in turn; a lane has four keys.
        let part_of = lane % 8u;
        let own = start + (lane / 8u) * 4u;
        let k_base = batch * {{ k_steps[0] // 4 }}u + kv_head * {{ k_steps[1] // 4 }}u;
{% for u in range(4) %}
        let k{{ u }} = k_base + {{ "min(own + " ~ u ~ "u, SK - 1u)" if ragged else "(own + " ~ u ~ "u)" }} * {{ k_steps[2] // 4 }}u + part_of;
{% endfor %}
{% for r in range(rows) %}
        var s{{ r }} = vec4<f32>(0.0);
{% endfor %}
{% for low in range(0, chunks, burst) %}
        {
{% set high = [low + burst, chunks]|min %}
{% for c in range(low, high) %}
{% set all = c * 8 + 8 <= dq %}
{% if not all %}
            let there{{ c }} = part_of < {{ dq - c * 8 }}u;
{% endif %}
{% for u in range(4) %}
{% if all %}
            let x{{ c }}_{{ u }} = {{ reads.four("k", "k" ~ u ~ " + " ~ c * 8 ~ "u") }};
{% else %}
            let x{{ c }}_{{ u }} = select(vec4<f32>(0.0), {{ reads.four("k", "k" ~ u ~ " + select(" ~ ("0u, " ~ c * 8 ~ "u" if c else "0u - part_of, 0u") ~ ", there" ~ c ~ ")") }}, there{{ c }});
{% endif %}
{% endfor %}
{% endfor %}
{% for c in range(low, high) %}
{% set all = c * 8 + 8 <= dq %}
{% for r in range(rows) %}
            {
                let a = {{ "query[" ~ (r * dq + c * 8) ~ "u + part_of]" if all else "select(vec4<f32>(0.0), query[min(" ~ (r * dq + c * 8) ~ "u + part_of, " ~ (rows * dq - 1) ~ "u)], there" ~ c ~ ")" }};
                s{{ r }} += vec4<f32>(dot(a, x{{ c }}_0), dot(a, x{{ c }}_1), dot(a, x{{ c }}_2), dot(a, x{{ c }}_3));
            }
{% endfor %}
{% endfor %}
        }
{% endfor %}
        // The eight partial sums of a score are added, two rows at a time; a lane ends with four keys of row lane / {{ groups }}.
        let my_keys = start + (lane % {{ groups }}u) * 4u;
        var score = vec4<f32>(0.0);
{% for r in range(0, rows, 2) %}
        part[part_of * {{ groups }}u + lane / 8u] = s{{ r }};
{% if r + 1 < rows %}
        part[{{ threads }}u + part_of * {{ groups }}u + lane / 8u] = s{{ r + 1 }};
{% endif %}
        workgroupBarrier();
        if (my_row == {{ r }}u{{ " || my_row == " ~ (r + 1) ~ "u" if r + 1 < rows }}) {
            let from_ = (my_row - {{ r }}u) * {{ threads }}u + lane % {{ groups }}u;
            score = {% for l in range(8) %}part[from_ + {{ l * groups }}u]{{ " + " if l < 7 }}{% endfor %};
        }
        workgroupBarrier();
{% endfor %}
{% if softcap != 0.0 %}
        for (var i = 0u; i < 4u; i++) { score[i] = SOFTCAP * safe_tanh_s(score[i] / SOFTCAP); } // trips: 4
{% endif %}
        let key = vec4<u32>(my_keys) + vec4<u32>(0u, 1u, 2u, 3u);
        var visible = key < vec4<u32>(SK);
{% if kind in (1, 2) %}
        let here = i32(index.y) + {{ sk - sq }};
        visible &= vec4<i32>(key) <= vec4<i32>(here);
{% endif %}
{% if kind == 2 %}
        visible &= vec4<i32>(key) >= vec4<i32>(here - {{ window }});
{% endif %}
{% if has_mask %}
        let mask_base = batch * {{ mask_steps[0] }}u + index.x * {{ mask_steps[1] }}u + index.y * {{ mask_steps[2] }}u;
        let mask_at = vec4<u32>(mask_base) + min(key, vec4<u32>(SK - 1u)) * {{ mask_steps[3] }}u;
{% if kind == 3 %}
        let words = vec4<u32>({% for c in "xyzw" %}mask[mask_at.{{ c }} >> 2u]{{ ", " if c != "w" }}{% endfor %});
        visible &= ((words >> ((mask_at & vec4<u32>(3u)) * 8u)) & vec4<u32>(255u)) != vec4<u32>(0u);
{% else %}
        score += vec4<f32>({% for c in "xyzw" %}mask[mask_at.{{ c }}]{{ ", " if c != "w" }}{% endfor %});
{% endif %}
{% endif %}
        score = select(vec4<f32>(LOWEST), score, visible);
        edge[lane / 4u][lane % 4u] = max(max(score.x, score.y), max(score.z, score.w));
        workgroupBarrier();
        let edges = my_row * {{ groups // 4 }}u;
        let largest = {% for i in range(groups // 4 - 1) %}max(edge[edges + {{ i }}u], {% endfor %}edge[edges + {{ groups // 4 - 1 }}u]{{ ")" * (groups // 4 - 1) }};
        let next = max(max(max(largest.x, largest.y), max(largest.z, largest.w)), top);
        let grown = exp(top - next);
        top = next;
        let weight = select(vec4<f32>(0.0), exp(score - top), visible);
        own_total = own_total * grown + dot(weight, vec4<f32>(1.0));
        if (lane % {{ groups }}u == 0u) { rescale[my_row] = grown; }
        part[lane] = weight;
        workgroupBarrier();
{% for r in range(rows) %}
        sum{{ r }} *= rescale[{{ r }}];
{% endfor %}

        // Weighted values: a lane has four neighbouring elements of {{ per }} keys.
        let column = lane % {{ columns }}u;
        let strip = lane / {{ columns }}u;
        let v_base = batch * {{ v_steps[0] // 4 }}u + kv_head * {{ v_steps[1] // 4 }}u + {{ "column" if columns == vq else "min(column, " ~ (vq - 1) ~ "u)" }};
{% if step < per %}
        for (var j = strip * {{ per }}u; j < strip * {{ per }}u + {{ per }}u; j += {{ step }}u) { // trips: {{ per }} / {{ step }}
{% else %}
        {
            let j = strip * {{ per }}u;
{% endif %}
{% for i in range(step) %}
{% if ragged %}
            // A key behind the last has weight 0, but 0 times infinity would be NaN.
            let v{{ i }} = select(vec4<f32>(0.0), {{ reads.four("v", "v_base + min(start + j + " ~ i ~ "u, SK - 1u) * " ~ v_steps[2] // 4 ~ "u") }}, start + j + {{ i }}u < SK);
{% else %}
            let v{{ i }} = {{ reads.four("v", "v_base + (start + j + " ~ i ~ "u) * " ~ v_steps[2] // 4 ~ "u") }};
{% endif %}
{% endfor %}
{% for i in range(0, step, 4) %}
{% for r in range(rows) %}
            {
                let w = part[{{ r * groups + i // 4 }}u + j / 4u];
                sum{{ r }} += w.x * v{{ i }} + w.y * v{{ i + 1 }} + w.z * v{{ i + 2 }} + w.w * v{{ i + 3 }};
            }
{% endfor %}
{% endfor %}
        }
        // Everyone has read the weights before the memory is used for the next scores.
        workgroupBarrier();
    }
    edge[lane / 4u][lane % 4u] = own_total;
{% for r in range(rows) %}
    part[{{ threads }}u + lane] = sum{{ r }};
    workgroupBarrier();
    if (lane < {{ vq }}u{{ " && block * " ~ rows ~ "u + " ~ r ~ "u < " ~ (per_kv_head * sq) ~ "u" if blocks * rows > per_kv_head * sq }}) {
        var all = part[{{ threads }}u + lane];
{% if threads // columns > 16 %}
        for (var i = 1u; i < {{ threads // columns }}u; i++) { all += part[{{ threads }}u + i * {{ columns }}u + lane]; } // trips: {{ threads // columns }}
{% else %}
{% for i in range(1, threads // columns) %}
        all += part[{{ threads + i * columns }}u + lane];
{% endfor %}
{% endif %}
        var weights = vec4<f32>(0.0);
        for (var i = 0u; i < {{ groups // 4 }}u; i++) { weights += edge[{{ r * groups // 4 }}u + i]; } // trips: {{ groups // 4 }}
        let total = dot(weights, vec4<f32>(1.0));
        let to = place(block, {{ r }}u, kv_head);
{% if joined %}
        if (SPLITS > 1u) {
            let row = ((batch * {{ heads }}u + to.x) * {{ sq }}u + to.y) * SPLITS + split;
            some[row * {{ vq }}u + lane] = all;
            if (lane == 0u) { stats[row].y = total; }
        }
{% endif %}
        if (SPLITS == 1u) {
            // A query that sees no key gives zeros; a NaN total passes, since naga's comparison is false for it.
            var part_of_all = 0.0;
            if (!(total == 0.0)) { part_of_all = 1.0 / total; }
            y[batch * {{ o_steps[0] // 4 }}u + to.x * {{ o_steps[1] // 4 }}u + to.y * {{ o_steps[2] // 4 }}u + lane] = all * part_of_all;
        }
    }
    workgroupBarrier();
{% endfor %}
{% if joined %}
    if (SPLITS > 1u && my_row < {{ rows }}u && lane % {{ groups }}u == 0u && block * {{ rows }}u + my_row < {{ per_kv_head * sq }}u) {
        stats[((batch * {{ heads }}u + index.x) * {{ sq }}u + index.y) * SPLITS + split].x = top;
    }
{% endif %}
}
