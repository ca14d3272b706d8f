/* Convolutions with padding, per type: products of windows with packed weights (conv_outputs.h) that leave out taps on
   padding. Windows that meet the operand with the same taps are a class, and are made together; they are read where they
   stand. Large planes are made some lines at a time, small ones for several images. */

/* The taps of a class, or with `outside` all others: their offsets from a window's first tap, and their rows in a panel.
   Returns how many there are. */
static int64_t NAME(class_taps)(const NAME(convolution) *f, const rlx_places *by_axis, int outside, int64_t step,
                                int64_t *index, int64_t *rows)
{
    const rlx_window *w = f->w;
    int64_t count = 0, tap = 0;
    for (int64_t z = 0; z < w->kernel[0]; z++)
    for (int64_t y = 0; y < w->kernel[1]; y++)
    for (int64_t x = 0; x < w->kernel[2]; x++, tap++) {
        const int64_t of[3] = {z, y, x};
        int inside = 1;
        for (int a = 0; a < 3; a++) inside &= of[a] >= by_axis[a].taps.first && of[a] < by_axis[a].taps.last;
        if (inside == outside) continue;
        index[count] = outside ? 0 : f->offsets[tap];
        rows[count++] = tap * step;
    }
    return count;
}

/* Where the windows of a class begin in the operand, image by image; and for each of them, the place of its products
   among those of all windows of some lines of the piece. `written` is the first of them. */
static int64_t NAME(class_windows)(const NAME(convolution) *f, const NAME(conv_piece) *one, const rlx_places *by_axis,
                                   rlx_range lines, const T **from, const T **rows, const T *written)
{
    const rlx_window *w = f->w;
    const rlx_range oz = by_axis[0].places, oy = by_axis[1].places, ox = by_axis[2].places;
    int64_t count = 0;
    for (int64_t image = 0; image < one->images; image++)
    for (int64_t z = oz.first; z < oz.last; z++)
    for (int64_t y = oy.first; y < oy.last; y++)
    for (int64_t x = ox.first; x < ox.last; x++) {
        from[count] = one->planes + image * one->image + (z * w->stride[0] - w->before[0]) * f->l.depth +
                      (y * w->stride[1] - w->before[1]) * f->l.row + x * w->stride[2] - w->before[2];
        const int64_t line = (image * w->out[0] + z) * (lines.last - lines.first) + y - lines.first;
        rows[line * w->out[2] + x] = written + count++ * MICRO_COLUMNS;
    }
    return count;
}

/* The windows of some lines of a piece's images times a panel of its weights. */
static void NAME(classes_by_panel)(const NAME(convolution) *f, const NAME(conv_piece) *one, rlx_range lines,
                                   const NAME(weight_panel) *panel, int finite, int64_t *index, T *work)
{
    const rlx_window *w = f->w;
    const T *from[MICRO_BLOCK], *rows[MICRO_BLOCK], *nowhere[MICRO_BLOCK], nothing = 0;
    T *products = work, *scratch = work + MICRO_BLOCK * MICRO_COLUMNS;
    int64_t *in_panel = index + f->taps;
    /* Channels at a time: what windows meet of them, and their rows of the panel, stay in the first-level cache. */
    const int64_t max_rows = f->taps < MICRO_DEPTH / 4 ? MICRO_DEPTH / 4 / f->taps : 1;
    for (int64_t q = 0; q < MICRO_BLOCK; q++) nowhere[q] = &nothing;
    const int64_t deep = f->taps * panel->step, wide = NAME(panel_columns)(panel->width);
    int64_t first = 0;
    do {
        const int64_t some = f->channels - first < max_rows ? f->channels - first : max_rows;
        const T *b = NAME(panel_rows)(f, one, panel, first * f->taps, some * f->taps, scratch);
        NAME(conv_piece) part = *one;
        part.planes += first * f->l.plane;
        T *written = products;
        rlx_places by_axis[3];
        for (int64_t z = 0; z < w->out[0]; z = by_axis[0].places.last) {
            by_axis[0] = places_from(w, 0, z);
            for (int64_t y = lines.first; y < lines.last; y = by_axis[1].places.last) {
                by_axis[1] = places_from(w, 1, y);
                if (by_axis[1].places.last > lines.last) by_axis[1].places.last = lines.last;
                for (int64_t x = 0; x < w->out[2]; x = by_axis[2].places.last) {
                    by_axis[2] = places_from(w, 2, x);
                    NAME(tap_list) list = {.channels = some, .plane = f->l.plane, .deep = deep, .ahead = deep,
                                           .index = index, .rows = in_panel};
                    const int64_t count = NAME(class_windows)(f, &part, by_axis, lines, from, rows, written);
                    list.count = NAME(class_taps)(f, by_axis, 0, panel->step, index, in_panel);
                    NAME(windows_by_panel)(from, count, &list, b, wide, written,
                                           first ? NULL : NAME(micro_zeros));
                    if (RLX_UNLIKELY(!finite)) { /* 0 times infinity is NaN */
                        list.plane = 0, list.count = NAME(class_taps)(f, by_axis, 1, panel->step, index, in_panel);
                        NAME(windows_by_panel)(nowhere, count, &list, b, wide, written, NULL);
                    }
                    written += count * MICRO_COLUMNS;
                }
            }
        }
        first += some;
    } while (first < f->channels);
    const int64_t count = one->images * w->out[0] * (lines.last - lines.first) * w->out[2];
    NAME(store_windows)(f, one, panel, products, rows, lines.first * w->out[2], count);
}

static int NAME(kernel_conv_inside)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_inside, call);
    NAME(convolution) f = CONVOLUTION(0, p->packing, p->packed_stride);
    NAME(measure)(&f, 0, out->offsets);
    const rlx_window *w = f.w;
    /* Behind packed weights stands whether all are numbers. */
    const int finite = f.packing ? *(const int64_t *)(f.weight + w->groups * f.weight_stride) != 0
                                 : NAME(are_numbers)((const T *)f.weight, w->outputs * f.k);
    /* Lines that are made at a time. A plane of more windows than a block holds has no depth. */
    const int64_t deep = f.windows > MICRO_BLOCK ? MICRO_BLOCK / w->out[2] : w->out[1];
    /* Parts are images of the groups, or columns of the weights: also of one panel. */
    const rlx_block own = rlx_share_tiles(call, w->groups * w->batch, 1, f.m, 1, VL);
    for (int64_t item = own.pieces.first, some; item < own.pieces.last; item += some) {
        const int64_t image = item % w->batch, left = w->batch - image, all = own.pieces.last - item;
        some = left < all ? left : all;
        if (some > f.together) some = f.together;
        const NAME(conv_piece) one = NAME(images_of)(&f, image, some, item / w->batch, (rlx_range){0, f.m});
        for (int64_t j = own.columns.first, width; j < own.columns.last; j += width) {
            const NAME(weight_panel) panel = NAME(panel_at)(&f, &one, j, own.columns.last);
            for (rlx_range lines = {0, 0}; lines.first < w->out[1]; lines.first = lines.last) {
                lines.last = lines.first + deep < w->out[1] ? lines.first + deep : w->out[1];
                NAME(classes_by_panel)(&f, &one, lines, &panel, finite, out->index, out->work);
            }
            width = panel.width;
        }
    }
    return RLX_OK;
}
