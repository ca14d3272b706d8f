{# Numbers that are computed in f32 and held in memory as f32, or, where `half` says so, as f16. E is the type of a register:
   f32, or a vector of them. #}
{% set unit = E.replace("f32", "f16") if half else E %}
{# A register from what stands at a place. #}
{% macro read(place) %}{{ E ~ "(" ~ place ~ ")" if half else place }}{% endmacro %}
{# What memory holds of a value. #}
{% macro held_as(value) %}{{ unit ~ "(" ~ value ~ ")" if half else value }}{% endmacro %}
