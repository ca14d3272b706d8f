// The activation that a fused kernel ends in, by its number in rlx/ops/linalg.py.
fn activate(x: vec4<f32>) -> vec4<f32> {
{% set bodies = [
    "x", "max(x, vec4<f32>(0.0))", "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
    "0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
    "x * sigmoid(x)", "sigmoid(x)", "safe_tanh(x)"] %}
    return {{ bodies[act] }};
}
