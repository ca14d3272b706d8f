/* Windows of an operand whose channels lie next to each other, as rows in bf16 that products in tiles read: the channels of
   the first tap, then those of the next. Padding is 0. */
static int kernel_round_windows_f32(const rlx_call *call)
{
    RLX_ARGUMENTS(round_windows, call);
    const rlx_window *w = &p->window;
    const int64_t *n = w->dims, *taps = w->kernel, *apart = w->dilation, channels = w->channels;
    const int64_t k = taps[0] * taps[1] * taps[2] * channels, blocks = (k + 255) / 256;
    const rlx_range own = rlx_share(call, w->batch * w->out[0] * w->out[1] * w->out[2], 1);
    float *row = out->row;
    memset(row + k, 0, (size_t)(256 * blocks - k) * sizeof(float));
    for (int64_t i = own.first; i < own.last; i++) {
        int64_t at[3], image = i;
        for (int a = 2; a >= 0; a--) {
            at[a] = image % w->out[a] * w->stride[a] - w->before[a];
            image /= w->out[a];
        }
        const float *x = (const float *)in->x + image * n[0] * n[1] * n[2] * channels;
        float *to = row;
        for (int64_t z = at[0]; z < at[0] + taps[0] * apart[0]; z += apart[0])
        for (int64_t y = at[1]; y < at[1] + taps[1] * apart[1]; y += apart[1])
        for (int64_t v = at[2]; v < at[2] + taps[2] * apart[2]; v += apart[2], to += channels)
            if (z >= 0 && z < n[0] && y >= 0 && y < n[1] && v >= 0 && v < n[2])
                memcpy(to, x + ((z * n[1] + y) * n[2] + v) * channels, (size_t)channels * sizeof(float));
            else memset(to, 0, (size_t)channels * sizeof(float));
        rlx_rounded_block *block = (rlx_rounded_block *)out->rows + i * blocks;
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t e = 0; e < 256; e++) block[b].halves[e] = rlx_to_bf16(row[256 * b + e]);
    }
    return RLX_OK;
}
