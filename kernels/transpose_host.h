/* transpose_host: tiles of matrices, transposed: for ftc, which makes room for them and calls kernels/transpose_x86.c. */
#ifndef FT_KERNELS_TRANSPOSE_HOST_H
#define FT_KERNELS_TRANSPOSE_HOST_H
#include <stdint.h>

enum { TRANSPOSE_BLOCK = 16 };
/* to[c][r] = from[r][c], numbers of 1, 2, 4 or 8 bytes, their rows so many numbers apart. Whole blocks of TRANSPOSE_BLOCK rows and
 * columns are moved: both tiles have room for them. */
void transpose_tile(int64_t bytes, const void *from, int64_t from_step, void *to, int64_t to_step, int64_t rows, int64_t columns);
#endif
