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

/* Weights in 8 bits, and states that are rounded to 16 bits for them (products/rounded.h). */
typedef struct {
    const T *scales;          /* of the rows of the direction's weights; NULL where weights are not in 8 bits */
    T *row_scales;            /* of the state of every sequence */
    int16_t *rows;            /* these states */
    int64_t apart;            /* elements from one to the next */
} NAME(rounding);

/* Rounds the state of a sequence. */
static void NAME(round_state)(const NAME(rounding) *to, int64_t b, const T *state, int64_t n)
{
#ifdef SINGLE
    to->row_scales[b] = round_row(state, n, to->rows + b * to->apart);
#else
    (void)to, (void)b, (void)state, (void)n;
#endif
}

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

/* A recurrence: sizes, scratch, and the sequences [first, last) that are computed here. */
typedef struct {
    const rlx_recurrence *p;
    const T *xw, *bias, *h0, *c0, *all_peepholes;
    const int32_t *lengths;
    int64_t gates, first_rows; /* gates of a unit, rows of the weights that the first product takes */
    int64_t first, last;
    int64_t tasks;               /* tasks of a phase: 1 where one thread works alone */
    T *g, *candidates, *reset;   /* of every sequence: gates, candidates, reset state */
    T *scratch;                  /* where weights are packed; NULL where they are not, or are already */
    int64_t itemsize;            /* bytes of a weight */
    NAME(rounding) rounding;
    T *y;
    int64_t d, s;                /* direction and step */
    const char *r, *panels, *last_panels; /* of the direction: weights, and packed ones or NULL */
    T *h, *c;                    /* and states */
} NAME(recurrence);

/* Which step of a sequence is step s in the order of the loop; -1 behind the end of the sequence. */
static int64_t NAME(step_of)(const NAME(recurrence) *f, int64_t b)
{
    const int64_t steps = f->p->steps, length = f->lengths ? f->lengths[b] : steps;
    const int64_t end = length < steps ? length : steps;
    return f->s >= end ? -1 : f->p->reverse[f->d] ? end - 1 - f->s : f->s;
}

/* The share of a task of n things, in whole units. */
static inline rlx_range NAME(task_share)(const NAME(recurrence) *f, int64_t task, int64_t n, int64_t unit)
{
    const int64_t units = (n + unit - 1) / unit, last = units * (task + 1) / f->tasks * unit;
    return (rlx_range){units * task / f->tasks * unit, last < n ? last : n};
}

/* Sequences of a task. */
static inline rlx_range NAME(task_sequences)(const NAME(recurrence) *f, int64_t task)
{
    const rlx_range own = NAME(task_share)(f, task, f->last - f->first, 1);
    return (rlx_range){f->first + own.first, f->first + own.last};
}

/* Bytes of so many rows of weights, which are whole panels where they are packed. */
static int64_t NAME(row_bytes)(const NAME(recurrence) *f, int64_t rows, int packed)
{
    const int64_t n = f->p->hidden;
    return rows * (packed && f->itemsize == 1 ? n + n % 2 : n * f->itemsize);
}

/* y += h @ transpose(r) for some rows of r, which are columns of y. Rows count from the first one of their product. */
static void NAME(add_some)(const NAME(recurrence) *f, rlx_range rows, int64_t product, const T *h, T *y, int64_t apart)
{
    const int64_t n = f->p->hidden, first = product + rows.first, count = rows.last - rows.first;
    const char *panels = product ? f->last_panels : f->panels, *r = f->r + NAME(row_bytes)(f, first, 0);
    if (panels) panels += NAME(row_bytes)(f, rows.first, 1);
    y += f->first * apart + rows.first;
    if (count <= 0) return;
#ifdef SINGLE
    const NAME(rounding) *to = &f->rounding;
    if (to->scales) {
        add_rounded(to->rows + f->first * to->apart, to->apart, to->row_scales + f->first, f->last - f->first,
                    (const int8_t *)panels, to->apart / 2, to->scales + first, count, y, apart);
        return;
    }
#endif
    NAME(add_products)((const T *)r, (const T *)panels, count, n, h + f->first * n, f->last - f->first, y, apart);
}

/* Packs some rows of a product of a direction. */
static void NAME(pack_some)(const NAME(recurrence) *f, rlx_range rows, int64_t product)
{
    const int64_t n = f->p->hidden, count = rows.last - rows.first;
    const char *r = f->r + NAME(row_bytes)(f, product + rows.first, 0);
    char *to = (char *)(product ? f->last_panels : f->panels) + NAME(row_bytes)(f, rows.first, 1);
    if (f->itemsize == 1) pack_pairs((const int8_t *)r, count, n, (int8_t *)to);
    else NAME(pack_rows)((const T *)r, count, n, (T *)to);
}

/* The first states of a direction, and its packed weights. */
static void NAME(recur_begin)(void *context, int64_t task)
{
    const NAME(recurrence) *f = context;
    const int64_t n = f->p->hidden, states = f->p->batch * n, gru = f->first_rows < f->gates * n;
    const rlx_range own = NAME(task_sequences)(f, task);
    for (int64_t i = own.first * n; i < own.last * n; i++) f->h[i] = f->h0 ? f->h0[f->d * states + i] : 0;
    for (int64_t i = own.first * n; f->c && i < own.last * n; i++) f->c[i] = f->c0 ? f->c0[f->d * states + i] : 0;
    for (int64_t b = own.first; f->itemsize == 1 && b < own.last; b++)
        NAME(round_state)(&f->rounding, b, f->h + b * n, n);
    if (!f->scratch) return;
    NAME(pack_some)(f, NAME(task_share)(f, task, f->first_rows, PANEL), 0);
    if (gru) NAME(pack_some)(f, NAME(task_share)(f, task, n, PANEL), f->first_rows);
}

/* Some gates of all sequences before their activations, without the third of gru. h is the state of the step before. */
static void NAME(recur_gates)(void *context, int64_t task)
{
    const NAME(recurrence) *f = context;
    const int64_t n = f->p->hidden, wide = f->gates * n;
    /* The last task has the gates that are no product yet, too. */
    const rlx_range rows = NAME(task_share)(f, task, f->first_rows, PANEL);
    const int64_t end = task == f->tasks - 1 ? wide : rows.last;
    for (int64_t b = f->first; b < f->last; b++) {
        const int64_t step = NAME(step_of)(f, b), index = step < 0 ? f->s : step;
        const T *from = f->xw + ((index * f->p->batch + b) * f->p->directions + f->d) * wide;
        memcpy(f->g + b * wide + rows.first, from + rows.first, (size_t)(end - rows.first) * sizeof(T));
    }
    NAME(add_some)(f, rows, 0, f->h, f->g, wide);
}

/* gru: its first two gates, and what the product of the third begins with. */
static void NAME(recur_reset)(void *context, int64_t task)
{
    const NAME(recurrence) *f = context;
    const int64_t n = f->p->hidden;
    const rlx_range own = NAME(task_sequences)(f, task);
    for (int64_t b = own.first; b < own.last; b++) {
        T *gates = f->g + b * f->gates * n, *reset = gates + n;
        NAME(gate)(gates, 2 * n, (T)f->p->clip, NAME(loop_sigmoid));
        for (int64_t i = 0; i < n; i++) {
            f->reset[b * n + i] = reset[i] * f->h[b * n + i];
            f->candidates[b * n + i] = f->bias ? f->bias[f->d * n + i] : 0;
        }
        if (f->itemsize == 1 && f->p->cell == RLX_CELL_GRU) NAME(round_state)(&f->rounding, b, f->reset + b * n, n);
    }
}

/* gru: the product of the third gate. */
static void NAME(recur_candidates)(void *context, int64_t task)
{
    const NAME(recurrence) *f = context;
    const int64_t n = f->p->hidden, wide = f->gates * n;
    const rlx_range rows = NAME(task_share)(f, task, n, PANEL);
    if (f->p->cell == RLX_CELL_GRU) NAME(add_some)(f, rows, f->first_rows, f->reset, f->g + 2 * n, wide);
    else NAME(add_some)(f, rows, f->first_rows, f->h, f->candidates, n);
}

/* New states of some sequences. */
static void NAME(recur_cells)(void *context, int64_t task)
{
    const NAME(recurrence) *f = context;
    const rlx_recurrence *p = f->p;
    const int64_t n = p->hidden;
    const T *peepholes = f->all_peepholes ? f->all_peepholes + f->d * 3 * n : NULL;
    const rlx_range own = NAME(task_sequences)(f, task);
    for (int64_t b = own.first; b < own.last; b++) {
        const int64_t step = NAME(step_of)(f, b), index = step < 0 ? f->s : step;
        T *row = f->y + ((index * p->directions + f->d) * p->batch + b) * n;
        if (step < 0) { /* the sequence has ended, and its states stay */
            memset(row, 0, (size_t)n * sizeof(T));
            continue;
        }
        NAME(cell_step)((int)p->cell, f->g + b * f->gates * n, f->h + b * n, f->c ? f->c + b * n : NULL, peepholes,
                        f->candidates + b * n, n, (T)p->clip, (int)p->input_forget);
        memcpy(row, f->h + b * n, (size_t)n * sizeof(T));
        if (f->itemsize == 1) NAME(round_state)(&f->rounding, b, row, n);
    }
}

/* Threads share the sequences, or as a team the units of every step. Scratch: see the struct. */
static int NAME(kernel_recurrence)(const rlx_call *call)
{
    RLX_ARGUMENTS(recurrence, call);
    const int64_t batch = p->batch, n = p->hidden, states = batch * n;
    const int gru = p->cell == RLX_CELL_GRU || p->cell == RLX_CELL_GRU_LINEAR, lstm = p->cell == RLX_CELL_LSTM;
    const int64_t gates = lstm ? 4 : gru ? 3 : 1, first_rows = gru ? 2 * n : gates * n;
    const rlx_range own = call->team ? (rlx_range){0, batch} : rlx_share(call, batch, 4);
    T *candidates = (T *)out->work + batch * gates * n, *reset = candidates + states;
    const int64_t first_panels = (first_rows + PANEL - 1) / PANEL * PANEL, apart = n + n % 2;
    /* Behind the states, where weights are in 8 bits: scales of rounded states, and these states. */
    T *scales = reset + states, *behind = p->narrow ? scales + batch * (n / 2 + 2) : scales;
    NAME(recurrence) f = {
        .p = p, .xw = in->xw, .bias = in->bias, .h0 = in->h0, .c0 = in->c0,
        .all_peepholes = in->peepholes, .lengths = in->lengths, .gates = gates, .first_rows = first_rows,
        .first = own.first, .last = own.last, .tasks = rlx_tasks(call),
        .g = out->work, .candidates = candidates, .reset = reset, .y = out->y,
        /* Weights that are packed already are read where they are; others are packed here. */
        .scratch = p->pack && !p->packing ? behind : NULL,
        .itemsize = p->narrow ? 1 : (int64_t)sizeof(T),
        .rounding = {NULL, scales, (int16_t *)(scales + batch), apart},
    };
    int64_t phase = 0;
    for (f.d = 0; f.d < p->directions && own.first < own.last; f.d++) {
        f.h = (T *)out->h + f.d * states, f.c = lstm ? (T *)out->c + f.d * states : NULL;
        f.r = (const char *)in->weights + f.d * NAME(row_bytes)(&f, gates * n, 0);
        f.panels = p->packing ? (const char *)in->weights + f.d * p->packed_stride : (const char *)f.scratch;
        f.last_panels = f.panels ? f.panels + NAME(row_bytes)(&f, first_panels, 1) : NULL;
        if (p->narrow) f.rounding.scales = (const T *)in->scales + f.d * gates * n;
        rlx_phase(call, phase++, NAME(recur_begin), &f);
        for (f.s = 0; f.s < p->steps; f.s++) {
            rlx_phase(call, phase++, NAME(recur_gates), &f);
            if (gru) rlx_phase(call, phase++, NAME(recur_reset), &f);
            if (gru) rlx_phase(call, phase++, NAME(recur_candidates), &f);
            rlx_phase(call, phase++, NAME(recur_cells), &f);
        }
    }
    return RLX_OK;
}
#undef PANEL
