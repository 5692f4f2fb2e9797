/* rows_ptx: c = a op(b), where a block makes whole rows of c: a few rows by all columns, of which there are at most 256, as
 * there are at most 256 steps of k. So what follows row by row (another small product, a softmax, a norm) needs no rows of
 * other blocks, and can be done by the same block in the same launch (codegen/join.h; the idea of whole layers in one kernel:
 * Mueller, Rousselle, Novak, Keller, "Real-time neural radiance caching for path tracing", 2021).
 *
 * b comes from memory right into registers, four neighbours at a time, and each number of it is multiplied with all of the
 * block's rows of a, which lie in shared memory; the first of b are asked for before the rows have come. Where b has
 * neighbours in k (`deep`), eight neighbouring lanes share the steps of a column, and sum up by shuffles; else a thread has
 * four neighbouring columns, and the `slices` into which k is cut meet in shared memory. All in a fixed order: the bits never
 * depend on timing. Operands are f32, f16 or bf16; sums are f32. Then comes the epilogue of all products (gemm_panel.h).
 *
 * Shared memory: [slice][row][tile_n + SUM_PAD] sums, [row][pitch] of a; later the numbers of columns (gemm_columns.h). */
#define REAL float
#include "kernels/gemm_operand.h"
#define ELEMENT float
#define SUM_PAD 4
#include "kernels/gemm_panel.h"

int gemm_bytes(void);                     /* of an element of a and b */
int gemm_a_quads(void), gemm_b_quads(void); /* rows of the operand begin at multiples of four elements and have as many */
float gemm_widen(unsigned short bits);    /* of an element of 16 bits */

typedef unsigned short Shorts __attribute__((vector_size(8), aligned(8)));
enum {
  THREADS = 256,
  LANES = 8,      /* that share a column's steps, where b is deep */
  MOST_ROWS = 8,
  MOST_COLUMNS = 8, /* of a thread, where b is deep */
  AHEAD = 8       /* groups of four of b that a thread has asked for */
};

ALWAYS int threads(void) { return THREADS; }
ALWAYS void meet(void) { __nvvm_bar_sync(0); }
ALWAYS int row_of(int pass, int local) { return pass * gemm_tile_m() + local; }
/* Nothing lies in panels. */
ALWAYS int panel_size(int tile, int deep) { return 0 * tile * deep; }
ALWAYS int panel_place(int tile, int deep, int along, int k) { return 0 * tile * deep * along * k; }

ALWAYS int quads(void) { return (gemm_k() + 3) / 4; }
/* A row of a in shared memory: one more group of four behind it is zeros, which what is behind the end of b is
 * multiplied with. */
ALWAYS int a_pitch(void) { return (quads() + 1) * 4; }
ALWAYS int inside(int quad) { return quad < quads() ? quad : quads(); }

/* Four elements from `index` on, of which the first `left` are there; the others are 0, and element `other` is read in their
 * place, which is one of the block's. */
ALWAYS Four read_quad(const void *base, int index, int other, int left, int is_quad) {
  Four four = {0, 0, 0, 0};
  const float *wide = base;
  const unsigned short *narrow = base;
  if (is_quad) {
    int at = left > 0 ? index : other;
    if (gemm_bytes() == 4) {
      Four all = *(const Four *)(wide + at);
      return left > 0 ? all : four;
    }
    Shorts all = *(const Shorts *)(narrow + at);
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) four[e] = left > 0 ? gemm_widen(all[e]) : 0;
    return four;
  }
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; e++) {
    int at = e < left ? index + e : other;
    float value = gemm_bytes() == 4 ? wide[at] : gemm_widen(narrow[at]);
    four[e] = e < left ? value : 0;
  }
  return four;
}

/* The block's rows of a, and zeros behind their ends and below the last row. */
ALWAYS void read_rows(void *const *args, const Where *w, Four *kept) {
#pragma clang loop unroll(full)
  for (int i = 0; i * THREADS < gemm_tile_m() * quads(); i++) {
    int at = w->thread + i * THREADS, row = w->row0 + at / quads(), k = at % quads() * 4;
    int left = at < gemm_tile_m() * quads() && row < gemm_m() ? gemm_k() - k : 0;
    kept[i] = read_quad(gemm_pointer_a(args), row * gemm_a_pitch() + k, w->row0 * gemm_a_pitch(), left, gemm_a_quads());
  }
}
ALWAYS void keep_rows(Sums a, int thread, const Four *kept) {
#pragma clang loop unroll(full)
  for (int i = 0; i * THREADS < gemm_tile_m() * quads(); i++) {
    int at = thread + i * THREADS;
    if (at < gemm_tile_m() * quads()) *(SHARED Four *)(a + at / quads() * a_pitch() + at % quads() * 4) = kept[i];
  }
  if (thread < gemm_tile_m()) *(SHARED Four *)(a + thread * a_pitch() + quads() * 4) = (Four){0, 0, 0, 0};
}

/* ── neighbours of b in k ────────────────────────────────────────────────────────────────────── */
ALWAYS int columns_of(void) { return (gemm_n() + THREADS / LANES - 1) / (THREADS / LANES); } /* a thread's */
ALWAYS int deep_steps(void) { return (quads() + LANES - 1) / LANES; }                        /* and its groups of four in k */
ALWAYS int deep_count(void) { return columns_of() * deep_steps(); }

/* Group `number` of a thread: of column number % columns_of() the steps number / columns_of(). */
ALWAYS Four read_deep(void *const *args, int thread, int number) {
  int column = thread / LANES + number % columns_of() * (THREADS / LANES);
  int k = (thread % LANES + number / columns_of() * LANES) * 4;
  int left = number < deep_count() && column < gemm_n() ? gemm_k() - k : 0;
  return read_quad(gemm_pointer_b(args), column * gemm_b_pitch() + k, 0, left, gemm_b_quads());
}

typedef struct {
  float at[MOST_ROWS][MOST_COLUMNS];
} DeepSums;

/* Up to AHEAD groups: of all columns of the thread, one step or more. */
ALWAYS int deep_ahead(void) { return AHEAD / columns_of() * columns_of(); }

ALWAYS void add_deep(Sums a, int thread, int first, const Four *b, DeepSums *sum) {
#pragma clang loop unroll(full)
  for (int s = 0; s < deep_ahead() / columns_of(); s++) {
    int quad = inside(thread % LANES + (first / columns_of() + s) * LANES);
#pragma clang loop unroll(full)
    for (int r = 0; r < gemm_tile_m(); r++) {
      Four left = *(SHARED Four *)(a + r * a_pitch() + quad * 4);
#pragma clang loop unroll(full)
      for (int c = 0; c < columns_of(); c++)
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; e++) sum->at[r][c] += left[e] * b[s * columns_of() + c][e];
    }
  }
}

ALWAYS void multiply_deep(void *const *args, Sums a, Sums sums, int thread, Four *b) {
  DeepSums sum = {0};
#pragma clang loop unroll(disable)
  for (int first = 0; first < deep_count(); first += deep_ahead()) {
    Four next[AHEAD];
#pragma clang loop unroll(full)
    for (int i = 0; i < deep_ahead(); i++) next[i] = read_deep(args, thread, first + deep_ahead() + i);
    add_deep(a, thread, first, b, &sum);
#pragma clang loop unroll(full)
    for (int i = 0; i < deep_ahead(); i++) b[i] = next[i];
  }
  /* all sums' shuffles side by side: none waits for another one's */
#pragma clang loop unroll(full)
  for (int mask = 1; mask < LANES; mask *= 2) {
    float other[MOST_ROWS][MOST_COLUMNS];
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_tile_m() * columns_of(); i++)
      other[i / columns_of()][i % columns_of()] =
          __nvvm_shfl_sync_bfly_f32(-1, sum.at[i / columns_of()][i % columns_of()], mask, 31);
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_tile_m() * columns_of(); i++)
      sum.at[i / columns_of()][i % columns_of()] += other[i / columns_of()][i % columns_of()];
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_tile_m(); r++)
#pragma clang loop unroll(full)
    for (int c = 0; c < columns_of(); c++) {
      int column = thread / LANES + c * (THREADS / LANES);
      if (thread % LANES == r % LANES && column < gemm_tile_n())
        sums[r * (gemm_tile_n() + SUM_PAD) + column] = sum.at[r][c];
    }
}

/* ── neighbours of b in columns ──────────────────────────────────────────────────────────────── */
ALWAYS int across(void) { return gemm_tile_n() / 4; }
/* Groups of four steps of k of a thread, and how many it asks for at once. */
ALWAYS int flat_count(void) { return (quads() + gemm_slices() - 1) / gemm_slices(); }
enum { FLAT_AHEAD = AHEAD / 4 };

/* Rows k to k + 3 of the thread's four columns. */
ALWAYS void read_flat(void *const *args, int thread, int number, Four b[4]) {
  int column = thread % across() * 4, quad = thread / across() + number * gemm_slices();
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; e++) {
    int is_there = number < flat_count() && quad * 4 + e < gemm_k() && thread / across() < gemm_slices();
    b[e] = read_quad(gemm_pointer_b(args), (quad * 4 + e) * gemm_b_pitch() + column, 0, is_there ? gemm_n() - column : 0,
                     gemm_b_quads());
  }
}

ALWAYS void add_flat(Sums a, int thread, int number, Four b[4], Four *sum) {
  int quad = inside(thread / across() + number * gemm_slices());
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_tile_m(); r++) {
    Four left = *(SHARED Four *)(a + r * a_pitch() + quad * 4);
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) sum[r] += left[e] * b[e];
  }
}

ALWAYS void multiply_flat(void *const *args, Sums a, Sums sums, int thread, Four b[FLAT_AHEAD][4]) {
  Four sum[MOST_ROWS] = {0};
#pragma clang loop unroll(disable)
  for (int first = 0; first < flat_count(); first += FLAT_AHEAD) {
    Four next[FLAT_AHEAD][4];
#pragma clang loop unroll(full)
    for (int i = 0; i < FLAT_AHEAD; i++) read_flat(args, thread, first + FLAT_AHEAD + i, next[i]);
#pragma clang loop unroll(full)
    for (int i = 0; i < FLAT_AHEAD; i++) add_flat(a, thread, first + i, b[i], sum);
#pragma clang loop unroll(full)
    for (int i = 0; i < FLAT_AHEAD * 4; i++) b[i / 4][i % 4] = next[i / 4][i % 4];
  }
  int slice = thread / across();
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_tile_m(); r++)
    if (slice < gemm_slices())
      *(SHARED Four *)(sums + (slice * gemm_tile_m() + r) * (gemm_tile_n() + SUM_PAD) + thread % across() * 4) = sum[r];
}

/* The way out where the epilogue takes single columns: a thread for each. */
ALWAYS void store_singles(void *const *args, Sums sums, const Where *w) {
#pragma clang loop unroll(disable)
  for (int at = w->thread; at < gemm_tile_m() * gemm_n(); at += THREADS) {
    int row = at / gemm_n(), column = at % gemm_n();
    if (w->row0 + row >= gemm_m()) break;
    float total = 0;
#pragma clang loop unroll(full)
    for (int s = 0; s < gemm_slices(); s++) total += sums[(s * gemm_tile_m() + row) * (gemm_tile_n() + SUM_PAD) + column];
    gemm_finish(args, 0, w->row0 + row, column, total);
  }
}

/* ── the block ───────────────────────────────────────────────────────────────────────────────── */
__attribute__((always_inline)) void gemm_tile(void *const *args, SHARED void *shared, int row_block, int column_block,
                                              int batch_split, int thread) {
  Where w = where(row_block * gemm_tile_m(), column_block, batch_split, thread);
  Sums sums = (Sums)shared, a = sums + gemm_slices() * gemm_tile_m() * (gemm_tile_n() + SUM_PAD);
  Four kept[MOST_ROWS / 4], b[AHEAD];
  Columns columns = {0};
#pragma clang loop unroll(full)
  for (int i = 0; i < (gemm_b_deep() ? deep_ahead() : FLAT_AHEAD); i++) {
    if (gemm_b_deep())
      b[i] = read_deep(args, thread, i);
    else
      read_flat(args, thread, i, b + i * 4);
  }
  read_rows(args, &w, kept);
  keep_rows(a, thread, kept);
  meet();
  if (gemm_b_deep())
    multiply_deep(args, a, sums, thread, b);
  else
    multiply_flat(args, a, sums, thread, (Four(*)[4])b);
  meet();
  if (!gemm_by_four()) {
    store_singles(args, sums, &w);
    return;
  }
  store_part(args, sums, &w, 0, &columns);
  if (!numbers()) return;
  meet();
  store_columns(args, sums, &w, &columns);
}
