{# An index of 64 bits as the nearest i32: one that is out of range stays out of range. #}
fn index_of(i: vec2<u32>) -> i32 {
    let low = bitcast<i32>(i.x);
    let high = bitcast<i32>(i.y);
    return select((high >> 31u) ^ 0x7fffffff, low, high == (low >> 31u));
}
