{# A DFT of size r of vec2 values x0, x1, ... into y0, y1, ..., with literal roots. #}
{% macro butterfly(r) %}
{% if r == 2 %}
        let y0 = x0 + x1;
        let y1 = x0 - x1;
{% elif r == 4 %}
        let e0 = x0 + x2;
        let e1 = x0 - x2;
        let o0 = x1 + x3;
        let o1 = x1 - x3;
        let y0 = e0 + o0;
        let y1 = e1 + vec2<f32>(o1.y, -o1.x);
        let y2 = e0 - o0;
        let y3 = e1 - vec2<f32>(o1.y, -o1.x);
{% else %}
        // r is odd: entries k and r - k share their cosines and, but for the sign, their sines.
{% set half = (r - 1) // 2 %}
{% for k in range(1, half + 1) %}
        let t{{ k }} = x{{ k }} + x{{ r - k }};
        let d{{ k }} = x{{ k }} - x{{ r - k }};
{% endfor %}
        let y0 = x0{% for k in range(1, half + 1) %} + t{{ k }}{% endfor %};
{% for j in range(1, half + 1) %}
        let c{{ j }} = x0{% for k in range(1, half + 1) %} + {{ cosine(j * k, r) }} * t{{ k }}{% endfor %};
        let s{{ j }} = {% for k in range(1, half + 1) %}{{ " + " if k > 1 }}{{ sine(j * k, r) }} * d{{ k }}{% endfor %};
        let y{{ j }} = c{{ j }} + vec2<f32>(s{{ j }}.y, -s{{ j }}.x);
        let y{{ r - j }} = c{{ j }} - vec2<f32>(s{{ j }}.y, -s{{ j }}.x);
{% endfor %}
{% endif %}
{% endmacro %}
