{# The tile of a workgroup, and its matrices. #}
    let g = wid.x + wid.y * FOLD;
    if (g >= GROUPS) { return; }
    let across = {{ (n + bn - 1) // bn }}u;
    let tiles = {{ (n + bn - 1) // bn * ((m + bm - 1) // bm) }}u;
    let z = g / tiles;
    let row0 = ((g % tiles) / across) * {{ bm }}u;
    let column0 = (g % across) * {{ bn }}u;
{% include "lib/batch.wgsl" %}
