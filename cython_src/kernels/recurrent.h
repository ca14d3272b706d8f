/* The loop over time of lstm, gru and rnn, per type. */

static inline T NAME(vec_sum)(VEC v)
{
    T sum = 0;
    for (int64_t l = 0; l < VL; l++) sum += v[l];
    return sum;
}

/* y[b][i] += dot(r[i], h[b]) for two rows of h: four rows of r at a time stay in registers. */
static void NAME(add_dots)(const T *r, int64_t rows, int64_t n, const T *h0, const T *h1, T *y0,
                           T *y1)
{
    for (int64_t i = 0; i < rows; i += 4) {
        const T *row[4];
        /* Past the last row it is made again. */
        for (int64_t k = 0; k < 4; k++) row[k] = r + (i + k < rows ? i + k : rows - 1) * n;
        VEC a[4] = {{0}, {0}, {0}, {0}}, b[4] = {{0}, {0}, {0}, {0}};
        int64_t j = 0;
        for (; j + VL <= n; j += VL) {
            const VEC u = *(const VEC *)(h0 + j), v = *(const VEC *)(h1 + j);
            _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)
            {
                const VEC w = *(const VEC *)(row[k] + j);
                a[k] += w * u;
                b[k] += w * v;
            }
        }
        for (int64_t k = 0; k < 4 && i + k < rows; k++) {
            T s = NAME(vec_sum)(a[k]), t = NAME(vec_sum)(b[k]);
            for (int64_t l = j; l < n; l++) s += row[k][l] * h0[l], t += row[k][l] * h1[l];
            y0[i + k] += s;
            if (y1) y1[i + k] += t;
        }
    }
}

/* The same for a batch of rows of h, n apart, and of y, `apart` apart. */
static void NAME(add_products)(const T *r, int64_t rows, int64_t n, const T *h, int64_t batch, T *y,
                               int64_t apart)
{
    for (int64_t b = 0; b < batch; b += 2) {
        const int more = b + 1 < batch;
        NAME(add_dots)(r, rows, n, h + b * n, h + (b + more) * n, y + b * apart,
                       more ? y + (b + 1) * apart : NULL);
    }
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

enum { NAME(LSTM), NAME(GRU), NAME(GRU_LINEAR), NAME(TANH), NAME(RELU) };

/* One row of a batch: the gates g become the new states h and c. spare: a row. For gru the third
   gate has its product already; for gru_linear that product stands in spare. */
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

/* Parameters: steps, batch, directions, hidden, cell, input_forget, clip, reverse[directions].
   Inputs: xw, r, bias, h0, c0, peepholes, lengths. Results: y, h, c; scratch: gates and a row for
   every sequence. */
static int NAME(kernel_recurrence)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t steps = p[0].i, batch = p[1].i, directions = p[2].i, n = p[3].i;
    const int cell = (int)p[4].i, coupled = (int)p[5].i;
    const T clip = (T)p[6].f;
    const int64_t gates = cell == NAME(LSTM) ? 4 : cell == NAME(GRU) || cell == NAME(GRU_LINEAR) ? 3 : 1;
    const T *xw = call->in[0], *bias = call->in[2], *h0 = call->in[3], *c0 = call->in[4];
    const T *peepholes = call->in[5];
    const int32_t *lengths = call->in[6];
    T *y = call->out[0], *g = call->out[3], *spare = g + batch * gates * n;
    const int64_t states = batch * n;
    for (int64_t d = 0; d < directions; d++) {
        const T *r = (const T *)call->in[1] + d * gates * n * n;
        const T *peep = peepholes ? peepholes + d * 3 * n : NULL;
        T *h = (T *)call->out[1] + d * states;
        T *c = cell == NAME(LSTM) ? (T *)call->out[2] + d * states : NULL;
        for (int64_t i = 0; i < states; i++) h[i] = h0 ? h0[d * states + i] : 0;
        for (int64_t i = 0; c && i < states; i++) c[i] = c0 ? c0[d * states + i] : 0;
        for (int64_t s = 0; s < steps; s++) {
            for (int64_t b = 0; b < batch; b++) {
                const int64_t length = lengths ? lengths[b] : steps;
                const int64_t end = length < steps ? length : steps;
                const int64_t at = s < end && p[7 + d].i ? end - 1 - s : s;
                memcpy(g + b * gates * n, xw + ((at * batch + b) * directions + d) * gates * n,
                       (size_t)(gates * n) * sizeof(T));
            }
            if (cell == NAME(GRU) || cell == NAME(GRU_LINEAR)) {
                NAME(add_products)(r, 2 * n, n, h, batch, g, gates * n);
                for (int64_t b = 0; b < batch; b++) {
                    T *own = g + b * gates * n, *reset = own + n;
                    NAME(gate)(own, 2 * n, clip, NAME(loop_sigmoid));
                    for (int64_t i = 0; i < n; i++)
                        spare[b * n + i] =
                            cell == NAME(GRU) ? reset[i] * h[b * n + i] : bias ? bias[d * n + i] : 0;
                }
                if (cell == NAME(GRU))
                    NAME(add_products)(r + 2 * n * n, n, n, spare, batch, g + 2 * n, gates * n);
                else
                    NAME(add_products)(r + 2 * n * n, n, n, h, batch, spare, n);
            } else {
                NAME(add_products)(r, gates * n, n, h, batch, g, gates * n);
            }
            for (int64_t b = 0; b < batch; b++) {
                const int64_t length = lengths ? lengths[b] : steps;
                const int64_t end = length < steps ? length : steps;
                const int64_t at = s < end && p[7 + d].i ? end - 1 - s : s;
                T *row = y + ((at * directions + d) * batch + b) * n;
                if (s >= end) { /* the sequence is over: its states stay */
                    memset(row, 0, (size_t)n * sizeof(T));
                    continue;
                }
                NAME(cell_step)(cell, g + b * gates * n, h + b * n, c ? c + b * n : NULL, peep,
                                spare + b * n, n, clip, coupled);
                memcpy(row, h + b * n, (size_t)n * sizeof(T));
            }
        }
    }
    return RLX_OK;
}
