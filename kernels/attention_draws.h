/* attention_draws: dropout for the kernels of attention_ptx.h: which weights of a tile of scores a lane keeps, by the numbers that
 * ir/ops.def's random gives to elements of the scores, [batch][heads][queries][keys] (Philox4x32-10). Backward draws them again. */
#ifndef FT_KERNELS_ATTENTION_DRAWS_H
#define FT_KERNELS_ATTENTION_DRAWS_H
#include "kernels/attention_softmax.h"
#include "kernels/philox.h"

void *attention_seed(void *const *args), *attention_step(void *const *args), *attention_stream(void *const *args); /* i64 */
void *attention_first(void *const *args); /* i64 [batch][heads]: the number of a head's first element */

ALWAYS int drops(void) { return attention_drop_below() != 0; }

/* Bit j of row i: is the weight in column j kept? */
typedef struct {
  unsigned row[MAX_ROWS];
} Drawn;

typedef struct {
  uint64_t seed, first;
  unsigned step, stream;
} Draws;

/* Bit k: is number k of the block of four not dropped? */
ALWAYS unsigned draw_four(const Draws *draws, uint64_t block) {
  unsigned bits[4], kept = 0;
  philox_block(draws->seed, draws->step, draws->stream, block, bits);
#pragma clang loop unroll(full)
  for (int k = 0; k < 4; k++) kept |= (unsigned)(bits[k] >> 8 >= (unsigned)attention_drop_below()) << k;
  return kept;
}

/* Lanes that have elements of one block of four draw different blocks, and tell each other. Rows of numbers begin with a block then. */
ALWAYS void draw_shared(const Draws *draws, Drawn *drawn, int row0, int column0, int is_transposed, int lane) {
  int blocks = columns_each() / 4; /* that a lane draws for a row */
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    unsigned own = 0, bits = 0;
    int row = row0 + own_row(lane, i);
#pragma clang loop unroll_count(2)
    for (int k = 0; k < blocks; k++) {
      /* by rows: lanes 2 m and 2 m + 1 have four columns; transposed: lanes l, l + 4, l + 8 and l + 12 four rows */
      int query = is_transposed ? column0 + own_column(lane, 4 * k) + lane / 4 % 2 + lane / 8 % 2 * 8 : row;
      int key = is_transposed ? row : column0 + (2 * k + lane % 2) * 8 + lane % 4 / 2 * 4;
      uint64_t at = draws->first + (uint64_t)query * (uint64_t)attention_keys() + (uint64_t)key;
      own |= draw_four(draws, at >> 2) << 4 * k;
    }
    unsigned from[4] = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (int r = 0; r < (is_transposed ? 4 : 2); r++)
      from[r] = __nvvm_shfl_sync_idx_i32(0xffffffffu, own, is_transposed ? (lane & ~12) | r << 2 : (lane & ~1) | r, 31);
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int turn = is_transposed ? j % 4 : j / 2 % 2, bit = is_transposed ? lane / 4 % 4 : lane % 2 * 2 + j % 2;
      bits |= (from[turn] >> (j / 4 * 4 + bit) & 1) << j;
    }
    drawn->row[i] = bits;
  }
}

ALWAYS void draw_each(const Draws *draws, Drawn *drawn, int row0, int column0, int is_transposed, int lane) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    unsigned bits = 0;
    int row = row0 + own_row(lane, i);
#pragma clang loop unroll(disable)
    for (int j = 0; j < columns_each(); j++) {
      int column = column0 + own_column(lane, j);
      uint64_t query = (uint64_t)(is_transposed ? column : row), key = (uint64_t)(is_transposed ? row : column);
      uint64_t at = draws->first + query * (uint64_t)attention_keys() + key;
      bits |= (draw_four(draws, at >> 2) >> (at & 3) & 1) << j;
    }
    drawn->row[i] = bits;
  }
}

/* For a tile of columns from column0 on. */
ALWAYS void draw_tile(const Here *w, Drawn *drawn, int column0, int is_transposed) {
  if (!drops()) return;
  const GLOBAL uint64_t *first = (const GLOBAL uint64_t *)attention_first(w->args);
  uint64_t step = *(const GLOBAL uint64_t *)attention_step(w->args);
  Draws draws = {*(const GLOBAL uint64_t *)attention_seed(w->args), first[w->batch * attention_heads() + w->head], (unsigned)step,
                 (unsigned)*(const GLOBAL uint64_t *)attention_stream(w->args) + (unsigned)(step >> 32)};
  int row0 = w->first + w->warp * attention_micro();
  if (ROW_LANES == 4 && attention_keys() % 4 == 0 && draws.first % 4 == 0)
    draw_shared(&draws, drawn, row0, column0, is_transposed, w->lane);
  else
    draw_each(&draws, drawn, row0, column0, is_transposed, w->lane);
}

/* to: of a tile what is kept, and 0 for the rest. */
ALWAYS void keep_drawn(const Drawn *drawn, float to[MAX_ROWS][MAX_COLUMNS], float from[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && drops(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) to[i][j] = drawn->row[i] >> j & 1 ? from[i][j] : 0.0f;
}
#endif
