/* sparse_ptx: c = a bᵀ in f32, of operands of 16 bits, where b is weights of which, of each four neighbours in k, at most two are not 0
 * (attribute `sparse`; "2:4"). They are packed as those two and their places, 4.5 bytes for four numbers in place of 8, and multiplied by
 * sparse tensor cores (mma.sp m16n8k32, sm_80), in half the dense product's instructions. (Mishra et al., "Accelerating sparse deep neural
 * networks", 2021; PTX ISA, "Matrix fragments for sparse mma.m16n8k32".)
 *
 * The instruction's fours of k need not be the operands' in their order, as long as a and b agree. A lane reads 8 neighbours of a row of a, two
 * fours, and changes halves of fours with the next lane: then it has what the instruction wants of it, and the instruction's four number
 * i is number 4 (i % 2) + i / 2 of the 32 steps (four_of).
 *
 * Packed b: for 16 columns, a `tile`, and for 64 steps of k, two fragments of 512 bytes, and behind all tiles' fragments 128 bytes of places
 * for each: lane 2 g + h has of columns g and g + 8 those of fours 4 h to 4 h + 3. A four of more than two numbers becomes NaN, so that no result
 * passes for right. What a 0 of b that is not kept would multiply is not looked at, also if it is infinite or NaN. */
#define REAL float
#include "kernels/gemm_operand.h"
#include "kernels/gemm_across.h"

int gemm_is_brain(void); /* bf16, else f16 */
int gemm_b_source_pitch(void), gemm_b_source_deep(void);
const unsigned short *gemm_source_b(void *const *args);
unsigned char *gemm_packed_b(void *const *args);
unsigned char *gemm_places(void *const *args);

enum {
  STEP = 32,      /* of k, of an instruction */
  FOURS = 8,      /* of a step */
  BLOCK_STEPS = 2,
  FRAGMENT = 512, /* bytes */
  PLACES = 128,   /* bytes of a block of a tile */
  MOST_AHEAD = 2  /* blocks on their way */
};
typedef unsigned Pair __attribute__((vector_size(8), aligned(8)));

ALWAYS int four_of(int number) { return number % 2 * 4 + number / 2; }

/* ── packing ─────────────────────────────────────────────────────────────────────────────────── */

ALWAYS int is_zero(unsigned bits) { return (bits & 0x7fff) == 0; }

/* The two numbers of a four as a word, and their places, 2 bits each, the lower one first. */
ALWAYS unsigned pack_four(const unsigned short number[4], unsigned *places) {
  unsigned first = 0, second = 0, value[2] = {0, 0}, count = 0;
#pragma clang loop unroll(full)
  for (unsigned i = 0; i < 4; i++) {
    if (is_zero(number[i])) continue;
    if (count == 0) first = i, value[0] = number[i];
    if (count == 1) second = i, value[1] = number[i];
    count++;
  }
  if (count < 2) { /* a neighbour, which is 0 */
    second = count == 0 ? 1 : first == 3 ? 3 : first + 1;
    if (first == 3) first = 2, value[1] = value[0], value[0] = 0;
  }
  *places = count > 2 ? 4 : first | second << 2;
  return count > 2 ? 0x7fff7fff : value[0] | value[1] << 16;
}

/* A thread packs a step of a column. */
__attribute__((always_inline)) void gemm_pack_b(void *const *args, int block, int thread) {
  int index = block * THREADS + thread, steps = gemm_blocks() * BLOCK_STEPS, step = index % steps, column = index / steps;
  if (column >= tiles() * COLUMNS) return;
  int64_t apart = gemm_b_source_deep() ? 1 : gemm_b_source_pitch(), line = gemm_b_source_deep() ? gemm_b_source_pitch() : 1;
  const unsigned short *b = gemm_source_b(args) + column * line;
  int64_t at = (int64_t)(column / COLUMNS) * gemm_blocks() + step / BLOCK_STEPS;
  int row = column % ROWS, half = column % COLUMNS / ROWS;
  unsigned *to = (unsigned *)(gemm_packed_b(args) + (at * BLOCK_STEPS + step % BLOCK_STEPS) * FRAGMENT);
  unsigned places[2] = {0, 0};
#pragma clang loop unroll(full)
  for (int i = 0; i < FOURS; i++) {
    unsigned short number[4];
    unsigned place;
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) {
      int k = step * STEP + four_of(i) * 4 + e;
      number[e] = k < gemm_k() && column < gemm_n() ? b[k * apart] : 0;
    }
    to[(row * 4 + i % 4) * 4 + i / 4 * 2 + half] = pack_four(number, &place);
    places[i / 4] |= place << i % 4 * 4;
  }
  unsigned short *behind = (unsigned short *)(gemm_places(args) + at * PLACES) + step % BLOCK_STEPS * 2 + half;
  behind[row * 8] = (unsigned short)places[0];
  behind[row * 8 + 4] = (unsigned short)places[1];
}

/* ── operands ────────────────────────────────────────────────────────────────────────────────── */

/* Of a warp's tiles, a block of k. */
typedef struct {
  Words numbers[MOST_COLUMNS][BLOCK_STEPS];
  Pair places[MOST_COLUMNS];
  Words rows[MOST_ROWS][BLOCK_STEPS];
} Block;
/* What a warp works on; blocks of k from `first` on, `slices` apart. */
typedef struct {
  Where w;
  int tile0, row0, first, end; /* row0: of the block's, of 8 */
} Work;

/* 8 neighbours of a row of a from step k on; 0 where there are none. */
ALWAYS Words read_row(void *const *args, const Where *w, int row, int k) {
  const unsigned short *a = (const unsigned short *)gemm_pointer_a(args);
  Words out = {0, 0, 0, 0};
  Step step = {k, 0, 0};
  if (row >= gemm_m() || k >= gemm_k()) return out;
  if (gemm_a_wide() == 8) return *(const Words *)(a + index_a(w->batch, &w->class, row, step).index);
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i++) {
    step.k = k + i;
    if (step.k < gemm_k()) out[i / 2] |= (unsigned)a[index_a(w->batch, &w->class, row, step).index] << i % 2 * 16;
  }
  return out;
}

ALWAYS void read_block(void *const *args, const Work *work, int block, Block *out) {
  int lane = work->w.thread % LANES;
  if (block >= work->end) return;
#pragma clang loop unroll(full)
  for (int c = 0; c < gemm_column_tiles(); c++) {
    int tile = work->tile0 + c < tiles() ? work->tile0 + c : tiles() - 1;
    int64_t at = (int64_t)tile * gemm_blocks() + block;
#pragma clang loop unroll(full)
    for (int s = 0; s < BLOCK_STEPS; s++)
      out->numbers[c][s] = *(const Words *)(gemm_packed_b(args) + (at * BLOCK_STEPS + s) * FRAGMENT + lane * 16);
    out->places[c] = *(const Pair *)(gemm_places(args) + at * PLACES + (lane / 4 * 2 + lane % 2) * 8);
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_row_tiles(); r++)
#pragma clang loop unroll(full)
    for (int s = 0; s < BLOCK_STEPS; s++)
      out->rows[r][s] = read_row(args, &work->w, (work->row0 + r) * ROWS + work->w.row0 + lane / 4,
                                 (block * BLOCK_STEPS + s) * STEP + lane % 4 * 8);
}

/* The fragment of a step of 8 rows: an even lane has the first halves of its own fours and of the next lane's, that one the second. */
ALWAYS void fragment_of(Words own, int lane, unsigned out[4]) {
  int is_odd = lane % 2;
  int sent[2] = {(int)(is_odd ? own[0] : own[1]), (int)(is_odd ? own[2] : own[3])};
  unsigned got[2];
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; i++) got[i] = (unsigned)__nvvm_shfl_sync_bfly_i32(0xffffffffu, sent[i], 1, 31);
  out[0] = is_odd ? got[0] : own[0];
  out[1] = is_odd ? got[1] : own[2];
  out[2] = is_odd ? own[1] : got[0];
  out[3] = is_odd ? own[3] : got[1];
}

/* sum += the numbers of a step, at their places, times the fragment. */
ALWAYS void multiply_sparse(float *sum, Words a, const unsigned *b, unsigned places) {
#define MULTIPLY(type)                                                                                                              \
  __asm__ volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "            \
                   "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0;"                                                                  \
                   : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places))
  if (gemm_is_brain())
    MULTIPLY("bf16");
  else
    MULTIPLY("f16");
#undef MULTIPLY
}

ALWAYS void multiply_block(const Block *block, int lane, Total *total) {
#pragma clang loop unroll(full)
  for (int s = 0; s < BLOCK_STEPS; s++) {
    unsigned right[MOST_ROWS][4];
#pragma clang loop unroll(full)
    for (int r = 0; r < gemm_row_tiles(); r++) fragment_of(block->rows[r][s], lane, right[r]);
#pragma clang loop unroll(full)
    for (int r = 0; r < gemm_row_tiles(); r++)
#pragma clang loop unroll(full)
      for (int c = 0; c < gemm_column_tiles(); c++) multiply_sparse(total->at[r][c], block->numbers[c][s], right[r], block->places[c][s]);
  }
}

ALWAYS int ahead(void) { return gemm_row_tiles() * gemm_column_tiles() > 8 ? 1 : MOST_AHEAD; }

/* All lanes of a warp have the same blocks. */
ALWAYS void multiply(void *const *args, const Work *work, Total *total) {
  Block block[MOST_AHEAD];
  int lane = work->w.thread % LANES, apart = gemm_slices();
#pragma clang loop unroll(full)
  for (int i = 0; i < ahead(); i++) read_block(args, work, work->first + i * apart, &block[i]);
#pragma clang loop unroll(disable)
  for (int first = work->first; first < work->end; first += ahead() * apart)
#pragma clang loop unroll(full)
    for (int i = 0; i < ahead(); i++) {
      if (first + i * apart >= work->end) continue;
      if (gemm_slices() == 1) __nvvm_bar_sync(0); /* what warps share is in the first-level cache while they are in step */
      multiply_block(&block[i], lane, total);
      read_block(args, work, first + (i + ahead()) * apart, &block[i]);
    }
}

__attribute__((always_inline)) void gemm_tile(void *const *args, SHARED void *shared, int row_block, int column_block, int batch_split,
                                              int thread) {
  int across = thread / LANES % gemm_warps_across(), rest = thread / LANES / gemm_warps_across();
  int slice = gemm_slices() > 1 ? rest : 0, down = rest - slice;
  int part = (gemm_blocks() + gemm_splits() - 1) / gemm_splits(), begin = batch_split % gemm_splits() * part;
  int column = across * gemm_column_tiles() * COLUMNS;
  Work work;
  work.w = where(row_block * gemm_tile_m(), column_block * gemm_tile_n(), batch_split, thread);
  work.row0 = down * gemm_row_tiles();
  work.tile0 = (work.w.column0 + column) / COLUMNS;
  work.first = begin + slice;
  work.end = begin + part < gemm_blocks() ? begin + part : gemm_blocks();
  Total total = {0};
  multiply(args, &work, &total);
  stage_sums((SHARED float *)shared, thread, column, slice * gemm_tile_m() + work.row0 * ROWS, &total, 1);
  __nvvm_bar_sync(0);
  store_sums(args, (SHARED float *)shared, &work.w);
}
