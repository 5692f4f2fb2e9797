/* gemm_few_x86: products of few rows by a matrix of bf16 or f16, as each token of a text has them: they take as long as the matrix
 * takes to be read. So it is read once, where it lies, and widened to f32 in registers; packing it would write and read it again.
 * An element is one sum in f32 (several, if the matrix is stored [n, k], that are added up at the end) whose order depends on k only:
 * any split of the items gives the same bits. */
#include "kernels/gemm_blocks.h"
#include "kernels/panel_x86.h"

#define UNROLL _Pragma("clang loop unroll(full)")
enum {
  FEW_VECTORS = GEMM_BLOCK_COLUMNS / GEMM_LANES,
  FEW_AHEAD =
      8, /* rows of a matrix [k, n] that are prefetched: hardware does not see the pattern */
  FEW_CHAINS = 4 /* of sums, each no faster than its latency */
};
typedef struct {
  _Alignas(64) float sums[GEMM_FEW * GEMM_BLOCK_COLUMNS]; /* [rows][GEMM_BLOCK_COLUMNS] */
  _Alignas(64) float strip[GEMM_FEW * GEMM_MAX_VECTORS * GEMM_LANES];
} FewRoom;

ALWAYS const void *few_at(int type, const void *x, int64_t i) {
  return (const char *)x + i * operand_bytes(type);
}

/* ── a matrix [k, n] ────────────────────────────────────────────────────────────────────────── */
/* `count` elements, zeros behind them. */
ALWAYS Lanes load_part(int type, const void *from, int64_t count) {
  uint32_t part[GEMM_LANES] = {0}; /* as many f32 */
  if (type == OPERAND_F32)
    for (int64_t i = 0; i < count; i++) part[i] = ((const uint32_t *)from)[i];
  else
    for (int64_t i = 0; i < count; i++) ((uint16_t *)part)[i] = ((const uint16_t *)from)[i];
  return lanes_load_as(type, part, 0);
}

/* sums[r * GEMM_BLOCK_COLUMNS + j] of `vectors` vectors of columns; is_part: the last has `rest` columns. */
ALWAYS void few_across(int type, int rows, int vectors, bool is_part, int64_t rest,
                       const GemmProduct *p, const void *a, const void *b, float *sums) {
  int64_t a_row = p->ta ? 1 : p->k, a_k = p->ta ? p->m : 1;
  Lanes sum[GEMM_FEW][FEW_VECTORS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++) sum[r][j] =
      (Lanes)0.0f;
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < p->k; k++) {
    const void *ahead = few_at(type, b, k + FEW_AHEAD < p->k ? FEW_AHEAD * p->n : 0);
    UNROLL for (int j = 0; j < vectors; j++) {
      bool is_last = is_part && j == vectors - 1;
      if (j % 2 == 0) __builtin_prefetch(few_at(type, ahead, j * GEMM_LANES));
      Lanes right = is_last ? load_part(type, few_at(type, b, j * GEMM_LANES), rest)
                            : lanes_load_as(type, b, j * GEMM_LANES);
      UNROLL for (int r = 0; r < rows; r++) sum[r][j] +=
          (Lanes)lanes_at(type, a, r * a_row) * right;
    }
    a = few_at(type, a, a_k);
    b = few_at(type, b, p->n);
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++)
      lanes_store(sums + r * GEMM_BLOCK_COLUMNS + j * GEMM_LANES, sum[r][j]);
}

/* `columns` columns, as many vectors at a time as there are registers for, then half as many, and so on. */
ALWAYS void few_rows_across(int type, int rows, const GemmProduct *p, const void *a, const void *b,
                            int64_t columns, float *sums) {
#if defined __AVX512F__
  const int most = rows == 1 ? 16 : rows == 2 ? 8 : 4;
#else
  const int most = rows == 1 ? 4 : rows == 2 ? 2 : 1;
#endif
  int64_t j = 0;
#define FEW_STEP(vectors)                                                                          \
  while (vectors <= most && j + vectors * GEMM_LANES <= columns) {                                 \
    few_across(type, rows, vectors, false, 0, p, a, few_at(type, b, j), sums + j);                 \
    j += vectors * GEMM_LANES;                                                                     \
  }
  FEW_STEP(16)
  FEW_STEP(8)
  FEW_STEP(4)
  FEW_STEP(2)
  FEW_STEP(1)
  if (j < columns) few_across(type, rows, 1, true, columns - j, p, a, few_at(type, b, j), sums + j);
}

/* ── a matrix [n, k] ────────────────────────────────────────────────────────────────────────── */
/* sums[r * GEMM_BLOCK_COLUMNS] of one column, whose k are contiguous as are those of a's rows. One column after the other: hardware
 * prefetches what is read from one end to the other. */
ALWAYS void few_column(int type, int rows, const GemmProduct *p, const void *a, const void *b,
                       float *sums) {
  int64_t k = 0;
  Lanes sum[GEMM_FEW][FEW_CHAINS];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < FEW_CHAINS; i++) sum[r][i] =
      (Lanes)0.0f;
#pragma clang loop unroll(disable)
  for (; k + FEW_CHAINS * GEMM_LANES <= p->k; k += FEW_CHAINS * GEMM_LANES)
    UNROLL for (int i = 0; i < FEW_CHAINS; i++) {
      Lanes right = lanes_load_as(type, b, k + i * GEMM_LANES);
      UNROLL for (int r = 0; r < rows; r++) sum[r][i] +=
          lanes_load_as(type, a, r * p->k + k + i * GEMM_LANES) * right;
    }
#pragma clang loop unroll(disable)
  for (; k < p->k; k += GEMM_LANES) {
    int64_t rest = p->k - k < GEMM_LANES ? p->k - k : GEMM_LANES;
    Lanes right = load_part(type, few_at(type, b, k), rest);
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] +=
        load_part(type, few_at(type, a, r * p->k + k), rest) * right;
  }
  UNROLL for (int r = 0; r < rows; r++) sums[r * GEMM_BLOCK_COLUMNS] =
      lanes_sum((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]));
}

/* ── blocks ─────────────────────────────────────────────────────────────────────────────────── */
/* Strip by strip, as epilogues take them. */
ALWAYS void few_finish(int rows, const GemmProduct *p, void *const *args, const Block *block,
                       int64_t row, int64_t column, int64_t columns, FewRoom *room) {
  int64_t most = p->vectors * GEMM_LANES;
  for (int64_t at = 0; at < columns; at += most) {
    int64_t count = columns - at < most ? columns - at : most,
            width = (count + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < width; j += GEMM_LANES)
        lanes_store(room->strip + r * width + j,
                    lanes_load(room->sums + r * GEMM_BLOCK_COLUMNS + at + j));
    gemm_x86_finish(p, args, block->batch, row, rows, column + at, count, room->strip, width);
  }
}

ALWAYS void few_block(int type, int rows, const GemmProduct *p, void *const *args,
                      const Block *block, int64_t row, FewRoom *room) {
  int64_t width = p->vectors * GEMM_LANES, column = block->strip * width;
  int64_t columns =
      block->last_strip * width < p->n ? block->last_strip * width - column : p->n - column;
  const void *a =
      few_at(type, args[p->arg_a], block->batch * p->m * p->k + row * (p->ta ? 1 : p->k));
  const void *b = few_at(type, args[p->arg_b], block->batch * p->k * p->n);
  if (p->tb)
    for (int64_t j = 0; j < columns; j++)
      few_column(type, rows, p, a, few_at(type, b, (column + j) * p->k), room->sums + j);
  else
    few_rows_across(type, rows, p, a, few_at(type, b, column), columns, room->sums);
  few_finish(rows, p, args, block, row, column, columns, room);
}

typedef void FewBlock(const GemmProduct *p, void *const *args, const Block *block, int64_t row,
                      FewRoom *room);
#define FEW_BLOCK(name, type, rows)                                                                \
  static void few_block_##name##rows(const GemmProduct *p, void *const *args, const Block *block,  \
                                     int64_t row, FewRoom *room) {                                 \
    few_block(type, rows, p, args, block, row, room);                                              \
  }
FEW_BLOCK(f32_, OPERAND_F32, 1)
FEW_BLOCK(f32_, OPERAND_F32, 2)
FEW_BLOCK(f32_, OPERAND_F32, 3)
FEW_BLOCK(f32_, OPERAND_F32, 4)
FEW_BLOCK(bf16_, OPERAND_BF16, 1)
FEW_BLOCK(bf16_, OPERAND_BF16, 2)
FEW_BLOCK(bf16_, OPERAND_BF16, 3)
FEW_BLOCK(bf16_, OPERAND_BF16, 4)
FEW_BLOCK(f16_, OPERAND_F16, 1)
FEW_BLOCK(f16_, OPERAND_F16, 2)
FEW_BLOCK(f16_, OPERAND_F16, 3)
FEW_BLOCK(f16_, OPERAND_F16, 4)
static FewBlock *const few_block_of[3][GEMM_FEW] = {
    [OPERAND_F32] = {few_block_f32_1, few_block_f32_2, few_block_f32_3, few_block_f32_4},
    [OPERAND_BF16] = {few_block_bf16_1, few_block_bf16_2, few_block_bf16_3, few_block_bf16_4},
    [OPERAND_F16] = {few_block_f16_1, few_block_f16_2, few_block_f16_3, few_block_f16_4}};

bool gemm_few_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  FewRoom room;
  if (!p->depth || !gemm_is_few(p->m, p->n, p->k, p->ta, p->tb, p->type)) return false;
  for (; begin < end; begin++) {
    Block block = gemm_block(p, begin);
    int64_t row = block.tile_row * p->rows;
    int64_t last = block.last_row * p->rows < p->m ? block.last_row * p->rows : p->m;
    few_block_of[p->type][last - row - 1](p, args, &block, row, &room);
  }
  return true;
}
