// Convolution on the matrix units of a GPU, as a product [outputs, k] @ [k, windows] whose right side is read through the
// windows; tiled as in matmul_fragments.wgsl. Operands are f16, or f32 that are rounded to f16; sums are f32.
//
// k goes through the channels of one tap after the other, so that a step of BK channels reads all of them at the same place
// of their planes, and asks once whether that place is there. `w` has the order [outputs, taps, channels]. A thread brings
// the channels of {{ per }} window{{ "s" if per > 1 }}: it computes where a window begins once. Where the sums are split, each partition
// goes to `y` as a result of its own; split_sum.wgsl adds.
{% set E = "f32" if rounded else "f16" %}
{% set O = "f32" if splits is may_exceed(1) else E %}
{% set m = outputs // parts %}
{% set c = channels // parts %}
{% set taps = kernel[0] * kernel[1] * kernel[2] %}
{% set windows = out[0] * out[1] * out[2] %}
{% set subgroups = (bm // wm) * (bn // wn) %}
{% set threads = subgroups * lanes %}
{% set ia, jb = wm // fm, wn // fn %}
{% import "lib/fragment_loader.wgsl" as loader with context %}
{% set stride_k = bk + 8 %}
{% set a_size, b_size = bm * stride_k, bn * stride_k %}
{% set halves = [a_size + b_size, 2 * subgroups * fm * wn]|max %}
{% set loads = bm * bk // 8 // threads %}
{# Steps of a tap. #}
{% set per_tap = (c + bk - 1) // bk %}
{# Threads that share a window, or windows that a thread has; channels of a step that a thread brings for each. #}
{% set shared = [threads // bn, 1]|max %}
{% set mine = bk // shared %}
{% set wide_y = windows is divisibleby(4) %}
{% set biased = has_bias and splits is not may_exceed(1) %}
{% set last = 3 if biased else 2 %}
{% set checked = checks[0] or checks[1] or checks[2] %}
{{ bindings(access, x=E, w=loader.unit(rounded, c)) }}
{% if biased %}
@group(0) @binding(2) var<storage, {{ access[2] }}> bias: array<{{ E }}>;
{% endif %}
@group(0) @binding({{ last }}) var<storage, {{ access[last] }}> y: array<{{ "vec4<" ~ O ~ ">" if wide_y else O }}>;
var<workgroup> shared_memory: buffer<{{ 2 * halves }}>;
alias Left = subgroup_matrix_left<f16, {{ fk }}, {{ fm }}>;
alias Right = subgroup_matrix_right<f16, {{ fn }}, {{ fk }}>;
alias Sums = subgroup_matrix_result<f32, {{ fn }}, {{ fm }}>;
{% include "lib/windows.wgsl" %}

const M: u32 = {{ m }}u;
const PLANE: u32 = {{ dims[0] * dims[1] * dims[2] }}u;
const WINDOWS: u32 = {{ windows }}u;
const ALL: u32 = {{ batch * windows }}u;

{{ loader.function("load_w", "w", rounded, m, c, taps * c, c, "along", m % bm != 0, c % bk != 0) }}
fn store(base: u32, part: u32, row: u32, q: u32, sum: vec4<f32>) {
{% if m % bm or (batch * windows) % bn %}
    if (row >= M || q >= ALL) { return; }
{% endif %}
    let o = part * M + row;
    let v = vec4<{{ O }}>(sum{{ " + vec4<f32>(f32(bias[o]))" if biased }});
{% if wide_y %}
    y[(base + ((q / WINDOWS) * OUTPUTS + o) * WINDOWS + q % WINDOWS) >> 2u] = v;
{% else %}
{% for j in range(4) %}
    if (q + {{ j }}u < ALL) { y[base + (((q + {{ j }}u) / WINDOWS) * OUTPUTS + o) * WINDOWS + (q + {{ j }}u) % WINDOWS] = v[{{ j }}]; }
{% endfor %}
{% endif %}
}

@compute @workgroup_size({{ threads }}){{ " @subgroup_size(" ~ lanes ~ ")" if sized }}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) member: u32) {
{% include "lib/conv_place.wgsl" %}
    let sub_row = subgroup / {{ bn // wn }}u * {{ wm }}u;
    let sub_column = subgroup % {{ bn // wn }}u * {{ wn }}u;
    let pieces = bufferView<array<vec4<u32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    let half_words = bufferView<array<f16, {{ halves }}>>(&shared_memory, 0u);
    // The first of this thread's channels of a step.
    let channel = {{ "lane / " ~ bn ~ "u * " ~ mine ~ "u" if shared > 1 else "0u" }};
{% for i in range(per) %}
    // Windows past the end repeat the last one, and are not stored.
    let q{{ i }} = min(column0 + {{ "lane % " ~ bn ~ "u" if shared > 1 else "lane + " ~ i * threads ~ "u" }}, ALL - 1u);
    let start{{ i }} = window_start(q{{ i }} % WINDOWS);
    let x_at{{ i }} = ((q{{ i }} / WINDOWS) * CHANNELS + part * {{ c }}u + channel) * PLANE + offset_in_plane(start{{ i }});
{% endfor %}
{% for i in range(ia) %}
{% for j in range(jb) %}
    var acc{{ i }}_{{ j }} = Sums();
{% endfor %}
{% endfor %}
    let begin = split * {{ partition_steps }}u;
    let end = min(begin + {{ partition_steps }}u, {{ taps * per_tap }}u);
    for (var step = begin; step < end; step++) { // trips: {{ partition_steps }}
        let tap = step / {{ per_tap }}u;
        let c0 = step % {{ per_tap }}u * {{ bk }}u;
{% for i in range(loads) %}
        {
            let index = lane + {{ i * threads }}u;
            pieces[index / {{ bk // 8 }}u * {{ stride_k // 8 }}u + index % {{ bk // 8 }}u] = load_w(part * M * {{ taps * c }}u + tap * {{ c }}u, row0 + index / {{ bk // 8 }}u, c0 + index % {{ bk // 8 }}u * 8u);
        }
{% endfor %}
        let apart = tap_step(tap);
{% for i in range(per) %}
        {
            let there = {{ "inside(start" ~ i ~ " + apart)" if checked else "true" }};
            let index = x_at{{ i }} + offset_in_plane(apart) + c0 * PLANE;
            let line = {{ (a_size) // 8 }}u + {{ "lane % " ~ bn ~ "u" if shared > 1 else "(lane + " ~ i * threads ~ "u)" }} * {{ stride_k // 8 }}u + channel / 8u;
{% for piece in range(mine // 8) %}
            {
                var piece_value = vec4<u32>(0u);
                if (there) {
{% if c % bk %}
                    let left = {{ c }}u - min(c0 + channel + {{ 8 * piece }}u, {{ c }}u);
{% endif %}
{% for e in range(8) %}
{% set place = "x[index + " ~ (8 * piece + e) ~ "u * PLANE]" %}
{% if c % bk %}
                    var v{{ e }} = f16(0.0);
                    if (left > {{ e }}u) { v{{ e }} = f16({{ place }}); }
{% else %}
                    let v{{ e }} = f16({{ place }});
{% endif %}
{% endfor %}
                    piece_value = vec4<u32>({% for e in range(4) %}bitcast<u32>(vec2<f16>(v{{ 2 * e }}, v{{ 2 * e + 1 }})){{ ", " if e < 3 }}{% endfor %});
                }
                pieces[line + {{ piece }}u] = piece_value;
            }
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
{% for kk in range(0, bk, fk) %}
        {
{% for i in range(ia) %}
            let a{{ i }} = subgroupMatrixLoad<Left>(half_words, (sub_row + {{ i * fm }}u) * {{ stride_k }}u + {{ kk }}u, false, {{ stride_k }}u);
{% endfor %}
{% for j in range(jb) %}
            let b{{ j }} = subgroupMatrixLoad<Right>(half_words, {{ a_size }}u + (sub_column + {{ j * fn }}u) * {{ stride_k }}u + {{ kk }}u, true, {{ stride_k }}u);
{% for i in range(ia) %}
            acc{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(a{{ i }}, b{{ j }}, acc{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
    let base = split * {{ batch * outputs * windows }}u;
    // Which thread has which number of a fragment is known to the driver alone, so sums go through workgroup memory.
    let sum_words = bufferView<array<f32, {{ halves // 2 }}>>(&shared_memory, 0u);
    let sum_vectors = bufferView<array<vec4<f32>, {{ halves // 8 }}>>(&shared_memory, 0u);
    let own = subgroup * {{ fm * wn }}u;
{% for i in range(ia) %}
{% for j in range(jb) %}
    subgroupMatrixStore(sum_words, own + {{ j * fn }}u, acc{{ i }}_{{ j }}, false, {{ wn }}u);
{% endfor %}
    workgroupBarrier();
    for (var index = member; index < {{ fm * wn // 4 }}u; index += {{ lanes }}u) { // trips: {{ (fm * wn // 4 + lanes - 1) // lanes }}
        store(base, part, row0 + sub_row + {{ i * fm }}u + index / {{ wn // 4 }}u, column0 + sub_column + index % {{ wn // 4 }}u * 4u, sum_vectors[own / 4u + index]);
    }
    workgroupBarrier();
{% endfor %}
}
