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
PANEL_ROWS(1) PANEL_ROWS(2)
#if VECTOR_BYTES == 64
#define SEVERAL 4
PANEL_ROWS(3) PANEL_ROWS(4)
#define FOR_ROWS(some) (some == 1 ? NAME(panel1) : some == 2 ? NAME(panel2) : some == 3 ? NAME(panel3) : NAME(panel4))
#else
#define SEVERAL 2
#define FOR_ROWS(some) (some == 1 ? NAME(panel1) : NAME(panel2))
#endif

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
            const int64_t some = batch - b < SEVERAL ? batch - b : SEVERAL, bytes = width * (int64_t)sizeof(T);
            T part[SEVERAL * 4 * VECTOR_BYTES / sizeof(T)], *to = y + b * apart + i;
            const int whole = width == PANEL;
            if (!whole) memset(part, 0, sizeof part);
            for (int64_t k = 0; !whole && k < some; k++)
                memcpy(part + k * PANEL, to + k * apart, (size_t)bytes);
            FOR_ROWS(some)(
                h + b * n + k0, n, panels + k0 * PANEL, n - k0 < deep ? n - k0 : deep, whole ? to : part,
                whole ? apart : PANEL);
            for (int64_t k = 0; !whole && k < some; k++)
                memcpy(to + k * apart, part + k * PANEL, (size_t)bytes);
            b += some;
        }
    }
}
#undef SEVERAL
#undef FOR_ROWS
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

/* One step of one sequence: gates g to new states h and c. For gru the product of the third gate is in g already; for
   gru_linear it is in `spare`. */
static void NAME(cell_step)(int cell, T *g, T *h, T *c, const T *peep, T *spare, int64_t n, T clip,
                            int coupled)
{
    if (cell == RLX_CELL_LSTM) {
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
    } else if (cell == RLX_CELL_GRU || cell == RLX_CELL_GRU_LINEAR) {
        const T *update = g, *reset = g + n;
        T *candidate = g + 2 * n;
        if (cell == RLX_CELL_GRU_LINEAR)
            for (int64_t i = 0; i < n; i++) candidate[i] += reset[i] * spare[i];
        NAME(gate)(candidate, n, clip, NAME(loop_tanh));
        for (int64_t i = 0; i < n; i++)
            h[i] = (1 - update[i]) * candidate[i] + update[i] * h[i];
    } else {
        NAME(hold)(g, n, clip);
        (cell == RLX_CELL_TANH ? NAME(loop_tanh) : NAME(loop_relu))(h, g, NULL, NULL, n);
    }
}

/* A recurrence: sizes, scratch, and the sequences [first, last) that a part computes. */
typedef struct {
    const rlx_recurrence *p;
    const T *xw, *weights, *bias;
    const int32_t *lengths;
    int64_t gates, first_rows; /* gates of a unit, rows of the weights that the first product takes */
    int64_t first, last;
    T *g, *candidates, *reset; /* of every sequence: gates, candidates, reset state */
    const T *panels, *last_panels; /* packed weights of the direction, or NULL */
} NAME(recurrence);

/* Which step of a sequence is step s in the order of the loop; -1 behind the end of the sequence. */
static int64_t NAME(step_of)(const NAME(recurrence) *f, int64_t d, int64_t b, int64_t s)
{
    const int64_t steps = f->p->steps, length = f->lengths ? f->lengths[b] : steps;
    const int64_t end = length < steps ? length : steps;
    return s >= end ? -1 : f->p->reverse[d] ? end - 1 - s : s;
}

/* The gates of all sequences before their activations. h is the state of the step before. */
static void NAME(recur_gates)(const NAME(recurrence) *f, int64_t d, int64_t s, const T *h)
{
    const int64_t n = f->p->hidden, wide = f->gates * n, first = f->first, count = f->last - first;
    const int64_t cell = f->p->cell, gru = cell == RLX_CELL_GRU || cell == RLX_CELL_GRU_LINEAR;
    const T *r = f->weights + d * wide * n, *last_r = r + f->first_rows * n;
    for (int64_t b = first; b < f->last; b++) {
        const int64_t step = NAME(step_of)(f, d, b, s), at = step < 0 ? s : step;
        memcpy(f->g + b * wide, f->xw + ((at * f->p->batch + b) * f->p->directions + d) * wide, (size_t)wide * sizeof(T));
    }
    NAME(add_products)(r, f->panels, f->first_rows, n, h + first * n, count, f->g + first * wide, wide);
    for (int64_t b = first; gru && b < f->last; b++) {
        T *own = f->g + b * wide, *reset = own + n;
        NAME(gate)(own, 2 * n, (T)f->p->clip, NAME(loop_sigmoid));
        for (int64_t i = 0; i < n; i++) {
            f->reset[b * n + i] = reset[i] * h[b * n + i];
            f->candidates[b * n + i] = f->bias ? f->bias[d * n + i] : 0;
        }
    }
    if (cell == RLX_CELL_GRU)
        NAME(add_products)(last_r, f->last_panels, n, n, f->reset + first * n, count, f->g + first * wide + 2 * n, wide);
    if (cell == RLX_CELL_GRU_LINEAR)
        NAME(add_products)(last_r, f->last_panels, n, n, h + first * n, count, f->candidates + first * n, n);
}

/* Threads share the sequences. Scratch: see the struct. */
static int NAME(kernel_recurrence)(const rlx_call *call)
{
    RLX_ARGUMENTS(recurrence, call);
    const int64_t batch = p->batch, n = p->hidden, states = batch * n;
    const int gru = p->cell == RLX_CELL_GRU || p->cell == RLX_CELL_GRU_LINEAR, lstm = p->cell == RLX_CELL_LSTM;
    const int64_t gates = lstm ? 4 : gru ? 3 : 1, first_rows = gru ? 2 * n : gates * n;
    const rlx_range own = rlx_share(call, batch, 4);
    T *candidates = (T *)out->work + batch * gates * n, *reset = candidates + states;
    /* Weights that are packed already are read where they are; others are packed here. */
    T *scratch = p->pack && !p->packing ? reset + states : NULL;
    const int64_t first_panels = (first_rows + PANEL - 1) / PANEL * PANEL * n;
    NAME(recurrence) f = {
        .p = p, .xw = in->xw, .weights = in->weights, .bias = in->bias, .lengths = in->lengths,
        .gates = gates, .first_rows = first_rows, .first = own.first, .last = own.last,
        .g = out->work, .candidates = candidates, .reset = reset,
    };
    const T *h0 = in->h0, *c0 = in->c0, *peepholes = in->peepholes;
    for (int64_t d = 0; d < p->directions && own.first < own.last; d++) {
        T *h = (T *)out->h + d * states, *c = lstm ? (T *)out->c + d * states : NULL;
        for (int64_t i = own.first * n; i < own.last * n; i++) h[i] = h0 ? h0[d * states + i] : 0;
        for (int64_t i = own.first * n; c && i < own.last * n; i++) c[i] = c0 ? c0[d * states + i] : 0;
        const T *r = f.weights + d * gates * n * n;
        if (scratch) NAME(pack_rows)(r, first_rows, n, scratch);
        if (scratch && gru) NAME(pack_rows)(r + first_rows * n, n, n, scratch + first_panels);
        f.panels = p->packing ? (const T *)((const char *)in->weights + d * p->packed_stride) : scratch;
        f.last_panels = f.panels ? f.panels + first_panels : NULL;
        for (int64_t s = 0; s < p->steps; s++) {
            NAME(recur_gates)(&f, d, s, h);
            for (int64_t b = own.first; b < own.last; b++) {
                const int64_t step = NAME(step_of)(&f, d, b, s), at = step < 0 ? s : step;
                T *row = (T *)out->y + ((at * p->directions + d) * batch + b) * n;
                if (step < 0) { /* the sequence has ended, and its states stay */
                    memset(row, 0, (size_t)n * sizeof(T));
                    continue;
                }
                NAME(cell_step)((int)p->cell, f.g + b * gates * n, h + b * n, c ? c + b * n : NULL,
                                peepholes ? peepholes + d * 3 * n : NULL, candidates + b * n, n, (T)p->clip,
                                (int)p->input_forget);
                memcpy(row, h + b * n, (size_t)n * sizeof(T));
            }
        }
    }
    return RLX_OK;
}
#undef PANEL
