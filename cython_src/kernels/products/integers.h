/* Exact products of 8-bit integers in i32, some elements along k at a time (byte_methods.h): 4, or 8. A panel of the right
   matrix holds as many signed bytes for each column: rows of it. The sums of all columns come first. Unsigned right
   operands b are stored as b' = b - 128. Where an instruction needs a left operand of the other sign, a is stored as a' = a
   + x, x being 128 or -128. With y = 128, or 0 for signed right operands: sum a b = sum (a' - x)(b' + y) = sum a'b' - x sum
   b' + y sum a' - k x y. */

#define BYTE_COLUMNS (MICRO_VECTORS * I32_LANES) /* columns of a panel */
#define BYTE_ROWS RLX_BYTE_ROWS /* rows of the left matrix that are converted at a time */

/* The addend of elements of the left operand before they are multiplied: 128 or -128 where their sign is not the one that
   an implementation takes. */
static int32_t offset_of(const byte_method *method, int64_t is_signed)
{
    return method->bytes > 1 || !is_signed == !method->is_signed ? 0 : method->is_signed ? -128 : 128;
}

/* Groups of 4 rows of a panel with k rows and zeros behind them. */
static int64_t fours_of(int64_t k, const byte_method *method) { return (k + method->deep - 1) / method->deep * method->deep / 4; }

/* Copies a row to every other 8 bytes. What its last 8 lack is 0. */
static void spread_row(char *to, const uint8_t *a, int64_t k, uint8_t flip)
{
    const uint64_t every = 0x0101010101010101u * flip;
    int64_t i = 0;
    for (; i + 8 <= k; i += 8, to += 16) {
        uint64_t eight;
        memcpy(&eight, a + i, 8);
        eight ^= every;
        memcpy(to, &eight, 8);
    }
    if (i == k) return;
    memset(to, 0, 8);
    for (; i < k; i++) *to++ = (char)(a[i] ^ flip);
}

/* Converts rows of the left matrix for an implementation, padded with zeros, and computes the initial values of their
   sums. */
static void ready_rows(char *to, int32_t *begin, const uint8_t *a, int64_t rows, int64_t k, int64_t fours,
                       const byte_method *method, int64_t is_signed, int64_t b_shifted)
{
    const int32_t x = offset_of(method, is_signed), y = b_shifted ? 128 : 0;
    const uint8_t flip = x ? 128 : 0;
    const int64_t row = 4 * fours * method->bytes, turns = method->deep == 8;
    if (turns && rows % 2) memset(to + (rows - 1) * row, 0, (size_t)(2 * row));
    for (int64_t r = 0; r < rows; r++, a += k, to += row) {
        int32_t sum = 0;
        if (method->bytes == 1) {
            if (turns) spread_row(r % 2 ? to - row + 8 : to, a, k, flip);
            else for (int64_t i = 0; i < k; i++) to[i] = (char)(a[i] ^ flip);
            if (y && method->is_signed) for (int64_t i = 0; i < k; i++) sum += (int8_t)(a[i] ^ flip);
            else for (int64_t i = 0; y && i < k; i++) sum += a[i] ^ flip;
        } else {
            int16_t *wide = (int16_t *)to;
            if (is_signed) for (int64_t i = 0; i < k; i++) wide[i] = (int8_t)a[i];
            else for (int64_t i = 0; i < k; i++) wide[i] = a[i];
            for (int64_t i = 0; y && i < k; i++) sum += wide[i];
        }
        if (!turns) memset(to + k * method->bytes, 0, (size_t)((4 * fours - k) * method->bytes));
        begin[r] = y * sum - (int32_t)k * x * y;
    }
}

/* Packs columns of a matrix as a panel, the sums of the columns first. */
static void ready_columns(int8_t *panel, const uint8_t *b, int64_t n, int64_t k, int64_t width, const byte_method *method,
                          int64_t is_signed)
{
    const int64_t columns = (width + I32_LANES - 1) / I32_LANES * I32_LANES, fours = fours_of(k, method);
    const int64_t deep = method->deep;
    const uint8_t flip = is_signed ? 0 : 128;
    int32_t *sums = (int32_t *)panel;
    memset(panel, 0, (size_t)(4 * columns * (fours + 1)));
    for (int64_t i = 0; i < k; i++) {
        int8_t *to = panel + 4 * columns + i / deep * deep * columns + i % deep;
        for (int64_t v = 0; v < width; v++) to[deep * v] = (int8_t)(b[i * n + v] ^ flip);
        for (int64_t v = 0; v < width; v++) sums[v] += (int8_t)(b[i * n + v] ^ flip);
    }
}

/* Scratch: initial sums of BYTE_ROWS rows, these rows, and a panel. */
static int integer_products(const rlx_call *call, const byte_method *method)
{
    RLX_ARGUMENTS(matmul_integer, call);
    const int64_t m = p->m, k = p->k, n = p->n, packed = p->packing;
    const rlx_block own = rlx_share_tiles(call, p->batch, m, n, 6, BYTE_COLUMNS);
    const int64_t fours = fours_of(k, method), row = 4 * fours * method->bytes;
    int32_t *begin = out->rows;
    char *ready = (char *)(begin + BYTE_ROWS);
    int8_t *panel = (int8_t *)(ready + (m < BYTE_ROWS ? m : BYTE_ROWS) * 8 * fours);
    for (int64_t z = own.pieces.first; z < own.pieces.last; z++) {
        int64_t rest = z, at_a = 0, at_b = 0;
        for (int64_t d = p->rank - 1; d >= 0; d--) {
            at_a += rest % p->dims[d] * p->a_steps[d];
            at_b += rest % p->dims[d] * p->b_steps[d];
            rest /= p->dims[d];
        }
        const uint8_t *a = (const uint8_t *)in->a + at_a * m * k;
        const int8_t *b = (const int8_t *)in->b + at_b * (packed ? p->packed_stride : k * n);
        for (int64_t i = own.rows.first; i < own.rows.last; i += BYTE_ROWS) {
            const int64_t rows = own.rows.last - i < BYTE_ROWS ? own.rows.last - i : BYTE_ROWS;
            ready_rows(ready, begin, a + i * k, rows, k, fours, method, p->a_signed, !p->b_signed);
            for (int64_t j = own.columns.first; j < own.columns.last; j += BYTE_COLUMNS) {
                const int64_t width = n - j < BYTE_COLUMNS ? n - j : BYTE_COLUMNS;
                const int64_t step = 4 * ((width + I32_LANES - 1) / I32_LANES * I32_LANES);
                const int8_t *from = packed ? b + 4 * j * (fours + 1) : panel;
                if (!packed) ready_columns(panel, (const uint8_t *)b + j, n, k, width, method, p->b_signed);
                int32_t *c = (int32_t *)out->y + (z * m + i) * n + j;
                for (int64_t r = 0, some; r < rows; r += some) {
                    some = rows - r >= 6 && rows - r != 8 ? 6 : rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
                    method->micro(ready + r * row, row, from + step, step, begin + r, (const int32_t *)from,
                               offset_of(method, p->a_signed), c + r * n, n, fours, some, width);
                }
            }
        }
    }
    return RLX_OK;
}

static int kernel_matmul_integer(const rlx_call *call) { return integer_products(call, &method_pairs); }
#ifdef DOT_FEATURES
static int kernel_matmul_integer_dots(const rlx_call *call) { return integer_products(call, &method_dots); }
#endif
#ifdef MMLA_FEATURES
static int kernel_matmul_integer_mmla(const rlx_call *call) { return integer_products(call, &method_mmla); }
#endif
