// Windows over three axes: where a tap reads. There are checks only where a window can reach into padding.

// The first tap of window `index` of a plane; negative in the padding.
fn window_start(index: u32) -> vec3<i32> {
    return vec3<i32>(
        i32((index / {{ out[1] * out[2] }}u) * {{ stride[0] }}u) - {{ before[0] }},
        i32(((index / {{ out[2] }}u) % {{ out[1] }}u) * {{ stride[1] }}u) - {{ before[1] }},
        i32((index % {{ out[2] }}u) * {{ stride[2] }}u) - {{ before[2] }},
    );
}

// How far tap `index` of a window is from the first.
fn tap_step(index: u32) -> vec3<i32> {
    return vec3<i32>(
        i32((index / {{ kernel[1] * kernel[2] }}u) * {{ dilation[0] }}u),
        i32(((index / {{ kernel[2] }}u) % {{ kernel[1] }}u) * {{ dilation[1] }}u),
        i32((index % {{ kernel[2] }}u) * {{ dilation[2] }}u),
    );
}

fn inside(p: vec3<i32>) -> bool {
    // As u32, a negative number is a large one.
    return true
{%- for a in range(3) if checks[a] %}
 && u32(p[{{ a }}]) < {{ dims[a] }}u
{%- endfor %};
}

fn offset_in_plane(p: vec3<i32>) -> u32 {
    return u32((p.x * {{ dims[1] }} + p.y) * {{ dims[2] }} + p.z);
}
