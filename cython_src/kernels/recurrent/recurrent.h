/* The loop over time of lstm, gru and rnn, per type. */

#define PANEL (4 * VL) /* columns of a panel of packed weights */

/* Packs rows of r as panels [n, PANEL] of its transpose. The last panel repeats its last row. */
static void NAME(pack_rows)(const T *r, int64_t rows, int64_t n, T *panels)
{
    for (int64_t i = 0; i < rows; i += PANEL, panels += PANEL * n)
        for (int64_t v = 0; v < PANEL; v += VL) {
            const T *row[VECTOR_BYTES / sizeof(T)];
            for (int64_t l = 0; l < VL; l++) row[l] = r + (i + v + l < rows ? i + v + l : rows - 1) * n;
            NAME(lanes_in)(row, NULL, n, panels + v, PANEL / VL);
        }
}

/* y += h @ panel, where the panel has k rows. Rows of h are n apart, those of y `apart`. */
#define PANEL_ROWS(ROWS)                                                                          \
    static void NAME(CONCAT(panel, ROWS))(const T *h, int64_t n, const T *panel, int64_t k, T *y, \
                                          int64_t apart)                                          \
    {                                                                                             \
        VEC acc[ROWS][4];                                                                         \
        for (int r = 0; r < ROWS; r++)                                                            \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) acc[r][v] = *LANE(y + r * apart, v); \
        for (int64_t i = 0; i < k; i++, panel += PANEL)                                           \
            _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                                \
            {                                                                                     \
                const T x = h[r * n + i];                                                         \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) acc[r][v] += x * *LANE(panel, v); \
            }                                                                                     \
        for (int r = 0; r < ROWS; r++)                                                            \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) *LANE(y + r * apart, v) = acc[r][v]; \
    }
/* Rows at a time: as many as the registers hold. */
#if VECTOR_BYTES == 64
#define SEVERAL 4
#else
#define SEVERAL 2
#endif
PANEL_ROWS(1) PANEL_ROWS(SEVERAL)

/* y += h @ transpose(r) for a batch of rows of h, n apart, and of y, `apart` apart. */
static void NAME(add_products)(const T *r, const T *panels, int64_t rows, int64_t n, const T *h,
                               int64_t batch, T *y, int64_t apart)
{
    for (int64_t b = 0; !panels && b < batch; b++) NAME(add_dots)(r, n, rows, n, h + b * n, y + b * apart);
    for (int64_t i = 0; panels && i < rows; i += PANEL, panels += PANEL * n) {
        const int64_t width = rows - i < PANEL ? rows - i : PANEL;
        /* This many rows of a panel stay in the first-level cache for the next rows of h. */
        const int64_t deep = batch > SEVERAL ? 64 : n;
        for (int64_t k0 = 0; k0 < n; k0 += deep)
        for (int64_t b = 0; b < batch;) {
            const int64_t some = batch - b < SEVERAL ? 1 : SEVERAL, bytes = width * (int64_t)sizeof(T);
            T part[SEVERAL * 4 * VECTOR_BYTES / sizeof(T)], *to = y + b * apart + i;
            const int whole = width == PANEL;
            if (!whole) memset(part, 0, sizeof part);
            for (int64_t k = 0; !whole && k < some; k++)
                memcpy(part + k * PANEL, to + k * apart, (size_t)bytes);
            (some == 1 ? NAME(panel1) : NAME(CONCAT(panel, SEVERAL)))(
                h + b * n + k0, n, panels + k0 * PANEL, n - k0 < deep ? n - k0 : deep, whole ? to : part,
                whole ? apart : PANEL);
            for (int64_t k = 0; !whole && k < some; k++)
                memcpy(to + k * apart, part + k * PANEL, (size_t)bytes);
            b += some;
        }
    }
}
#undef SEVERAL
#undef PANEL_ROWS

static void NAME(hold)(T *v, int64_t n, T clip)
{
    if (clip > 0)
        for (int64_t i = 0; i < n; i++) v[i] = v[i] > clip ? clip : v[i] < -clip ? -clip : v[i];
}

static void NAME(gate)(T *v, int64_t n, T clip, rlx_loop activation)
{
    NAME(hold)(v, n, clip);
    activation(v, v, NULL, NULL, n);
}

enum { NAME(LSTM), NAME(GRU), NAME(GRU_LINEAR), NAME(TANH), NAME(RELU) };

/* One step of one sequence: gates g to new states h and c. For gru the product of the third gate is in g already; for
   gru_linear it is in `spare`. */
static void NAME(cell_step)(int cell, T *g, T *h, T *c, const T *peep, T *spare, int64_t n, T clip,
                            int coupled)
{
    if (cell == NAME(LSTM)) {
        T *in = g, *out = g + n, *forget = g + 2 * n, *candidate = g + 3 * n;
        if (peep)
            for (int64_t i = 0; i < n; i++) in[i] += peep[i] * c[i], forget[i] += peep[2 * n + i] * c[i];
        NAME(gate)(in, n, clip, NAME(loop_sigmoid));
        NAME(gate)(forget, n, clip, NAME(loop_sigmoid));
        NAME(gate)(candidate, n, clip, NAME(loop_tanh));
        for (int64_t i = 0; i < n; i++)
            c[i] = (coupled ? 1 - in[i] : forget[i]) * c[i] + in[i] * candidate[i];
        if (peep)
            for (int64_t i = 0; i < n; i++) out[i] += peep[n + i] * c[i];
        NAME(gate)(out, n, clip, NAME(loop_sigmoid));
        NAME(loop_tanh)(spare, c, NULL, NULL, n);
        for (int64_t i = 0; i < n; i++) h[i] = out[i] * spare[i];
    } else if (cell == NAME(GRU) || cell == NAME(GRU_LINEAR)) {
        const T *update = g, *reset = g + n;
        T *candidate = g + 2 * n;
        if (cell == NAME(GRU_LINEAR))
            for (int64_t i = 0; i < n; i++) candidate[i] += reset[i] * spare[i];
        NAME(gate)(candidate, n, clip, NAME(loop_tanh));
        for (int64_t i = 0; i < n; i++)
            h[i] = (1 - update[i]) * candidate[i] + update[i] * h[i];
    } else {
        NAME(hold)(g, n, clip);
        (cell == NAME(TANH) ? NAME(loop_tanh) : NAME(loop_relu))(h, g, NULL, NULL, n);
    }
}

/* Scratch, for every sequence: its gates, the candidates and a reset state; then panels of packed weights. Threads
   share the sequences. */
static int NAME(kernel_recurrence)(const rlx_call *call)
{
    RLX_ARGUMENTS(recurrence, call);
    const int64_t steps = p->steps, batch = p->batch, directions = p->directions, n = p->hidden;
    const int cell = (int)p->cell, coupled = (int)p->input_forget;
    const T clip = (T)p->clip;
    const int gru = cell == RLX_CELL_GRU || cell == RLX_CELL_GRU_LINEAR;
    const int64_t gates = cell == RLX_CELL_LSTM ? 4 : gru ? 3 : 1, first_rows = gru ? 2 * n : gates * n;
    const T *xw = in->xw, *bias = in->bias, *h0 = in->h0, *c0 = in->c0;
    const T *peepholes = in->peepholes;
    const int32_t *lengths = in->lengths;
    const int64_t apart = gates * n, spare_apart = n, states = batch * n;
    T *y = out->y, *g = out->work, *spare = g + batch * apart;
    T *reset_h = spare + batch * spare_apart;
    T *panels = p->pack ? reset_h + batch * n : NULL;
    T *last_panels = panels ? panels + (first_rows + PANEL - 1) / PANEL * PANEL * n : NULL;
    const rlx_range own_rows = rlx_share(call, batch, 4);
    const int64_t first = own_rows.first, last = own_rows.last, count = last - first;
    for (int64_t d = 0; d < directions && count; d++) {
        const T *r = (const T *)in->weights + d * gates * n * n, *last_r = r + first_rows * n;
        const T *peep = peepholes ? peepholes + d * 3 * n : NULL;
        T *h = (T *)out->h + d * states;
        T *c = cell == RLX_CELL_LSTM ? (T *)out->c + d * states : NULL;
        for (int64_t i = first * n; i < last * n; i++) h[i] = h0 ? h0[d * states + i] : 0;
        for (int64_t i = first * n; c && i < last * n; i++) c[i] = c0 ? c0[d * states + i] : 0;
        if (panels) NAME(pack_rows)(r, first_rows, n, panels);
        if (panels && gru) NAME(pack_rows)(last_r, n, n, last_panels);
        for (int64_t s = 0; s < steps; s++) {
            for (int64_t b = first; b < last; b++) {
                const int64_t length = lengths ? lengths[b] : steps;
                const int64_t end = length < steps ? length : steps;
                const int64_t at = s < end && p->reverse[d] ? end - 1 - s : s;
                T *own = g + b * apart;
                memcpy(own, xw + ((at * batch + b) * directions + d) * gates * n,
                       (size_t)(gates * n) * sizeof(T));
            }
            NAME(add_products)(r, panels, first_rows, n, h + first * n, count, g + first * apart, apart);
            for (int64_t b = first; gru && b < last; b++) {
                T *own = g + b * apart, *reset = own + n;
                NAME(gate)(own, 2 * n, clip, NAME(loop_sigmoid));
                for (int64_t i = 0; i < n; i++) {
                    reset_h[b * n + i] = reset[i] * h[b * n + i];
                    spare[b * spare_apart + i] = bias ? bias[d * n + i] : 0;
                }
            }
            if (cell == RLX_CELL_GRU)
                NAME(add_products)(last_r, last_panels, n, n, reset_h + first * n, count, g + first * apart + 2 * n,
                                   apart);
            if (cell == RLX_CELL_GRU_LINEAR)
                NAME(add_products)(last_r, last_panels, n, n, h + first * n, count, spare + first * n, spare_apart);
            for (int64_t b = first; b < last; b++) {
                const int64_t length = lengths ? lengths[b] : steps;
                const int64_t end = length < steps ? length : steps;
                const int64_t at = s < end && p->reverse[d] ? end - 1 - s : s;
                T *row = y + ((at * directions + d) * batch + b) * n;
                if (s >= end) { /* the sequence has ended, and its states stay */
                    memset(row, 0, (size_t)n * sizeof(T));
                    continue;
                }
                NAME(cell_step)(cell, g + b * apart, h + b * n, c ? c + b * n : NULL, peep,
                                spare + b * spare_apart, n, clip, coupled);
                memcpy(row, h + b * n, (size_t)n * sizeof(T));
            }
        }
    }
    return RLX_OK;
}
#undef PANEL
