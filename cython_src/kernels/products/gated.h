/* Two products of one left matrix, one the gate of the other: act(a @ g) * (a @ u), per type. */

/* Inputs: a, gate and up weights, their biases. Parameters: m, k, n, has bias, act, columns of the gate that are
   made before those of the other product, packed (both are in panels: of which kind, see panels.h). Scratch:
   these columns and a panel more, and room for a panel. */
static int NAME(kernel_gated_product)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[0].i, k = p[1].i, n = p[2].i, biased = p[3].i, columns = p[5].i;
    T *room = call->out[1], *gate = room + MICRO_DEPTH * MICRO_COLUMNS;
    const rlx_range own = rlx_share(call, n, MICRO_COLUMNS); /* parts are columns */
    for (int64_t j = own.first, width; j < own.last; j += width) {
        /* gemv rounds another way where there is not even a vector: none such is left over. */
        width = own.last - j < columns + MICRO_COLUMNS ? own.last - j : columns;
        T *c = (T *)call->out[0] + j;
        for (int64_t up = 0; up < 2; up++)
            NAME(some_columns)(call->in[0], call->in[1 + up], p[6].i, j, biased ? call->in[3 + up] : NULL, up ? c : gate,
                               up ? n : width, m, k, n, width, up ? 0 : p[4].i, room);
        for (int64_t i = 0; i < m; i++)
            for (int64_t v = 0; v < width; v++) c[i * n + v] *= gate[i * width + v];
    }
    return RLX_OK;
}
