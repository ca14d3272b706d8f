// Product of matrices of bytes in i32 on the matrix units of a GPU, tiled like matmul_fragments.wgsl. Four bytes are a word;
// rows of both matrices are whole words. BK counts bytes.
//
// Matrix units take bytes of `b` fastest where those along k are neighbours, so that a thread turns blocks of 16 rows and 4
// columns on the way into workgroup memory. Unsigned bytes are taken as signed ones plus 128, which adds 128 times the sums
// of the other operand: these are products by a matrix of ones.
{{ bindings(access, a="vec4<u32>" if k % 16 == 0 else "u32", b="u32") }}
{% set vectors = true %}
{% include "lib/scaled.wgsl" %}
{% include "lib/bytes.wgsl" %}
{% set subgroups = (bm // wm) * (bn // wn) %}
{% set threads = subgroups * lanes %}
{% set ia, jb = wm // fm, wn // fn %}
{% set stride = bk + 16 %}
{% set loads_a, loads_b = bm * bk // 16 // threads, bn * bk // 64 // threads %}
{% set ragged_k = k % bk != 0 %}
{# Bytes of workgroup memory: both tiles, and later the sums of one row of fragments of each subgroup, the sums of columns
   of `b` and those of rows of `a`. #}
{% set of_b, of_a = 4 * fm * wn, 4 * fm * fn %}
{% set own = of_b + (of_b if not a_signed else 0) + (of_a if not b_signed else 0) %}
{% set size = [(bm + bn) * stride, subgroups * own]|max %}
var<workgroup> shared_memory: buffer<{{ size }}>;
alias Left = subgroup_matrix_left<i8, {{ fk }}, {{ fm }}>;
alias Right = subgroup_matrix_right<i8, {{ fn }}, {{ fk }}>;
alias Sums = subgroup_matrix_result<i32, {{ fn }}, {{ fm }}>;

// 16 bytes of a row of `a`, from byte `index` on; 0 past the end of the row.
fn load_a(base: u32, row: u32, index: u32) -> vec4<u32> {
    let start = base + {{ "min(row, M - 1u)" if m % bm else "row" }} * K;
{% if k % 16 == 0 %}
    let result = a[(start + {{ "min(index, K - 16u)" if ragged_k else "index" }}) >> 4u]{{ " ^ vec4<u32>(0x80808080u)" if not a_signed }};
    return {{ "select(vec4<u32>(), result, index < K)" if ragged_k else "result" }};
{% else %}
    let result = vec4<u32>({% for c in range(4) %}a[(start + min(index + {{ 4 * c }}u, K - 4u)) >> 2u]{{ ", " if c < 3 }}{% endfor %}){{ " ^ vec4<u32>(0x80808080u)" if not a_signed }};
    return select(vec4<u32>(), result, vec4<u32>(index, index + 4u, index + 8u, index + 12u) < vec4<u32>(K));
{% endif %}
}

// The bytes of four columns in row k of `b`; 0 past the last row.
fn load_b(base: u32, k: u32, column: u32) -> u32 {
    let result = b[(base + {{ "min(k, K - 1u)" if ragged_k else "k" }} * N + {{ "min(column, N - 4u)" if n % bn else "column" }}) >> 2u]{{ " ^ 0x80808080u" if not b_signed }};
    return {{ "select(0u, result, k < K)" if ragged_k else "result" }};
}

@compute @workgroup_size({{ threads }}){{ " @subgroup_size(" ~ lanes ~ ")" if sized }}
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32,
        @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) member: u32) {
{% include "lib/integer_place.wgsl" %}
    let a_base = a_matrix * (M * K);
    let b_base = b_matrix * (K * N);
    let sub_row = subgroup / {{ bn // wn }}u * {{ wm }}u;
    let sub_column = subgroup % {{ bn // wn }}u * {{ wn }}u;
    // The same memory as pieces, which threads write, and as words of bytes, which fragments are loaded from.
    let pieces = bufferView<array<vec4<u32>, {{ size // 16 }}>>(&shared_memory, 0u);
    let bytes = bufferView<array<i32, {{ size // 4 }}>>(&shared_memory, 0u);
{% for i in range(ia) %}
    {{ "var of_row" ~ i ~ " = Sums();" if not b_signed }}
{% for j in range(jb) %}
    var acc{{ i }}_{{ j }} = Sums();
{% endfor %}
{% endfor %}
{% for j in range(jb) %}
    {{ "var of_column" ~ j ~ " = Sums();" if not a_signed }}
{% endfor %}
    for (var k0 = 0u; k0 < K; k0 += {{ bk }}u) { // trips: K / {{ bk }}
{% for i in range(loads_a) %}
        {
            let index = lane + {{ i * threads }}u;
            pieces[index / {{ bk // 16 }}u * {{ stride // 16 }}u + index % {{ bk // 16 }}u] = load_a(a_base, row0 + index / {{ bk // 16 }}u, k0 + index % {{ bk // 16 }}u * 16u);
        }
{% endfor %}
{% for i in range(loads_b) %}
        {
            let index = lane + {{ i * threads }}u;
            let column = index % {{ bn // 4 }}u * 4u;
            let k = index / {{ bn // 4 }}u * 16u;
{% for q in range(4) %}
            let turned{{ q }} = exchanged(vec4<u32>({% for c in range(4) %}load_b(b_base, k0 + k + {{ 4 * q + c }}u, column0 + column){{ ", " if c < 3 }}{% endfor %}));
{% endfor %}
{% for c in range(4) %}
            pieces[{{ bm * stride // 16 }}u + (column + {{ c }}u) * {{ stride // 16 }}u + k / 16u] = vec4<u32>({% for q in range(4) %}turned{{ q }}.{{ "xyzw"[c] }}{{ ", " if q < 3 }}{% endfor %});
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
{# Places and strides of fragments of bytes count bytes. #}
{% for kk in range(0, bk, fk) %}
        {
{% for i in range(ia) %}
            let a{{ i }} = subgroupMatrixLoad<Left>(bytes, (sub_row + {{ i * fm }}u) * {{ stride }}u + {{ kk }}u, false, {{ stride }}u);
            {{ "of_row" ~ i ~ " = subgroupMatrixMultiplyAccumulate(a" ~ i ~ ", Right(1), of_row" ~ i ~ ");" if not b_signed }}
{% endfor %}
{% for j in range(jb) %}
            let b{{ j }} = subgroupMatrixLoad<Right>(bytes, {{ bm * stride }}u + (sub_column + {{ j * fn }}u) * {{ stride }}u + {{ kk }}u, true, {{ stride }}u);
            {{ "of_column" ~ j ~ " = subgroupMatrixMultiplyAccumulate(Left(1), b" ~ j ~ ", of_column" ~ j ~ ");" if not a_signed }}
{% for i in range(ia) %}
            acc{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(a{{ i }}, b{{ j }}, acc{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
    }
    // Which thread has which number of a fragment is known to the driver alone, so sums go through workgroup memory.
    let sum_vectors = bufferView<array<vec4<i32>, {{ size // 16 }}>>(&shared_memory, 0u);
    let own = subgroup * {{ own // 4 }}u;
{% for i in range(ia) %}
{% for j in range(jb) %}
    subgroupMatrixStore(bytes, own + {{ j * fn }}u, acc{{ i }}_{{ j }}, false, {{ wn }}u);
{% if not a_signed and i == 0 %}
    subgroupMatrixStore(bytes, own + {{ of_b // 4 + j * fn }}u, of_column{{ j }}, false, {{ wn }}u);
{% endif %}
{% endfor %}
{% if not b_signed %}
    subgroupMatrixStore(bytes, own + {{ (own - of_a) // 4 }}u, of_row{{ i }}, false, {{ fn }}u);
{% endif %}
    workgroupBarrier();
    for (var index = member; index < {{ fm * wn // 4 }}u; index += {{ lanes }}u) { // trips: {{ (fm * wn // 4 + lanes - 1) // lanes }}
        let row = row0 + sub_row + {{ i * fm }}u + index / {{ wn // 4 }}u;
        let column = column0 + sub_column + index % {{ wn // 4 }}u * 4u;
        var sums = sum_vectors[own / 4u + index];
        {{ "sums += 128 * sum_vectors[own / 4u + " ~ of_b // 16 ~ "u + index];" if not a_signed }}
        {{ "sums += vec4<i32>(128 * bytes[own + " ~ (own - of_a) // 4 ~ "u + index / " ~ wn // 4 ~ "u * " ~ fn ~ "u]);" if not b_signed }}
        {{ "sums += vec4<i32>(" ~ 16384 * k ~ ");" if not (a_signed or b_signed) }}
        {{ "if (row < M && column < N) " if m % bm or n % bn }}{ y[((z * M + row) * N + column) >> 2u] = finished(sums, column); }
    }
    workgroupBarrier();
{% endfor %}
}
