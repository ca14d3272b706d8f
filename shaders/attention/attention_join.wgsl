// Joins the partial results that attention_split wrote for each row. Each part of the keys has a sum of weights and
// weighted values relative to its own largest score; they are rescaled to the largest score of all. One workgroup per
// row.
{% set vq = dv // 4 %}
{% set strips = threads // columns %}
@group(0) @binding(0) var<storage, {{ access[0] }}> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, {{ access[1] }}> stats: array<vec2<f32>>;
@group(0) @binding(2) var<storage, {{ access[2] }}> y: array<vec4<f32>>;

// Per thread: the largest score that it saw and the sum of weights; the weighted values.
var<workgroup> edge: array<vec2<f32>, {{ threads }}>;
var<workgroup> part: array<vec4<f32>, {{ threads }}>;

{{ by_group(threads) }}
    let base = g * SPLITS;
    let column = {{ "lane % " ~ columns ~ "u" if columns == vq else "min(lane % " ~ columns ~ "u, " ~ (vq - 1) ~ "u)" }};
    // Below every score, and finite: the difference of two infinities would be NaN.
    var top = -3.0e38;
    var sum = vec4<f32>(0.0);
    var total = 0.0;
    for (var i = lane / {{ columns }}u; i < SPLITS; i += {{ 4 * strips }}u) { // trips: SPLITS / {{ 4 * strips }}
{% for u in range(4) %}
        let i{{ u }} = min(i + {{ u * strips }}u, SPLITS - 1u);
        let s{{ u }} = stats[base + i{{ u }}];
        let x{{ u }} = x[(base + i{{ u }}) * {{ vq }}u + column];
{% endfor %}
        let next = max(top, max(max(s0.x, s1.x), max(s2.x, s3.x)));
        sum *= exp(top - next);
        total *= exp(top - next);
        top = next;
{% for u in range(4) %}
        if (i + {{ u * strips }}u < SPLITS) {
            let scale{{ u }} = exp(s{{ u }}.x - top);
            sum += scale{{ u }} * x{{ u }};
            total += scale{{ u }} * s{{ u }}.y;
        }
{% endfor %}
    }
    part[lane] = sum;
    edge[lane] = vec2<f32>(top, total);
    workgroupBarrier();
    if (lane < {{ vq }}u) {
{% for j in range(strips) %}
        let e{{ j }} = edge[lane + {{ j * columns }}u];
        top = max(top, e{{ j }}.x);
{% endfor %}
        sum = vec4<f32>(0.0);
        total = 0.0;
{% for j in range(strips) %}
        {
            let scale = exp(e{{ j }}.x - top);
            sum += scale * part[lane + {{ j * columns }}u];
            total += scale * e{{ j }}.y;
        }
{% endfor %}
        // A query that sees no key gives zeros; a NaN total passes, since naga's comparison is false for it.
        var inverse = 0.0;
        if (!(total == 0.0)) { inverse = 1.0 / total; }
        let head = (g / {{ sq }}u) % {{ heads }}u;
        let to = g / {{ sq * heads }}u * {{ o_steps[0] // 4 }}u + head * {{ o_steps[1] // 4 }}u + g % {{ sq }}u * {{ o_steps[2] // 4 }}u;
        y[to + lane] = sum * inverse;
    }
}
