// Stores a peak: as a pair of bin and power, or in separate arrays of powers and bins.
fn put(at: u32, bin: u32, power: f32) {
{% if apart %}
    values[at] = power;
    places[at] = i32(bin);
{% else %}
    y[2u * at] = f32(bin);
    y[2u * at + 1u] = power;
{% endif %}
}
