/* Gated products, per type: act(a @ gate) * (a @ up). */

/* Columns of the gate are computed in groups of `columns`, each followed by the same columns of the other product.
   Scratch holds one group. */
static int NAME(kernel_gated_product)(const rlx_call *call)
{
    RLX_ARGUMENTS(gated_product, call);
    const int64_t m = p->m, k = p->k, n = p->n, columns = p->columns;
    T *gates = out->gates;
    const rlx_range own = rlx_share(call, n, MICRO_COLUMNS); /* parts are columns */
    for (int64_t j = own.first, width; j < own.last; j += width) {
        /* The last group is never narrower than a vector, since gemv sums such columns in another order. */
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
