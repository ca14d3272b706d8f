// One round in which peaks of a row win (1) or lose (0), one thread per peak. A peak loses to a higher
// winner nearby, and wins when nothing higher is left nearby. The others stay undecided (2). A state
// changes only from 2, so it does not matter from which of two rounds a neighbour's state is read. The
// last round only marks those that lose to winners of the round before.
{{ bindings(access, x="f32", positions="i32", counts="i32", keep="atomic<i32>") }}

{{ by_element(64, "t", "ROWS * CANDIDATES") }}
    let row = t / CANDIDATES;
    let peak = i32(t % CANDIDATES);
    let count = counts[row];
    if (peak >= count || atomicLoad(&keep[t]) != 2) { return; }
    let base = i32(row * CANDIDATES);
    let index = positions[t];
    let height = x[row * N + u32(index)];
    var open = false;
{% for step, inside, beats in [("-", "k >= 0", ">"), ("+", "k < count", ">=")] %}
    for (var k = peak {{ step }} 1; {{ inside }}; k {{ step }}= 1) { // trips: min(DISTANCE / 2 + 1, CANDIDATES)
        let there = positions[base + k];
        if (abs(there - index) >= i32(DISTANCE)) { break; }
        let state = atomicLoad(&keep[base + k]);
        if (state == 0) { continue; }
        if (state == 1) {
            atomicStore(&keep[t], 0);
            return;
        }
        // Of equal peaks the later wins.
        open = open || x[row * N + u32(there)] {{ beats }} height;
    }
{% endfor %}
{% if not settle %}
    if (!open) { atomicStore(&keep[t], 1); }
{% endif %}
}
