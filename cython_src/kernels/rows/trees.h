/* Ensembles of decision trees, per type. */

/* A node: a step goes to `next`, and one further where the feature is not at most the split. A leaf leads to itself: its
   split is NaN. Made by tree_tables.py. */
typedef struct {
    T split;
    int32_t feature, next;
} NAME(tree_node);
static_assert(sizeof(NAME(tree_node)) == sizeof(T) + 8, "nodes are words of 4 bytes without gaps");
static_assert(RLX_TREE_GROUP == 16, "TREE_EACH takes 16 trees");

#define TREE_EACH(STEP)                                                                                        \
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) \
    STEP(13) STEP(14) STEP(15)

/* The leaves that a row comes to in the trees of a group. The trees take their steps side by side, since each step waits
   for the one before it. Nodes follow their split, so that the sum of their numbers stays the same only where all trees
   have come to a leaf. A function of its own keeps more of the numbers in registers. */
#define TREE_STEP(k) n##k = nodes[n##k].next + (int64_t) !(TREE_ROW(k)[nodes[n##k].feature] <= nodes[n##k].split);
#define TREE_SUM(k) +n##k
#define TREE_END(k) leaves[k] = n##k;
#define TREE_WALK                          \
    TREE_EACH(TREE_BEGIN)                  \
    int64_t before, now = -1;              \
    do {                                   \
        before = now;                      \
        TREE_EACH(TREE_STEP)               \
        now = 0 TREE_EACH(TREE_SUM);       \
    } while (now != before);               \
    TREE_EACH(TREE_END)
#define TREE_BEGIN(k) int64_t n##k = roots[k];
#define TREE_ROW(k) x
static RLX_NOINLINE void NAME(tree_walk)(const NAME(tree_node) *nodes, const T *x, const int32_t *roots, int64_t *leaves)
{
    TREE_WALK
}
#undef TREE_BEGIN
#undef TREE_ROW

/* The leaves that up to RLX_TREE_GROUP rows come to in one tree, side by side; the last row stands for those that lack. */
#define TREE_BEGIN(k)                                              \
    const T *const x##k = x + (k < rows ? k : rows - 1) * width;   \
    int64_t n##k = root;
#define TREE_ROW(k) x##k
static RLX_NOINLINE void NAME(tree_walk_rows)(const NAME(tree_node) *nodes, const T *x, int64_t rows, int64_t width,
                                              int64_t root, int64_t *leaves)
{
    TREE_WALK
}
#undef TREE_BEGIN
#undef TREE_ROW
#undef TREE_WALK
#undef TREE_STEP
#undef TREE_SUM
#undef TREE_END

/* The same where a split may ask for equality (1), or NaN answer yes (2). Answers are made without branches, since
   nobody can foresee them. */
static RLX_NOINLINE void NAME(tree_walk_any)(const NAME(tree_node) *nodes, const int32_t *questions, const T *x,
                                             const int32_t *roots, int64_t *leaves)
{
    for (int64_t k = 0; k < RLX_TREE_GROUP; k++) leaves[k] = roots[k];
    int64_t before, now = -1;
    do {
        before = now, now = 0;
        for (int64_t k = 0; k < RLX_TREE_GROUP; k++) {
            const NAME(tree_node) *node = nodes + leaves[k];
            const int asked = questions[leaves[k]];
            const T value = x[node->feature];
            const int equal = (value == node->split) & asked, most = (value <= node->split) & ~asked;
            const int missing = (value != value) & (asked >> 1);
            leaves[k] = node->next + (int64_t)(~(equal | most | missing) & 1);
            now += leaves[k];
        }
    } while (now != before);
}

/* Adds the entries of n leaves to the totals of a row. The least and the largest begin as NaN, and leave it out. */
static RLX_INLINE void NAME(tree_join)(const rlx_tree_scores *p, const rlx_tree_scores_in *in, const int64_t *leaves,
                                       int64_t n, double *totals)
{
    const int32_t *targets = in->targets, *spans = in->spans;
    const T *weights = in->weights;
    if (!spans && p->count == 1 && p->join == RLX_JOIN_SUM) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += weights[leaves[k]];
        totals[0] += sum;
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        const int64_t first = spans ? spans[2 * leaves[k]] : leaves[k];
        const int64_t last = spans ? spans[2 * leaves[k] + 1] : first + 1;
        for (int64_t entry = first; entry < last; entry++) {
            double *total = totals + targets[entry];
            const double weight = weights[entry];
            if (p->join == RLX_JOIN_SUM) {
                *total += weight;
            } else if (!(p->join == RLX_JOIN_MIN ? *total <= weight : *total >= weight) && weight == weight) {
                *total = weight;
            }
        }
    }
}

/* Rows of features, each followed by its copy in which -inf stands for NaN. */
static void NAME(tree_copies)(const T *x, int64_t rows, int64_t features, T *copies)
{
    for (int64_t r = 0; r < rows; r++, x += features, copies += 2 * features) {
        for (int64_t i = 0; i < features; i++) {
            copies[i] = x[i];
            copies[features + i] = PICK(x[i] == x[i], x[i], -(T)INFINITY);
        }
    }
}

/* Some rows one after the other, in the trees of a group: its nodes stay in the cache meanwhile. */
static void NAME(tree_by_trees)(const rlx_tree_scores *p, const rlx_tree_scores_in *in, const T *x, int64_t rows,
                                int64_t width, double *totals)
{
    for (int64_t first = 0; first < p->trees; first += RLX_TREE_GROUP) {
        const int32_t *roots = (const int32_t *)in->roots + first;
        for (int64_t r = 0; r < rows; r++) {
            int64_t leaves[RLX_TREE_GROUP];
            if (in->questions) {
                NAME(tree_walk_any)(in->nodes, in->questions, x + r * width, roots, leaves);
            } else {
                NAME(tree_walk)(in->nodes, x + r * width, roots, leaves);
            }
            NAME(tree_join)(p, in, leaves, RLX_TREE_GROUP, totals + r * p->count);
        }
    }
}

/* The trees of the only group one after the other, where there are more rows than trees. The order of the additions is the
   same. */
static void NAME(tree_by_rows)(const rlx_tree_scores *p, const rlx_tree_scores_in *in, const T *x, int64_t rows,
                               int64_t width, double *totals)
{
    const int32_t *roots = in->roots;
    for (int64_t tree = 0; tree < p->trees; tree++) {
        for (int64_t first = 0; first < rows; first += RLX_TREE_GROUP) {
            const int64_t some = rows - first < RLX_TREE_GROUP ? rows - first : RLX_TREE_GROUP;
            int64_t leaves[RLX_TREE_GROUP];
            NAME(tree_walk_rows)(in->nodes, x + first * width, some, width, roots[tree], leaves);
            for (int64_t k = 0; k < some; k++) NAME(tree_join)(p, in, leaves + k, 1, totals + (first + k) * p->count);
        }
    }
}

/* Scratch: the totals of some rows, and these rows with their copies. */
static int NAME(kernel_tree_scores)(const rlx_call *call)
{
    RLX_ARGUMENTS(tree_scores, call);
    const int64_t features = p->features, count = p->count, width = p->copied ? 2 * features : features;
    const rlx_range own = rlx_share(call, p->rows, 1);
    double *totals = out->totals;
    /* A leaf looks at feature 0 and does not mind what it is. */
    static const T no_feature[1];
    for (int64_t first = own.first; first < own.last; first += RLX_TREE_ROWS) {
        const int64_t rows = own.last - first < RLX_TREE_ROWS ? own.last - first : RLX_TREE_ROWS;
        const T *x = features ? (const T *)in->x + first * features : no_feature;
        T *y = (T *)out->y + first * count;
        if (p->copied) {
            NAME(tree_copies)(x, rows, features, out->copies);
            x = out->copies;
        }
        const double nothing = p->join == RLX_JOIN_SUM ? 0.0 : (double)NAN;
        for (int64_t i = 0; i < rows * count; i++) totals[i] = nothing;
        if (p->trees < RLX_TREE_GROUP && p->trees < rows && !in->questions) {
            NAME(tree_by_rows)(p, in, x, rows, width, totals);
        } else {
            NAME(tree_by_trees)(p, in, x, rows, width, totals);
        }
        for (int64_t i = 0; i < rows * count; i++) {
            y[i] = (T)(p->join != RLX_JOIN_SUM && totals[i] != totals[i] ? 0.0 : totals[i]);
        }
    }
    return RLX_OK;
}

#undef TREE_EACH
