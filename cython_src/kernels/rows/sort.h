/* The first k elements of every row in sorted order, with their positions: by a search for one, by a heap if they are few,
   by their ranks if the row is short, else by a merge sort. Very short rows are ranked side by side. */

/* Elements are compared by keys: integers of their size, larger ones first. Zeros of both signs are equal; NaN, which has
   the least key, comes last. Ties go to the lower position. */
#define FLOAT_KEY(KEY, T, x, most)                                                                \
    ({                                                                                            \
        const T plain = (x) == 0 ? 0 : (x); /* exact for subnormals, also where sums of them are 0 */\
        KEY bits;                                                                                 \
        memcpy(&bits, &plain, sizeof bits);                                                       \
        const KEY up = bits < 0 ? bits ^ most : bits, key = largest ? up : ~up;                   \
        plain != plain ? -most - 1 : key;                                                         \
    })
#define KEY_f32(x) FLOAT_KEY(int32_t, float, x, INT32_MAX)
#define KEY_f64(x) FLOAT_KEY(int64_t, double, x, INT64_MAX)
#define KEY_i32(x) (largest ? (x) : ~(x))
#define KEY_i64(x) KEY_i32(x)
#define KEY_u32(x) KEY_i32((int32_t)((x) ^ 0x80000000u))
/* Keys as columns, by their size. */
#define BRING_f32 bring_i32
#define BRING_f64 bring_i64
#define BRING_i32 bring_i32
#define BRING_u32 bring_i32
#define BRING_i64 bring_i64

/* Shortest and longest rows that are sorted by rank, whose time grows with the square. */
#define LEAST_RANKED 9
#define MOST_RANKED 64
/* Longest rows that are ranked side by side, one in each lane. */
#define MOST_BESIDE 32
#define TOPK(SUFFIX, T, KEY)                                                                      \
    typedef struct {                                                                              \
        KEY key;                                                                                  \
        int32_t index;                                                                            \
    } pair_##SUFFIX;                                                                              \
    static RLX_INLINE int before_##SUFFIX(pair_##SUFFIX a, pair_##SUFFIX b)                       \
    {                                                                                             \
        return (a.key > b.key) | ((a.key == b.key) & (a.index < b.index));                        \
    }                                                                                             \
    static void merge_sort_##SUFFIX(pair_##SUFFIX *a, pair_##SUFFIX *spare, int64_t n)            \
    {                                                                                             \
        for (int64_t i = 0; i < n; i += 8)                                                        \
            for (int64_t j = i + 1; j < i + 8 && j < n; j++) {                                    \
                const pair_##SUFFIX v = a[j];                                                     \
                int64_t to = j;                                                                   \
                for (; to > i && before_##SUFFIX(v, a[to - 1]); to--) a[to] = a[to - 1];          \
                a[to] = v;                                                                        \
            }                                                                                     \
        for (int64_t width = 8; width < n; width *= 2) {                                          \
            for (int64_t i = 0; i < n; i += 2 * width) {                                          \
                const int64_t middle = i + width < n ? i + width : n;                             \
                const int64_t end = i + 2 * width < n ? i + 2 * width : n;                        \
                int64_t l = i, r = middle;                                                        \
                for (int64_t to = i; to < end; to++)                                              \
                    spare[to] = l < middle && (r >= end || !before_##SUFFIX(a[r], a[l])) ? a[l++] : a[r++];\
            }                                                                                     \
            memcpy(a, spare, (size_t)n * sizeof(*a));                                             \
        }                                                                                         \
    }                                                                                             \
    /* The root of the heap is the element that comes last in sorted order. */                    \
    static void sink_##SUFFIX(pair_##SUFFIX *heap, int64_t k, int64_t index)                      \
    {                                                                                             \
        for (;;) {                                                                                \
            int64_t child = 2 * index + 1;                                                        \
            if (child >= k) return;                                                               \
            if (child + 1 < k && before_##SUFFIX(heap[child], heap[child + 1])) child++;          \
            if (!before_##SUFFIX(heap[index], heap[child])) return;                               \
            const pair_##SUFFIX t = heap[index];                                                  \
            heap[index] = heap[child], heap[child] = t;                                           \
            index = child;                                                                        \
        }                                                                                         \
    }                                                                                             \
    /* The k first to the heap. Most elements come after its root: 16 are looked at together. */  \
    static void select_##SUFFIX(pair_##SUFFIX *heap, const KEY *keys, int64_t n, int64_t k)       \
    {                                                                                             \
        for (int64_t i = k / 2 - 1; i >= 0; i--) sink_##SUFFIX(heap, k, i);                       \
        for (int64_t i = k; i < n;) {                                                             \
            const int64_t end = n - i < 16 ? n : i + 16;                                          \
            const KEY root = heap[0].key;                                                         \
            int some = end - i < 16;                                                              \
            for (int64_t l = 0; end - i == 16 && l < 16; l++) some |= keys[i + l] > root;         \
            for (; some && i < end; i++)                                                          \
                if (keys[i] > heap[0].key) {                                                      \
                    heap[0] = (pair_##SUFFIX){keys[i], (int32_t)i};                               \
                    sink_##SUFFIX(heap, k, 0);                                                    \
                }                                                                                 \
            i = end;                                                                              \
        }                                                                                         \
    }                                                                                             \
    /* The rank of an element is the number of those before it. */                                \
    static void rank_##SUFFIX(int32_t *places, const KEY *keys, int64_t n)                        \
    {                                                                                             \
        KEY key[MOST_RANKED], rank[MOST_RANKED];                                                            \
        const int64_t whole = (n + 15) / 16 * 16;                                                 \
        for (int64_t i = 0; i < whole; i++) key[i] = i < n ? keys[i] : 0, rank[i] = 0;            \
        for (int64_t j = 0; j < n; j++) {                                                         \
            const KEY other = key[j];                                                             \
            for (int64_t i = 0; i < whole; i++)                                                   \
                rank[i] += (other > key[i]) | ((other == key[i]) & ((KEY)j < (KEY)i));            \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++) places[rank[i]] = (int32_t)i;                             \
    }                                                                                             \
    /* The position of the largest key; loops without branches become vectors. */                 \
    static int64_t first_##SUFFIX(const KEY *keys, int64_t n)                                     \
    {                                                                                             \
        KEY top = keys[0];                                                                        \
        for (int64_t i = 1; i < n; i++) top = keys[i] > top ? keys[i] : top;                      \
        KEY index = (KEY)n;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                         \
            const KEY here = keys[i] == top ? (KEY)i : (KEY)n;                                    \
            index = here < index ? here : index;                                                  \
        }                                                                                         \
        return index;                                                                             \
    }                                                                                             \
    /* The k first of BESIDE rows: the ranks of every pair of elements are compared in all rows at a time. */\
    static void topk_beside_##SUFFIX(T *values, int32_t *places, const T *x, int64_t n, int64_t k, int largest)\
    {                                                                                             \
        KEY keys[MOST_BESIDE * BESIDE], key[MOST_BESIDE * BESIDE], rank[MOST_BESIDE * BESIDE];    \
        for (int64_t i = 0; i < n * BESIDE; i++) keys[i] = KEY_##SUFFIX(x[i]), rank[i] = 0;       \
        BRING_##SUFFIX(key, keys, n, n, BESIDE, BESIDE);                                          \
        if (k == 1) {                                                                             \
            for (int64_t i = 1; i < n; i++)                                                       \
                for (int64_t l = 0; l < BESIDE; l++) {                                            \
                    const KEY top = key[l], other = key[i * BESIDE + l], index = rank[l];         \
                    key[l] = other > top ? other : top, rank[l] = other > top ? (KEY)i : index;   \
                }                                                                                 \
            for (int64_t l = 0; l < BESIDE; l++) places[l] = (int32_t)rank[l], values[l] = x[l * n + (int64_t)rank[l]];\
            return;                                                                               \
        }                                                                                         \
        for (int64_t j = 1; j < n; j++)                                                           \
            for (int64_t i = 0; i < j; i++)                                                       \
                for (int64_t l = 0; l < BESIDE; l++) {                                            \
                    const KEY later = key[j * BESIDE + l] > key[i * BESIDE + l];                  \
                    rank[i * BESIDE + l] += later, rank[j * BESIDE + l] += 1 - later;             \
                }                                                                                 \
        for (int64_t l = 0; l < BESIDE; l++, x += n, values += k, places += k) {                  \
            int32_t order[MOST_BESIDE];                                                           \
            for (int64_t i = 0; i < n; i++) order[rank[i * BESIDE + l]] = (int32_t)i;             \
            for (int64_t i = 0; i < k; i++) places[i] = order[i], values[i] = x[order[i]];        \
        }                                                                                         \
    }                                                                                             \
    static int kernel_topk_##SUFFIX(const rlx_call *call)                                         \
    {                                                                                             \
        RLX_ARGUMENTS(topk, call);                                                                \
        const int64_t n = p->n, k = p->k;                                                         \
        const int largest = (int)p->largest;                                                      \
        const int ranked = n >= LEAST_RANKED && n <= MOST_RANKED && 8 * k >= n;                   \
        const int few = !ranked && 2 * k < n;                                                     \
        const int64_t columns = few ? k : n;                                                      \
        pair_##SUFFIX *pairs = out->pairs;                                                        \
        KEY *keys = (KEY *)(pairs + (ranked ? 0 : columns)); /* until the pairs are sorted */     \
        const rlx_range own = rlx_share(call, p->rows, 1);                                        \
        int64_t begin = own.first;                                                                \
        for (; n <= MOST_BESIDE && own.last - begin >= BESIDE; begin += BESIDE)                   \
            topk_beside_##SUFFIX((T *)out->values + begin * k, (int32_t *)out->places + begin * k,\
                                 (const T *)in->x + begin * n, n, k, largest);                    \
        for (int64_t r = begin; r < own.last; r++) {                                              \
            const T *x = (const T *)in->x + r * n;                                                \
            T *values = (T *)out->values + r * k;                                                 \
            int32_t *places = (int32_t *)out->places + r * k, ranks[MOST_RANKED];                 \
            for (int64_t i = 0; i < n; i++) keys[i] = KEY_##SUFFIX(x[i]);                         \
            if (k == 1) {                                                                         \
                places[0] = (int32_t)first_##SUFFIX(keys, n);                                     \
            } else if (ranked) {                                                                  \
                rank_##SUFFIX(ranks, keys, n);                                                    \
                memcpy(places, ranks, (size_t)k * sizeof(*places));                               \
            } else {                                                                              \
                for (int64_t i = 0; i < columns; i++) pairs[i] = (pair_##SUFFIX){keys[i], (int32_t)i}; \
                if (few) select_##SUFFIX(pairs, keys, n, k);                                      \
                merge_sort_##SUFFIX(pairs, pairs + columns, columns);                                \
                for (int64_t i = 0; i < k; i++) places[i] = pairs[i].index;                       \
            }                                                                                     \
            for (int64_t i = 0; i < k; i++) values[i] = x[places[i]];                             \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
TOPK(f32, float, int32_t)
TOPK(f64, double, int64_t)
TOPK(i32, int32_t, int32_t)
TOPK(u32, uint32_t, int32_t)
TOPK(i64, int64_t, int64_t)
