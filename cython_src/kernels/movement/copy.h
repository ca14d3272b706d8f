/* Copies from one layout to another, of elements of 1, 2, 4 or 8 bytes.

   A copy is a walk of planes: rows and columns of the target, and the axes outside of them. Columns are the last axis.
   Rows are the axis along which the source is contiguous, if the columns are not that already; such planes are transposed
   in tiles. */

/* Up to a few hundred bytes, without the call of memcpy: the last vector overlaps the one before. */
static RLX_INLINE void copy_bytes(char *d, const char *s, int64_t n)
{
    typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
    typedef uint8_t bytes32 __attribute__((vector_size(32), aligned(1), may_alias));
    typedef uint8_t bytes_all __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
#define COPY_BY(type)                                                                             \
    {                                                                                             \
        const int64_t step = (int64_t)sizeof(type);                                               \
        const type last = *(const type *)(s + n - step);                                          \
        for (int64_t i = 0; i < n - step; i += step) *(type *)(d + i) = *(const type *)(s + i);   \
        *(type *)(d + n - step) = last;                                                           \
    }
    if (n > 512) memcpy(d, s, (size_t)n);
    else if (n >= VECTOR_BYTES) COPY_BY(bytes_all)
    else if (n >= 32) COPY_BY(bytes32)
    else if (n >= 16) COPY_BY(bytes16)
    else if (n >= 8) memcpy(d, s, 8), memcpy(d + n - 8, s + n - 8, 8);
    else if (n >= 4) memcpy(d, s, 4), memcpy(d + n - 4, s + n - 4, 4);
    else
        for (int64_t i = 0; i < n; i++) {
            RLX_SCALAR_LOOP;
            d[i] = s[i];
        }
#undef COPY_BY
}

/* A statement for a number of elements, which is a constant in it where it is small: copies of so many are a move or two. */
#define FOR_FEW(count, n, statement)                                                              \
    switch (count) {                                                                              \
    case 1: { enum { n = 1 }; statement; } break;                                                 \
    case 2: { enum { n = 2 }; statement; } break;                                                 \
    case 3: { enum { n = 3 }; statement; } break;                                                 \
    case 4: { enum { n = 4 }; statement; } break;                                                 \
    case 5: { enum { n = 5 }; statement; } break;                                                 \
    case 6: { enum { n = 6 }; statement; } break;                                                 \
    case 7: { enum { n = 7 }; statement; } break;                                                 \
    case 8: { enum { n = 8 }; statement; } break;                                                 \
    default: { const int64_t n = count; statement; } break;                                       \
    }
#define MOST_FEW 8
/* Rows of few elements that are enough for a plane. */
#define LEAST_ROWS 16
#define STRIP_ROWS 256

/* A tile is as many vectors as 16 bytes have elements. Each half of a vector holds 16 bytes of one column. Vectors are
   interleaved with those that are half of the tile away, as often as it takes to turn columns into rows. */
#if VECTOR_BYTES >= 32
#define TILE_HALVES 2
typedef __m256i tile_vector;
static RLX_INLINE tile_vector tile_load(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
}
static RLX_INLINE void tile_store(void *to, tile_vector v) { _mm256_storeu_si256(to, v); }
#define TILE_WEAVE(SUFFIX, E, BITS)                                                               \
    static RLX_INLINE void tile_weave_##SUFFIX(tile_vector *low, tile_vector *high, tile_vector a, tile_vector b) \
    {                                                                                             \
        *low = _mm256_unpacklo_epi##BITS(a, b);                                                   \
        *high = _mm256_unpackhi_epi##BITS(a, b);                                                  \
    }
#else
#define TILE_HALVES 1
typedef struct {
    char bytes[16];
} tile_vector;
static RLX_INLINE tile_vector tile_load(const void *low, const void *high)
{
    tile_vector v;
    (void)high;
    memcpy(&v, low, sizeof(v));
    return v;
}
static RLX_INLINE void tile_store(void *to, tile_vector v) { memcpy(to, &v, sizeof(v)); }
#define TILE_WEAVE(SUFFIX, E, BITS)                                                               \
    static RLX_INLINE void tile_weave_##SUFFIX(tile_vector *low, tile_vector *high, tile_vector a, tile_vector b) \
    {                                                                                             \
        E from[2][16 / sizeof(E)], to[2 * 16 / sizeof(E)];                                        \
        memcpy(from[0], &a, 16), memcpy(from[1], &b, 16);                                         \
        for (size_t i = 0; i < 16 / sizeof(E); i++) to[2 * i] = from[0][i], to[2 * i + 1] = from[1][i]; \
        memcpy(low, to, 16), memcpy(high, to + 16 / sizeof(E), 16);                               \
    }
#endif

#define COPIES(SUFFIX, E, BITS)                                                                   \
    TILE_WEAVE(SUFFIX, E, BITS)                                                                   \
    enum { TILE_ROWS_##SUFFIX = 16 / sizeof(E), TILE_COLUMNS_##SUFFIX = TILE_HALVES * TILE_ROWS_##SUFFIX }; \
    static RLX_INLINE void copy_tile_##SUFFIX(E *d, const E *s, int64_t down, int64_t across)     \
    {                                                                                             \
        enum { N = TILE_ROWS_##SUFFIX };                                                          \
        tile_vector v[N], w[N];                                                                   \
        for (int i = 0; i < N; i++) v[i] = tile_load(s + i * across, s + (i + N * (TILE_HALVES - 1)) * across); \
        for (int step = 1; step < N; step *= 2) {                                                 \
            for (int i = 0; i < N / 2; i++)                                                       \
                tile_weave_##SUFFIX(&w[2 * i], &w[2 * i + 1], v[i], v[i + N / 2]);                \
            for (int i = 0; i < N; i++) v[i] = w[i];                                              \
        }                                                                                         \
        for (int i = 0; i < N; i++) tile_store(d + i * down, v[i]);                               \
    }                                                                                             \
    /* n elements by their steps. */                                                              \
    static RLX_INLINE void copy_line_##SUFFIX(E *d, const E *s, int64_t n, int64_t to, int64_t from) \
    {                                                                                             \
        if (to != 1) {                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                d[i * to] = s[i * from];                                                          \
            }                                                                                     \
        } else if (from == 1) {                                                                   \
            copy_bytes((char *)d, (const char *)s, n * (int64_t)sizeof(E));                       \
        } else if (from == 0) {                                                                   \
            const E value = n ? *s : 0;                                                           \
            if (n >= 16)                                                                          \
                for (int64_t i = 0; i < n; i++) d[i] = value;                                     \
            else                                                                                  \
                for (int64_t i = 0; i < n; i++) {                                                 \
                    RLX_SCALAR_LOOP;                                                              \
                    d[i] = value;                                                                 \
                }                                                                                 \
        } else if (from == -1) {                                                                  \
            for (int64_t i = 0; i < n; i++) d[i] = s[-i];                                         \
        } else if (from == 2) {                                                                   \
            for (int64_t i = 0; i < n; i++) d[i] = s[2 * i];                                      \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                     \
                RLX_SCALAR_LOOP;                                                                  \
                d[i] = s[i * from];                                                               \
            }                                                                                     \
        }                                                                                         \
    }                                                                                             \
    /* Rows of n neighbouring elements. */                                                        \
    static RLX_INLINE void copy_rows_##SUFFIX(E *d, const E *s, int64_t rows, int64_t n, int64_t to, int64_t from)\
    {                                                                                             \
        for (int64_t i = 0; i < rows; i++) {                                                      \
            RLX_SCALAR_LOOP;                                                                      \
            copy_bytes((char *)(d + i * to), (const char *)(s + i * from), n * (int64_t)sizeof(E));\
        }                                                                                         \
    }                                                                                             \
    /* Lines of the target if they are contiguous and not short, otherwise lines along the longer side of a plane. */\
    static RLX_NOINLINE void copy_lines_##SUFFIX(E *d, const E *s, int64_t rows, int64_t columns, \
                                                 const int64_t to[2], const int64_t from[2])      \
    {                                                                                             \
        if (to[1] == 1 && from[1] == 1) {                                                         \
            FOR_FEW(columns, n, copy_rows_##SUFFIX(d, s, rows, n, to[0], from[0]))                \
        } else if (columns == 2 && to[0] == 2 && to[1] == 1 && from[0] == 2 && from[1] == -1) { /* pairs */\
            RLX_INDEPENDENT                                                                       \
            for (int64_t i = 0; i < 2 * rows; i += 2) {                                           \
                const E first = s[i], second = s[i - 1];                                          \
                d[i] = first, d[i + 1] = second;                                                  \
            }                                                                                     \
        } else if (to[1] == 1 && columns >= 4 && columns < 16) {                                  \
            for (int64_t i = 0; i < rows; i++)                                                    \
                for (int64_t j = 0; j < columns; j++) {                                           \
                    RLX_SCALAR_LOOP;                                                              \
                    d[i * to[0] + j] = s[i * from[0] + j * from[1]];                              \
                }                                                                                 \
        } else if (columns < rows && !(to[1] == 1 && columns >= 16)) {                            \
            for (int64_t j = 0; j < columns; j++)                                                 \
                copy_line_##SUFFIX(d + j * to[1], s + j * from[1], rows, to[0], from[0]);         \
        } else {                                                                                  \
            for (int64_t i = 0; i < rows; i++)                                                    \
                copy_line_##SUFFIX(d + i * to[0], s + i * from[0], columns, to[1], from[1]);      \
        }                                                                                         \
    }                                                                                             \
    /* Rows of the target are contiguous, columns of the source: tiles in strips of rows as wide as a line of the cache. The \
       last tiles of a side overlap those before. Few columns go through tiles of four. */        \
    static RLX_NOINLINE void copy_turned_##SUFFIX(E *d, const E *s, int64_t rows, int64_t columns, \
                                                  const int64_t to[2], const int64_t from[2])     \
    {                                                                                             \
        const int64_t tall = TILE_ROWS_##SUFFIX, wide = TILE_COLUMNS_##SUFFIX, strip = 64 / (int64_t)sizeof(E); \
        const int four = columns < wide && columns >= 4 && sizeof(E) == 4;                        \
        if (rows < tall || (columns < wide && !four)) {                                           \
            copy_lines_##SUFFIX(d, s, rows, columns, to, from);                                   \
            return;                                                                               \
        }                                                                                         \
        for (int64_t top = 0; top < rows; top += strip)                                           \
            for (int64_t left = 0; left < columns; left += four ? 4 : wide) {                     \
                const int64_t max_index = columns - (four ? 4 : wide), j = left < max_index ? left : max_index; \
                for (int64_t down = top; down < top + strip && down < rows; down += tall) {       \
                    const int64_t i = down + tall <= rows ? down : rows - tall;                   \
                    E *to_tile = d + i * to[0] + j;                                               \
                    const E *from_tile = s + i + j * from[1];                                     \
                    if (four) turn_4(to_tile, to[0], from_tile, from[1]);                         \
                    else copy_tile_##SUFFIX(to_tile, from_tile, to[0], from[1]);                  \
                }                                                                                 \
            }                                                                                     \
    }                                                                                             \
    static int kernel_strided_copy_##SUFFIX(const rlx_call *call)                                 \
    {                                                                                             \
        RLX_ARGUMENTS(strided_copy, call);                                                        \
        const int64_t last = p->rank - 1, *dims = p->dims;                                        \
        const int64_t counter = in->counter ? *(const int32_t *)in->counter : 0;                  \
        E *target = (E *)out->target + p->target_offset + counter * p->target_advance;            \
        const E *source = (const E *)in->source + p->source_offset + counter * p->source_advance; \
        /* The axis of rows; -1 where there is only one row. Short rows are many where the axis is long. */ \
        int64_t axis = last - 1, pieces = 1;                                                      \
        int turned = 0;                                                                           \
        for (int64_t d = 0; d < last && p->source_steps[last] != 1 && p->target_steps[last] == 1; d++) \
            if (p->source_steps[d] == 1) axis = d, turned = 1;                                    \
        for (int64_t d = last - 2; d >= 0 && !turned && dims[last] <= MOST_FEW && dims[axis] < LEAST_ROWS; d--) \
            if (dims[d] > dims[axis]) axis = d;                                                   \
        for (int64_t d = 0; d < last; d++)                                                        \
            if (d != axis) pieces *= dims[d];                                                     \
        const int64_t to[2] = {axis < 0 ? 0 : p->target_steps[axis], p->target_steps[last]};      \
        const int64_t from[2] = {axis < 0 ? 0 : p->source_steps[axis], p->source_steps[last]};    \
        /* Whole rows, unless they are few or turned. */                                          \
        const int64_t all = axis < 0 ? 1 : dims[axis], line = 64 / sizeof(E);                     \
        const int64_t wide = !turned && all / line >= call->parts ? dims[last] : line;            \
        const rlx_block own = rlx_share_block(call, pieces, all, dims[last], line, wide);         \
        const int64_t rows = own.rows.last - own.rows.first, columns = own.columns.last - own.columns.first; \
        target += own.rows.first * to[0] + own.columns.first * to[1];                             \
        source += own.rows.first * from[0] + own.columns.first * from[1];                         \
        /* Pieces along the last axis outside of the planes follow each other by steps alone. */  \
        const int64_t inner = axis == last - 1 ? last - 2 : last - 1;                             \
        const int64_t length = inner < 0 ? 1 : dims[inner];                                       \
        /* Short rows of several pieces lie between each other: some rows of all pieces, then the next. */\
        const int64_t strip = !turned && axis < last - 1 ? STRIP_ROWS : rows;                     \
        for (int64_t top = 0; top < rows; top += strip)                                           \
        for (int64_t piece = own.pieces.first; piece < own.pieces.last;) {                        \
            const int64_t index = piece % length, left = own.pieces.last - piece;                 \
            const int64_t end = length - index < left ? length : index + left;                    \
            int64_t rest = piece / length;                                                        \
            E *d = target + top * to[0];                                                          \
            const E *s = source + top * from[0];                                                  \
            const int64_t some = rows - top < strip ? rows - top : strip;                         \
            for (int64_t a = inner - 1; a >= 0; a--) {                                            \
                if (a == axis) continue;                                                          \
                const int64_t c = rest % dims[a];                                                 \
                rest /= dims[a], d += c * p->target_steps[a], s += c * p->source_steps[a];        \
            }                                                                                     \
            piece += end - index;                                                                 \
            for (int64_t i = index; i < end; i++) {                                               \
                const int64_t forward = inner < 0 ? 0 : i * p->target_steps[inner];               \
                const int64_t onward = inner < 0 ? 0 : i * p->source_steps[inner];                \
                if (turned) copy_turned_##SUFFIX(d + forward, s + onward, some, columns, to, from); \
                else copy_lines_##SUFFIX(d + forward, s + onward, some, columns, to, from);       \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
COPIES(b1, uint8_t, 8)
COPIES(b2, uint16_t, 16)
COPIES(b4, uint32_t, 32)
COPIES(b8, uint64_t, 64)
#undef COPIES
#undef TILE_WEAVE
