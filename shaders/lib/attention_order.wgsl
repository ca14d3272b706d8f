{% if kind in (1, 2) %}
    // Later queries see more keys: the last ones of all heads come first, so that no long work begins late.
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
