/* Which part of a call a thread makes (kernels/call.h): ranges of items, blocks of several matrices, tiles of products. */
#include "parallel.h"

#include <string.h>

/* Part `part` of `parts` of some items. */
static rlx_range range_of(int64_t part, int64_t parts, int64_t items, int64_t unit)
{
    const int64_t units = items < unit ? 1 : items / unit;
    const int64_t first = units * part / parts, last = units * (part + 1) / parts;
    /* The last unit includes the remainder. */
    return (rlx_range){first < units ? first * unit : items, last < units ? last * unit : items};
}

rlx_range rlx_part(const rlx_call *call, int64_t items, int64_t unit)
{
    return range_of(call->part, call->parts, items, unit);
}

void rlx_take_rows(rlx_call *call, int64_t *params, const struct rlx_split *split)
{
    const rlx_range own = rlx_part(call, split->rows, 1);
    memcpy(params, call->p, (size_t)split->words * sizeof(*params));
    params[split->index] = own.last - own.first;
    call->p = params;
    call->parts = 1;
    for (int k = 0; k < RLX_INPUTS; k++)
        if (split->in[k]) call->in[k] = (char *)call->in[k] + own.first * split->in[k];
    for (int k = 0; k < RLX_OUTPUTS; k++)
        if (split->out[k]) call->out[k] = (char *)call->out[k] + own.first * split->out[k];
}

void rlx_part_of_block(rlx_block *block, const rlx_call *call, int64_t tall, int64_t wide)
{
    const int64_t rows = block->rows.last, columns = block->columns.last;
    if (block->pieces.last >= call->parts)
        block->pieces = rlx_part(call, block->pieces.last, 1);
    else if (rows > 1 && rows / tall > columns / wide && columns / wide < call->parts)
        block->rows = rlx_part(call, rows, tall);
    else
        block->columns = rlx_part(call, columns, wide);
}

/* A row or a column of a tile takes as long to read as so many products take to make. */
#define READING 16

typedef struct {
    int64_t groups, down, across; /* groups of pieces, and tiles of a group in each direction */
    int64_t cost;
} tiling;

/* A tiling with at most `parts` tiles, for so many threads. Heights and widths count units of `tall` and `wide`. */
static tiling tiling_of(int64_t groups, int64_t down, int64_t parts, int64_t threads, const rlx_block *all, int64_t tall,
                        int64_t wide)
{
    const int64_t pieces = all->pieces.last, rows = all->rows.last / tall, columns = all->columns.last / wide;
    int64_t across = parts / (groups * down);
    if (across > columns) across = columns;
    if (across < 1) across = 1;
    const int64_t turns = (groups * down * across + threads - 1) / threads, each = pieces / groups;
    const int64_t height = rows < 2 ? tall : (rows + down - 1) / down * tall;
    const int64_t width = columns < 2 ? wide : (columns + across - 1) / across * wide;
    return (tiling){groups, down, across, turns * each * (height * width + READING * (height + width))};
}

void rlx_part_of_tiles(rlx_block *block, const rlx_call *call, int64_t tall, int64_t wide)
{
    static const int64_t heights[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    const int64_t pieces = block->pieces.last, rows = block->rows.last / tall, threads = call->split->threads;
    if (pieces >= call->parts) {
        block->pieces = rlx_part(call, pieces, 1);
        return;
    }
    tiling best = {1, 1, 1, INT64_MAX};
    /* A part is a tile of one piece, or the same tile of every piece. Many tiles let threads that are ahead make more of
       them; as many tiles as threads read less. */
    for (int64_t groups = 1; groups <= pieces; groups += pieces - 1) {
        for (unsigned i = 0; i < sizeof heights / sizeof *heights; i++) {
            const int64_t down = heights[i];
            if (down > 1 && (down > rows || groups * down > call->parts)) break;
            const tiling many = tiling_of(groups, down, call->parts, threads, block, tall, wide);
            if (many.cost < best.cost) best = many;
            if (groups * down > threads) continue;
            const tiling few = tiling_of(groups, down, threads, threads, block, tall, wide);
            if (few.cost < best.cost) best = few;
        }
        if (pieces == 1) break;
    }
    /* There may be more parts than tiles: each thread has as many of these. */
    const int64_t tiles = best.down * best.across, all = best.groups * tiles, place = call->part * all;
    const int64_t group = place / call->parts / tiles, tile = place / call->parts % tiles;
    if (place % call->parts >= all) {
        block->pieces.last = 0;
        return;
    }
    block->pieces = range_of(group, best.groups, pieces, 1);
    block->rows = range_of(tile / best.across, best.down, block->rows.last, tall);
    block->columns = range_of(tile % best.across, best.across, block->columns.last, wide);
}

/* Bytes that a thread copies at a time. */
#define COPY_UNIT (1 << 17)

/* A kernel: copies the bytes of its part. */
static int copy_part(const rlx_call *call)
{
    const rlx_range own = rlx_part(call, *(const int64_t *)call->p, COPY_UNIT);
    memcpy((char *)call->out[0] + own.first, (const char *)call->in[0] + own.first, (size_t)(own.last - own.first));
    return RLX_OK;
}

void rlx_parallel_copy(void *to, const void *from, int64_t nbytes, int64_t threads)
{
    const int64_t units = nbytes / COPY_UNIT, all = threads < units ? threads : units;
    struct rlx_split split = {.parts = units < 4 * all ? units : 4 * all, .threads = all};
    const rlx_call call = {.fn = copy_part, .in = {(void *)from}, .out = {to}, .p = &nbytes, .parts = 1, .split = &split};
    int status;
    rlx_parallel_run(&call, 1, &status);
}
