/* Coordinates of the elements of a mask that are true. */

/* Elements that are looked at together; their positions are collected before they are written. */
#define POSITIONS 256

static int kernel_true_positions(const rlx_call *call)
{
    RLX_ARGUMENTS(true_positions, call);
    const int64_t rank = p->rank, last = rank - 1, n = p->dims[last];
    const uint8_t *mask = in->mask;
    int64_t *y = out->y, rows = 1, found = 0, coordinates[32] = {0};
    for (int64_t a = 0; a < last; a++) rows *= p->dims[a];
    for (int64_t row = 0; row < rows && found < p->count; row++, mask += n) {
        for (int64_t first = 0; first < n && found < p->count; first += POSITIONS) {
            int32_t places[POSITIONS];
            const int64_t length = n - first < POSITIONS ? n - first : POSITIONS;
            int64_t some = 0;
            for (int64_t i = 0; i < length; i++) {
                RLX_SCALAR_LOOP;
                places[some] = (int32_t)i;
                some += mask[first + i] != 0;
            }
            some = some < p->count - found ? some : p->count - found;
            for (int64_t i = 0; i < some; i++, y += rank) {
                for (int64_t a = 0; a < last; a++) y[a] = coordinates[a];
                y[last] = first + places[i];
            }
            found += some;
        }
        for (int64_t a = last - 1; a >= 0 && ++coordinates[a] == p->dims[a]; a--) coordinates[a] = 0;
    }
    memset(y, 0, (size_t)((p->count - found) * rank) * sizeof(int64_t));
    return RLX_OK;
}
#undef POSITIONS
