// Where a peak goes: to pairs of its bin and power, or to powers and bins apart.
fn put(at: u32, bin: u32, power: f32) {
{% if apart %}
    values[at] = power;
    places[at] = i32(bin);
{% else %}
    y[2u * at] = f32(bin);
    y[2u * at + 1u] = power;
{% endif %}
}
