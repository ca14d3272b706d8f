// A registered operation: calls the user's function once for every element of the first result.
{% for name in names %}
@group(0) @binding({{ loop.index0 }}) var<storage, {{ access[loop.index0] }}> {{ name }}: array<{{ type[loop.index0] }}>;
{% endfor %}

{{ text }}

{{ by_element(256, "i", "COUNT") }}
    compute(i);
}
