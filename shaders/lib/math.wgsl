// Functions that WGSL lacks or leaves undefined somewhere, for vec4<f32> and (with _s) for f32.
{% macro poly(coefficients, x) %}
{% set ns = namespace(text="") %}
{% for c in coefficients|reverse %}
{% set ns.text = c|string if loop.first else "(" ~ ns.text ~ ") * " ~ x ~ " + (" ~ c ~ ")" %}
{% endfor %}
{{- ns.text -}}
{% endmacro %}
{% for suffix, V, U in (("", "vec4<f32>", "vec4<u32>"), ("_s", "f32", "u32")) %}

// The result y of an operand x, or x itself where it is NaN. Tests bits: a driver may assume that there is no NaN.
fn keep_nan{{ suffix }}(x: {{ V }}, y: {{ V }}) -> {{ V }} {
    return select(y, x, (bitcast<{{ U }}>(x) & {{ U }}(0x7fffffffu)) > {{ U }}(0x7f800000u));
}

// tanh through a polynomial near 0, where 1 - 2 / (exp(2x) + 1) would cancel; never overflows.
fn safe_tanh{{ suffix }}(x: {{ V }}) -> {{ V }} {
    let s = min(x * x, {{ V }}(0.4));
    let near = x * ({{ poly([0.9999999998379919, -0.33333329326566824, 0.13333170451633397, -0.05394321622925089, 0.021683855333810786, -0.008139527574354696, 0.002110568152052702], "s") }});
    let a = min(abs(x), {{ V }}(20.0));
    let far = sign(x) * (1.0 - 2.0 / (exp(2.0 * a) + 1.0));
    return keep_nan{{ suffix }}(x, select(near, far, abs(x) >= {{ V }}(0.63)));
}

// The error function: odd polynomial near 0, else 1 - exp(Q(|x|)).
fn erf{{ suffix }}(x: {{ V }}) -> {{ V }} {
    let s = min(x * x, {{ V }}(0.85));
    let near = x * ({{ poly([1.1283791670860186, -0.3761263875951135, 0.11283788094017569, -0.02686583028995897, 0.005222380040445331, -0.0008507305082298148, 0.00011463492141477785, -1.0324887770813573e-05], "s") }});
    let a = min(abs(x), {{ V }}(4.0));
    let far = sign(x) * (1.0 - exp({{ poly([0.00022550241591989817, -1.1297387384169142, -0.6329634263619704, -0.10856689214495215, 0.025132062711605063, -0.004025248557725955, 0.000313544219464039, 2.7010111052649312e-05, -1.0432130444589652e-05, 1.1536626756567346e-06, -4.850664559235695e-08], "a") }}));
    return keep_nan{{ suffix }}(x, select(near, far, abs(x) >= {{ V }}(0.92)));
}

// 1 / (1 + exp(-x)); the exponent is held where exp stays finite.
fn sigmoid{{ suffix }}(x: {{ V }}) -> {{ V }} {
    let y = 1.0 / (1.0 + exp(-clamp(x, {{ V }}(-87.0), {{ V }}(87.0))));
    return keep_nan{{ suffix }}(x, select(y, {{ V }}(0.0), x < {{ V }}(-104.0)));
}
{% endfor %}
