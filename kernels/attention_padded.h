/* attention_padded: the shared memory of attention_ptx.h. A panel's rows are padded by 16 bytes, so
 * that reading eight of them at one place meets no bank twice. */
#ifndef FT_KERNELS_ATTENTION_PADDED_H
#define FT_KERNELS_ATTENTION_PADDED_H
#include "kernels/attention_panel.h"

/* How many panels the block's rows have; do the fragments of the first stay in registers? */
int attention_row_panels(void), attention_keeps(void);

ALWAYS int threads(void) { return attention_warps() * 32; }
ALWAYS int pitch(void) { return attention_width() + 16 / (int)sizeof(ELEMENT); }
ALWAYS int place(int rows, int row, int d) {
  (void)rows;
  return row * pitch() + d;
}

/* In shared memory, in order: the rows, two stages of two tiles, two stages of numbers for each
 * column, scratch. */
ALWAYS Panel rows_panel(Panel memory, int which) { return memory + which * block_rows() * pitch(); }
ALWAYS Panel stream_panel(Panel memory, int stage, int which) {
  return rows_panel(memory, attention_row_panels()) +
         (stage * 2 + which) * attention_tile() * pitch();
}
/* The logarithms, then the deltas, of a tile's columns. */
ALWAYS Floats statistics(Panel memory, int stage) {
  return (Floats)stream_panel(memory, 2, 0) + stage * 2 * attention_tile();
}
#endif
