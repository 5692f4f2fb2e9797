/* attention_added: a mask that is added to the scores, for the kernels of Hopper. A lane loads the
 * elements of its scores while these are still computed, if there are registers for that. */
#ifndef FT_KERNELS_ATTENTION_ADDED_H
#define FT_KERNELS_ATTENTION_ADDED_H
#include "kernels/attention_bits.h"

typedef float Two __attribute__((vector_size(8), aligned(8)));
typedef struct {
  float at[2][MAX_COLUMNS];
} Added;

ALWAYS int last_of(int x, int limit, int multiple) {
  return limit % multiple == 0 ? x : smaller(x, limit - 1);
}

/* Loads the elements for a tile from column `column0` on, if it is the time. What lies beyond the ends is
 * hidden later, or belongs to rows that nobody stores: there the last element is as good. */
ALWAYS void load_added(const Here *w, Added *added, int column0, int is_transposed, int when) {
  if (attention_adds() != when) return;
  int rows = is_transposed ? attention_keys() : attention_queries();
  int columns = is_transposed ? attention_queries() : attention_keys();
  int across = is_transposed ? attention_mask_row() : 1; /* to the next column's element */
  const GLOBAL float *from = (const GLOBAL float *)attention_mask_bytes(w->args) +
                             (w->batch * attention_mask_batch() + w->head * attention_mask_head());
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    int row = last_of(w->first + w->warp * attention_micro() + own_row(w->lane, i), rows, block_rows());
    const GLOBAL float *own = from + row * (is_transposed ? 1 : attention_mask_row());
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j += 2) {
      int column = column0 + own_column(w->lane, j);
      if (!is_transposed && attention_keys() % 2 == 0) {
        Two two = *(const GLOBAL Two *)(own + (columns % attention_tile() ? smaller(column, columns - 2) : column));
        added->at[i][j] = two[0], added->at[i][j + 1] = two[1];
        continue;
      }
      added->at[i][j] = own[last_of(column, columns, attention_tile()) * across];
      added->at[i][j + 1] = own[last_of(column + 1, columns, attention_tile()) * across];
    }
  }
}

/* Scales scores and adds the mask. */
ALWAYS void add_mask(float s[MAX_ROWS][MAX_COLUMNS], const Added *added) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && attention_adds(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++)
      s[i][j] = s[i][j] * (scale_of_scores() * LOG2_E) + added->at[i][j] * LOG2_E;
}
#endif
