/* Two products of one left matrix, one the gate of the other: act(a @ g) * (a @ u), per type. */

/* Inputs: a, gate and up weights, their biases. Parameters: m, k, n, has bias, act, columns of the gate that are
   made before those of the other product, packed (both are in panels: of which kind, see panels.h). Scratch:
   these columns and a panel more, and room for a panel. */
static int NAME(kernel_gated_product)(const rlx_call *call)
{
    RLX_ARGUMENTS(gated_product, call);
    const int64_t m = p->m, k = p->k, n = p->n, columns = p->columns;
    T *gates = out->gates;
    const rlx_range own = rlx_share(call, n, MICRO_COLUMNS); /* parts are columns */
    for (int64_t j = own.first, width; j < own.last; j += width) {
        /* gemv rounds another way where there is not even a vector: none such is left over. */
        width = own.last - j < columns + MICRO_COLUMNS ? own.last - j : columns;
        T *c = (T *)out->y + j;
        for (int64_t up = 0; up < 2; up++)
            NAME(some_columns)(in->a, up ? in->up : in->gate, p->packing, j, up ? in->up_bias : in->gate_bias,
                               up ? c : gates, up ? n : width, m, k, n, width, up ? 0 : p->act, out->panel);
        for (int64_t i = 0; i < m; i++)
            for (int64_t v = 0; v < width; v++) c[i * n + v] *= gates[i * width + v];
    }
    return RLX_OK;
}
