// Convolution as a product [outputs, k] @ [k, windows] whose right side is read through the windows, tiled as in
// matmul.wgsl. A tile has one window per thread, which loads the taps of its window. A step of k is `lines` rows of `piece`
// neighbouring taps, whose distances are constants. Where the sums are split, each partition goes to `y` as a result of
// its own; split_sum.wgsl adds.
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set taps = kernel[0] * kernel[1] * kernel[2] %}
{% set k = c * taps %}
{% set per = taps // piece %}
{% set cuts = kernel[2] // piece %}
{% set bk = lines * piece %}
{% set windows = out[0] * out[1] * out[2] %}
{% set nx, ny = bn // tn, bm // tm %}
{% set threads = nx * ny %}
{% set ia, jb = tm // 4, tn // 4 %}
{% set apart = bm // 4 + 1 %}
{% set tail = (c * per) % lines != 0 %}
{# Whether every step begins with a new channel. Then each line's place in the channel is a constant. #}
{% set fixed = lines % per == 0 %}
{% set wide_w = k > 0 and k is divisibleby(4) and bk is divisibleby(4) %}
{% set wide_x = taps == 1 and windows is divisibleby(4) and dims == out and not (checks[0] or checks[1] or checks[2]) %}
{% set wide_y = windows is divisibleby(4) %}
{% set quads = bk // 4 %}
{% set size_w = bm * (quads if wide_w else bk) %}
{% set loads_w = (size_w + threads - 1) // threads %}
{% set loads_x = quads if wide_x else bk %}
{% set biased = has_bias and splits is not may_exceed(1) %}
{% set last = 3 if biased else 2 %}
{{ bindings(access, x="vec4<f32>" if wide_x else "f32", w="vec4<f32>" if wide_w else "f32") }}
{% if biased %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<f32>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<{{ "vec4<f32>" if wide_y else "f32" }}>;

// Both tiles lie along k. A vector parts the rows of the left one: neighbours along k, which are stored together,
// are in different banks.
var<workgroup> left: array<vec4<f32>, {{ bk * apart }}>;
var<workgroup> right: array<vec4<f32>, {{ bk * bn // 4 }}>;

{% include "lib/windows.wgsl" %}

const M: u32 = {{ m }}u;
const K: u32 = {{ k }}u;
const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const WINDOWS: u32 = {{ windows }}u;
const ALL: u32 = {{ batch * windows }}u;
// A place from which no tap reaches the operand.
const FAR: i32 = -0x40000000;

fn store(base: u32, part: u32, row: u32, q: u32, sum: vec4<f32>) {
{% if m is not known_multiple(bm) or (batch * windows) is not known_multiple(bn) %}
    if (row >= M || q >= ALL) { return; }
{% endif %}
    let o = part * M + row;
    let v = sum{{ " + vec4<f32>(bias[o])" if biased }};
{% if wide_y %}
    y[(base + ((q / WINDOWS) * OUTPUTS + o) * WINDOWS + q % WINDOWS) >> 2u] = v;
{% else %}
{% for j in range(4) %}
    if (q + {{ j }}u < ALL) { y[base + (((q + {{ j }}u) / WINDOWS) * OUTPUTS + o) * WINDOWS + (q + {{ j }}u) % WINDOWS] = v[{{ j }}]; }
{% endfor %}
{% endif %}
}

{# The loads of a thread for the step that begins with line `l`. #}
{% macro load(l) %}
        {
            let l = {{ l }};
            let k = l * {{ piece }}u;
{% for i in range(loads_w) %}
{% set inside = [] %}
{% if (loop.index * threads) > size_w %}{% set inside = inside + ["lane + " ~ i * threads ~ "u < " ~ size_w ~ "u"] %}{% endif %}
{% if tail %}{% set inside = inside + ["k + (lane + " ~ i * threads ~ "u) % " ~ (quads if wide_w else bk) ~ "u" ~ (" * 4u" if wide_w else "") ~ " < K"] %}{% endif %}
{% if inside %}
            mine{{ i }} = {{ "vec4<f32>(0.0)" if wide_w else "0.0" }};
            if ({{ inside|join(" && ") }}) { mine{{ i }} = w[w_at{{ i }} + {{ "k / 4u" if wide_w else "k" }}]; }
{% else %}
            mine{{ i }} = w[w_at{{ i }} + {{ "k / 4u" if wide_w else "k" }}];
{% endif %}
{% endfor %}
{% if wide_x %}
            let index = x_at + l * {{ windows // 4 }}u;
{% for i in range(loads_x) %}
{% if tail %}
            other{{ i }} = vec4<f32>(0.0);
            if (l + lane / {{ bn // 4 }}u + {{ 4 * i }}u < {{ c }}u) { other{{ i }} = x[index + {{ i * windows }}u]; }
{% else %}
            other{{ i }} = x[index + {{ i * windows }}u];
{% endif %}
{% endfor %}
{% else %}
{% if fixed %}
            let plane = x_at + (l / {{ per }}u) * PLANE;
{% endif %}
{% for j in range(lines) %}
            {
{% if fixed %}
{% set row, cut = (j % per) // cuts, j % cuts %}
                let index = plane + {{ (j // per) * dims[0] * dims[1] * dims[2] + ((row // kernel[1]) * dilation[0] * dims[1] + (row % kernel[1]) * dilation[1]) * dims[2] + cut * piece * dilation[2] }}u;
                let place = {{ "across%s + %s" % (row, cut * piece * dilation[2]) }};
{% else %}
                let line = l + {{ j }}u;
                let row = (line % {{ per }}u) / {{ cuts }}u;
                let z = (row / {{ kernel[1] }}u) * {{ dilation[0] }}u;
                let h = (row % {{ kernel[1] }}u) * {{ dilation[1] }}u;
                let cut = (line % {{ cuts }}u) * {{ piece * dilation[2] }}u;
                let index = x_at + (line / {{ per }}u) * PLANE + (z * {{ dims[1] }}u + h) * {{ dims[2] }}u + cut;
                let place = select(FAR, start.z + i32(cut), {{ row_inside("i32(z)", "i32(h)") }});
{% endif %}
{% for t in range(piece) %}
{% set name = "other" ~ (j * piece + t) %}
{% set inside = [] %}
{% if tail %}{% set inside = inside + ["l + " ~ j ~ "u < " ~ c * per ~ "u"] %}{% endif %}
{% if checks[2] %}{% set inside = inside + ["u32(place + " ~ t * dilation[2] ~ ") < " ~ dims[2] ~ "u"] %}
{% elif checks[0] or checks[1] %}{% set inside = inside + ["place >= 0"] %}{% endif %}
{% if inside %}
                {{ name }} = 0.0;
                if ({{ inside|join(" && ") }}) { {{ name }} = x[index + {{ t * dilation[2] }}u]; }
{% else %}
                {{ name }} = x[index + {{ t * dilation[2] }}u];
{% endif %}
{% endfor %}
            }
{% endfor %}
{% endif %}
        }
{% endmacro %}
{# Whether a row of taps lies in the operand, for a window of this thread. #}
{% macro row_inside(z, h) -%}
true{{ " && u32(start.x + " ~ z ~ ") < " ~ dims[0] ~ "u" if checks[0] }}{{ " && u32(start.y + " ~ h ~ ") < " ~ dims[1] ~ "u" if checks[1] }}
{%- endmacro %}
@compute @workgroup_size({{ threads }})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% include "lib/conv_place.wgsl" %}
    let tx = lane % {{ nx }}u;
    let ty = lane / {{ nx }}u;
    // Windows and outputs past the end repeat the last one, and are not stored.
{% if wide_x %}
    let q = min(column0 + (lane % {{ bn // 4 }}u) * 4u, ALL - 4u);
    let x_at = (((q / WINDOWS) * CHANNELS + part * {{ c }}u + lane / {{ bn // 4 }}u) * PLANE + q % WINDOWS) >> 2u;
{% else %}
    let q = min(column0 + lane, ALL - 1u);
    let start = window_start(q % WINDOWS);
    let x_at = ((q / WINDOWS) * CHANNELS + part * {{ c }}u) * PLANE + offset_in_plane(start);
{% if fixed %}
{% for row in range(kernel[0] * kernel[1]) %}
    let across{{ row }} = select(FAR, {{ "start.z" if checks[2] else "0" }}, {{ row_inside((row // kernel[1]) * dilation[0], (row % kernel[1]) * dilation[1]) }});
{% endfor %}
{% endif %}
{% endif %}
{% set width = quads if wide_w else bk %}
{% for i in range(loads_w) %}
    let w_at{{ i }} = (part * M + min(row0 + (lane + {{ i * threads }}u) / {{ width }}u, M - 1u)) * {{ k // 4 if wide_w else k }}u + (lane + {{ i * threads }}u) % {{ width }}u;
    var mine{{ i }}: {{ "vec4<f32>" if wide_w else "f32" }};
{% endfor %}
{% for i in range(loads_x) %}
    var other{{ i }}: {{ "vec4<f32>" if wide_x else "f32" }};
{% endfor %}
{% for i in range(tm) %}
{% for j in range(jb) %}
    var acc{{ i }}_{{ j }} = vec4<f32>(0.0);
{% endfor %}
{% endfor %}
    // Lines of this partition. The next step is loaded while this one is multiplied.
    let begin = split * {{ partition_lines }}u;
    let end = min(begin + {{ partition_lines }}u, {{ c * per }}u);
{% if k > 0 %}
{{ load("begin") }}
    for (var line0 = begin; line0 < end; line0 += {{ lines }}u) { // trips: {{ partition_lines }} / {{ lines }}
{% for i in range(loads_w) %}
        {{ "if (lane + %su < %su) " % (i * threads, size_w) if loop.index * threads > size_w }}{
            let e = lane + {{ i * threads }}u;
            let row = e / {{ width }}u;
            let index = (e % {{ width }}u) * {{ apart * 4 if wide_w else apart }}u + row / 4u;
{% if wide_w %}
{% for j in range(4) %}
            left[index + {{ j * apart }}u][row % 4u] = mine{{ i }}.{{ "xyzw"[j] }};
{% endfor %}
{% else %}
            left[index][row % 4u] = mine{{ i }};
{% endif %}
        }
{% endfor %}
{% for i in range(loads_x) %}
{% if wide_x %}
        right[lane + {{ i * threads }}u] = other{{ i }};
{% else %}
        right[lane / 4u + {{ i * bn // 4 }}u][lane % 4u] = other{{ i }};
{% endif %}
{% endfor %}
        workgroupBarrier();
        if (line0 + {{ lines }}u < end) {
{{ load("line0 + " ~ lines ~ "u") }}
        }
{% for kk in range(bk) %}
        {
{% for i in range(ia) %}
            let a{{ i }} = left[{{ kk * apart + i * ny }}u + ty];
{% endfor %}
{% for j in range(jb) %}
            let b{{ j }} = right[{{ kk * bn // 4 + j * nx }}u + tx];
{% endfor %}
{% for i in range(tm) %}
{% for j in range(jb) %}
            acc{{ i }}_{{ j }} += a{{ i // 4 }}.{{ "xyzw"[i % 4] }} * b{{ j }};
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
{% endif %}
    let base = split * {{ batch * outputs * windows }}u;
{% for i in range(tm) %}
{% for j in range(jb) %}
    store(base, part, row0 + (ty + {{ (i // 4) * ny }}u) * 4u + {{ i % 4 }}u, column0 + (tx + {{ j * nx }}u) * 4u, acc{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
}
