// Steps FIRST to LAST - 1 of a recurrent layer; a workgroup per sequence and direction, its hidden
// states in workgroup memory, or in a buffer where there are too many.
{% set gates = {"lstm": 4, "gru": 3, "gru_linear": 3}.get(cell, 1) %}
{% set gru = cell in ("gru", "gru_linear") %}
{% set index = namespace(next=2) %}
{{ bindings(access, xw="f32", r="f32") }}
{% for name, there, kind in (("bias", has_bias, "f32"), ("peep", has_p, "f32"), ("lengths", has_seq_lens, "i32"),
                             ("y", 1, "f32"), ("last_h", 1, "f32"), ("last_c", cell == "lstm", "f32"),
                             ("rows", not local, "f32")) if there %}
@group(0) @binding({{ index.next }}) var<storage, {{ access[index.next] }}> {{ name }}: array<{{ kind }}>;
{% set index.next = index.next + 1 %}
{% endfor %}
{% if local %}
// The hidden states, then the new ones (gru: the reset ones).
var<workgroup> rows: array<f32, {{ 2 * hidden }}>;
{% endif %}

{% include "lib/math.wgsl" %}

fn hold(x: f32) -> f32 {
{% if clip > 0 %}
    return select(x, clamp(x, -CLIP, CLIP), x == x);
{% else %}
    return x;
{% endif %}
}

fn opened(x: f32) -> f32 { return sigmoid_s(hold(x)); }

// The product of row `unit` of gate `gate` with the states at `from_row`.
fn product(weights: u32, gate: u32, unit: u32, from_row: u32) -> f32 {
    var sum = 0.0;
    var index = weights + gate * HIDDEN + unit;
    var k = 0u;
    for (; k + 4u <= HIDDEN; k += 4u) { // trips: HIDDEN / 4
        sum += r[index] * rows[from_row + k] + r[index + {{ gates * hidden }}u] * rows[from_row + k + 1u]
             + r[index + {{ 2 * gates * hidden }}u] * rows[from_row + k + 2u] + r[index + {{ 3 * gates * hidden }}u] * rows[from_row + k + 3u];
        index += {{ 4 * gates * hidden }}u;
    }
    for (; k < HIDDEN; k++) { // trips: 3
        sum += r[index] * rows[from_row + k];
        index += {{ gates * hidden }}u;
    }
    return sum;
}

{% macro wait() %}
workgroupBarrier();{{ "" if local else " storageBarrier();" }}
{% endmacro %}
{{ by_group(lanes) }}
    let d = g / BATCH;
    let b = g % BATCH;
    let weights = d * {{ hidden * gates * hidden }}u;
    let old = {{ "0u" if local else "g * " ~ (2 * hidden) ~ "u" }};
    let other = old + HIDDEN;
    for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { // trips: HIDDEN / {{ lanes }}
{% if first == 0 and not has_h0 %}
        rows[old + i] = 0.0;
{% else %}
        rows[old + i] = last_h[g * HIDDEN + i];
{% endif %}
{% if cell == "lstm" and first == 0 and not has_c0 %}
        last_c[g * HIDDEN + i] = 0.0;
{% endif %}
    }
    {{ wait() }}
    let end = {{ "u32(clamp(lengths[b], 0, " ~ steps ~ "))" if has_seq_lens else "STEPS" }};
    let backwards = {{ "true" if reverse|min else ("d == " ~ (0 if reverse[0] else 1) ~ "u" if reverse|max else "false") }};
    for (var step = FIRST; step < LAST; step++) { // trips: LAST - FIRST
        // A sequence that has ended keeps its states; its results are 0.
        let running = step < end;
        let index = select(step, end - 1u - step, running && backwards);
        let x = ((index * BATCH + b) * DIRECTIONS + d) * {{ gates * hidden }}u;
        let to = ((index * DIRECTIONS + d) * BATCH + b) * HIDDEN;
{% if gru %}
        for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { // trips: HIDDEN / {{ lanes }}
            let reset = opened(xw[x + HIDDEN + i] + product(weights, 1u, i, old));
{% if cell == "gru" %}
            rows[other + i] = reset * rows[old + i];
{% else %}
            rows[other + i] = reset * (product(weights, 2u, i, old){{ " + bias[d * HIDDEN + i]" if has_bias }});
{% endif %}
            // Kept in the result's place: the other gates need the old states.
            y[to + i] = opened(xw[x + i] + product(weights, 0u, i, old));
        }
        {{ wait() }}
        for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { // trips: HIDDEN / {{ lanes }}
            let inner = {{ "product(weights, 2u, i, other)" if cell == "gru" else "rows[other + i]" }};
            let update = y[to + i];
            let before = rows[old + i];
            let h = (1.0 - update) * safe_tanh_s(hold(xw[x + {{ 2 * hidden }}u + i] + inner)) + update * before;
            y[to + i] = select(0.0, h, running);
            rows[old + i] = select(before, h, running);
        }
        {{ wait() }}
{% else %}
        for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { // trips: HIDDEN / {{ lanes }}
{% if cell == "lstm" %}
            let c = last_c[g * HIDDEN + i];
            let in_gate = opened(xw[x + i] + product(weights, 0u, i, old){{ " + peep[d * 3u * HIDDEN + i] * c" if has_p }});
{% if input_forget %}
            let forget = 1.0 - in_gate;
{% else %}
            let forget = opened(xw[x + {{ 2 * hidden }}u + i] + product(weights, 2u, i, old){{ " + peep[(d * 3u + 2u) * HIDDEN + i] * c" if has_p }});
{% endif %}
            let new_c = forget * c + in_gate * safe_tanh_s(hold(xw[x + {{ 3 * hidden }}u + i] + product(weights, 3u, i, old)));
            let out_gate = opened(xw[x + HIDDEN + i] + product(weights, 1u, i, old){{ " + peep[(d * 3u + 1u) * HIDDEN + i] * new_c" if has_p }});
            let h = out_gate * safe_tanh_s(new_c);
            last_c[g * HIDDEN + i] = select(c, new_c, running);
{% elif cell == "tanh" %}
            let h = safe_tanh_s(hold(xw[x + i] + product(weights, 0u, i, old)));
{% else %}
            let sum = hold(xw[x + i] + product(weights, 0u, i, old));
            let h = select(sum, 0.0, sum < 0.0);
{% endif %}
            y[to + i] = select(0.0, h, running);
            rows[other + i] = select(rows[old + i], h, running);
        }
        {{ wait() }}
        for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { rows[old + i] = rows[other + i]; } // trips: HIDDEN / {{ lanes }}
        {{ wait() }}
{% endif %}
    }
    for (var i = lane; i < HIDDEN; i += {{ lanes }}u) { last_h[g * HIDDEN + i] = rows[old + i]; } // trips: HIDDEN / {{ lanes }}
}
