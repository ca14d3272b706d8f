// Tables of taps and weights of a resized axis, as rlx/ops/resize/taps.py makes them. ENTRIES of the axis make RESULTS:
// positions are quotients of whole numbers, so that a position between two entries is never taken for a neighbour.
{% set align = coordinates == "align_corners" %}
{% set whole = align or coordinates == "asymmetric" %}
{{ bindings(access, indices="i32", weights="f32") }}

// A quotient, rounded down.
fn floored(above: i32, below: i32) -> i32 {
    return select(above / below, -((below - 1 - above) / below), above < 0);
}
{% if mode != "nearest" %}

// The triangle, or the cubic convolution kernel.
fn weight_of(distance: f32) -> f32 {
    let d = abs(distance);
{% if mode == "linear" %}
    return max(1.0 - d, 0.0);
{% else %}
    let near = ((CUBIC + 2.0) * d - (CUBIC + 3.0)) * d * d + 1.0;
    let far = ((CUBIC * d - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC;
    return select(select(0.0, far, d < 2.0), near, d <= 1.0);
{% endif %}
}
{% endif %}

{{ by_element(256, "y", "COUNT") }}
{% if whole %}
    let above = i32(y * {{ entries }}u);
    let below = i32({{ results }}u);
{% else %}
    {{ "let" if coordinates != "pytorch_half_pixel" else "var" }} above = i32((2u * y + 1u) * {{ entries }}u) - i32({{ results }}u);
    let below = i32(2u * {{ results }}u);
{% if coordinates == "pytorch_half_pixel" %}
    if (COUNT == 1u) { above = 0; }
{% endif %}
{% endif %}
    let last = i32(N) - 1;
{% if mode == "nearest" %}
{% if rounding == "floor" %}
    let index = floored(above, below);
{% elif rounding == "ceil" %}
    let index = -floored(-above, below);
{% elif rounding == "round_prefer_floor" %}
    let index = -floored(below - 2 * above, 2 * below);
{% else %}
    let index = floored(2 * above + below, 2 * below);
{% endif %}
    indices[y] = clamp(index, 0, last);
    weights[y] = 1.0;
{% else %}
    let middle = floored(above, below);
    let part = f32(above - middle * below) / f32(below);
    let first = middle - {{ taps // 2 - 1 }};
{% for t in range(taps) %}
    {{ "var" if exclude else "let" }} w{{ t }} = weight_of({{ t - (taps // 2 - 1) }}.0 - part);
{% if exclude %}
    if (first + {{ t }} < 0 || first + {{ t }} > last) { w{{ t }} = 0.0; }
{% endif %}
{% endfor %}
{% if exclude %}
    var total = {% for t in range(taps) %}w{{ t }}{{ " + " if not loop.last }}{% endfor %};
    if (total == 0.0) { total = 1.0; }
{% endif %}
{% for t in range(taps) %}
    indices[y * {{ taps }}u + {{ t }}u] = clamp(first + {{ t }}, 0, last);
    weights[y * {{ taps }}u + {{ t }}u] = w{{ t }}{{ " / total" if exclude }};
{% endfor %}
{% endif %}
}
