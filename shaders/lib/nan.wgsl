// max, exp and log that keep NaN. They test bits: a driver may assume that there is no NaN.
fn is_nan_s(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

fn nan_max(a: f32, b: f32) -> f32 { return select(max(a, b), a + b, is_nan_s(a) || is_nan_s(b)); }

fn nan_exp(x: f32) -> f32 { return select(exp(x), x, is_nan_s(x)); }

fn nan_log(x: f32) -> f32 { return select(log(x), x, is_nan_s(x)); }
