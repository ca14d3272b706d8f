/* Products of rows and weights in bf16, by tiles of 16 rows and 16 columns, of which 32 elements are added up at a time (AMX).
   round_rows makes such rows (block_rounding.h); readers make the weights. */
#ifdef TILE_FEATURES
#define TILED __attribute__((target(TILE_FEATURES)))
#define TILE 16
#define TILE_STEP 32
#define TILE_PANEL (MICRO_VECTORS * FLOATS) /* columns of panels of floats (micro.h) */
#define TILE_DEPTH 512 /* elements whose weights are in the cache at a time */

/* round_rows, to bf16 for kernels that were compiled for it. */
static TILED int kernel_round_rows_f32_tiles(const rlx_call *call)
{
    RLX_ARGUMENTS(round_rows, call);
    if (!p->bf16) return kernel_round_rows_f32(call);
    const float *x = in->x;
    rlx_rounded_block *to = out->rows;
    for (int64_t i = 0; i < p->m; i++, x += p->k)
        for (int64_t at = 0; at < p->k; at += 256, to++)
            for (int64_t e = 0, left = p->k - at; e < 256; e += 16, left -= 16) {
                const __mmask16 some = (__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0);
                _mm256_storeu_si256((__m256i *)(to->halves + e), (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + at + e)));
            }
    return RLX_OK;
}

/* Two neighbouring weights of each of 16 columns. */
typedef rlx_bf16 tile_line[2 * TILE];

/* A matrix of k rows and n columns, as a reader knows it. */
typedef struct {
    const void *panels;
    int64_t k, n;
    int kind;
    int64_t taps; /* of a convolution's filters that are not in panels */
} tile_weights;

/* Reads `steps` times TILE_STEP weights of 16 columns from `column` on, from row `at` on; 0 follows the last row. */
typedef void (*tile_reader)(const tile_weights *weights, int64_t column, int64_t at, int64_t steps, tile_line *to);

/* Weights of the same columns, that follow each other, side by side in bf16. */
static TILED RLX_INLINE void put_tile_line(tile_line *to, vf first, vf second)
{
    const __m512i places = _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008, 0x170007,
                                            0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, both));
}

/* The tiles: four of sums, two of rows, two of weights. */
static TILED void shape_tiles(int64_t rows)
{
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    const int64_t first = rows < TILE ? rows : TILE, second = rows > TILE ? rows - TILE : 1;
    for (int t = 0; t < 8; t++) {
        shape.bytes[t] = sizeof(tile_line);
        shape.rows[t] = (uint8_t)(t > 5 ? TILE : t == 2 || t == 3 || t == 5 ? second : first);
    }
    _tile_loadconfig(&shape);
}

/* Adds the products of up to two tiles of rows and of columns to y; `begins` has it set them. */
static TILED void tile_block(tile_line (*w)[TILE_DEPTH / 2], const rlx_rounded_block *x, int64_t apart, int64_t steps, int64_t rows,
                             int64_t columns, float *y, int64_t n, int begins)
{
    const int down = rows > TILE, across = columns > TILE, whole = columns % TILE == 0;
    const int64_t row = apart * (int64_t)sizeof(*x), ldy = whole ? n : 2 * TILE, line = ldy * (int64_t)sizeof(float);
    float part[2 * TILE][2 * TILE], *to = whole ? y : part[0], *below = to + TILE * ldy;
    for (int64_t r = 0; r < rows && !whole && !begins; r++) memcpy(part[r], y + r * n, (size_t)columns * sizeof(float));
    if (begins) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, to, line);
        if (across) _tile_loadd(1, to + TILE, line);
        if (down) _tile_loadd(2, below, line);
        if (down && across) _tile_loadd(3, below + TILE, line);
    }
    for (int64_t t = 0; t < steps; t++) {
        const rlx_bf16 *a = x[t / 8].halves + t % 8 * TILE_STEP;
        _tile_loadd(4, a, row);
        _tile_loadd(6, w[0][t * TILE], sizeof(tile_line));
        _tile_dpbf16ps(0, 4, 6);
        if (across) {
            _tile_loadd(7, w[1][t * TILE], sizeof(tile_line));
            _tile_dpbf16ps(1, 4, 7);
        }
        if (!down) continue;
        _tile_loadd(5, (const char *)a + TILE * row, row);
        _tile_dpbf16ps(2, 5, 6);
        if (across) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, line);
    if (across) _tile_stored(1, to + TILE, line);
    if (down) _tile_stored(2, below, line);
    if (down && across) _tile_stored(3, below + TILE, line);
    for (int64_t r = 0; r < rows && !whole; r++) memcpy(y + r * n, part[r], (size_t)columns * sizeof(float));
}

/* y = rows @ the columns `own`, which begin with a panel of 16. */
static TILED void tile_product(tile_reader read, const tile_weights *weights, const rlx_rounded_block *x, float *y, int64_t m,
                               rlx_range own)
{
    const int64_t k = weights->k, n = weights->n, apart = (k + 255) / 256;
    tile_line w[2][TILE_DEPTH / 2];
    int64_t shaped = 0;
    for (int64_t j = own.first, columns; j < own.last; j += columns) {
        columns = own.last - j < 2 * TILE ? own.last - j : 2 * TILE;
        for (int64_t at = 0; at < k; at += TILE_DEPTH) {
            const int64_t steps = (k - at < TILE_DEPTH ? k - at + TILE_STEP - 1 : TILE_DEPTH) / TILE_STEP;
            for (int64_t p = 0; p < columns; p += TILE) read(weights, j + p, at, steps, w[p / TILE]);
            for (int64_t i = 0, rows; i < m; i += rows) {
                rows = m - i < 2 * TILE ? m - i : 2 * TILE;
                if (rows != shaped) shape_tiles(rows);
                shaped = rows;
                tile_block(w, x + i * apart + at / 256, apart, steps, rows, columns, y + i * n + j, n, !at);
            }
        }
    }
    _tile_release();
}

/* A row of 16 weights in a panel of f32, f16 or bf16. */
static TILED RLX_INLINE vf tile_row(const int kind, const void *panels, int64_t at)
{
    if (kind == RLX_PACKING_F16) return (vf)widened_f16((const rlx_f16 *)panels + at);
    if (kind == RLX_PACKING_BF16) return (vf)widened_bf16((const rlx_bf16 *)panels + at);
    return v_load((const float *)panels + at);
}

static TILED RLX_INLINE void read_panel(const int kind, const tile_weights *w, int64_t column, int64_t at, int64_t steps, tile_line *to)
{
    const int64_t first = column / TILE_PANEL * TILE_PANEL, whole = w->n - first < TILE_PANEL ? w->n - first : TILE_PANEL;
    const int64_t step = panel_columns_f32(whole);
    int64_t index = first * w->k + at * step + column - first;
    for (int64_t i = 0; i < steps * TILE; i++, at += 2, index += 2 * step)
        put_tile_line(to++, at < w->k ? tile_row(kind, w->panels, index) : (vf){0},
                      at + 1 < w->k ? tile_row(kind, w->panels, index + step) : (vf){0});
}
static TILED void read_panels(const tile_weights *w, int64_t column, int64_t at, int64_t steps, tile_line *to)
{
    if (w->kind == RLX_PACKING_F16) read_panel(RLX_PACKING_F16, w, column, at, steps, to);
    else if (w->kind == RLX_PACKING_BF16) read_panel(RLX_PACKING_BF16, w, column, at, steps, to);
    else read_panel(RLX_PACKING_SAME, w, column, at, steps, to);
}

/* Filters [n, channels, taps] as they are: another call reads them in other panels. */
static TILED void read_filters(const tile_weights *w, int64_t column, int64_t at, int64_t steps, tile_line *to)
{
    const int64_t channels = w->k / w->taps, columns = w->n - column < TILE ? w->n - column : TILE;
    const float *filters = (const float *)w->panels + column * w->k;
    for (int64_t i = 0; i < steps * TILE; i++, at += 2) {
        float pair[2][TILE] = {{0}};
        for (int64_t e = 0; e < 2 && at + e < w->k; e++)
            for (int64_t j = 0; j < columns; j++)
                pair[e][j] = filters[j * w->k + (at + e) % channels * w->taps + (at + e) / channels];
        put_tile_line(to++, v_load(pair[0]), v_load(pair[1]));
    }
}

/* A product by packed weights or by filters whose rows are in bf16; others are made as everywhere. */
static int kernel_matmul_f32_tiles(const rlx_call *call)
{
    RLX_ARGUMENTS(matmul, call);
    if (!p->bf16 || !(p->packing || p->taps)) return kernel_matmul_f32(call);
    const rlx_block own = rlx_share_tiles(call, 1, p->m, p->n, 2 * TILE, 2 * TILE);
    const int64_t width = own.columns.last - own.columns.first, height = own.rows.last - own.rows.first;
    const tile_weights weights = {in->b, p->k, p->n, (int)p->packing, p->taps};
    const float *bias = in->bias ? (const float *)in->bias + p->bias_at + own.columns.first : NULL;
    float *y = (float *)out->y + own.rows.first * p->n;
    if (own.pieces.first == own.pieces.last) return RLX_OK;
    tile_product(p->packing ? read_panels : read_filters, &weights,
                 (const rlx_rounded_block *)in->rows + own.rows.first * ((p->k + 255) / 256), y, height, own.columns);
    y += own.columns.first;
    for (int64_t i = 0; i < height; i++, y += p->n) {
        for (int64_t j = 0; bias && j < width; j++) y[j] += bias[j];
        activate_f32(y, width, p->act);
    }
    return RLX_OK;
}
static int kernel_matmul_f64_tiles(const rlx_call *call) { return kernel_matmul_f64(call); }
#endif
