// The DFT of RADIX named values a0, a1, ... into b0, b1, ...; roots of unity are literals.
{% macro butterfly(radix, roots) %}
{% for j in range(radix) %}
    let b{{ j }} = a0
{%- for i in range(1, radix) %}
{%- set c = roots[radix][(i * j) % radix] %}
 + {% if c == (1.0, 0.0) %}a{{ i }}{% elif c == (-1.0, 0.0) %}(-a{{ i }}){% elif c == (0.0, -1.0) %}vec2<f32>(a{{ i }}.y, -a{{ i }}.x){% elif c == (0.0, 1.0) %}vec2<f32>(-a{{ i }}.y, a{{ i }}.x){% else %}cmul(a{{ i }}, vec2<f32>({{ c[0] }}, {{ c[1] }})){% endif %}
{%- endfor %};
{% endfor %}
{% endmacro %}
