/* attention_panel: copies of rows of features between memory and a block: operands into panels in
 * shared memory, and results out of them. The file that includes this one defines ELEMENT, the bits
 * of an element, before it, and `place`, the layout of a panel. In any layout, 16 bytes of a row
 * are contiguous, and features beyond the last one are zeros. */
#ifndef FT_KERNELS_ATTENTION_PANEL_H
#define FT_KERNELS_ATTENTION_PANEL_H
#include <stdint.h>

/* How the work is cut: warps that have rows, rows of a warp, columns of a tile; how many warpgroups have
 * the same rows, each for a result of its own. */
int attention_warps(void), attention_micro(void), attention_tile(void), attention_split(void);
int attention_features(void), attention_width(void); /* width: rounded up to what the unit takes */
int attention_wide(void); /* elements that one access may move: 16 or 4 bytes, or one element */
float attention_number(unsigned element);       /* of 16 bits: as f32 */
unsigned attention_pair(float low, float high); /* rounded to 16 bits each */

#define ALWAYS static inline __attribute__((always_inline))
#define SHARED __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
enum { IS_WORD = sizeof(ELEMENT) == 4, MAX_ROWS = 4, MAX_COLUMNS = 64 };
typedef SHARED ELEMENT *Panel;
typedef SHARED float *Floats;
typedef float Four __attribute__((vector_size(16), aligned(16)));
typedef unsigned Quad __attribute__((vector_size(16), aligned(16)));
typedef struct {
  GLOBAL ELEMENT *at;
  int step; /* from row to row */
} Rows;

ALWAYS int own_row(int lane, int i), own_column(int lane, int j), own_feature(int lane, int j);
ALWAYS int rows_each(void), columns_each(void), features_each(void); /* of a lane */
ALWAYS int place(int rows, int row, int d); /* of an element in a panel of `rows` rows */

ALWAYS int block_rows(void) { return attention_warps() * attention_micro() / attention_split(); }

/* ── copies ──────────────────────────────────────────────────────────────────────────────────── */

/* `count` elements of `size` bytes from element `index` on, or zeros where it is -1. */
ALWAYS void copy_async(SHARED void *to, const void *base, int index, int count, int size) {
  const GLOBAL char *from = (const GLOBAL char *)base + (int64_t)(index < 0 ? 0 : index) * size;
  int bytes = index < 0 ? 0 : count * size;
  if (count * size == 4)
    __nvvm_cp_async_ca_shared_global_4(to, from, bytes);
  else
    __nvvm_cp_async_cg_shared_global_16(to, from, bytes);
}

/* Copies `count` rows, from row `first` on, to the beginning of a panel of `rows` rows; rows from
 * `limit` on become zeros. The row at the panel's beginning is a multiple of `rows`. */
ALWAYS void load_part(Panel to, int rows, Rows from, int first, int limit, int count, int thread,
                       int threads) {
  int wide = attention_wide(), across = attention_width() / wide, all = count * across;
  int is_even = threads % across == 0; /* then all pieces of a thread are in one column */
#pragma clang loop unroll(full)
  for (int c = 0; c < (all + threads - 1) / threads; c++) {
    int number = thread + c * threads;
    int row = is_even ? thread / across + c * (threads / across) : number / across;
    int d = (is_even ? thread : number) % across * wide;
    if (all % threads && number >= all) continue;
    int is_there = (limit % rows == 0 || first + row < limit) &&
                   (attention_features() == attention_width() || d < attention_features());
    int index = (first + row) * from.step + d;
    if (wide * sizeof(ELEMENT) >= 4)
      copy_async(to + place(rows, row, d), (const void *)from.at, is_there ? index : -1, wide,
                 sizeof(ELEMENT));
    else
      to[place(rows, row, d)] = is_there ? from.at[index] : 0;
  }
}
ALWAYS void load_panel(Panel to, Rows from, int first, int limit, int count, int thread,
                       int threads) {
  load_part(to, count, from, first, limit, count, thread, threads);
}

ALWAYS void read_piece(ELEMENT *to, const GLOBAL ELEMENT *from) {
  int wide = attention_wide();
  if (wide * sizeof(ELEMENT) == 16) {
    Quad piece = *(const GLOBAL Quad *)from;
    __builtin_memcpy(to, &piece, 16);
    return;
  }
#pragma clang loop unroll(full)
  for (int e = 0; e < wide; e++) to[e] = from[e];
}

ALWAYS float number_of(ELEMENT element) {
  return IS_WORD ? __builtin_bit_cast(float, (unsigned)element) : attention_number(element);
}

/* ── results ─────────────────────────────────────────────────────────────────────────────────── */

/* Stores this warp's sums, rounded, in its own rows of a block's panel, which no other warp
 * reads. */
ALWAYS void stage_sums(Panel panel, float sum[MAX_ROWS][MAX_COLUMNS], int lane, int warp) {
  __nvvm_bar_warp_sync(0xffffffffu);
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    int row = warp * attention_micro() + own_row(lane, i);
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j += 2) {
      Panel to = panel + place(block_rows(), row, own_feature(lane, j));
      if (IS_WORD) {
        to[0] = (ELEMENT) __builtin_bit_cast(unsigned, sum[i][j]);
        to[1] = (ELEMENT) __builtin_bit_cast(unsigned, sum[i][j + 1]);
      } else {
        *(SHARED unsigned *)to = attention_pair(sum[i][j], sum[i][j + 1]);
      }
    }
  }
  __nvvm_bar_warp_sync(0xffffffffu);
}

/* Copies those rows of the panel to memory; `first` is the block's first row. */
ALWAYS void store_rows(Rows to, Panel panel, int first, int limit, int lane, int warp) {
  int wide = attention_wide(), across = attention_width() / wide;
#pragma clang loop unroll_count(4)
  for (int c = 0; c < attention_micro() * across / 32; c++) {
    int number = lane + c * 32, row = warp * attention_micro() + number / across;
    int d = number % across * wide;
    if (first + row >= limit || d >= attention_features()) continue;
    GLOBAL ELEMENT *out = to.at + (first + row) * to.step + d;
    Panel from = panel + place(block_rows(), row, d);
    if (wide * sizeof(ELEMENT) == 16)
      *(GLOBAL Quad *)out = *(SHARED Quad *)from;
    else if (wide * sizeof(ELEMENT) == 4)
      *(GLOBAL unsigned *)out = *(SHARED unsigned *)from;
    else
      *out = *from;
  }
}
#endif
