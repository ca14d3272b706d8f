{# One i64 as two words, the low one first: operations for sums, extremes and sorting, where T is that. #}
{% if T == two_words %}
fn one_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let lo = a.x + b.x;
    return vec2<u32>(lo, a.y + b.y + u32(lo < a.x));
}

fn one_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low_high = (a.x & 0xffffu) * (b.x >> 16u);
    let high_low = (a.x >> 16u) * (b.x & 0xffffu);
    let middle = (((a.x & 0xffffu) * (b.x & 0xffffu)) >> 16u) + (low_high & 0xffffu) + (high_low & 0xffffu);
    let carried = (a.x >> 16u) * (b.x >> 16u) + (low_high >> 16u) + (high_low >> 16u) + (middle >> 16u);
    return vec2<u32>(a.x * b.x, carried + a.x * b.y + a.y * b.x);
}

fn one_equal(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.x == b.x) & (a.y == b.y); }

fn one_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    let high = bitcast<vec2<i32>>(vec2<u32>(a.y, b.y));
    return (high.x < high.y) | ((high.x == high.y) & (a.x < b.x));
}

fn one_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, one_less(a, b)); }

fn one_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, one_less(b, a)); }

{% endif %}
