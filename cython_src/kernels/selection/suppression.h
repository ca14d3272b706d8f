/* Boxes that are kept: in the order of their scores, each that does not overlap a better one of its row. */

/* Kept boxes that a box is compared with at a time. */
#define BOXES 16
/* Candidates that are sorted first, where there are many more: most rows need no others. */
#define CANDIDATES 1024

typedef struct {
    float low_a, low_b, high_a, high_b, area;
} rlx_box;

/* The corners of a box. One of a negative size around a centre stays inside out: it overlaps none. */
static RLX_INLINE rlx_box box_at(const float *x, int centred)
{
    const float a = x[0], b = x[1], c = x[2], d = x[3];
    rlx_box box = {a < c ? a : c, b < d ? b : d, a < c ? c : a, b < d ? d : b, 0};
    if (centred) box = (rlx_box){a - c * 0.5f, b - d * 0.5f, a + c * 0.5f, b + d * 0.5f, 0};
    box.area = (box.high_a - box.low_a) * (box.high_b - box.low_b);
    return box;
}

/* Whether a box overlaps one of `count` kept boxes by more than a share of the area of both. */
static int overlaps(const rlx_box *box, const float *corners, int64_t line, int64_t count, float most)
{
    const float *low_a = corners, *low_b = low_a + line, *high_a = low_b + line, *high_b = high_a + line, *area = high_b + line;
    for (int64_t first = 0; first < count; first += BOXES) {
        int any = 0;
        for (int64_t i = first; i < first + BOXES; i++) {
            const float a = low_a[i] > box->low_a ? low_a[i] : box->low_a;
            const float b = low_b[i] > box->low_b ? low_b[i] : box->low_b;
            const float c = high_a[i] < box->high_a ? high_a[i] : box->high_a;
            const float d = high_b[i] < box->high_b ? high_b[i] : box->high_b;
            const float wide = c - a > 0 ? c - a : 0, tall = d - b > 0 ? d - b : 0, common = wide * tall;
            const float whole = box->area + area[i] - common;
            any |= (whole > 0) & (common / whole > most);
        }
        if (any) return 1;
    }
    return 0;
}

/* Goes on with a row: candidates in order, `retained` boxes are kept already. Returns how many there are then. */
static int64_t suppress(int32_t *kept, int64_t retained, int64_t limit, const pair_f32 *pairs, int64_t count,
                        const float *boxes, float *corners, int64_t line, float most, int centred)
{
    for (int64_t i = 0; i < count && retained < limit; i++) {
        const rlx_box box = box_at(boxes + 4 * (int64_t)pairs[i].index, centred);
        if (overlaps(&box, corners, line, retained, most)) continue;
        if (retained % BOXES == 0) /* a whole number of boxes is compared: the rest of them are empty */
            for (int64_t part = 0; part < 5; part++) memset(corners + part * line + retained, 0, BOXES * sizeof(float));
        const float parts[5] = {box.low_a, box.low_b, box.high_a, box.high_b, box.area};
        for (int64_t part = 0; part < 5; part++) corners[part * line + retained] = parts[part];
        kept[retained++] = pairs[i].index;
    }
    return retained;
}

static int kernel_non_max_suppression(const rlx_call *call)
{
    RLX_ARGUMENTS(non_max_suppression, call);
    const int64_t n = p->n, most = p->most, asked = *(const int64_t *)in->limit, line = most + BOXES;
    const int64_t limit = asked < 0 ? 0 : asked < most ? asked : most;
    const float overlap = *(const float *)in->overlap, least = *(const float *)in->least;
    if (!(overlap >= 0 && overlap <= 1)) return RLX_OUT_OF_RANGE;
    const int centred = (int)p->centred, largest = 1;
    pair_f32 *pairs = out->pairs;
    int32_t *keys = out->keys;
    float *corners = out->corners;
    const rlx_range own = rlx_share(call, p->batches * p->classes, 1);
    for (int64_t row = own.first; row < own.last; row++) {
        const float *scores = (const float *)in->scores + row * n;
        const float *boxes = (const float *)in->boxes + row / p->classes * n * 4;
        int32_t *kept = (int32_t *)out->kept + row * most;
        int64_t count = 0, retained = 0, sorted = 0;
        for (int64_t i = 0; i < n; i++) {
            RLX_SCALAR_LOOP;
            keys[count] = (int32_t)i; /* places, until the candidates are known */
            count += scores[i] > least;
        }
        if (limit > 0 && count > 4 * CANDIDATES) {
            /* The keys of the rest of the row are the least there are: the sign of NaN. */
            for (int64_t i = 0; i < n; i++) keys[i] = scores[i] > least ? KEY_f32(scores[i]) : INT32_MIN;
            for (int64_t i = 0; i < CANDIDATES; i++) pairs[i] = (pair_f32){keys[i], (int32_t)i};
            select_f32(pairs, keys, n, CANDIDATES);
            merge_sort_f32(pairs, pairs + n, CANDIDATES);
            sorted = CANDIDATES;
            retained = suppress(kept, 0, limit, pairs, sorted, boxes, corners, line, overlap, centred);
            count = 0;
            for (int64_t i = 0; i < n && retained < limit; i++) {
                RLX_SCALAR_LOOP;
                keys[count] = (int32_t)i;
                count += scores[i] > least;
            }
        }
        if (retained < limit && count > sorted) {
            for (int64_t i = 0; i < count; i++) pairs[i] = (pair_f32){KEY_f32(scores[keys[i]]), keys[i]};
            merge_sort_f32(pairs, pairs + n, count);
            retained = suppress(kept, retained, limit, pairs + sorted, count - sorted, boxes, corners, line, overlap, centred);
        }
        for (int64_t i = retained; i < most; i++) kept[i] = -1;
    }
    return RLX_OK;
}
#undef BOXES
#undef CANDIDATES
