{# A DFT of size r of the vec2 variables v<at>, v<at + step>, ... in place, with literal roots. Entry j of a radix of
   two steps stands at place `dft_place(r, j)`. #}
{% set dft_factors = {6: (2, 3), 8: (4, 2), 9: (3, 3), 10: (2, 5), 12: (4, 3), 14: (2, 7), 15: (3, 5), 16: (4, 4)} %}
{% macro dft(r, index, step) %}
{% if r in dft_factors %}
{% set a, b = dft_factors[r] %}
{% for i in range(b) %}
{{ dft_step(a, index + step * i, step * b) }}
{% for j in range(1, a) %}
{% if i %}
{% set v = "v" ~ (index + step * (b * j + i)) %}
{% if 4 * i * j == r %}
        {{ v }} = vec2<f32>({{ v }}.y, -{{ v }}.x);
{% else %}
        {{ v }} = {{ cosine(i * j, r) }} * {{ v }} + {{ sine(i * j, r) }} * vec2<f32>({{ v }}.y, -{{ v }}.x);
{% endif %}
{% endif %}
{% endfor %}
{% endfor %}
{% for j in range(a) %}
{{ dft_step(b, index + step * b * j, step) }}
{% endfor %}
{% elif r > 1 %}
{{ dft_step(r, index, step) }}
{% endif %}
{% endmacro %}
{% macro dft_step(r, index, step) %}
{% if r == 2 %}
        { let e = v{{ index }}; v{{ index }} = e + v{{ index + step }}; v{{ index + step }} = e - v{{ index + step }}; }
{% elif r == 4 %}
        {
            let e0 = v{{ index }} + v{{ index + 2 * step }};
            let e1 = v{{ index }} - v{{ index + 2 * step }};
            let o0 = v{{ index + step }} + v{{ index + 3 * step }};
            let o1 = v{{ index + step }} - v{{ index + 3 * step }};
            let i1 = vec2<f32>(o1.y, -o1.x);
            v{{ index }} = e0 + o0;
            v{{ index + step }} = e1 + i1;
            v{{ index + 2 * step }} = e0 - o0;
            v{{ index + 3 * step }} = e1 - i1;
        }
{% else %}
        {
            // r is odd: entries k and r - k share their cosines and, but for the sign, their sines.
{% set half = (r - 1) // 2 %}
            let x0 = v{{ index }};
{% for k in range(1, half + 1) %}
            let t{{ k }} = v{{ index + k * step }} + v{{ index + (r - k) * step }};
            let d{{ k }} = v{{ index + k * step }} - v{{ index + (r - k) * step }};
{% endfor %}
            v{{ index }} = x0{% for k in range(1, half + 1) %} + t{{ k }}{% endfor %};
{% for j in range(1, half + 1) %}
            let c{{ j }} = x0{% for k in range(1, half + 1) %} + {{ cosine(j * k, r) }} * t{{ k }}{% endfor %};
            let s{{ j }} = {% for k in range(1, half + 1) %}{{ " + " if k > 1 }}{{ sine(j * k, r) }} * d{{ k }}{% endfor %};
            v{{ index + j * step }} = c{{ j }} + vec2<f32>(s{{ j }}.y, -s{{ j }}.x);
            v{{ index + (r - j) * step }} = c{{ j }} - vec2<f32>(s{{ j }}.y, -s{{ j }}.x);
{% endfor %}
        }
{% endif %}
{% endmacro %}
{# Where entry j of a DFT of size r stands. #}
{% macro dft_place(r, j) %}
{% if r in dft_factors %}{{ dft_factors[r][1] * (j % dft_factors[r][0]) + j // dft_factors[r][0] }}{% else %}{{ j }}{% endif %}
{% endmacro %}
