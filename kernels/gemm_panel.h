/* gemm_panel: panels of the operands in shared memory, and how finished tiles are stored through
 * it: shared by gemm_ptx.h (ordinary arithmetic), mma_ptx.h and wgmma_ptx.h (tensor cores). A file
 * that includes this defines ELEMENT (the type of a panel's elements) and SUM_PAD (elements added
 * to the rows of a finished tile) before, and the functions declared below after it. A panel has
 * the order of its operand in memory: `deep`, where neighbours in k are contiguous, or flat, where
 * neighbours along the tile are. */
#ifndef FT_KERNELS_GEMM_PANEL_H
#define FT_KERNELS_GEMM_PANEL_H

int gemm_tile_m(void), gemm_tile_n(void), gemm_micro_m(void), gemm_micro_n(void);
int gemm_slices(void), gemm_stages(void);
int gemm_passes(void); /* parts in which the tile is stored through shared memory */
int gemm_ahead(void);  /* groups of columns of a thread in the epilogue at once */
/* Element `index` of the operands, as it lies in a panel: loaded, converted or computed. */
ELEMENT gemm_element_a(void *const *args, int index);
ELEMENT gemm_element_b(void *const *args, int index);

enum { MAX_KEPT = sizeof(ELEMENT) == 1 ? 32 : 16 };
typedef SHARED ELEMENT *Panel;
typedef SHARED REAL *Sums;

ALWAYS int threads(void);
ALWAYS void meet(void); /* a barrier of the consumers */
/* The elements of a panel, and which of them is (along the tile, k). */
ALWAYS int panel_size(int tile, int deep);
ALWAYS int panel_place(int tile, int deep, int along, int k);
/* The row of the tile that is row `local` of part `pass`, and the other way round. */
ALWAYS int row_of(int pass, int local);

#include "kernels/gemm_columns.h"

/* ── panels ──────────────────────────────────────────────────────────────────────────────────── */

ALWAYS Panel panel_of(Panel memory, int stage, int is_a) {
  int a = panel_size(gemm_tile_m(), gemm_a_deep()), b = panel_size(gemm_tile_n(), gemm_b_deep());
  return memory + stage * (a + b) + (is_a ? 0 : a);
}

/* A thread's piece number c, of `wide` neighbours: is there one, and where does it begin? Where the
 * threads cover whole lines, a thread's pieces are a constant distance apart, so that one address
 * serves them all. */
ALWAYS int piece(int thread, int c, int tile, int deep, int wide, int *along, int *k) {
  int all = tile * gemm_steps() / wide, number = thread + c * threads();
  int line = (deep ? gemm_steps() : tile) / wide, is_whole = threads() % line == 0;
  int across = (is_whole ? thread : number) % line * wide;
  int down = is_whole ? thread / line + c * (threads() / line) : number / line;
  *along = deep ? down : across;
  *k = deep ? across : down;
  return all % threads() == 0 || number < all;
}
ALWAYS int pieces(int tile, int wide) {
  return (tile * gemm_steps() / wide + threads() - 1) / threads();
}

/* Element (along, k) of the panel that begins at k0. */
ALWAYS Element element_of(const Where *w, int is_a, int along, int k0, int k) {
  int start = is_a ? w->row0 : w->column0, limit = is_a ? gemm_m() : gemm_n();
  int tile = is_a ? gemm_tile_m() : gemm_tile_n();
  int whole = classes() > 1 ? gemm_out_channels() : gemm_k(); /* a depth is a multiple of this */
  int is_beyond =
      (limit % tile && start + along >= limit) || (whole % gemm_steps() && k0 + k >= w->end);
  Step step = step_of(k0, k);
  Element element = is_a ? index_a(w->batch, &w->class, start + along, step)
                         : index_b(w->batch, &w->class, step, start + along);
  element.is_inside &= !is_beyond;
  return element;
}

/* How many elements from this one on are in its row of the operand: `wide` or more, but at the end of
 * rows of a product whose pitch is not their length. What lies behind them is not read. */
ALWAYS int left_in_row(const Where *w, int is_a, int along, int k, int wide) {
  int deep = is_a ? gemm_a_deep() : gemm_b_deep(), limit = is_a ? gemm_m() : gemm_n();
  int length = deep ? gemm_k() : limit, start = is_a ? w->row0 : w->column0;
  if (gemm_kind() != 0 || length % wide == 0) return wide;
  return length - (deep ? k : start + along);
}

/* Starts to load a panel of one operand, into shared memory or into the registers `kept`. */
ALWAYS void fetch(void *const *args, const Where *w, int is_a, int k0, Panel panel, ELEMENT *kept) {
  int tile = is_a ? gemm_tile_m() : gemm_tile_n(), deep = is_a ? gemm_a_deep() : gemm_b_deep();
  int wide = is_a ? gemm_a_wide() : gemm_b_wide(), along, k;
#pragma clang loop unroll(full)
  for (int c = 0; c < pieces(tile, wide); c++) {
    int is_there = piece(w->thread, c, tile, deep, wide, &along, &k);
    Element element = element_of(w, is_a, along, k0, k);
    int place = panel_place(tile, deep, along, k);
    if (is_a ? gemm_a_async() : gemm_b_async()) {
      if (is_there)
        copy_async(panel + place, is_a ? gemm_pointer_a(args) : gemm_pointer_b(args), element, wide,
                   left_in_row(w, is_a, along, k0 + k, wide), sizeof(ELEMENT), gemm_kind() != 0);
      continue;
    }
#pragma clang loop unroll(full)
    for (int e = 0; e < wide; e++)
      kept[c * wide + e] = !is_there || !element.is_inside ? (ELEMENT)0
                           : is_a                          ? gemm_element_a(args, element.index + e)
                                  : gemm_element_b(args, element.index + e);
  }
}

/* Stores what was loaded into registers in its panel. */
ALWAYS void keep(int thread, int is_a, Panel panel, const ELEMENT *kept) {
  int tile = is_a ? gemm_tile_m() : gemm_tile_n(), deep = is_a ? gemm_a_deep() : gemm_b_deep();
  int wide = is_a ? gemm_a_wide() : gemm_b_wide(), along, k;
  if (is_a ? gemm_a_async() : gemm_b_async()) return;
#pragma clang loop unroll(full)
  for (int c = 0; c < pieces(tile, wide); c++) {
    if (!piece(thread, c, tile, deep, wide, &along, &k)) continue;
    int place = panel_place(tile, deep, along, k);
#pragma clang loop unroll(full)
    for (int e = 0; e < wide; e++) panel[place + e] = kept[c * wide + e];
  }
}

/* ── the way out ─────────────────────────────────────────────────────────────────────────────── */

/* Four neighbours of row `local` of a part: the sum over the slices, in order. */
ALWAYS Four total_at(Sums memory, int local, int first) {
  int height = gemm_tile_m() / gemm_passes(), pitch = gemm_tile_n() + SUM_PAD;
  Four total = *(SHARED Four *)(memory + local * pitch + first);
#pragma clang loop unroll(full)
  for (int s = 1; s < gemm_slices(); s++)
    total += *(SHARED Four *)(memory + (s * height + local) * pitch + first);
  return total;
}

/* A thread has the same columns in all of its rows; their shifts are those of the tile's first
 * row. */
ALWAYS void find_shifts(void *const *args, Sums memory, const Where *w, Columns *columns) {
  int first = w->thread % (gemm_tile_n() / 4) * 4, c = w->column0 + first;
  if (gemm_n() % gemm_tile_n() && c >= gemm_n()) return;
  Four total = total_at(memory, 0, first);
  gemm_shift4(args, columns->at[0], w->batch, w->row0, c / 4, total[0], total[1], total[2],
              total[3]);
}

#ifdef WHOLE
/* Puts those of the part's results that are to be in f32 in the place of their sums, as bits. A thread has 2 x 4 of them, which share
 * what it reads, or a row of 4, where its sums for later parts leave no registers. The other threads may read them when the block has met. */
ALWAYS int repair_high(void) { return gemm_micro_m() * gemm_micro_n() > 1024 ? 1 : FLOAT_HIGH; }
ALWAYS void repair_part(void *const *args, Sums memory, const Where *w, int pass) {
  int height = gemm_tile_m() / gemm_passes(), pitch = gemm_tile_n() + SUM_PAD, across = gemm_tile_n() / FLOAT_WIDE;
  int high = repair_high();
#pragma clang loop unroll(disable)
  for (int g = w->thread; g < height / high * across; g += threads()) {
    int local = g / across * high, first = g % across * FLOAT_WIDE, row[FLOAT_HIGH], column[FLOAT_WIDE];
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++) row[i] = w->row0 + row_of(pass, local + i);
#pragma clang loop unroll(full)
    for (int e = 0; e < FLOAT_WIDE; e++) column[e] = w->column0 + first + e;
    int faults = faults_of(args, w->batch, row, column, high, FLOAT_WIDE);
    if (!faults) continue;
    float sum[FLOAT_HIGH][FLOAT_WIDE];
    float_results(args, w->batch, row, column, high, FLOAT_WIDE, sum);
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++)
#pragma clang loop unroll(full)
      for (int e = 0; e < FLOAT_WIDE; e++)
#pragma clang loop unroll(full)
        for (int s = 0; s < gemm_slices(); s++)
          if (faults >> (i * FLOAT_WIDE + e) & 1)
            memory[(s * height + local + i) * pitch + first + e] = s ? 0 : __nvvm_bitcast_f2i(sum[i][e]);
  }
  meet();
}
#endif

/* Part `pass` of the tile is in shared memory, [slice][row][tile_n + SUM_PAD]: gives it to the
 * epilogue in groups of four columns. */
ALWAYS void store_part(void *const *args, Sums memory, const Where *w, int pass, Columns *columns) {
  int groups = gemm_tile_m() / gemm_passes() * (gemm_tile_n() / 4);
#ifdef WHOLE
  if (gemm_splits() == 1) repair_part(args, memory, w, pass);
#endif
  if (gemm_moments() && pass == 0) find_shifts(args, memory, w, columns);
#pragma clang loop unroll(disable)
  for (int g = w->thread; g < groups; g += threads() * gemm_ahead())
#pragma clang loop unroll(full)
    for (int u = 0; u < gemm_ahead(); u++) {
      int at = g + u * threads();
      int local = at / (gemm_tile_n() / 4), first = at % (gemm_tile_n() / 4) * 4;
      int r = w->row0 + row_of(pass, local), c = w->column0 + first;
      if ((groups % (threads() * gemm_ahead()) && at >= groups) ||
          (gemm_m() % gemm_tile_m() && r >= gemm_m()) ||
          (gemm_n() % gemm_tile_n() && c >= gemm_n()))
        continue;
      finish_group(args, w, r, c, total_at(memory, local, first), columns);
    }
}
#endif
