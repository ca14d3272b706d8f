/* The first k elements of every row in sorted order, with their positions: by a heap if they are few, else by a merge
   sort. */

/* Ties go to the lower position, NaN comes last. */
#define TOPK(SUFFIX, T)                                                                           \
    typedef struct {                                                                              \
        T value;                                                                                  \
        int32_t at;                                                                               \
    } pair_##SUFFIX;                                                                              \
    static inline int before_##SUFFIX(pair_##SUFFIX a, pair_##SUFFIX b, int largest)              \
    {                                                                                             \
        const int a_nan = a.value != a.value, b_nan = b.value != b.value;                         \
        if (a_nan | b_nan) return a_nan != b_nan ? b_nan : a.at < b.at;                           \
        if (a.value != b.value) return largest ? a.value > b.value : a.value < b.value;           \
        return a.at < b.at;                                                                       \
    }                                                                                             \
    static void merge_sort_##SUFFIX(pair_##SUFFIX *a, pair_##SUFFIX *spare, int64_t n, int largest) \
    {                                                                                             \
        for (int64_t i = 0; i < n; i += 8)                                                        \
            for (int64_t j = i + 1; j < i + 8 && j < n; j++) {                                    \
                const pair_##SUFFIX v = a[j];                                                     \
                int64_t to = j;                                                                   \
                for (; to > i && before_##SUFFIX(v, a[to - 1], largest); to--) a[to] = a[to - 1]; \
                a[to] = v;                                                                        \
            }                                                                                     \
        for (int64_t width = 8; width < n; width *= 2) {                                          \
            for (int64_t i = 0; i < n; i += 2 * width) {                                          \
                const int64_t middle = i + width < n ? i + width : n;                             \
                const int64_t end = i + 2 * width < n ? i + 2 * width : n;                        \
                int64_t l = i, r = middle;                                                        \
                for (int64_t to = i; to < end; to++)                                              \
                    spare[to] = l < middle && (r >= end || !before_##SUFFIX(a[r], a[l], largest)) \
                                    ? a[l++]                                                      \
                                    : a[r++];                                                     \
            }                                                                                     \
            memcpy(a, spare, (size_t)n * sizeof(*a));                                             \
        }                                                                                         \
    }                                                                                             \
    /* The root of the heap is the element that comes last in sorted order. */                    \
    static void sink_##SUFFIX(pair_##SUFFIX *heap, int64_t k, int64_t at, int largest)            \
    {                                                                                             \
        for (;;) {                                                                                \
            int64_t child = 2 * at + 1;                                                           \
            if (child >= k) return;                                                               \
            if (child + 1 < k && before_##SUFFIX(heap[child], heap[child + 1], largest)) child++; \
            if (!before_##SUFFIX(heap[at], heap[child], largest)) return;                         \
            const pair_##SUFFIX t = heap[at];                                                     \
            heap[at] = heap[child], heap[child] = t;                                              \
            at = child;                                                                           \
        }                                                                                         \
    }                                                                                             \
    static int kernel_topk_##SUFFIX(const rlx_call *call)                                         \
    {                                                                                             \
        RLX_ARGUMENTS(topk, call);                                                                \
        const int64_t rows = p->rows, n = p->n, k = p->k;                    \
        const int largest = (int)p->largest;                                                    \
        pair_##SUFFIX *pairs = out->pairs;                                                      \
        for (int64_t r = 0; r < rows; r++) {                                                      \
            const T *x = (const T *)in->x + r * n;                                          \
            const int64_t kept = k * 8 < n ? k : n;                                               \
            for (int64_t i = 0; i < kept; i++) pairs[i] = (pair_##SUFFIX){x[i], (int32_t)i};      \
            if (kept < n) {                                                                       \
                for (int64_t i = k / 2 - 1; i >= 0; i--) sink_##SUFFIX(pairs, k, i, largest);     \
                for (int64_t i = k; i < n; i++) {                                                 \
                    const pair_##SUFFIX v = {x[i], (int32_t)i};                                   \
                    if (before_##SUFFIX(v, pairs[0], largest))                                    \
                        pairs[0] = v, sink_##SUFFIX(pairs, k, 0, largest);                        \
                }                                                                                 \
            }                                                                                     \
            merge_sort_##SUFFIX(pairs, pairs + n, kept, largest);                                 \
            for (int64_t i = 0; i < k; i++) {                                                     \
                ((T *)out->values)[r * k + i] = pairs[i].value;                                  \
                ((int32_t *)out->places)[r * k + i] = pairs[i].at;                               \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
TOPK(f32, float)
TOPK(f64, double)
TOPK(i32, int32_t)
TOPK(u32, uint32_t)
TOPK(i64, int64_t)
