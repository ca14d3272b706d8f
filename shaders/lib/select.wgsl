// The first K keys in workgroup memory; equal keys go by their position. Finds the digits of the K-th key by counting,
// from the highest digit down. Where not all keys equal to it fit, it finds the digits of the last position as well.
{% set list = [k, 1]|max %}
const LIST: u32 = {{ list }}u;
var<workgroup> digits: array<atomic<u32>, 256>;
var<workgroup> sums: array<u32, 256>;
var<workgroup> digit: vec3<u32>;
var<workgroup> listed: atomic<u32>;
var<workgroup> list_key: array<u32, {{ list }}>;
var<workgroup> list_at: array<u32, {{ list }}>;

// The digit at which that many keys are reached, how many keys of the digit are wanted, and how many there are.
fn digit_of(wanted: u32, lane: u32) -> vec3<u32> {
    let mine = atomicLoad(&digits[lane]);
    var sum = mine;
    for (var step = 1u; step < 256u; step *= 2u) { // trips: 8
        sums[lane] = sum;
        workgroupBarrier();
        if (lane >= step) { sum += sums[lane - step]; }
        workgroupBarrier();
    }
    if (sum >= wanted && sum - mine < wanted) { digit = vec3<u32>(lane, wanted - (sum - mine), mine); }
    atomicStore(&digits[lane], 0u);
    return workgroupUniformLoad(&digit);
}

// Fills the list with the first of so many keys, in no order, and returns their number.
fn select_firsts(count: u32, lane: u32) -> u32 {
    var wanted = min(LIST, count);
    var last = 0u;
    var known = 0u;
    var equal = 0u;
    atomicStore(&digits[lane], 0u);
    if (lane == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var shift = 32u; shift > 0u;) { // trips: 4
        shift -= 8u;
        for (var i = lane; i < count; i += 256u) { // trips: {{ most }} / 256
            if ((key[i] & known) == last) { atomicAdd(&digits[(key[i] >> shift) & 255u], 1u); }
        }
        workgroupBarrier();
        let reached = digit_of(wanted, lane);
        last |= reached.x << shift;
        known |= 255u << shift;
        wanted = reached.y;
        equal = reached.z;
    }
    // Positions from here on are too far for the last key.
    var end = count;
    if (wanted < equal) {
        var place = 0u;
        var settled = 0u;
        for (var shift = 16u; shift > 0u;) { // trips: 2
            shift -= 8u;
            for (var i = lane; i < count; i += 256u) { // trips: {{ most }} / 256
                if (key[i] == last && (i & settled) == place) { atomicAdd(&digits[(i >> shift) & 255u], 1u); }
            }
            workgroupBarrier();
            let reached = digit_of(wanted, lane);
            place |= reached.x << shift;
            settled |= 255u << shift;
            wanted = reached.y;
        }
        end = place + 1u;
    }
    for (var i = lane; i < count; i += 256u) { // trips: {{ most }} / 256
        if (key[i] < last || (key[i] == last && i < end)) {
            let slot = atomicAdd(&listed, 1u);
            list_key[slot] = key[i];
            list_at[slot] = i;
        }
    }
    workgroupBarrier();
    return min(LIST, count);
}

// The place of an entry of the list in order.
fn rank_of(slot: u32, filled: u32) -> u32 {
    var rank = 0u;
    for (var j = 0u; j < filled; j++) { // trips: LIST
        rank += u32(comes_before(list_key[j], list_at[j], list_key[slot], list_at[slot]));
    }
    return rank;
}
