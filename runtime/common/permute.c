/* permute: see permute.h. The order is merged to as few dimensions as it has; then either runs of
 * elements stay together, or two dimensions matter: the one that is innermost where the elements
 * come from, and the one that is innermost where they go. Tiles of these keep both sides in the
 * cache. */
#include "runtime/common/permute.h"
#include <stdlib.h>
#include <string.h>

enum { TILE = 32 };

/* to[i * to_row + k] = from[i + k * from_row] for i < rows, k < columns, in elements */
static void turn(const char *from, char *to, int bytes, int64_t rows, int64_t columns,
                 int64_t from_row, int64_t to_row) {
  for (int64_t i0 = 0; i0 < rows; i0 += TILE)
    for (int64_t k0 = 0; k0 < columns; k0 += TILE)
      for (int64_t i = i0; i < rows && i < i0 + TILE; i++) {
        const char *source = from + i * bytes;
        char *target = to + i * to_row * bytes;
        int64_t end = k0 + TILE < columns ? k0 + TILE : columns;
        if (bytes == 4)
          for (int64_t k = k0; k < end; k++) memcpy(target + 4 * k, source + 4 * k * from_row, 4);
        else
          for (int64_t k = k0; k < end; k++) memcpy(target + 2 * k, source + 2 * k * from_row, 2);
      }
}

/* The next place in the dimensions below `rank` but `inner`, which one call does whole; false
 * behind the last. */
static bool next(const Shape *shape, int rank, int inner, int64_t *index) {
  for (int i = rank - 1; i >= 0; i--) {
    if (i == inner) continue;
    if (++index[i] < shape->dim[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* Elements of `order`'s view, as they stand in `from`, to where that order has them. */
static void permute(const Storage *order, int bytes, const char *from, char *to) {
  Storage storage = storage_merged(order);
  Shape shape = storage_shape(&storage);
  int rank = shape.rank, last = rank - 1, inner = last;
  int64_t source[MAX_RANK], target[MAX_RANK], index[MAX_RANK] = {0};
  shape_strides(&storage.view, source);
  shape_strides(&shape, target);
  while (storage.perm[inner] != last) inner--; /* where the innermost dimension of `from` goes */
  do {
    int64_t from_at = 0, to_at = 0;
    for (int i = 0; i < last; i++) {
      from_at += index[i] * source[storage.perm[i]];
      to_at += index[i] * target[i];
    }
    if (inner == last)
      memcpy(to + to_at * bytes, from + from_at * bytes, (size_t)(shape.dim[last] * bytes));
    else
      turn(from + from_at * bytes, to + to_at * bytes, bytes, shape.dim[inner], shape.dim[last],
           source[storage.perm[last]], target[inner]);
  } while (next(&shape, last, inner, index));
}

static void convert(const PlanTensor *tensor, const Storage *storage, const void *from, void *to) {
  bool moves = storage_merged(storage).view.rank && shape_elements(&tensor->type.shape);
  if (moves)
    permute(storage, dtype_bytes(tensor->type.dtype), from, to);
  else
    memcpy(to, from, (size_t)type_bytes(&tensor->type));
}

void permute_to_memory(const PlanTensor *tensor, const void *from, void *to) {
  convert(tensor, &tensor->storage, from, to);
}

void permute_from_memory(const PlanTensor *tensor, const void *from, void *to) {
  Storage back = storage_inverse(&tensor->storage);
  convert(tensor, &back, from, to);
}

Status permute_in_place(const PlanTensor *tensor, bool to_memory, void *values) {
  size_t bytes = (size_t)type_bytes(&tensor->type);
  if (!tensor->storage.view.rank) return STATUS_OK;
  void *copy = malloc(bytes + 1);
  if (!copy) return status_fail(STATUS_FAULT, "out of memory");
  memcpy(copy, values, bytes);
  if (to_memory)
    permute_to_memory(tensor, copy, values);
  else
    permute_from_memory(tensor, copy, values);
  free(copy);
  return STATUS_OK;
}
