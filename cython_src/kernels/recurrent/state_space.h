/* The selective scan of state space models, per type. */

/* Parameters: batch, length, channels, states, has d. Inputs: x, delta, a, b, c, d. Scratch: states
   of every channel, a row of products. */
static int NAME(kernel_selective_scan)(const rlx_call *call)
{
    const int64_t batch = call->p[0].i, length = call->p[1].i;
    const int64_t channels = call->p[2].i, n = call->p[3].i;
    const T *x = call->in[0], *delta = call->in[1], *a = call->in[2], *b = call->in[3];
    const T *c = call->in[4], *d = call->p[4].i ? call->in[5] : NULL;
    T *y = call->out[0], *states = call->out[1], *part = states + channels * n;
    for (int64_t item = 0; item < batch; item++) {
        for (int64_t i = 0; i < channels * n; i++) states[i] = 0;
        for (int64_t step = 0; step < length; step++) {
            for (int64_t ch = 0; ch < channels; ch++) {
                const T *decay = a + ch * n;
                const T by = delta[ch], in = by * x[ch];
                T *h = states + ch * n;
                _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
                {
                    h[i] = PICK(h[i] == 0, (T)0, FN(exp)(by * decay[i]) * h[i]) + in * b[i];
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
