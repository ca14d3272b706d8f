{# The tile of a workgroup, where its operands lie, and the keys that its queries see. #}
    let tiles = {{ (sq + queries - 1) // queries }}u;
{% if kind in (1, 2) %}
    // Later queries see more keys. The last queries of all heads come first, so that long work does not start last.
    let pairs = BATCH * HEADS;
    let tile = tiles - 1u - g / pairs;
    let pair = g % pairs;
{% else %}
    // Neighbours read the same keys.
    let tile = g % tiles;
    let pair = g / tiles;
{% endif %}
    let head = pair % HEADS;
    let batch = pair / HEADS;
    let row0 = tile * {{ queries }}u;
    let kv_head = head / {{ heads // kv_heads }}u;
    let q_base = batch * {{ q_steps[0] }}u + head * {{ q_steps[1] }}u;
    let k_base = batch * {{ k_steps[0] }}u + kv_head * {{ k_steps[1] }}u;
    let v_base = batch * {{ v_steps[0] }}u + kv_head * {{ v_steps[1] }}u;
    let y_base = batch * {{ o_steps[0] }}u + head * {{ o_steps[1] }}u;
    let mask_base = batch * {{ mask_steps[0] }}u + head * {{ mask_steps[1] }}u;
    // The keys that any of these queries sees stand in [low, high).
    var low = 0u;
    var high = SK;
{% if kind in (1, 2) %}
    let last = i32(min(row0 + {{ queries }}u, SQ)) + i32(SK) - i32(SQ);
    high = u32(clamp(last, 0, i32(SK)));
{% endif %}
{% if kind == 2 %}
    low = u32(max(0, i32(row0) + i32(SK) - i32(SQ) - i32(WINDOW)));
{% endif %}
{% if key_to is defined %}
    // Other calls do the keys outside of the given range. They continue from the state that this call writes.
    low = max(low / 64u * 64u, KEY_FROM);
    high = min(high, KEY_TO);
    let states = (batch * HEADS + head) * SQ;
{% endif %}
