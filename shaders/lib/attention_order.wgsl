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
