/* gemm_whole: products whose operands are f32 in memory and hold whole numbers of at most 8 bits (passes/integers.h): how
 * they are brought into 8 bits, and what the epilogue gets of a sum. Included by gemm_operand.h in bodies that define
 * WHOLE; there gemm_a_pitch and gemm_b_pitch are those of packed rows.
 *
 * A launch for each operand packs it: rows of a, columns of b, each with its numbers along k side by side, 0 behind them
 * up to the pitch, a multiple of 16 bytes; and for each of them whether it has a number that is not whole or out of its
 * range, or NaN. So the product copies what it multiplies as it lies, a quarter of the bytes, and whatever the order
 * in which an operand lies.
 *
 * Of a convolution (kind 1, NHWC by OHWI) a packed row is a line of an image, or the window of an output channel: runs of
 * the channels of a group (gemm_run of them), each with 0 behind it up to gemm_packed_run, which is what
 * gemm_in_channels is then. What surrounds an image is 0, so nothing is to be taken off the sums.
 *
 * Of few channels a run has those of several places: of gemm_joined() neighbours in a window's line, dilated as it is. A
 * line of an image has such a run for each place and for those to the left of it in the padding, so that every window begins
 * with a whole run; the convolution is one of fewer places and 16 channels then, without padding on the left.
 *
 * Sums of whole numbers are exact 32-bit integers, in parts as well, and are rounded to f32 once. A row or column with
 * other numbers, or what reads such a line of an image, is computed in f32 from the operand itself: by a thread for each 2 x 4
 * results of a tile, before its epilogue (repair_part), or for each group of four, where parts are added. Where the numbers of b
 * are certainly whole or NaN (gemm_b_is_sure) b itself is not read: its other numbers are taken from their 8 bits. */
#ifndef FT_KERNELS_GEMM_WHOLE_H
#define FT_KERNELS_GEMM_WHOLE_H

enum { PACK_WARPS = 8, PACK_LANES = 32, PACK_STEPS = 16 };

/* Between these are an operand's numbers. */
int gemm_a_low(void), gemm_a_high(void), gemm_b_low(void), gemm_b_high(void), gemm_b_is_sure(void);
/* Of the operands in f32: elements between the beginnings of their rows, and whether neighbours there are neighbours in
 * k; so many warps of a block pack one such row. */
int gemm_a_source_pitch(void), gemm_b_source_pitch(void), gemm_a_source_deep(void);
int gemm_b_source_deep(void), gemm_a_pack_team(void), gemm_b_pack_team(void);
/* A row that is packed, of so many: runs of so many neighbours; of a product one, of all of k. And its bytes. */
int gemm_a_pack_rows(void), gemm_b_pack_rows(void), gemm_run(void);
int gemm_packed_run(void), gemm_a_row_bytes(void), gemm_b_row_bytes(void);
/* Of a convolution as it is in f32: width, window, padding and dilation across. */
int gemm_joined(void), gemm_source_width(void), gemm_source_kernel(void), gemm_source_pad(void);
int gemm_source_dilation(void);
const float *gemm_source_a(void *const *args), *gemm_source_b(void *const *args);
/* Packed, and for each row of a, or column of b, whether it is faulty. */
unsigned char *gemm_packed_a(void *const *args), *gemm_packed_b(void *const *args);
int *gemm_faults_a(void *const *args), *gemm_faults_b(void *const *args);

typedef float Floats __attribute__((vector_size(16), aligned(16)));
typedef unsigned Words __attribute__((vector_size(16), aligned(16)));

/* ── packing ─────────────────────────────────────────────────────────────────────────────────── */

/* The number's 8 bits; *fault, if it is none. */
ALWAYS unsigned pack_number(int is_a, float x, int *fault) {
  int whole = __nvvm_f2i_rn(x), low = is_a ? gemm_a_low() : gemm_b_low();
  *fault |= (float)whole != x || whole < low || whole > (is_a ? gemm_a_high() : gemm_b_high());
  return (unsigned)whole & 255u;
}
ALWAYS unsigned pack_four(int is_a, const float *x, int *fault) {
  unsigned word = 0;
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; e++) word |= pack_number(is_a, x[e], fault) << (8 * e);
  return word;
}
ALWAYS int any_lane(int fault) { return __nvvm_vote_any_sync(0xffffffffu, fault != 0); }

/* Number `at` of a packed row of joined places: channel k of one of a run's; 0 outside of the image, or the window. */
ALWAYS float joined_number(int is_a, const float *row, int at) {
  int run = at / gemm_packed_run(), lane = at % gemm_packed_run(), each = gemm_packed_run() / gemm_joined();
  int k = lane % each, across = is_a ? run : run % gemm_kernel_width() * gemm_joined();
  across += lane / each * (is_a ? gemm_source_dilation() : 1) - (is_a ? gemm_source_pad() : 0);
  int is_there = k < gemm_run() && (unsigned)across < (unsigned)(is_a ? gemm_source_width() : gemm_source_kernel());
  if (!is_there) return 0;
  return row[((is_a ? 0 : run / gemm_kernel_width() * gemm_source_kernel()) + across) * gemm_run() + k];
}

/* Four numbers of a packed row from byte `at` on; 0 behind the end of its run. */
ALWAYS unsigned pack_along(int is_a, const float *row, int pitch, int at, int *fault) {
  int run = at / gemm_packed_run(), k = at % gemm_packed_run();
  float x[4];
  row += gemm_joined() > 1 ? 0 : run * gemm_run();
  if (gemm_joined() > 1) {
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) x[e] = joined_number(is_a, row, at + e);
  } else if (pitch % 4 == 0 && gemm_run() % 4 == 0) {
    Floats four = {0, 0, 0, 0};
    if (k < gemm_run()) four = *(const Floats *)(row + k);
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) x[e] = four[e];
  } else {
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) x[e] = k + e < gemm_run() ? row[k + e] : 0;
  }
  return pack_four(is_a, x, fault);
}

/* A block has PACK_WARPS / team rows, of all batches: each is packed by `team` warps, 4 steps a lane. */
ALWAYS void pack_rows(void *const *args, SHARED int *memory, int is_a, int block, int thread) {
  int pitch = is_a ? gemm_a_row_bytes() : gemm_b_row_bytes(), team = is_a ? gemm_a_pack_team() : gemm_b_pack_team();
  int rows = is_a ? gemm_a_pack_rows() : gemm_b_pack_rows(), warp = thread / PACK_LANES;
  int row = block * (PACK_WARPS / team) + warp / team, fault = 0;
  int source_pitch = is_a ? gemm_a_source_pitch() : gemm_b_source_pitch();
  int is_there = row < rows;
  if (is_there) {
    const float *from = (is_a ? gemm_source_a(args) : gemm_source_b(args)) + (int64_t)row * source_pitch;
    unsigned *to = (unsigned *)((is_a ? gemm_packed_a(args) : gemm_packed_b(args)) + (int64_t)row * pitch);
#pragma clang loop unroll_count(4)
    for (int word = thread % (team * PACK_LANES); word < pitch / 4; word += team * PACK_LANES)
      to[word] = pack_along(is_a, from, source_pitch, word * 4, &fault);
  }
  fault = any_lane(fault);
  if (team > 1) {
    if (thread % PACK_LANES == 0) memory[warp] = fault;
    __nvvm_bar_sync(0);
#pragma clang loop unroll(full)
    for (int i = 0; i < team; i++) fault |= memory[warp / team * team + i];
  }
  if (is_there && thread % (team * PACK_LANES) == 0) (is_a ? gemm_faults_a(args) : gemm_faults_b(args))[row] = fault;
}

/* Of an operand that lies the other way: a block has 32 neighbours of a batch, one for each lane, and its warps take 16
 * steps of k each in turn. */
ALWAYS void pack_across(void *const *args, SHARED int *memory, int is_a, int block, int thread) {
  int pitch = is_a ? gemm_a_pitch() : gemm_b_pitch(), along = is_a ? gemm_m() : gemm_n();
  int blocks = (along + PACK_LANES - 1) / PACK_LANES, batch = block / blocks;
  int row = block % blocks * PACK_LANES + thread % PACK_LANES, warp = thread / PACK_LANES, fault = 0;
  int source_pitch = is_a ? gemm_a_source_pitch() : gemm_b_source_pitch(), is_there = row < along;
  const float *from = (is_a ? gemm_source_a(args) : gemm_source_b(args)) + (int64_t)batch * gemm_k() * source_pitch + row;
  unsigned char *to = (is_a ? gemm_packed_a(args) : gemm_packed_b(args)) + ((int64_t)batch * along + row) * pitch;
#pragma clang loop unroll(disable)
  for (int k = warp * PACK_STEPS; k < pitch && is_there; k += PACK_WARPS * PACK_STEPS) {
    float x[PACK_STEPS];
    Words words;
#pragma clang loop unroll(full)
    for (int e = 0; e < PACK_STEPS; e++) x[e] = k + e < gemm_k() ? from[(int64_t)(k + e) * source_pitch] : 0;
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) words[e] = pack_four(is_a, x + 4 * e, &fault);
    *(Words *)(to + k) = words;
  }
  memory[thread] = fault;
  __nvvm_bar_sync(0);
  if (warp || !is_there) return;
#pragma clang loop unroll(full)
  for (int i = 1; i < PACK_WARPS; i++) fault |= memory[i * PACK_LANES + thread];
  (is_a ? gemm_faults_a(args) : gemm_faults_b(args))[batch * along + row] = fault;
}

/* Blocks of PACK_WARPS warps; shared: an int for each thread. */
__attribute__((always_inline)) void gemm_pack_a(void *const *args, SHARED void *shared, int block, int thread) {
  if (gemm_a_source_deep())
    pack_rows(args, (SHARED int *)shared, 1, block, thread);
  else
    pack_across(args, (SHARED int *)shared, 1, block, thread);
}
__attribute__((always_inline)) void gemm_pack_b(void *const *args, SHARED void *shared, int block, int thread) {
  if (gemm_b_source_deep())
    pack_rows(args, (SHARED int *)shared, 0, block, thread);
  else
    pack_across(args, (SHARED int *)shared, 0, block, thread);
}

/* ── results in f32 ──────────────────────────────────────────────────────────────────────────── */

enum { FLOAT_HIGH = 2, FLOAT_WIDE = 4, FLOAT_STEPS = 4 };

/* What so many rows (FLOAT_HIGH at most) and four columns are multiplied by from here on: a row may have nothing here (NULL);
 * `packed`: the columns' numbers in 8 bits. */
typedef struct {
  const float *left[FLOAT_HIGH], *right[FLOAT_WIDE];
  const unsigned char *packed[FLOAT_WIDE];
  int left_step, right_step; /* from a step of k to the next one */
  int is_left_wide, is_right_wide; /* four steps lie side by side, at a multiple of 16 bytes */
} Factors;

ALWAYS Floats four_steps(const float *from, int step, int is_wide) {
  if (is_wide) return *(const Floats *)from;
  return (Floats){from[0], from[(int64_t)step], from[(int64_t)step * 2], from[(int64_t)step * 3]};
}
ALWAYS float packed_number(unsigned byte) { return (float)(gemm_b_low() < 0 ? (signed char)byte : (int)byte); }
ALWAYS Floats right_four(const Factors *f, int e, int k) {
  if (!gemm_b_is_sure()) return four_steps(f->right[e] + (int64_t)k * f->right_step, f->right_step, f->is_right_wide);
  const unsigned char *at = f->packed[e] + k;
  if (gemm_kind() != 0) return (Floats){packed_number(at[0]), packed_number(at[1]), packed_number(at[2]), packed_number(at[3])};
  unsigned word = *(const unsigned *)at;
  return (Floats){packed_number(word & 255), packed_number(word >> 8 & 255), packed_number(word >> 16 & 255), packed_number(word >> 24)};
}
ALWAYS float right_one(const Factors *f, int e, int k) {
  return gemm_b_is_sure() ? packed_number(f->packed[e][k]) : f->right[e][(int64_t)k * f->right_step];
}

/* Adds `count` steps to the sums, each in order. */
ALWAYS void add_steps(const Factors *f, int high, int wide, int count, float sum[FLOAT_HIGH][FLOAT_WIDE]) {
#pragma clang loop unroll_count(2)
  for (int k = 0; k < count / FLOAT_STEPS * FLOAT_STEPS; k += FLOAT_STEPS) {
    Floats x[FLOAT_HIGH], y[FLOAT_WIDE];
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++)
      if (f->left[i]) x[i] = four_steps(f->left[i] + (int64_t)k * f->left_step, f->left_step, f->is_left_wide);
#pragma clang loop unroll(full)
    for (int e = 0; e < wide; e++) y[e] = right_four(f, e, k);
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++)
      if (f->left[i])
#pragma clang loop unroll(full)
        for (int e = 0; e < wide; e++)
#pragma clang loop unroll(full)
          for (int s = 0; s < FLOAT_STEPS; s++) sum[i][e] += x[i][s] * y[e][s];
  }
#pragma clang loop unroll(disable)
  for (int k = count / FLOAT_STEPS * FLOAT_STEPS; k < count; k++)
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++)
      if (f->left[i])
#pragma clang loop unroll(full)
        for (int e = 0; e < wide; e++) sum[i][e] += f->left[i][(int64_t)k * f->left_step] * right_one(f, e, k);
}

/* Results of rows of a product and columns. */
ALWAYS void float_products(void *const *args, int batch, const int *row, const int *column, int high, int wide,
                           float sum[FLOAT_HIGH][FLOAT_WIDE]) {
  int a_pitch = gemm_a_source_pitch(), b_pitch = gemm_b_source_pitch();
  Factors f = {.left_step = gemm_a_source_deep() ? 1 : a_pitch,
               .right_step = gemm_b_source_deep() ? 1 : b_pitch,
               .is_left_wide = gemm_a_source_deep() && a_pitch % FLOAT_STEPS == 0,
               .is_right_wide = gemm_b_source_deep() && b_pitch % FLOAT_STEPS == 0};
#pragma clang loop unroll(full)
  for (int i = 0; i < high; i++)
    f.left[i] = gemm_source_a(args) + (gemm_a_source_deep() ? ((int64_t)batch * gemm_m() + row[i]) * a_pitch
                                                            : (int64_t)batch * gemm_k() * a_pitch + row[i]);
#pragma clang loop unroll(full)
  for (int e = 0; e < wide; e++) {
    f.right[e] = gemm_source_b(args) + (gemm_b_source_deep() ? ((int64_t)batch * gemm_n() + column[e]) * b_pitch
                                                             : (int64_t)batch * gemm_k() * b_pitch + column[e]);
    f.packed[e] = gemm_packed_b(args) + ((int64_t)batch * gemm_n() + column[e]) * gemm_b_pitch();
  }
  add_steps(&f, high, wide, gemm_k(), sum);
}

/* Results of places of a convolution and channels of a group. */
ALWAYS void float_places(void *const *args, int group, const int *row, const int *column, int high, int wide,
                         float sum[FLOAT_HIGH][FLOAT_WIDE]) {
  int kw = gemm_source_kernel(), joined = gemm_joined(), b_pitch = gemm_b_source_pitch();
  int is_wide = gemm_run() % FLOAT_STEPS == 0;
  Factors f = {.left_step = 1,
               .right_step = 1,
               .is_left_wide = is_wide && gemm_a_source_pitch() % FLOAT_STEPS == 0,
               .is_right_wide = is_wide && b_pitch % FLOAT_STEPS == 0};
#pragma clang loop unroll(disable)
  for (int window = 0; window < gemm_kernel_height() * kw; window++) {
    int at = (window / kw * gemm_kernel_width() + window % kw / joined) * gemm_packed_run() +
             window % kw % joined * (gemm_packed_run() / joined);
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++) {
      Place place = image_place(row[i], gemm_out_height(), gemm_out_width());
      int y = place.y * gemm_stride_height() - gemm_pad_top() + window / kw * gemm_dilation_height();
      int x = place.x * gemm_stride_width() - gemm_source_pad() + window % kw * gemm_source_dilation();
      int is_there = (unsigned)y < (unsigned)gemm_in_height() && (unsigned)x < (unsigned)gemm_source_width();
      const float *from = gemm_source_a(args) + ((int64_t)place.image * gemm_in_height() + y) * gemm_a_source_pitch() +
                          (x * gemm_groups() + group) * gemm_run();
      f.left[i] = is_there ? from : (const float *)0;
    }
#pragma clang loop unroll(full)
    for (int e = 0; e < wide; e++) {
      int channel = group * gemm_out_channels() + column[e];
      f.right[e] = gemm_source_b(args) + (int64_t)channel * b_pitch + window * gemm_run();
      f.packed[e] = gemm_packed_b(args) + (int64_t)channel * gemm_b_row_bytes() + at;
    }
    add_steps(&f, high, wide, gemm_run(), sum);
  }
}

/* Is a row of the product faulty; of a convolution: a line of the image that it sees? */
ALWAYS int is_row_faulty(void *const *args, int batch, int row) {
  const int *faults = gemm_faults_a(args);
  if (gemm_kind() == 0) return faults[batch * gemm_m() + row];
  Place place = image_place(row, gemm_out_height(), gemm_out_width());
  int fault = 0;
#pragma clang loop unroll_count(4)
  for (int window = 0; window < gemm_kernel_height(); window++) {
    int y = place.y * gemm_stride_height() - gemm_pad_top() + window * gemm_dilation_height();
    if ((unsigned)y < (unsigned)gemm_in_height()) fault |= faults[place.image * gemm_in_height() + y];
  }
  return fault;
}

/* Which of these results are to be computed in f32: bit i * FLOAT_WIDE + e. Rows and columns behind the last are as the last. */
ALWAYS int faults_of(void *const *args, int batch, int *row, int *column, int high, int wide) {
  int faults = 0;
#pragma clang loop unroll(full)
  for (int e = 0; e < wide; e++) {
    if (column[e] >= gemm_n()) column[e] = gemm_n() - 1;
    if (gemm_faults_b(args)[batch * gemm_n() + column[e]]) faults |= 0x11 << e;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < high; i++) {
    if (row[i] >= gemm_m()) row[i] = gemm_m() - 1;
    if (is_row_faulty(args, batch, row[i])) faults |= 15 << (i * FLOAT_WIDE);
  }
  return faults;
}

ALWAYS void float_results(void *const *args, int batch, const int *row, const int *column, int high, int wide,
                          float sum[FLOAT_HIGH][FLOAT_WIDE]) {
#pragma clang loop unroll(full)
  for (int e = 0; e < wide; e++) {
    int is_nan = gemm_b_is_sure() && gemm_faults_b(args)[batch * gemm_n() + column[e]];
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++) sum[i][e] = is_nan ? __builtin_nanf("") : 0;
  }
  if (gemm_kind() == 0)
    float_products(args, batch, row, column, high, wide, sum);
  else
    float_places(args, batch, row, column, high, wide, sum);
}

/* ── results ─────────────────────────────────────────────────────────────────────────────────── */

/* What the epilogue gets of four neighbours' sums, of which some may lie behind the last column. Without parts those that are to
 * be in f32 are such already (repair_part); else they are computed here, of what gemm_combine gives. */
ALWAYS Values values_of(void *const *args, int batch, int row, int column, Four sums) {
  Values values = {(float)sums[0], (float)sums[1], (float)sums[2], (float)sums[3]};
  int is_made = gemm_splits() == 1, wide = is_made ? FLOAT_WIDE : group_width(), rows[FLOAT_HIGH] = {row};
  int columns[FLOAT_WIDE] = {column, column + 1, column + 2, column + 3};
  int faults = faults_of(args, batch, rows, columns, 1, wide);
  if (!(faults & 15)) return values;
  float made[FLOAT_HIGH][FLOAT_WIDE];
  if (!is_made) float_results(args, batch, rows, columns, 1, wide, made);
#pragma clang loop unroll(full)
  for (int e = 0; e < wide; e++)
    if (faults >> e & 1) values[e] = is_made ? __nvvm_bitcast_i2f(sums[e]) : made[0][e];
  return values;
}
#endif
