// Epilogue of a product: the activation of that number in rlx.ops.products.matmul.ACTIVATIONS.
{% if act > 1 %}
{% include "lib/math.wgsl" %}
{% endif %}

fn activate(x: vec4<f32>) -> vec4<f32> {
{% if act == 0 %}
    return x;
{% elif act == 1 %}
    // max may drop a NaN, and a driver may assume that there is none, so its bits tell.
    let nan = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(max(x, vec4<f32>(0.0)), x, nan);
{% elif act == 2 %}
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
{% elif act == 3 %}
    return 0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
{% elif act == 4 %}
    return x * sigmoid(x);
{% elif act == 5 %}
    return sigmoid(x);
{% elif act == 6 %}
    return safe_tanh(x);
{% else %}
    return x * clamp(x * 0.16666666666666667 + 0.5, vec4<f32>(0.0), vec4<f32>(1.0));
{% endif %}
}
