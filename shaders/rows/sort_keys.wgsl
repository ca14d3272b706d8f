// Keys and positions of rows that are too long for workgroup memory, padded to a power of two.
{% set T = type[0] %}
{# A key of two words, and the position behind it. #}
{% set PAIR = "vec4<u32>" if wide else "vec2<u32>" %}
{% set last = "vec2<u32>(0xffffffffu)" if wide else "0xffffffffu" %}
{{ bindings(access, x=T, pairs=PAIR) }}

{% include "lib/sort_key.wgsl" %}

{{ by_element(256, "t", "ROWS * M") }}
    let i = t % M;
    var key = {{ last }};
    if (i < N) { key = sort_key(x[(t / M) * N + i]); }
    pairs[t] = {{ PAIR }}(key, i{{ ", 0u" if wide }});
}
