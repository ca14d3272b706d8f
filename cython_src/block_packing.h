/* Quantised weights in panels (kernels/products/block_forms.h) and as files hold them: row by row. */
#ifndef RLX_BLOCK_PACKING_H
#define RLX_BLOCK_PACKING_H

#include <stdint.h>

/* Bytes of the panels of n rows of k weights; 0 for a scheme that is not made into panels. */
int64_t rlx_panels_bytes(int scheme, int64_t n, int64_t k);
/* Packs rows into panels; with `back`, makes rows of panels. */
void rlx_move_blocks(int scheme, int64_t n, int64_t k, void *panels, void *rows, int back);

#endif
