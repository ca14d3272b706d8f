/* The selective scan of state space models, per type. */

/* Scratch: the states of every channel, and the products of one. */
static int NAME(kernel_selective_scan)(const rlx_call *call)
{
    RLX_ARGUMENTS(selective_scan, call);
    const int64_t batch = p->batch, length = p->length;
    const int64_t channels = p->channels, n = p->states;
    const rlx_block own = rlx_share_block(call, batch, 1, channels, 1, RLX_SCAN_CHANNELS);
    const int64_t first = own.pieces.first * length;
    const T *x = (const T *)in->x + first * channels, *delta = (const T *)in->delta + first * channels, *a = in->a;
    const T *b = (const T *)in->b + first * n, *c = (const T *)in->c + first * n, *d = in->d;
    T *y = (T *)out->y + first * channels, *states = out->states, *part = out->products;
    for (int64_t item = own.pieces.first; item < own.pieces.last; item++) {
        for (int64_t i = 0; i < channels * n; i++) states[i] = 0;
        for (int64_t step = 0; step < length; step++) {
            for (int64_t ch = own.columns.first; ch < own.columns.last; ch++) {
                const T *decay = a + ch * n;
                const T by = delta[ch], fed = by * x[ch];
                T *h = states + ch * n;
                RLX_INDEPENDENT for (int64_t i = 0; i < n; i++)
                {
                    h[i] = PICK(h[i] == 0, (T)0, SCALAR(exp)(by * decay[i]) * h[i]) + fed * b[i];
                    part[i] = h[i] * c[i];
                }
                T sum = d ? d[ch] * x[ch] : 0;
                for (int64_t i = 0; i < n; i++) sum += part[i];
                y[ch] = sum;
            }
            x += channels, delta += channels, y += channels;
            b += n, c += n;
        }
    }
    return RLX_OK;
}
