/* Transposed convolution, per type: products of the weights with x, which are added into the result. */

#ifdef SINGLE
/* Products of a plane at most whose places are listed once, and entries of a row below which that pays. */
#define MOST_PLACES 4096
#define SHORT_ROW 12

typedef struct {
    int64_t count;
    int32_t from[MOST_PLACES], to[MOST_PLACES];
} product_places;

/* Lists where in a plane of the result each of its products is added. */
static RLX_NOINLINE void list_places(product_places *places, const rlx_window *w)
{
    const int64_t *n = w->out, *s = w->stride, *to = w->dims;
    int32_t from = 0;
    places->count = 0;
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
    for (int64_t ky = 0; ky < w->kernel[1]; ky++)
    for (int64_t kx = 0; kx < w->kernel[2]; kx++)
    for (int64_t z = 0; z < n[0]; z++)
    for (int64_t y = 0; y < n[1]; y++)
    for (int64_t x = 0; x < n[2]; x++, from++) {
        const int64_t at_z = z * s[0] + kz * w->dilation[0] - w->before[0];
        const int64_t at_y = y * s[1] + ky * w->dilation[1] - w->before[1];
        const int64_t at_x = x * s[2] + kx * w->dilation[2] - w->before[2];
        if (at_z < 0 || at_z >= to[0] || at_y < 0 || at_y >= to[1] || at_x < 0 || at_x >= to[2]) continue;
        places->from[places->count] = from;
        places->to[places->count++] = (int32_t)((at_z * to[1] + at_y) * to[2] + at_x);
    }
}
#endif

static void NAME(add_listed)(T *y, const T *products, const product_places *places)
{
    for (int64_t i = 0; i < places->count; i++) y[places->to[i]] += products[places->from[i]];
}

/* Adds one plane of products, taps x entries, to where its kernels are in the result. The entries of x are the windows
   of the result. */
static void NAME(add_kernels)(T *y, const T *products, const rlx_window *w)
{
    const int64_t *n = w->out, *s = w->stride, *to = w->dims;
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
    for (int64_t ky = 0; ky < w->kernel[1]; ky++)
    for (int64_t kx = 0; kx < w->kernel[2]; kx++) {
        const int64_t shift = kx * w->dilation[2] - w->before[2], step = s[2];
        /* Entries [first, last) of a row fall into the result. */
        const int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
        int64_t last = to[2] > shift ? (to[2] - shift + step - 1) / step : 0;
        if (last > n[2]) last = n[2];
        for (int64_t z = 0; z < n[0]; z++)
        for (int64_t i = 0; i < n[1]; i++, products += n[2]) {
            const int64_t at_z = z * s[0] + kz * w->dilation[0] - w->before[0];
            const int64_t at_y = i * s[1] + ky * w->dilation[1] - w->before[1];
            if (at_z < 0 || at_z >= to[0] || at_y < 0 || at_y >= to[1]) continue;
            T *row = y + (at_z * to[1] + at_y) * to[2] + shift;
            if (step == 1)
                for (int64_t x = first; x < last; x++) row[x] += products[x];
            else
                for (int64_t x = first; x < last; x++) row[x * step] += products[x];
        }
    }
}

static int NAME(kernel_conv_transpose)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_transpose, call);
    const rlx_window w = p->window;
    const T *bias = in->bias;
    const int64_t block = p->block;
    const int64_t channels = w.channels / w.groups, m = w.outputs / w.groups;
    const int64_t taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    const int64_t entries = w.out[0] * w.out[1] * w.out[2];
    const int64_t plane = w.dims[0] * w.dims[1] * w.dims[2];
    T *products = out->products;
    const rlx_range own = rlx_share(call, m, 1); /* threads share the outputs of every group */
    const int listed = w.out[2] < SHORT_ROW && taps * entries <= MOST_PLACES && plane <= INT32_MAX;
    product_places places;
    if (listed) list_places(&places, &w);
    for (int64_t g = 0; g < w.groups; g++) {
        const T *weight = (const T *)in->weight + g * channels * m * taps, *transposed = weight;
        /* Weights that stay are transposed already. */
        if (!p->packing) {
            T *to = out->weights;
            for (int64_t i = own.first * taps; i < own.last * taps; i++)
                for (int64_t c = 0; c < channels; c++) to[i * channels + c] = weight[c * m * taps + i];
            transposed = to;
        }
        for (int64_t image = 0; image < w.batch; image++) {
            const T *x = (const T *)in->x + (image * w.groups + g) * channels * entries;
            T *y = (T *)out->y + (image * w.groups + g) * m * plane;
            for (int64_t o = own.first; o < own.last; o++)
                for (int64_t i = 0; i < plane; i++)
                    y[o * plane + i] = bias ? bias[g * m + o] : 0;
            for (int64_t o = own.first; o < own.last; o += block) {
                const int64_t some = own.last - o < block ? own.last - o : block;
                NAME(loose_product)(transposed + o * taps * channels, channels, x, entries, NULL, products, entries,
                           some * taps, channels, entries, 0, 0, out->panel);
                for (int64_t i = 0; i < some; i++) {
                    T *to = y + (o + i) * plane;
                    const T *from = products + i * taps * entries;
                    if (listed) NAME(add_listed)(to, from, &places);
                    else NAME(add_kernels)(to, from, &w);
                }
            }
        }
    }
    return RLX_OK;
}
