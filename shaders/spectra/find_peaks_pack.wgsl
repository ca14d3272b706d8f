// Compacts the kept entries of each row, one workgroup per row, with a prefix sum over 256 entries at a
// time. Stage "first" makes a list of positions of the marked samples, all of them undecided (2); stage "last" lists the peaks that were kept, and fills the rest with -1.
{% set final = stage == "last" %}
{% set items = "CANDIDATES" if final else "N" %}
{% set capacity = "SLOTS" if final else "CANDIDATES" %}
{% set out = 4 if final else 1 %}
@group(0) @binding(0) var<storage, {{ access[0] }}> keep: array<i32>;
{% if final %}
@group(0) @binding(1) var<storage, {{ access[1] }}> positions: array<i32>;
@group(0) @binding(2) var<storage, {{ access[2] }}> counts: array<i32>;
@group(0) @binding(3) var<storage, {{ access[3] }}> prominences: array<f32>;
{% endif %}
@group(0) @binding({{ out }}) var<storage, {{ access[out] }}> list: array<i32>;
@group(0) @binding({{ out + 1 }}) var<storage, {{ access[out + 1] }}> listed: array<i32>;
{% if final %}
@group(0) @binding({{ out + 2 }}) var<storage, {{ access[out + 2] }}> drops: array<f32>;
{% elif spaced %}
@group(0) @binding({{ out + 2 }}) var<storage, {{ access[out + 2] }}> states: array<i32>;
@group(0) @binding({{ out + 3 }}) var<storage, {{ access[out + 3] }}> order: array<i32>;
{% endif %}

var<workgroup> part: array<u32, 256>;

{{ by_group(256, "row") }}
    let count = {{ "u32(counts[row])" if final else "N" }};
    var total = 0u;
    for (var first = 0u; first < {{ items }}; first += 256u) { // trips: {{ items }} / 256
        let item = first + lane;
        var mine = 0u;
        if (item < count) { mine = u32(keep[row * {{ items }} + item]); }
        part[lane] = mine;
        workgroupBarrier();
        var sum = mine;
{% for step in [1, 2, 4, 8, 16, 32, 64, 128] %}
        if (lane >= {{ step }}u) { sum += part[lane - {{ step }}u]; }
        workgroupBarrier();
        part[lane] = sum;
        workgroupBarrier();
{% endfor %}
        let slot = total + sum - mine;
        if (mine == 1u && slot < {{ capacity }}) {
            let to = row * {{ capacity }} + slot;
{% if final %}
            list[to] = positions[row * {{ items }} + item];
            drops[to] = prominences[row * {{ items }} + item];
{% else %}
            list[to] = i32(item);
{% endif %}
        }
        total += part[255];
        workgroupBarrier();
    }
    if (lane == 0u) { listed[row] = i32(total); }
{% if final %}
    for (var slot = total + lane; slot < SLOTS; slot += 256u) { // trips: SLOTS / 256
        list[row * SLOTS + slot] = -1;
        drops[row * SLOTS + slot] = 0.0;
    }
{% elif spaced %}
    for (var slot = lane; slot < CANDIDATES; slot += 256u) { // trips: CANDIDATES / 256
        states[row * CANDIDATES + slot] = 2;
        order[row * CANDIDATES + slot] = -1;
    }
{% endif %}
}
