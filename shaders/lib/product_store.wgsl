{# Functions store0, store1, ...: each adds the bias to four sums of its result, applies the activation and stores them.
   What lies outside the result is dropped. Where the sums over k are split, the values are stored as they are;
   split_sum.wgsl does the rest. #}
{# Four values of a bias, from element `index` + column on. #}
{% macro four(bias, index, n) %}
vec4<f32>({{ V }}({% for j in range(4) %}{{ bias }}[{{ index }}u + min(column + {{ j }}u, {{ n }}u - 1u)]{{ ", " if j < 3 }}{% endfor %}))
{%- endmacro %}
{% set first = namespace(index=0) %}
{% for n in parts %}
fn store{{ loop.index0 }}(base: u32, {{ "place" if picked is defined else "row" }}: u32, column: u32, sum: vec4<f32>{{ ", sum_up: vec4<f32>" if gated }}) {
{% if picked is defined %}
    if (place >= places_end || column >= {{ n }}u) { return; }
    let row = u32(listed[place]);
{% elif m is not known_multiple(bm) or n is not known_multiple(bn) %}
    if (row >= M || column >= {{ n }}u) { return; }
{% endif %}
    var v = sum;
{% if splits is not may_exceed(1) %}
{% if has_bias %}
    v += {{ four("bias0", first.index, n) }};
{% endif %}
    v = activate(v);
{% if gated %}
    v *= sum_up{{ " + " ~ four("bias1", 0, n) if has_bias }};
{% endif %}
{% endif %}
    let index = base + row * {{ n }}u + column;
{% if n is divisibleby(4) %}
    y{{ loop.index0 }}[index >> 2u] = vec4<{{ O }}>(v);
{% else %}
    y{{ loop.index0 }}[index] = {{ O }}(v.x);
    if (column + 1u < {{ n }}u) { y{{ loop.index0 }}[index + 1u] = {{ O }}(v.y); }
    if (column + 2u < {{ n }}u) { y{{ loop.index0 }}[index + 2u] = {{ O }}(v.z); }
    if (column + 3u < {{ n }}u) { y{{ loop.index0 }}[index + 3u] = {{ O }}(v.w); }
{% endif %}
}
{% set first.index = first.index + n %}
{% endfor %}
