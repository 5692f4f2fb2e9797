/* rounded_ptx: c = op(a) op(b) in f32, where b is weights that were rounded: in each group of steps of k, whole numbers of
 * 4 or 8 bits times a scale (passes/integers.h, attribute `rounded`). They are read as such, an eighth or a quarter of
 * f32's bytes, which is what a product of few rows takes its time for, and unpacked in registers.
 *
 * Tensor cores multiply (mma.sync m16n8k16 of bf16, sm_80), with b's columns as the instruction's 16 rows and a's rows as
 * its 8 columns, so that a product of one to eight rows takes one instruction. Whole numbers of 8 bits are exact in bf16.
 * A number of a is the sum of three of bf16, 8 bits each (two where tf32 is allowed: 16 bits, of which tf32 has 11; one where it is a whole number itself); so
 * all products are exact, and their sums are f32's: of a group, then times its scale. (Splitting: Henry, Tang, Heinecke,
 * "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", 2019.)
 *
 * Packed b: for 16 columns, a `tile`, and for BLOCK bytes of steps of k, 32 times 16 bytes, one for each lane, in the order of
 * fragments; then for 16 columns and each group their scales. Groups have a multiple of 16 steps there, the last of them 0.
 * A block's warps share tile_n columns, as warps_across of them. Of few rows, they share the steps of k too, as `slices`: each reads
 * and splits a's rows for itself, and their sums meet in shared memory, in order. Of many rows (two `stages`), they share the
 * rows, and a's numbers are split once for all of them, into fragments in shared memory, while those of the block of k before
 * are multiplied. Parts of k that blocks share are added by gemm_combine. The bits never depend on timing. */
#define REAL float
#include "kernels/gemm_operand.h"
#include "kernels/gemm_across.h"

int gemm_bits(void);                                 /* of a packed number: 4 or 8 */
int gemm_low(void), gemm_high(void);                 /* numbers are between these */
int gemm_group(void), gemm_scale_groups(void);       /* steps of k that share a scale, and how often */
int gemm_room(void);                                 /* steps of a group as packed */
int gemm_unit(void);                                 /* 16, 32 or 64 steps, a divisor of room and of a block: scaled at once */
int gemm_stages(void);
int gemm_terms(void);                                /* of a number of a: 3, 2, or 1 where it is a whole number of 8 bits */
int gemm_b_source_pitch(void), gemm_b_source_deep(void);
const float *gemm_source_b(void *const *args);
unsigned char *gemm_packed_b(void *const *args);
float *gemm_scales(void *const *args);
/* sum[4] += a[4] b[2], fragments of one warp: 16 x 8 results, over 16 steps of k. */
void gemm_mma(float *sum, const unsigned *a, const unsigned *b);

typedef float Floats __attribute__((vector_size(16), aligned(16)));
enum {
  STEP = 16,       /* of k, of an instruction */
  BLOCK = 512,     /* bytes of a block of a tile: 64 steps of k of 4 bits, 32 of 8 */
  MOST_AHEAD = 3,  /* blocks of b on their way */
  MOST_STEPS = 4,  /* of a block */
  MOST_FOURS = 4
};

ALWAYS int block_steps(void) { return BLOCK / COLUMNS * 8 / gemm_bits(); } /* of k */

/* ── packing ─────────────────────────────────────────────────────────────────────────────────── */

/* The whole number between low and high that is nearest to x / scale; 0 where that is NaN. */
ALWAYS int number_of(float x, float scale) {
  float n = __nvvm_div_rn_f(x, scale);
  if (n != n) return 0;
  if (n < (float)gemm_low()) return gemm_low();
  return n > (float)gemm_high() ? gemm_high() : __nvvm_f2i_rn(n);
}

/* Is each number of the group, `step` apart, a whole number times this scale, as f32 rounds it? */
ALWAYS int is_scale(const float *b, int64_t step, float scale) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < gemm_group(); i++)
    if (!((float)number_of(b[i * step], scale) * scale == b[i * step])) return 0;
  return 1;
}

/* A scale with which the group can be packed without loss: the smallest of its numbers is some whole number of scales.
 * There is one, since they were made so; else NaN, so that no result passes for right. As kernels/rounded_x86.c. */
ALWAYS float packing_scale(const float *b, int64_t step) {
  int most = -gemm_low() > gemm_high() ? -gemm_low() : gemm_high();
  float least = 0;
#pragma clang loop unroll(disable)
  for (int i = 0; i < gemm_group(); i++) {
    float size = __builtin_fabsf(b[i * step]);
    if (size != size) return size;
    if (size > 0 && (least == 0 || size < least)) least = size;
  }
  if (least == 0) return 0;
#pragma clang loop unroll(disable)
  for (int n = 1; n <= most; n++) {
    int middle = __nvvm_bitcast_f2i(__nvvm_div_rn_f(least, (float)n));
#pragma clang loop unroll(disable)
    for (int which = 0; which < 6; which++) { /* near it, with either sign */
      float near = __nvvm_bitcast_i2f(middle + (which / 2 + 1) % 3 - 1);
      if (is_scale(b, step, which % 2 ? -near : near)) return which % 2 ? -near : near;
    }
  }
  return __builtin_nanf("");
}

/* The 4 steps from packed step `at` on of a column of a tile: bits of numbers, biased so that none is negative. */
ALWAYS void pack_quad(unsigned char *tile, int column, int at, const int *number) {
  int steps = block_steps(), step = at % steps / STEP, lane = column % ROWS * 4 + at % STEP / 4, half = column / ROWS;
  unsigned char *to = tile + at / steps * BLOCK + lane * 16;
  if (gemm_bits() == 8) {
    *(unsigned *)(to + step * 8 + half * 4) =
        (unsigned)(number[0] | number[1] << 8 | number[2] << 16 | number[3] << 24) ^ 0x80808080u;
    return;
  }
  to += step * 4 + half;
  to[0] = (unsigned char)(number[0] | number[2] << 4) ^ 0x88;
  to[2] = (unsigned char)(number[1] | number[3] << 4) ^ 0x88;
}

/* A thread packs a group of a column of all tiles, of all batches; of the last group, what the blocks have room for. */
__attribute__((always_inline)) void gemm_pack_b(void *const *args, int block, int thread) {
  int64_t index = (int64_t)block * THREADS + thread;
  int group = (int)(index % gemm_scale_groups()), column = (int)(index / gemm_scale_groups() % (tiles() * COLUMNS));
  int64_t batch = index / gemm_scale_groups() / (tiles() * COLUMNS);
  if (batch >= gemm_batches()) return;
  int is_there = column < gemm_n(), mask = gemm_bits() == 8 ? 255 : 15;
  int64_t tile = batch * tiles() + column / COLUMNS, step = gemm_b_source_deep() ? 1 : gemm_b_source_pitch();
  int64_t line = gemm_b_source_deep() ? gemm_b_source_pitch() : 1;
  const float *b = gemm_source_b(args) + batch * (gemm_b_source_deep() ? gemm_n() : gemm_k()) * gemm_b_source_pitch() +
                   column * line + group * gemm_group() * step;
  float scale = is_there ? packing_scale(b, step) : 0;
  gemm_scales(args)[(tile * gemm_scale_groups() + group) * COLUMNS + column % COLUMNS] = scale;
  int first = group * gemm_room(), end = group + 1 < gemm_scale_groups() ? first + gemm_room() : gemm_blocks() * block_steps();
  unsigned char *to = gemm_packed_b(args) + tile * gemm_blocks() * BLOCK;
#pragma clang loop unroll(disable)
  for (int at = first; at < end; at += 4) {
    int number[4];
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++)
      number[i] = is_there && at + i - first < gemm_group() ? number_of(b[(at + i - first) * step], scale) & mask : 0;
    pack_quad(to, column % COLUMNS, at, number);
  }
}

/* ── operands ────────────────────────────────────────────────────────────────────────────────── */

/* Of a warp's tiles: a block of b, and its units' scales: lane 16 (u % 2) + c has that of unit u of column c. */
typedef struct {
  Words numbers[MOST_COLUMNS];
  float scales[MOST_COLUMNS][2];
} Packed;

ALWAYS int units(void) { return block_steps() / gemm_unit(); }

ALWAYS void read_packed(void *const *args, const Where *w, int tile0, int block, Packed *out) {
  int lane = w->thread % LANES;
#pragma clang loop unroll(full)
  for (int c = 0; c < gemm_column_tiles(); c++) {
    int tile = tile0 + c < tiles() ? tile0 + c : tiles() - 1;
    int64_t at = (int64_t)w->batch * tiles() + tile;
    out->numbers[c] = *(const Words *)(gemm_packed_b(args) + (at * gemm_blocks() + block) * BLOCK + lane * 16);
#pragma clang loop unroll(full)
    for (int u = 0; u < units(); u += 2) {
      int unit = u + (units() > 1 ? lane / COLUMNS : 0), group = (block * block_steps() + unit * gemm_unit()) / gemm_room();
      if (group >= gemm_scale_groups()) group = gemm_scale_groups() - 1;
      out->scales[c][u / 2] = gemm_scales(args)[(at * gemm_scale_groups() + group) * COLUMNS + lane % COLUMNS];
    }
  }
}

/* The fragment of 16 steps of a tile: columns g and g + 8, of a lane's four steps 4t … 4t + 3 two each. Numbers are divided by
 * 8 or 128, which makes them one at most: sums by whole numbers would be infinite long before those by weights are. */
ALWAYS void unpack(Words words, int step, unsigned *out) {
  if (gemm_bits() == 4) {
    unsigned word = words[step], shift[4] = {0, 8, 4, 12};
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) { /* 16 + u / 8, then less 17: exact in bf16 */
      unsigned both = (word >> shift[i] & 0x000f000fu) | 0x41804180u;
      __asm__("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out[i]) : "r"(both), "r"(0x3f803f80u), "r"(0xc188c188u));
    }
    return;
  }
#pragma clang loop unroll(full)
  for (int half = 0; half < 2; half++) {
    int number[4];
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) { /* 2^16 + u / 128, then less 2^16 + 1: the upper half of this f32 is all of it */
      int magic = __nvvm_prmt((int)words[step * 2 + half], 0x47800000, 0x7640 + i);
      number[i] = __nvvm_bitcast_f2i(__nvvm_bitcast_i2f(magic) - 65537.0f);
    }
    out[half] = (unsigned)__nvvm_prmt(number[0], number[1], 0x7632);
    out[half + 2] = (unsigned)__nvvm_prmt(number[2], number[3], 0x7632);
  }
}

/* Four steps of a row of a, from packed step `at` on; 0 where there are none. */
ALWAYS Floats read_row(void *const *args, const Where *w, int row, int at) {
  int group = at / gemm_room(), of = at % gemm_room(), k = group * gemm_group() + of;
  Floats four = {0, 0, 0, 0};
  int left = group < gemm_scale_groups() && row < gemm_m() ? gemm_group() - of : 0;
  const float *a = (const float *)gemm_pointer_a(args);
  Step step = {k, 0, 0};
  if (gemm_a_deep() && gemm_a_wide() == 4 && gemm_group() % 4 == 0) {
    if (left > 0) four = *(const Floats *)(a + index_a(w->batch, &w->class, row, step).index);
    return four;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; i++) {
    step.k = k + i;
    if (i < left) four[i] = a[index_a(w->batch, &w->class, row, step).index];
  }
  return four;
}

ALWAYS float upper(float x) { return __nvvm_bitcast_i2f(__nvvm_bitcast_f2i(x) & (int)0xffff0000); }
ALWAYS unsigned pair(float x, float y) {
  return (unsigned)__nvvm_prmt(__nvvm_bitcast_f2i(x), __nvvm_bitcast_f2i(y), 0x7632);
}

/* The fragments of four steps of a row: out[0] the upper 8 bits, out[1] the next, out[2] the last, in bf16. What is
 * infinite or NaN has no other bits than the upper ones. */
ALWAYS void split(Floats x, unsigned out[3][2]) {
  Floats rest = x - (Floats){upper(x[0]), upper(x[1]), upper(x[2]), upper(x[3])};
  Floats last = rest - (Floats){upper(rest[0]), upper(rest[1]), upper(rest[2]), upper(rest[3])};
  float all = last[0] + last[1] + (last[2] + last[3]);
  if (all != all) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) {
      if (last[i] == last[i]) continue;
      if (x[i] != x[i]) x[i] = __nvvm_bitcast_i2f(0x7fff0000);
      rest[i] = last[i] = 0;
    }
  }
  out[0][0] = pair(x[0], x[1]), out[0][1] = pair(x[2], x[3]);
  out[1][0] = pair(rest[0], rest[1]), out[1][1] = pair(rest[2], rest[3]);
  out[2][0] = pair(last[0], last[1]), out[2][1] = pair(last[2], last[3]);
}

/* ── the product ─────────────────────────────────────────────────────────────────────────────── */

/* What a warp works on; blocks of k from `first` on, `slices` apart. */
typedef struct {
  Where w;
  int tile0, row0, first, end; /* row0: of the block's, of 8 */
  Floats rows[MOST_STEPS][MOST_ROWS]; /* on their way */
} Work;

ALWAYS int steps(void) { return block_steps() / STEP; }
/* So many steps of k are on their way of a's rows, in 16 registers or fewer. */
ALWAYS int rows_ahead(void) {
  int ahead = MOST_STEPS / gemm_row_tiles();
  return ahead < steps() ? ahead : steps();
}

/* Blocks of b on their way: as many as there are registers for. */
ALWAYS int blocks_ahead(void) { return gemm_row_tiles() > 1 || units() > 1 ? 2 : MOST_AHEAD; }

/* Asks for the rows of step `step` of block `block`, or of the next one. */
ALWAYS void ask_rows(void *const *args, Work *work, int block, int step) {
  int slot = step % rows_ahead(), lane = work->w.thread % LANES;
  if (step >= steps()) block += gemm_slices(), step -= steps();
  if (block >= work->end) return;
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_row_tiles(); r++)
    work->rows[slot][r] = read_row(args, &work->w, work->w.row0 + r * ROWS + lane / 4,
                                   block * block_steps() + step * STEP + lane % 4 * 4);
}

ALWAYS void scale_sums(const Packed *packed, int unit, int lane, Total *sum, Total *total) {
#pragma clang loop unroll(full)
  for (int c = 0; c < gemm_column_tiles(); c++) {
    float scale[2];
#pragma clang loop unroll(full)
    for (int half = 0; half < 2; half++)
      scale[half] = __nvvm_shfl_sync_idx_f32(0xffffffffu, packed->scales[c][unit / 2],
                                             unit % 2 * COLUMNS + half * ROWS + lane / 4, 31);
#pragma clang loop unroll(full)
    for (int r = 0; r < gemm_row_tiles(); r++)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; e++) {
        total->at[r][c][e] += sum->at[r][c][e] * scale[e / 2];
        sum->at[r][c][e] = 0;
      }
  }
}

ALWAYS void multiply_block(void *const *args, Work *work, int block, const Packed *packed, Total *total) {
  int lane = work->w.thread % LANES;
  Total sum = {0};
#pragma clang loop unroll(full)
  for (int s = 0; s < steps(); s++) {
    unsigned right[MOST_ROWS][3][2], left[MOST_COLUMNS][4];
#pragma clang loop unroll(full)
    for (int r = 0; r < gemm_row_tiles(); r++) split(work->rows[s % rows_ahead()][r], right[r]);
    ask_rows(args, work, block, s + rows_ahead());
#pragma clang loop unroll(full)
    for (int c = 0; c < gemm_column_tiles(); c++) unpack(packed->numbers[c], s, left[c]);
#pragma clang loop unroll(full)
    for (int term = gemm_terms() - 1; term >= 0; term--)
#pragma clang loop unroll(full)
      for (int r = 0; r < gemm_row_tiles(); r++)
#pragma clang loop unroll(full)
        for (int c = 0; c < gemm_column_tiles(); c++) gemm_mma(sum.at[r][c], left[c], right[r][term]);
    if ((s + 1) * STEP % gemm_unit() == 0) scale_sums(packed, s * STEP / gemm_unit(), lane, &sum, total);
  }
}

ALWAYS void multiply(void *const *args, Work *work, Total *total) {
  Packed packed[MOST_AHEAD];
#pragma clang loop unroll(full)
  for (int i = 0; i < blocks_ahead(); i++)
    if (work->first + i * gemm_slices() < work->end)
      read_packed(args, &work->w, work->tile0, work->first + i * gemm_slices(), &packed[i]);
#pragma clang loop unroll(full)
  for (int s = 0; s < rows_ahead(); s++) ask_rows(args, work, work->first, s);
#pragma clang loop unroll(disable)
  for (int first = work->first; first < work->end; first += blocks_ahead() * gemm_slices())
#pragma clang loop unroll(full)
    for (int i = 0; i < blocks_ahead(); i++) {
      int block = first + i * gemm_slices(), next = block + blocks_ahead() * gemm_slices();
      if (block >= work->end) continue;
      multiply_block(args, work, block, &packed[i], total);
      if (next < work->end) read_packed(args, &work->w, work->tile0, next, &packed[i]);
    }
}

/* ── many rows ───────────────────────────────────────────────────────────────────────────────── */

typedef unsigned Two32 __attribute__((vector_size(8), aligned(8)));
typedef SHARED Two32 *Fragments; /* (tile_m / 8, steps of a block, terms, LANES) */

ALWAYS int staged_fours(void) { return gemm_tile_m() / ROWS * steps() * LANES; }
ALWAYS int thread_fours(void) { return (staged_fours() + THREADS - 1) / THREADS; }

/* A thread's part of the block's rows in a block of k; beyond the last one, nothing. */
ALWAYS void fetch_rows(void *const *args, const Work *work, int block, Floats *kept) {
#pragma clang loop unroll(full)
  for (int i = 0; i < thread_fours(); i++) {
    int number = work->w.thread + i * THREADS, lane = number % LANES, step = number / LANES % steps();
    if (block >= work->end || (staged_fours() % THREADS && number >= staged_fours())) continue;
    kept[i] = read_row(args, &work->w, work->w.row0 + number / LANES / steps() * ROWS + lane / 4,
                       block * block_steps() + step * STEP + lane % 4 * 4);
  }
}
ALWAYS void keep_rows(Fragments to, const Work *work, int block, const Floats *kept) {
#pragma clang loop unroll(full)
  for (int i = 0; i < thread_fours(); i++) {
    int number = work->w.thread + i * THREADS;
    if (block >= work->end || (staged_fours() % THREADS && number >= staged_fours())) continue;
    unsigned terms[3][2];
    split(kept[i], terms);
#pragma clang loop unroll(full)
    for (int term = 0; term < gemm_terms(); term++)
      to[(number / LANES * gemm_terms() + term) * LANES + number % LANES] = (Two32){terms[term][0], terms[term][1]};
  }
}

ALWAYS void multiply_staged_block(Fragments from, const Work *work, const Packed *packed, Total *total) {
  int lane = work->w.thread % LANES;
  Total sum = {0};
#pragma clang loop unroll(full)
  for (int s = 0; s < steps(); s++) {
    unsigned left[MOST_COLUMNS][4];
#pragma clang loop unroll(full)
    for (int c = 0; c < gemm_column_tiles(); c++) unpack(packed->numbers[c], s, left[c]);
#pragma clang loop unroll(full)
    for (int term = gemm_terms() - 1; term >= 0; term--)
#pragma clang loop unroll(full)
      for (int r = 0; r < gemm_row_tiles(); r++) {
        Two32 both = from[(((work->row0 + r) * steps() + s) * gemm_terms() + term) * LANES + lane];
        unsigned right[2] = {both[0], both[1]};
#pragma clang loop unroll(full)
        for (int c = 0; c < gemm_column_tiles(); c++) gemm_mma(sum.at[r][c], left[c], right);
      }
    if ((s + 1) * STEP % gemm_unit() == 0) scale_sums(packed, s * STEP / gemm_unit(), lane, &sum, total);
  }
}

ALWAYS void multiply_staged(void *const *args, Fragments memory, Work *work, Total *total) {
  int stage = staged_fours() * gemm_terms(), at = 0;
  Packed packed;
  Floats kept[MOST_FOURS];
  fetch_rows(args, work, work->first, kept);
  if (work->first < work->end) read_packed(args, &work->w, work->tile0, work->first, &packed);
  keep_rows(memory, work, work->first, kept);
  __nvvm_bar_sync(0);
#pragma clang loop unroll(disable)
  for (int block = work->first; block < work->end; block++, at ^= 1) {
    fetch_rows(args, work, block + 1, kept);
    multiply_staged_block(memory + at * stage, work, &packed, total);
    if (block + 1 < work->end) read_packed(args, &work->w, work->tile0, block + 1, &packed);
    keep_rows(memory + (at ^ 1) * stage, work, block + 1, kept);
    __nvvm_bar_sync(0);
  }
}

__attribute__((always_inline)) void gemm_tile(void *const *args, SHARED void *shared, int row_block, int column_block,
                                              int batch_split, int thread) {
  int across = thread / LANES % gemm_warps_across(), rest = thread / LANES / gemm_warps_across();
  int slice = gemm_stages() > 1 ? 0 : rest, down = rest - slice;
  int part = (gemm_blocks() + gemm_splits() - 1) / gemm_splits(), begin = batch_split % gemm_splits() * part;
  int column = across * gemm_column_tiles() * COLUMNS;
  Work work;
  work.w = where(row_block * gemm_tile_m(), column_block * gemm_tile_n(), batch_split, thread);
  work.row0 = down * gemm_row_tiles();
  work.tile0 = (work.w.column0 + column) / COLUMNS;
  work.first = begin + slice;
  work.end = begin + part < gemm_blocks() ? begin + part : gemm_blocks();
  Total total = {0};
  if (gemm_stages() > 1)
    multiply_staged(args, (Fragments)shared, &work, &total);
  else
    multiply(args, &work, &total);
  stage_sums((SHARED float *)shared, thread, column, slice * gemm_tile_m() + work.row0 * ROWS, &total,
             (float)(1 << (gemm_bits() - 1))); /* sums by whole numbers again */
  __nvvm_bar_sync(0);
  store_sums(args, (SHARED float *)shared, &work.w);
}
