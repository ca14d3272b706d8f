/* Planes of which each entry is one of another plane: rows and columns are taken by two tables. T is float or double. */

#if defined(SINGLE) && defined(PERMUTES)
#define NEAREST_VECTORS
/* Vectors of a row whose places are looked at once for all rows. */
#define MOST_NEAREST 256

/* The places of a vector: a vector of entries from `start` on has them at `from_there`. start is -1 where they are too far
   apart; then from_there are the places themselves. */
typedef struct {
    int64_t start[MOST_NEAREST];
    vi from_there[MOST_NEAREST];
    int64_t vectors; /* of a row, the last may be partial; 0 for none */
    int far;         /* whether places of a vector are too far apart anywhere */
} NAME(nearest_places);

/* Looks at places that rise and are padded to whole vectors. */
static void NAME(look_at_places)(NAME(nearest_places) *to, const int32_t *places, int64_t columns)
{
    const int64_t vectors = (columns + FLOATS - 1) / FLOATS;
    to->far = 0, to->vectors = vectors <= MOST_NEAREST ? vectors : 0;
    for (int64_t v = 0; v < to->vectors; v++) {
        const int32_t *index = places + v * FLOATS;
        const int near = index[FLOATS - 1] - index[0] < FLOATS;
        to->start[v] = near ? index[0] : -1;
        to->from_there[v] = (vi)*(const vec_i32 *)index - (near ? index[0] : 0);
        to->far |= !near;
    }
}

static RLX_INLINE vf NAME(entries_of)(const T *x, const T *x_end, const NAME(nearest_places) *places, int64_t v)
{
    const int64_t start = places->start[v], left = x_end - x - start;
    if (start < 0) return v_gather(x, places->from_there[v]);
    return v_permute(left >= FLOATS ? v_load(x + start) : v_load_some(x + start, left), places->from_there[v]);
}

/* n entries, as a whole vector if it ends before `end`: what stands behind a row is written later. */
static RLX_INLINE void NAME(store_on)(T *to, vf v, int64_t n, const T *end)
{
    if (end - to >= FLOATS) v_store(to, v);
    else v_store_some(to, v, n);
}

/* A row, or the row before once more. */
static void NAME(nearest_row)(T *to, const T *x, const T *x_end, const NAME(nearest_places) *places, int64_t columns,
                              const T *end, int again)
{
    const int64_t whole = columns / FLOATS, rest = columns % FLOATS;
    const int inside = !places->far && x_end - x >= places->start[places->vectors - 1] + FLOATS;
    const T *before = to - columns;
    if (again)
        for (int64_t v = 0; v < whole; v++) v_store(to + v * FLOATS, v_load(before + v * FLOATS));
    else if (inside)
        for (int64_t v = 0; v < whole; v++)
            v_store(to + v * FLOATS, v_permute(v_load(x + places->start[v]), places->from_there[v]));
    else
        for (int64_t v = 0; v < whole; v++) v_store(to + v * FLOATS, NAME(entries_of)(x, x_end, places, v));
    if (!rest) return;
    to += whole * FLOATS, before += whole * FLOATS;
    if (!again) NAME(store_on)(to, NAME(entries_of)(x, x_end, places, whole), rest, end);
    else NAME(store_on)(to, end - before >= FLOATS ? v_load(before) : v_load_some(before, rest), rest, end);
}
#endif

static int NAME(kernel_nearest_planes)(const rlx_call *call)
{
    RLX_ARGUMENTS(nearest_planes, call);
    const int64_t rows = p->rows, columns = p->columns, width = p->width;
    const int32_t *lines = in->lines;
    const rlx_range own = rlx_share(call, p->planes * rows, 1);
#ifdef NEAREST_VECTORS
    const T *x_end = (const T *)in->x + p->planes * p->n * width, *end = (const T *)out->y + own.last * columns;
    NAME(nearest_places) places;
    places.vectors = 0; /* the rest is written before it is read */
    if (p->rising) NAME(look_at_places)(&places, in->places, columns);
#endif
    for (int64_t r = own.first; r < own.last; r++) {
        const int64_t i = r % rows;
        const T *x = (const T *)in->x + (r / rows * p->n + lines[i]) * width;
        T *to = (T *)out->y + r * columns;
        const int again = i > 0 && r > own.first && lines[i] == lines[i - 1];
#ifdef NEAREST_VECTORS
        if (places.vectors) {
            NAME(nearest_row)(to, x, x_end, &places, columns, end, again);
            continue;
        }
#endif
        if (again) memcpy(to, to - columns, (size_t)columns * sizeof(T));
        else for (int64_t j = 0; j < columns; j++) to[j] = x[((const int32_t *)in->places)[j]];
    }
    return RLX_OK;
}
#undef NEAREST_VECTORS
#undef MOST_NEAREST
