// One exchange of the bitonic sort of long rows, with partners `stride` apart.
{% set less = "(b.y < a.y || (b.y == a.y && (b.x < a.x || (b.x == a.x && b.z < a.z))))" if wide else "(b.x < a.x || (b.x == a.x && b.y < a.y))" %}
{% set PAIR = "vec4<u32>" if wide else "vec2<u32>" %}
@group(0) @binding(0) var<storage, {{ access[0] }}> pairs: array<{{ PAIR }}>;

{{ by_element(256, "t", "ROWS * (M / 2u)") }}
    let half = t % (M / 2u);
    let i = (t / (M / 2u)) * M + 2u * half - (half & (STRIDE - 1u));
    let j = i + STRIDE;
    let a = pairs[i];
    let b = pairs[j];
    let up = ((i % M) & SIZE) == 0u;
    if ({{ less }} == up) {
        pairs[i] = b;
        pairs[j] = a;
    }
}
