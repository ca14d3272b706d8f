// The state before each block of a row, one workgroup per row: the state before the previous block times a power of the
// filter's step matrix, plus the state that the previous block adds by itself.
{{ bindings(access, added="f32", power="f32") }}
{% if has_zi %}
@group(0) @binding(2) var<storage, {{ access[2] }}> zi: array<f32>;
{% endif %}
@group(0) @binding({{ 2 + has_zi }}) var<storage, {{ access[2 + has_zi] }}> before: array<f32>;

var<workgroup> state: array<f32, {{ states }}>;
var<workgroup> next: array<f32, {{ states }}>;

{{ by_group(64, "row") }}
    for (var i = lane; i < STATES; i += 64u) { // trips: STATES / 64
        state[i] = {{ "zi[((i / ORDER) * ROWS + row) * ORDER + i % ORDER]" if has_zi else "0.0" }};
    }
    workgroupBarrier();
    for (var block = 0u; block < BLOCKS; block++) { // trips: BLOCKS
        let base = (row * BLOCKS + block) * STATES;
        for (var i = lane; i < STATES; i += 64u) { // trips: STATES / 64
            before[base + i] = state[i];
            var sum = 0.0;
            if (block + 1u < BLOCKS) {
                sum = added[base + i];
                for (var j = 0u; j < STATES; j++) { sum += power[i * STATES + j] * state[j]; } // trips: STATES
            }
            next[i] = sum;
        }
        workgroupBarrier();
        for (var i = lane; i < STATES; i += 64u) { state[i] = next[i]; } // trips: STATES / 64
        workgroupBarrier();
    }
}
