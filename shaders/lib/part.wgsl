    // Workgroups are numbered through all results, one after the other. Finds the result of this workgroup, and its piece
    // of {{ columns }} columns.
    var part = 0u;
    var piece = g % across;
{% set first = namespace(index=0) %}
{% for n in parts %}
{% if not loop.first %}
    if (g % across >= {{ first.index }}u) { part = {{ loop.index0 }}u; piece = g % across - {{ first.index }}u; }
{% endif %}
{% set first.index = first.index + (n + columns - 1) // columns %}
{% endfor %}
