{# The tile of a workgroup. #}
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    // All outputs of some windows, then those of the next ones: images come one after the other.
    let down = {{ (m + bm - 1) // bm }}u;
    let split = g / {{ parts * ((m + bm - 1) // bm) * ((batch * windows + bn - 1) // bn) }}u;
    let column0 = ((g / {{ parts * ((m + bm - 1) // bm) }}u) % {{ (batch * windows + bn - 1) // bn }}u) * {{ bn }}u;
    let part = (g / down) % {{ parts }}u;
    let row0 = (g % down) * {{ bm }}u;
