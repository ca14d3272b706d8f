    // The source and target of one element; a counter in memory adds to both.
    let e = (wid.x + wid.y * FOLD) * 256u + lane;
    if (e >= COUNT) { return; }
    var rest = e;
    var from_at = {{ source_offset }}i{{ " + counter[0] * " ~ source_advance if source_advance }};
    var to_at = {{ target_offset }}i{{ " + counter[0] * " ~ target_advance if target_advance }};
{% for d in range(rank)|reverse %}
    from_at += i32(rest % {{ dims[d] }}u) * i32({{ source_steps[d] }});
    to_at += i32(rest % {{ dims[d] }}u) * i32({{ target_steps[d] }});
    rest /= {{ dims[d] }}u;
{% endfor %}
