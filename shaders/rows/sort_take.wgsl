// The first k values of long rows, from their sorted positions.
{% set T = type[0] %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<{{ T }}>;
@group(0) @binding(1) var<storage, {{ access[1] }}> pairs: array<{{ "vec4<u32>" if wide else "vec2<u32>" }}>;
@group(0) @binding(2) var<storage, {{ access[2] }}> values: array<{{ T }}>;
@group(0) @binding(3) var<storage, {{ access[3] }}> indices: array<i32>;

{{ by_element(256, "t", "ROWS * K") }}
    let row = t / K;
    let place = pairs[row * M + t % K].{{ "z" if wide else "y" }};
    values[t] = x[row * N + place];
    indices[t] = i32(place);
}
