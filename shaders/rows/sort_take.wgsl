// The first k values of long rows, from their sorted positions.
{% set T = type[0] %}
{{ bindings(access, x=T, pairs="vec4<u32>" if wide else "vec2<u32>", values=T, indices="i32") }}

{{ by_element(256, "t", "ROWS * K") }}
    let row = t / K;
    let place = pairs[row * M + t % K].{{ "z" if wide else "y" }};
    values[t] = x[row * N + place];
    indices[t] = i32(place);
}
