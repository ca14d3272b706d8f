/* Names and sizes of the kernels that are written once for float and double.

   The macros here read T (the type), SUFFIX (f32 or f64) and, where code differs, SINGLE (defined for float) when they
   are expanded: they mean something else in each of the two inclusions of typed.h. */
#define CONCAT2(a, b) a##b
#define CONCAT(a, b) CONCAT2(a, b)
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

#define NAME(name) JOIN(name, SUFFIX)       /* the name of a function or type of this type */
#define SCALAR(name) JOIN(rlx_##name, SUFFIX) /* the scalar function of vecmath.h for this type */

/* A vector of the instruction set, and its elements. LANE is a vector of an array. */
#define VEC NAME(vec)
#define VL ((int64_t)(VECTOR_BYTES / sizeof(T)))
#define LANE(array, index) ((VEC *)(array) + (index))
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float))));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(double))));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(int32_t)), may_alias));
typedef int64_t vec_i64 __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(int64_t))));

/* Rows of a transform that go through its passes side by side, at most. */
#define LANES ((int64_t)(RLX_FFT_LANE_BYTES / sizeof(T)))

/* Matrix products (products/micro.h): rows of a tile, and columns of a panel, which is a tile wide. */
#define MICRO_ROWS 6
#define MICRO_COLUMNS ((int64_t)(MICRO_VECTORS * VL))
static_assert(MICRO_VECTORS * VECTOR_BYTES / sizeof(float) <= RLX_PANEL_COLUMNS, "scratch is made for narrower panels");
/* Rows of a panel that stay in the cache while rows of the left matrix go by, rows of the left matrix that stay while
   panels go by, and rows of a panel that are fetched ahead. */
#define MICRO_DEPTH RLX_PANEL_DEPTH
#define MICRO_BLOCK RLX_PRODUCT_ROWS
#define MICRO_AHEAD (1024 / (MICRO_COLUMNS * (int64_t)sizeof(T)))
