// Maximum, sum or mean of sliding windows, read once: a thread makes four neighbouring windows of some rows.
{% set T = type[0] %}
{% set V = "vec4<" ~ T ~ ">" %}
{% set across = (out[2] + 3) // 4 %}
{% set high = (out[1] + tall - 1) // tall %}
{% import "lib/strips.wgsl" as strips with context %}
{{ bindings(access, x=V if strips.wide else T, y=V if out[2] is divisibleby(4) else T) }}

fn combine(a: {{ V }}, b: {{ V }}) -> {{ V }} {
{% if kind == "sum" %}
    return a + b;
{% elif T == "f32" %}
    // NaN stays: max alone may return the other operand, and a driver may assume that there is none.
    let a_nan = (bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    let b_nan = (bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(select(max(a, b), b, b_nan), a, a_nan);
{% else %}
    return max(a, b);
{% endif %}
}

{% if divide %}
// How many taps of axis `a` count, of a window that begins at `start`.
{% for a in range(3) if kernel[a] > 1 %}
fn taps{{ a }}(start: i32) -> i32 {
    // Those below the end of the operand{{ " and its padding" if divide == 2 }}, less those before its begin.
    var taps = min({{ kernel[a] }}, ({{ dims[a] + (after[a] if divide == 2 else 0) + dilation[a] - 1 }} - start) / {{ dilation[a] }});
{% if divide == 1 %}
    taps -= (max(-start, 0) + {{ dilation[a] - 1 }}) / {{ dilation[a] }};
{% endif %}
    return max(taps, 0);
}
{% endfor %}
{% endif %}

{{ by_element(threads, "e", (channels * out[0] * high * across) ~ "u") }}
    let column = (e % {{ across }}u) * 4u;
    let row0 = ((e / {{ across }}u) % {{ high }}u) * {{ tall }}u;
    let deep = (e / {{ across * high }}u) % {{ out[0] }}u;
    let plane = e / {{ across * high * out[0] }}u;
    let x0 = i32(column * {{ stride[2] }}u);
    let h0 = i32(row0 * {{ stride[1] }}u) - {{ before[1] }};
    let z0 = i32(deep * {{ stride[0] }}u) - {{ before[0] }};
{% if kind == "sum" %}
    let nothing = vec4<f32>(0.0);
{% elif T == "f32" %}
    // Minus infinity by run-time bits: WGSL forbids it as a constant.
    let nothing = vec4<f32>(bitcast<f32>(0xff800000u | (e & 0u)));
{% else %}
    let nothing = vec4<i32>(bitcast<i32>(0x80000000u));
{% endif %}
{% for r in range(tall) %}
    var total{{ r }} = nothing;
{% endfor %}
{% if kernel[0] == 1 %}
    {
        let i = 0u;
{% else %}
    for (var i = 0u; i < {{ kernel[0] }}u; i++) { // trips: {{ kernel[0] }}
{% endif %}
        let z = z0 + i32(i * {{ dilation[0] }}u);
{% if checks[0] %}
        if (u32(z) < {{ dims[0] }}u) {
{% endif %}
        let base = (plane * {{ dims[0] }}u + u32(z)) * {{ dims[1] * dims[2] }}u;
{% call(row, r, ky) strips.walk("nothing") %}
{% for t in range(kernel[2]) %}
        total{{ r }} = combine(total{{ r }}, {{ strips.seen(row, t, T) }});
{% endfor %}
{% endcall %}
{{ "        }" if checks[0] }}
    }
{% if divide %}
{% if kernel[2] > 1 %}
    let start = x0 - {{ before[2] }};
    let wide = vec4<i32>({% for j in range(4) %}taps2(start + {{ j * stride[2] }}){{ ", " if j < 3 }}{% endfor %});
{% endif %}
{% for r in range(tall) %}
{% set counts = (["taps0(z0)"] if kernel[0] > 1 else []) + (["taps1(h0 + %s)" % (r * stride[1])] if kernel[1] > 1 else []) + (["wide"] if kernel[2] > 1 else []) %}
{% if counts %}
    total{{ r }} /= vec4<f32>(max(vec4<i32>({{ counts|join(" * ") }}), vec4<i32>(1)));
{% endif %}
{% endfor %}
{% endif %}
    let index = ((plane * {{ out[0] }}u + deep) * {{ out[1] }}u + row0) * {{ out[2] }}u + column;
{% for r in range(tall) %}
    {{ "if (row0 + " ~ r ~ "u < " ~ out[1] ~ "u) " if r and out[1] % tall }}{
{{ strips.store("(index + " ~ r * out[2] ~ "u)", "column", "total" ~ r) }}    }
{% endfor %}
}
