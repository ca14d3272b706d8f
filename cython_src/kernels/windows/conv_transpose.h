/* Transposed convolution, per type: products of the weights with x, which are added into the result. */

#ifdef SINGLE
/* Products of a plane at most whose places are listed once, and entries of a row below which that pays. */
#define MOST_PLACES 4096
#define SHORT_ROW 12
/* Rows of the result that a thread takes at least. */
#define FEWEST_ROWS 8

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

/* Rows `to` of the result, and rows `from` of x that add to them. Volumes are not cut into rows: both are all rows there. */
typedef struct {
    rlx_range to, from;
} NAME(rows);

static NAME(rows) NAME(rows_of)(const rlx_window *w, rlx_range to)
{
    const int64_t step = w->stride[1], reach = (w->kernel[1] - 1) * w->dilation[1];
    const int64_t low = to.first + w->before[1] - reach, high = (to.last + w->before[1] + step - 1) / step;
    NAME(rows) rows = {to, {low > 0 ? (low + step - 1) / step : 0, high < w->out[1] ? high : w->out[1]}};
    if (to.first == 0 && to.last == w->dims[1]) rows.from = (rlx_range){0, w->out[1]};
    if (rows.from.last < rows.from.first) rows.from.last = rows.from.first;
    return rows;
}

/* Which entries of a row of products are added to a row of the result, if the first belongs to its element `shift`. */
static rlx_range NAME(entries_inside)(const rlx_window *w, int64_t shift)
{
    const int64_t step = w->stride[2], to = w->dims[2];
    rlx_range inside = {shift < 0 ? (-shift + step - 1) / step : 0, to > shift ? (to - shift + step - 1) / step : 0};
    if (inside.last > w->out[2]) inside.last = w->out[2];
    if (inside.last < inside.first) inside.last = inside.first;
    return inside;
}

static RLX_INLINE void NAME(add_entries)(T *row, const T *products, int64_t first, int64_t last, int64_t step)
{
    if (step == 1)
        for (int64_t x = first; x < last; x++) row[x] += products[x];
    else
        for (int64_t x = first; x < last; x++) row[x * step] += products[x];
}

/* Adds one plane of products, taps x entries of some rows, to where its kernels are in the result. The entries of x are
   the windows of the result. Where they are two apart, two taps side by side are added together, which is done in vectors. */
static void NAME(add_kernels)(T *y, const T *products, const rlx_window *w, NAME(rows) rows)
{
    const int64_t *n = w->out, *s = w->stride, *to = w->dims;
    const int64_t size = n[0] * (rows.from.last - rows.from.first) * n[2], step = s[2];
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
    for (int64_t ky = 0; ky < w->kernel[1]; ky++)
    for (int64_t kx = 0, taps; kx < w->kernel[2]; kx += taps, products += (taps - 1) * size) {
        const int64_t shift = kx * w->dilation[2] - w->before[2];
        taps = step == 2 && w->dilation[2] == 1 && kx + 1 < w->kernel[2] ? 2 : 1;
        const rlx_range own = NAME(entries_inside)(w, shift), next = NAME(entries_inside)(w, shift + 1);
        const int64_t first = own.first > next.first ? own.first : next.first, last = own.last < next.last ? own.last : next.last;
        for (int64_t z = 0; z < n[0]; z++)
        for (int64_t i = rows.from.first; i < rows.from.last; i++, products += n[2]) {
            const int64_t at_z = z * s[0] + kz * w->dilation[0] - w->before[0];
            const int64_t at_y = i * s[1] + ky * w->dilation[1] - w->before[1];
            if (at_z < 0 || at_z >= to[0] || at_y < rows.to.first || at_y >= rows.to.last) continue;
            T *row = y + (at_z * to[1] + at_y) * to[2] + shift;
            if (taps == 1 || first >= last) {
                NAME(add_entries)(row, products, own.first, own.last, step);
                if (taps == 2) NAME(add_entries)(row + 1, products + size, next.first, next.last, step);
                continue;
            }
            NAME(add_entries)(row, products, own.first, first, 2);
            NAME(add_entries)(row + 1, products + size, next.first, first, 2);
            const T *even = products, *odd = products + size;
            RLX_INDEPENDENT for (int64_t x = first; x < last; x++) row[2 * x] += even[x], row[2 * x + 1] += odd[x];
            NAME(add_entries)(row, products, last, own.last, 2);
            NAME(add_entries)(row + 1, products + size, last, next.last, 2);
        }
    }
}

/* Threads share images of groups; where these are few, outputs, or rows of the result if there are more of them. */
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
    const int flat = w.dims[0] == 1 && w.out[0] == 1;
    T *products = out->products;
    rlx_block own = rlx_share_block(call, w.groups * w.batch, flat ? w.dims[1] : 1, m, FEWEST_ROWS, 1);
    if (!flat) own.rows = (rlx_range){0, w.dims[1]};
    const NAME(rows) rows = NAME(rows_of)(&w, own.rows);
    const int64_t size = w.out[0] * (rows.from.last - rows.from.first) * w.out[2];
    const int64_t begin = own.rows.first * w.dims[2], some_plane = flat ? own.rows.last * w.dims[2] - begin : plane;
    const int listed = w.out[2] < SHORT_ROW && taps * entries <= MOST_PLACES && plane <= INT32_MAX && size == entries &&
                       some_plane == plane;
    product_places places;
    if (listed) list_places(&places, &w);
    int64_t packed_group = -1; /* the group whose weights are transposed */
    for (int64_t piece = own.pieces.first; piece < own.pieces.last; piece++) {
        const int64_t g = piece / w.batch, image = piece % w.batch;
        const T *weight = (const T *)in->weight + g * channels * m * taps, *transposed = weight;
        /* Weights that stay are transposed already. */
        if (!p->packing) {
            T *to = out->weights;
            for (int64_t i = own.columns.first * taps; g != packed_group && i < own.columns.last * taps; i++)
                for (int64_t c = 0; c < channels; c++) to[i * channels + c] = weight[c * m * taps + i];
            transposed = to, packed_group = g;
        }
        const T *x = (const T *)in->x + (image * w.groups + g) * channels * entries + rows.from.first * w.out[2];
        T *y = (T *)out->y + (image * w.groups + g) * m * plane;
        for (int64_t o = own.columns.first; o < own.columns.last; o++)
            for (int64_t i = 0; i < some_plane; i++)
                y[o * plane + begin + i] = bias ? bias[g * m + o] : 0;
        for (int64_t o = own.columns.first; o < own.columns.last; o += block) {
            const int64_t some = own.columns.last - o < block ? own.columns.last - o : block;
            NAME(loose_columns)(transposed + o * taps * channels, channels, x, entries, NULL, products, size,
                                some * taps, channels, size, 0, 0, 0, out->panel);
            for (int64_t i = 0; i < some; i++) {
                T *to = y + (o + i) * plane;
                const T *from = products + i * taps * size;
                if (listed) NAME(add_listed)(to, from, &places);
                else NAME(add_kernels)(to, from, &w, rows);
            }
        }
    }
    return RLX_OK;
}
