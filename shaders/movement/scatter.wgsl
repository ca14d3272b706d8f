// Applies updates START to STOP in order. An invocation owns a part of the places of one line, so that
// no two write the same element and the order of updates is kept. Indices out of range are left out.
{% set T = type[2] %}
{{ bindings(access, updates=T, indices=type[1], y=T) }}

{% include "lib/wide_one.wgsl" %}
{% if type[1] == two_words %}
{% include "lib/wide_index.wgsl" %}

{% endif %}
{{ by_element(64, "t", "LINES * PARTS") }}
    let part = (PLACES + PARTS - 1u) / PARTS;
    let low = (t % PARTS) * part;
    let high = low + part;
    var rest = t / PARTS;
    var base = 0u;
    var which = 0u;
    var source = 0u;
{% for d in range(rank)|reverse %}
{% if dims[d] > 1 %}
    base += (rest % {{ dims[d] }}u) * {{ data_steps[d] }}u;
    which += (rest % {{ dims[d] }}u) * {{ index_steps[d] }}u;
    source += (rest % {{ dims[d] }}u) * {{ update_steps[d] }}u;
    rest /= {{ dims[d] }}u;
{% endif %}
{% endfor %}
    for (var u = START; u < STOP; u++) { // trips: STOP - START
        var place = 0u;
        var position = base;
        var inside = true;
{% for d in range(depth) %}
        {
            let raw = {{ index(type[1], "indices[which + u * INDEX_STEP + " ~ d ~ "u]") }};
            let i = select(raw, raw + {{ sizes[d] }}, raw < 0);
            inside = inside && i >= 0 && i < {{ sizes[d] }};
            let clamped = u32(clamp(i, 0, {{ [sizes[d] - 1, 0]|max }}));
            place = place * {{ sizes[d] }}u + clamped;
            position += clamped * {{ axis_steps[d] }}u;
        }
{% endfor %}
        if (inside && place >= low && place < high) {
            let value = updates[source + u * UPDATE_STEP];
{% if reduction == 0 %}
            y[position] = value;
{% elif T == two_words %}
            y[position] = {{ operation(T, ["", "+", "*", "min", "max"][reduction], "y[position]", "value") }};
{% elif reduction == 1 %}
            y[position] += value;
{% elif reduction == 2 %}
            y[position] *= value;
{% elif reduction == 3 %}
            let old = y[position];
            y[position] = select(value, old, (old < value) || !(old == old));
{% else %}
            let old = y[position];
            y[position] = select(value, old, (old > value) || !(old == old));
{% endif %}
        }
    }
}
