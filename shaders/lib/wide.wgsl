{# Four i64 in registers as two words each, and their elementwise operations: `wide_add` is the operation
   `add`, and so on for every operation that takes integers. The functions of `wide_one.wgsl` do the same for one. #}
// The low and the high words of four i64.
struct Wide { lo: vec4<u32>, hi: vec4<u32> }

// Four i64 side by side in memory: two of them, low word first, then two more.
struct WidePacked { first: vec4<u32>, second: vec4<u32> }

fn wide_load(m: WidePacked) -> Wide {
    return Wide(vec4<u32>(m.first.xz, m.second.xz), vec4<u32>(m.first.yw, m.second.yw));
}

fn wide_store(x: Wide) -> WidePacked {
    return WidePacked(vec4<u32>(x.lo.x, x.hi.x, x.lo.y, x.hi.y), vec4<u32>(x.lo.z, x.hi.z, x.lo.w, x.hi.w));
}

fn wide_all(a: vec2<u32>) -> Wide { return Wide(vec4<u32>(a.x), vec4<u32>(a.y)); }

fn wide_four(a: vec2<u32>, b: vec2<u32>, c: vec2<u32>, d: vec2<u32>) -> Wide {
    return Wide(vec4<u32>(a.x, b.x, c.x, d.x), vec4<u32>(a.y, b.y, c.y, d.y));
}

fn wide_zero() -> Wide { return Wide(vec4<u32>(0u), vec4<u32>(0u)); }

fn wide_where(cond: vec4<bool>, a: Wide, b: Wide) -> Wide {
    return Wide(select(b.lo, a.lo, cond), select(b.hi, a.hi, cond));
}

// --- arithmetic, modulo 2^64 ---

fn wide_copy(x: Wide) -> Wide { return x; }

fn wide_add(x: Wide, y: Wide) -> Wide {
    let lo = x.lo + y.lo;
    return Wide(lo, x.hi + y.hi + select(vec4<u32>(0u), vec4<u32>(1u), lo < x.lo));
}

fn wide_sub(x: Wide, y: Wide) -> Wide {
    return Wide(x.lo - y.lo, x.hi - y.hi - select(vec4<u32>(0u), vec4<u32>(1u), x.lo < y.lo));
}

fn wide_neg(x: Wide) -> Wide { return wide_sub(wide_zero(), x); }

// The high words of products of two words, from those of their halves.
fn wide_high(x: vec4<u32>, y: vec4<u32>) -> vec4<u32> {
    let m = vec4<u32>(0xffffu);
    let s = vec4<u32>(16u);
    let low_high = (x & m) * (y >> s);
    let high_low = (x >> s) * (y & m);
    let middle = (((x & m) * (y & m)) >> s) + (low_high & m) + (high_low & m);
    return (x >> s) * (y >> s) + (low_high >> s) + (high_low >> s) + (middle >> s);
}

fn wide_mul(x: Wide, y: Wide) -> Wide {
    return Wide(x.lo * y.lo, wide_high(x.lo, y.lo) + x.lo * y.hi + x.hi * y.lo);
}

fn wide_fma(x: Wide, y: Wide, z: Wide) -> Wide { return wide_add(wide_mul(x, y), z); }

fn wide_negative(x: Wide) -> vec4<bool> { return x.hi >= vec4<u32>(0x80000000u); }

fn wide_abs(x: Wide) -> Wide { return wide_where(wide_negative(x), wide_neg(x), x); }

fn wide_sign(x: Wide) -> Wide {
    let sign = bitcast<vec4<u32>>(bitcast<vec4<i32>>(x.hi) >> vec4<u32>(31u));
    return Wide(sign | min(x.lo | x.hi, vec4<u32>(1u)), sign);
}

fn wide_relu(x: Wide) -> Wide { return wide_where(wide_negative(x), wide_zero(), x); }

fn wide_prelu(x: Wide, y: Wide) -> Wide { return wide_where(wide_negative(x), wide_mul(x, y), x); }

// --- comparison ---

fn wide_eq(x: Wide, y: Wide) -> vec4<bool> { return (x.lo == y.lo) & (x.hi == y.hi); }

fn wide_ne(x: Wide, y: Wide) -> vec4<bool> { return !wide_eq(x, y); }

// Without signs.
fn wide_below(x: Wide, y: Wide) -> vec4<bool> { return (x.hi < y.hi) | ((x.hi == y.hi) & (x.lo < y.lo)); }

fn wide_lt(x: Wide, y: Wide) -> vec4<bool> {
    let a = bitcast<vec4<i32>>(x.hi);
    let b = bitcast<vec4<i32>>(y.hi);
    return (a < b) | ((a == b) & (x.lo < y.lo));
}

fn wide_gt(x: Wide, y: Wide) -> vec4<bool> { return wide_lt(y, x); }

fn wide_le(x: Wide, y: Wide) -> vec4<bool> { return !wide_lt(y, x); }

fn wide_ge(x: Wide, y: Wide) -> vec4<bool> { return !wide_lt(x, y); }

fn wide_maximum(x: Wide, y: Wide) -> Wide { return wide_where(wide_lt(x, y), y, x); }

fn wide_minimum(x: Wide, y: Wide) -> Wide { return wide_where(wide_lt(y, x), y, x); }

// --- bits ---

fn wide_bit_and(x: Wide, y: Wide) -> Wide { return Wide(x.lo & y.lo, x.hi & y.hi); }

fn wide_bit_or(x: Wide, y: Wide) -> Wide { return Wide(x.lo | y.lo, x.hi | y.hi); }

fn wide_bit_xor(x: Wide, y: Wide) -> Wide { return Wide(x.lo ^ y.lo, x.hi ^ y.hi); }

// By 0 to 63 bits. A shift of one word by 32 is written as one by 1 and one by 31.
fn wide_left(x: Wide, bits: vec4<u32>) -> Wide {
    let s = bits & vec4<u32>(31u);
    let lo = x.lo << s;
    let few = Wide(lo, (x.hi << s) | ((x.lo >> vec4<u32>(1u)) >> (vec4<u32>(31u) - s)));
    return wide_where(bits < vec4<u32>(32u), few, Wide(vec4<u32>(0u), lo));
}

// By 0 to 63 bits; `fill` is shifted into the high word: all zeros or all ones.
fn wide_right(x: Wide, bits: vec4<u32>, fill: vec4<u32>) -> Wide {
    let s = bits & vec4<u32>(31u);
    let over = vec4<u32>(31u) - s;
    let hi = (x.hi >> s) | ((fill << vec4<u32>(1u)) << over);
    let few = Wide((x.lo >> s) | ((x.hi << vec4<u32>(1u)) << over), hi);
    return wide_where(bits < vec4<u32>(32u), few, Wide(hi, fill));
}

// Whether a number of bits is at least 64; a negative one counts as large.
fn wide_far(y: Wide) -> vec4<bool> { return (y.hi != vec4<u32>(0u)) | (y.lo > vec4<u32>(63u)); }

fn wide_shift_left(x: Wide, y: Wide) -> Wide {
    return wide_where(wide_far(y), wide_zero(), wide_left(x, y.lo & vec4<u32>(63u)));
}

fn wide_shift_right(x: Wide, y: Wide) -> Wide {
    let fill = bitcast<vec4<u32>>(bitcast<vec4<i32>>(x.hi) >> vec4<u32>(31u));
    return wide_where(wide_far(y), Wide(fill, fill), wide_right(x, y.lo & vec4<u32>(63u), fill));
}

// --- division ---

struct WideQuotient { quotient: Wide, remainder: Wide }

// Long division of magnitudes: in single words where all fit, else bit by bit. For y = 0 it gives anything.
fn wide_divide(x: Wide, y: Wide) -> WideQuotient {
    if (all((x.hi | y.hi) == vec4<u32>(0u))) {
        let quotient = x.lo / y.lo;
        return WideQuotient(Wide(quotient, vec4<u32>(0u)), Wide(x.lo - quotient * y.lo, vec4<u32>(0u)));
    }
    var rest = wide_zero();
    var quotient = x;
    for (var bit = 0u; bit < 64u; bit++) { // trips: 64
        // The rest is below y, which is 2^63 at most, so its highest bit is free.
        rest = Wide((rest.lo << vec4<u32>(1u)) | (quotient.hi >> vec4<u32>(31u)), (rest.hi << vec4<u32>(1u)) | (rest.lo >> vec4<u32>(31u)));
        quotient = wide_left(quotient, vec4<u32>(1u));
        let fits = !wide_below(rest, y);
        rest = wide_where(fits, wide_sub(rest, y), rest);
        quotient.lo |= select(vec4<u32>(0u), vec4<u32>(1u), fits);
    }
    return WideQuotient(quotient, rest);
}

fn wide_div(x: Wide, y: Wide) -> Wide {
    let whole = wide_divide(wide_abs(x), wide_abs(y)).quotient;
    let signed = wide_where(wide_negative(x) != wide_negative(y), wide_neg(whole), whole);
    return wide_where(wide_eq(y, wide_zero()), wide_zero(), signed);
}

fn wide_fmod(x: Wide, y: Wide) -> Wide {
    let rest = wide_divide(wide_abs(x), wide_abs(y)).remainder;
    let signed = wide_where(wide_negative(x), wide_neg(rest), rest);
    return wide_where(wide_eq(y, wide_zero()), wide_zero(), signed);
}

fn wide_mod(x: Wide, y: Wide) -> Wide {
    let r = wide_fmod(x, y);
    let other_side = wide_ne(r, wide_zero()) & (wide_negative(r) != wide_negative(y));
    return wide_where(other_side, wide_add(r, y), r);
}

fn wide_pow(x: Wide, y: Wide) -> Wide {
    let one = Wide(vec4<u32>(1u), vec4<u32>(0u));
    let minus_one = Wide(vec4<u32>(0xffffffffu), vec4<u32>(0xffffffffu));
    var whole = one;
    var base = x;
    var e = y;
    for (var bit = 0u; bit < 64u; bit++) { // trips: 64
        if (all((e.lo | e.hi) == vec4<u32>(0u))) { break; }
        whole = wide_where((e.lo & vec4<u32>(1u)) == vec4<u32>(1u), wide_mul(whole, base), whole);
        base = wide_mul(base, base);
        e = wide_right(e, vec4<u32>(1u), vec4<u32>(0u));
    }
    let minus = wide_where((y.lo & vec4<u32>(1u)) == vec4<u32>(1u), minus_one, one);
    let unit = wide_where(wide_eq(x, one), one, wide_where(wide_eq(x, minus_one), minus, wide_zero()));
    return wide_where(wide_negative(y), unit, whole);
}

// --- casts ---

fn wide_from_i32(x: vec4<i32>) -> Wide { return Wide(bitcast<vec4<u32>>(x), bitcast<vec4<u32>>(x >> vec4<u32>(31u))); }

fn wide_from_u32(x: vec4<u32>) -> Wide { return Wide(x, vec4<u32>(0u)); }

fn wide_from_bool(x: vec4<bool>) -> Wide { return Wide(select(vec4<u32>(0u), vec4<u32>(1u), x), vec4<u32>(0u)); }

// Toward zero, by the bits of the number; what is out of range, or NaN, gives the least i64 as on a processor.
fn wide_from_f32(x: vec4<f32>) -> Wide {
    let bits = bitcast<vec4<u32>>(x);
    let exponent = (bits >> vec4<u32>(23u)) & vec4<u32>(255u);
    let digits = (bits & vec4<u32>(0x7fffffu)) | vec4<u32>(0x800000u);
    let up = wide_left(wide_from_u32(digits), min(max(exponent, vec4<u32>(150u)) - vec4<u32>(150u), vec4<u32>(63u)));
    let down = digits >> min(vec4<u32>(150u) - min(exponent, vec4<u32>(150u)), vec4<u32>(31u));
    let whole = wide_where(exponent >= vec4<u32>(150u), up, wide_from_u32(down));
    let signed = wide_where(bits >= vec4<u32>(0x80000000u), wide_neg(whole), whole);
    return wide_where(exponent >= vec4<u32>(190u), Wide(vec4<u32>(0u), vec4<u32>(0x80000000u)), signed);
}

// Rounded to nearest, ties to even, whatever the driver's conversion of a word does.
fn wide_to_f32(x: Wide) -> vec4<f32> {
    let a = wide_abs(x);
    let above = countLeadingZeros(a.hi);
    let zeros = select(above, vec4<u32>(32u) + countLeadingZeros(a.lo), a.hi == vec4<u32>(0u));
    // The highest digit comes to the highest bit: 24 digits, then those that are rounded off.
    let digits = wide_left(a, min(zeros, vec4<u32>(63u)));
    let mantissa = digits.hi >> vec4<u32>(8u);
    let sticky = select(vec4<u32>(0u), vec4<u32>(1u), digits.lo != vec4<u32>(0u));
    let rest = ((digits.hi & vec4<u32>(255u)) << vec4<u32>(1u)) | sticky;
    let up = select(vec4<u32>(0u), vec4<u32>(1u), rest + (mantissa & vec4<u32>(1u)) > vec4<u32>(256u));
    // The highest digit is not stored: it adds 1 to the exponent, as a carry does.
    let bits = ((vec4<u32>(189u) - zeros) << vec4<u32>(23u)) + mantissa + up;
    let number = select(bits, vec4<u32>(0u), (a.lo | a.hi) == vec4<u32>(0u));
    return bitcast<vec4<f32>>(number | (x.hi & vec4<u32>(0x80000000u)));
}

// Toward zero, and to an odd last digit where something is left: rounding the result to fewer digits rounds x once.
fn wide_to_odd(x: Wide) -> vec4<f32> {
    let a = wide_abs(x);
    let above = countLeadingZeros(a.hi);
    let zeros = select(above, vec4<u32>(32u) + countLeadingZeros(a.lo), a.hi == vec4<u32>(0u));
    let digits = wide_left(a, min(zeros, vec4<u32>(63u)));
    let rest = (digits.hi & vec4<u32>(255u)) | digits.lo;
    let mantissa = (digits.hi >> vec4<u32>(8u)) | select(vec4<u32>(0u), vec4<u32>(1u), rest != vec4<u32>(0u));
    let bits = ((vec4<u32>(189u) - zeros) << vec4<u32>(23u)) + mantissa;
    let number = select(bits, vec4<u32>(0u), (a.lo | a.hi) == vec4<u32>(0u));
    return bitcast<vec4<f32>>(number | (x.hi & vec4<u32>(0x80000000u)));
}

fn wide_to_i32(x: Wide) -> vec4<i32> { return bitcast<vec4<i32>>(x.lo); }

fn wide_to_u32(x: Wide) -> vec4<u32> { return x.lo; }

fn wide_to_bool(x: Wide) -> vec4<bool> { return (x.lo | x.hi) != vec4<u32>(0u); }
