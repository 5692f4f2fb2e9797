/* weight_packed: weights of 8 and 4 bits in files, with their scales beside them (`ftrun quantize`), here of a parameter x.weight:
 *
 *   x.weight         I8, whole numbers            or   x.weight_packed  I32 [rows, columns / 8 rounded up]: eight numbers + 8 of four
 *   x.weight_scale   F32                               x.weight_shape   I64   bits each, the first the lowest
 *                                                      x.weight_scale   F32
 *
 * A row is what the weight has at an index of its first dimension. There is one scale, one for each row [rows], one for as many columns of
 * each row [rows, groups], or one for as many rows of each column [groups, columns]; a weight is its number times its scale, in f32. */
#ifndef FT_RUNTIME_WEIGHT_PACKED_H
#define FT_RUNTIME_WEIGHT_PACKED_H
#include "runtime/checkpoint/weight_files.h"

/* Such weights become f32 tensors of the name x.weight. I8 without scales stays as it is. */
STATUS_CHECKED Status weight_unpack(WeightFiles *files);
/* numbers: -8 to 7, rows by columns; out: rows * weight_packed_columns(columns) words. */
void weight_pack_halves(const int8_t *numbers, int64_t rows, int64_t columns, uint32_t *out);
int64_t weight_packed_columns(int64_t columns);
#endif
