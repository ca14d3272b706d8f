// Stores a peak: as a pair of bin and power, or in separate arrays of powers and bins.
fn put(index: u32, bin: u32, power: f32) {
{% if apart %}
    values[index] = power;
    places[index] = i32(bin);
{% else %}
    y[2u * index] = f32(bin);
    y[2u * index + 1u] = power;
{% endif %}
}
