{# What the kernels of attention make of the scores: cap and masks. #}
{% if softcap != 0.0 %}
{% include "lib/math.wgsl" %}
{% endif %}

// Below every score, and finite: the difference of two infinities would be NaN.
const LOWEST: f32 = -3.0e38;

// The final scores of four keys: capped, with the mask added, and the lowest score where the query does not see a key.
fn masked(sums: vec4<f32>, row: u32, key0: u32, mask_base: u32) -> vec4<f32> {
    var scores = sums;
    let key = vec4<u32>(key0, key0 + 1u, key0 + 2u, key0 + 3u);
    var visible = key < vec4<u32>(SK);
{% if softcap != 0.0 %}
    scores = SOFTCAP * safe_tanh(scores / SOFTCAP);
{% endif %}
{% if kind in (1, 2) %}
    let index = i32(row) + i32(SK) - i32(SQ);
    visible = visible & (vec4<i32>(key) <= vec4<i32>(index));
{% endif %}
{% if kind == 2 %}
    visible = visible & (vec4<i32>(key) >= vec4<i32>(index - i32(WINDOW)));
{% endif %}
{% if kind in (3, 4) %}
    let place = vec4<u32>(mask_base) + min(key, vec4<u32>(SK - 1u)) * {{ mask_steps[3] }}u;
{% endif %}
{% if kind == 3 %}
    let byte = vec4<u32>(mask[place.x >> 2u], mask[place.y >> 2u], mask[place.z >> 2u], mask[place.w >> 2u]);
    visible = visible & (((byte >> ((place & vec4<u32>(3u)) * 8u)) & vec4<u32>(255u)) != vec4<u32>(0u));
{% elif kind == 4 %}
    let line = min(row, SQ - 1u) * {{ mask_steps[2] }}u;
    scores += vec4<f32>({% for c in "xyzw" %}f32(mask[place.{{ c }} + line]){{ ", " if c != "w" }}{% endfor %});
{% endif %}
    return select(vec4<f32>(LOWEST), scores, visible);
}
