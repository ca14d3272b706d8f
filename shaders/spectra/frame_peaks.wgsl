// The k strongest bins of a signal's Welch spectrum, one signal per workgroup, each segment read from the signal.
// Two segments a and b are transformed as one, a + i b = z: what is averaged, |A[k]|^2 + |B[k]|^2, is
// (|Z[k]|^2 + |Z[n - k]|^2) / 2. Then a thread holds neighbouring bins, and only those of threads whose best bin is
// among the k best of all threads are compared with each other.
{% from "lib/fft_passes.wgsl" import points, each, butterflies, exchange with context %}
{% from "lib/dft.wgsl" import dft_place with context %}
{% set lanes = count * threads %}
{% set pairs = (segments + 1) // 2 %}
{% set passes = radices|length %}
{{ bindings(access, x="f32", roots="vec2<f32>", taper="f32", weights="f32") }}
{% if apart %}
@group(0) @binding(4) var<storage, {{ access[4] }}> values: array<f32>;
@group(0) @binding(5) var<storage, {{ access[5] }}> places: array<i32>;
{% else %}
@group(0) @binding(4) var<storage, {{ access[4] }}> y: array<f32>;
{% endif %}

var<workgroup> held: array<{{ "f32" if split else "vec2<f32>" }}, {{ count * row }}>;
{% set holders = (bins + each_bins - 1) // each_bins %}
var<workgroup> best: array<u32, {{ holders }}>;
var<workgroup> least: u32;
// Keys and bins that are compared.
var<workgroup> found: atomic<u32>;
var<workgroup> kept: array<vec2<u32>, {{ kept }}>;
{% if centred %}
var<workgroup> sums: array<vec2<f32>, {{ lanes }}>;
{% endif %}

{% set T, largest = "f32", 1 %}
{% include "lib/sort_key.wgsl" %}
{% include "lib/welch_result.wgsl" %}

fn turn(z: vec2<f32>, w: vec2<f32>) -> vec2<f32> { return z * w.x + vec2<f32>(-z.y, z.x) * w.y; }

// The power that a key was made of.
fn value_of(key: u32) -> f32 {
    if (key == 0xfffffffeu) { return bitcast<f32>(0x7fc00000u | (key & 0u)); }
    return bitcast<f32>(select(key, ~key & 0x7fffffffu, (key >> 31u) == 0u));
}

fn power_of(bin: u32) -> u32 {
    if (bin >= BINS) { return 0xffffffffu; }
    let other = select({{ n }}u - bin, 0u, bin == 0u);
    var sum = 0.0;
{% for c in range(count) %}
    sum += held[bin + {{ c * row }}u]{{ ".x" if not split }} + held[other + {{ c * row }}u]{{ ".x" if not split }};
{% endfor %}
    return sort_key(weights[bin] * (0.5 * sum / f32(SEGMENTS)));
}

{{ by_group(lanes) }}
    let thread = lane % {{ threads }}u;
    let c = lane / {{ threads }}u;
    let start = g * SAMPLES;
{% set r = radices[passes - 1] %}
{% set slots = r * ((n // r + threads - 1) // threads) %}
{% for i in range(slots) %}
    var power{{ i }} = 0.0;
{% endfor %}
{% set rounds = (pairs + count - 1) // count %}
{% if rounds > 1 %}
    // All threads make the same trips, since they wait for each other inside.
    for (var trip = 0u; trip < {{ rounds }}u; trip++) { // trips: {{ rounds }}
        let pair = c + trip * {{ count }}u;
{% else %}
    {
        let pair = c;
{% endif %}
{{ points() }}
        let from_at = start + 2u * pair * HOP;
{% for part in range(2) %}
{% set least = rounds * count * 2 > segments %}
        {{ "if (2u * pair + " ~ part ~ "u < SEGMENTS) " if least }}{
{% call(u, b, guarded) each(radices[0], "thread") %}
            {{ "if (" ~ b ~ " < " ~ (n // radices[0]) ~ "u) " if guarded }}{
                let index = from_at + {{ part * hop }}u + {{ b }};
{% for i in range(radices[0]) %}
                v{{ u * radices[0] + i }}.{{ "xy"[part] }} = x[index + {{ n // radices[0] * i }}u];
{% endfor %}
            }
{% endcall %}
        }
{% endfor %}
{% if centred %}
        {
            var sum = vec2<f32>(0.0);
{% for i in range(radices[0] * ((n // radices[0] + threads - 1) // threads)) %}
            sum += v{{ i }};
{% endfor %}
            sums[lane] = sum;
            workgroupBarrier();
            sum = vec2<f32>(0.0);
{% if threads <= 32 %}
{% for i in range(threads) %}
            sum += sums[c * {{ threads }}u + {{ i }}u];
{% endfor %}
{% else %}
            for (var i = 0u; i < {{ threads // 8 * 8 }}u; i += 8u) { // trips: {{ threads // 8 }}
{% for j in range(8) %}
                sum += sums[c * {{ threads }}u + i + {{ j }}u];
{% endfor %}
            }
{% for i in range(threads // 8 * 8, threads) %}
            sum += sums[c * {{ threads }}u + {{ i }}u];
{% endfor %}
{% endif %}
            let mean = sum * (1.0 / {{ n }}.0);
{% for i in range(radices[0] * ((n // radices[0] + threads - 1) // threads)) %}
            v{{ i }} -= mean;
{% endfor %}
        }
{% endif %}
{% call(u, b, guarded) each(radices[0], "thread") %}
        {{ "if (" ~ b ~ " < " ~ (n // radices[0]) ~ "u) " if guarded }}{
            let index = {{ b }};
{% for i in range(radices[0]) %}
            v{{ u * radices[0] + i }} *= taper[index + {{ n // radices[0] * i }}u];
{% endfor %}
        }
{% endcall %}
{% for s in range(passes) %}
{{ butterflies(s, "thread") }}
{% if s < passes - 1 %}
{% set index = "c * " ~ row ~ "u" %}
{{ exchange(s, "thread", index, "thread", index) }}
{% endif %}
{% endfor %}
{% for i in range(slots) %}
        power{{ i }} += dot(v{{ i }}, v{{ i }});
{% endfor %}
        workgroupBarrier();
    }
{% call(u, b, guarded) each(r, "thread") %}
    {{ "if (" ~ b ~ " < " ~ (n // r) ~ "u) " if guarded }}{
        let index = c * {{ row }}u + {{ b }};
{% for j in range(r) %}
{% set power = "power" ~ (u * r + dft_place(r, j)|int) %}
        held[index + {{ n // r * j }}u] = {{ power if split else "vec2<f32>(" ~ power ~ ", 0.0)" }};
{% endfor %}
    }
{% endcall %}
    workgroupBarrier();
    let bin = lane * {{ each_bins }}u;
{% for i in range(each_bins) %}
    let key{{ i }} = power_of(bin + {{ i }}u);
{% endfor %}
    let first = {% for i in range(each_bins - 1) %}min(key{{ i }}, {% endfor %}key{{ each_bins - 1 }}{{ ")" * (each_bins - 1) }};
    // Each thread's best is ranked among those of all.
    if (lane == 0u) { atomicStore(&found, 0u); }
    if (lane < {{ holders }}u) { best[lane] = first; }
    workgroupBarrier();
    var place = 0u;
    if (lane < {{ holders }}u) {
{% set whole = holders // 4 * 4 %}
        for (var j = 0u; j < {{ whole }}u; j += 4u) { // trips: {{ whole }} / 4
{% for i in range(4) %}
            place += u32(comes_before(best[j + {{ i }}u], j + {{ i }}u, first, lane));
{% endfor %}
        }
{% for j in range(whole, holders) %}
        place += u32(comes_before(best[{{ j }}], {{ j }}u, first, lane));
{% endfor %}
{% if k <= holders %}
        // Nothing that comes after the last of the k best bests can be among the k best bins.
        if (place == K - 1u) { least = first; }
    }
    workgroupBarrier();
    let bound = least;
{% else %}
    }
    let bound = 0xffffffffu;
{% endif %}
    if (lane < {{ holders }}u && place < K) {
{% for i in range(each_bins) %}
        if (key{{ i }} <= bound && bin + {{ i }}u < BINS) { kept[atomicAdd(&found, 1u)] = vec2<u32>(key{{ i }}, bin + {{ i }}u); }
{% endfor %}
    }
    workgroupBarrier();
    let many = atomicLoad(&found);
    for (var i = lane; i < many; i += {{ lanes }}u) { // trips: {{ kept }} / {{ lanes }}
        let mine = kept[i];
        var rank = 0u;
        for (var j = 0u; j < many; j++) { // trips: {{ kept }}
            let other = kept[j];
            rank += u32(comes_before(other.x, other.y, mine.x, mine.y));
        }
        if (rank < K) { put(g * K + rank, mine.y, value_of(mine.x)); }
    }
}
