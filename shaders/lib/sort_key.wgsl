// Bits of a value that order as unsigned numbers in the wanted order; NaN and padding come last.
fn sort_key(v: {{ T }}) -> u32 {
{% if T == "f32" %}
    let bits = bitcast<u32>(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xfffffffeu; }
    // -0 equals 0.
    let number = select(bits, 0u, bits == 0x80000000u);
    let key = select(number | 0x80000000u, ~number, (number >> 31u) == 1u);
{% elif T == "i32" %}
    let key = bitcast<u32>(v) ^ 0x80000000u;
{% else %}
    let key = v;
{% endif %}
    return {{ "~key" if largest else "key" }};
}

// Without the branches that || and && would be.
fn comes_before(a: u32, i: u32, b: u32, j: u32) -> bool { return (a < b) | ((a == b) & (i < j)); }
