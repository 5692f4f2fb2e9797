/* gemm_host: c[b] = op(a[b]) op(b[b]) in f32 for the shapes that a training step has, specialised
 * by ftc, which defines the constants below (internal, always inlined) and the epilogue. A register
 * tile of rows x vectors sums over all of k; then the epilogue has it: bias, activation, casts and
 * stores are its, and reach memory once. The work item is a tile; items run down a column of tiles,
 * so that a panel of b is packed once per column and thread. a is read where it lies. Any split of
 * the items gives the same bits: an element is one sum, in the order of k. */
#include "kernels/gemm_host.h"

int64_t gemm_m(void), gemm_n(void), gemm_k(void);
int gemm_ta(void), gemm_tb(void); /* a is stored [k, m]; b is stored [n, k] */
int gemm_rows(void), gemm_vectors(void);
/* Where in args the operands are. */
int gemm_arg_a(void), gemm_arg_b(void);
/* The tile of results at (row, column) of product `batch`: tile[i * stride + j] for i < rows and
 * j < columns. */
void gemm_epilogue(void *const *args, int64_t batch, int64_t row, int64_t column, int64_t rows,
                   int64_t columns, const float *tile, int64_t stride);

#define ALWAYS static inline __attribute__((always_inline))
typedef float Lanes __attribute__((ext_vector_type(16)));
typedef float LooseLanes __attribute__((ext_vector_type(16), aligned(4)));

/* tile = a panel product; rows and vectors are constants wherever this is inlined. */
ALWAYS void multiply(int rows, int vectors, const float *a, int64_t a_row, int64_t a_k,
                     const float *b, int64_t b_k, float *tile) {
  Lanes sum[GEMM_MAX_ROWS][GEMM_MAX_VECTORS];
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) sum[i][j] = (Lanes)0.0f;
  int64_t count = gemm_k();
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < count; k++) {
    Lanes right[GEMM_MAX_VECTORS];
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++)
      right[j] = *(const LooseLanes *)(b + k * b_k + j * GEMM_LANES);
#pragma clang loop unroll(full)
    for (int i = 0; i < rows; i++) {
      Lanes left = (Lanes)a[i * a_row + k * a_k];
#pragma clang loop unroll(full)
      for (int j = 0; j < vectors; j++) sum[i][j] += left * right[j];
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) *(Lanes *)(tile + (i * vectors + j) * GEMM_LANES) = sum[i][j];
}

/* 16 rows of 16 floats, `stride` apart, to 16 columns `width` apart: four rounds of exchanges. */
ALWAYS void transpose_block(const float *from, int64_t stride, float *to, int64_t width) {
  Lanes x[16], y[16];
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; i++) x[i] = *(const LooseLanes *)(from + i * stride);
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i++) {
    y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                       22, 7, 23);
    y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                           29, 14, 30, 15, 31);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i++) {
    x[2 * i] = __builtin_shufflevector(y[i], y[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                       22, 7, 23);
    x[2 * i + 1] = __builtin_shufflevector(y[i], y[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                           29, 14, 30, 15, 31);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i++) {
    y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                       22, 7, 23);
    y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                           29, 14, 30, 15, 31);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i++) {
    *(LooseLanes *)(to + 2 * i * width) = __builtin_shufflevector(
        y[i], y[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *(LooseLanes *)(to + (2 * i + 1) * width) = __builtin_shufflevector(
        y[i], y[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

/* panel[k][width] = op(b)[k][column ...], columns beyond n as zeros. */
ALWAYS void pack(const float *b, int64_t column, int64_t columns, int64_t width, float *panel) {
  int64_t k = gemm_k(), n = gemm_n();
  int64_t whole = columns / GEMM_LANES * GEMM_LANES;
  int64_t deep = gemm_tb() ? k / GEMM_LANES * GEMM_LANES : 0;
  for (int64_t j = 0; j < whole; j += GEMM_LANES) {
    for (int64_t i = 0; i < deep; i += GEMM_LANES)
      transpose_block(b + (column + j) * k + i, k, panel + i * width + j, width);
    for (int64_t i = deep; i < k; i++)
      for (int64_t lane = 0; lane < GEMM_LANES; lane++)
        panel[i * width + j + lane] =
            gemm_tb() ? b[(column + j + lane) * k + i] : b[i * n + column + j + lane];
  }
  if (whole < width)
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = whole; j < width; j++)
        panel[i * width + j] = j >= columns ? 0.0f
                               : gemm_tb()  ? b[(column + j) * k + i]
                                            : b[i * n + column + j];
}

/* Row tiles [first, end) of one column of tiles, `vectors` wide. */
ALWAYS void column_of_tiles(void *const *args, int64_t batch, int64_t column, int64_t columns,
                            int vectors, int64_t first, int64_t end) {
  int64_t m = gemm_m(), n = gemm_n(), k = gemm_k();
  const float *a = (const float *)args[gemm_arg_a()] + batch * m * k;
  const float *b = (const float *)args[gemm_arg_b()] + batch * k * n;
  int64_t width = vectors * GEMM_LANES, rows = gemm_rows(), b_k = width;
  int64_t a_row = gemm_ta() ? 1 : k, a_k = gemm_ta() ? m : 1;
  _Alignas(64) float panel[GEMM_MAX_PANEL], tile[GEMM_MAX_ROWS * GEMM_MAX_VECTORS * GEMM_LANES];
  const float *right = panel;
  /* read in place what is contiguous and does not lie at one address modulo a page */
  if (gemm_tb() || columns < width || (n % 256 == 0 && k > 8)) {
    pack(b, column, columns, width, panel);
  } else {
    right = b + column;
    b_k = n;
  }
  int64_t whole = m / rows < end ? m / rows : end;
  for (int64_t i = first; i < whole; i++) {
    multiply((int)rows, vectors, a + i * rows * a_row, a_row, a_k, right, b_k, tile);
    gemm_epilogue(args, batch, i * rows, column, rows, columns, tile, width);
  }
  int64_t bottom = m % rows, last = m - bottom;
  if (bottom && end > m / rows) {
    multiply((int)bottom, vectors, a + last * a_row, a_row, a_k, right, b_k, tile);
    gemm_epilogue(args, batch, last, column, bottom, columns, tile, width);
  }
}

void gemm_kernel(void *const *args, int64_t begin, int64_t end) {
  int64_t m = gemm_m(), n = gemm_n(), width = gemm_vectors() * GEMM_LANES;
  int64_t down = (m + gemm_rows() - 1) / gemm_rows(), across = (n + width - 1) / width;
  int64_t right = (n % width + GEMM_LANES - 1) / GEMM_LANES;
  while (begin < end) {
    int64_t strip = begin / down, first = begin % down;
    int64_t stop = end - begin < down - first ? first + (end - begin) : down;
    int64_t batch = strip / across, column = strip % across * width;
    if (n - column >= width)
      column_of_tiles(args, batch, column, width, gemm_vectors(), first, stop);
    else
      column_of_tiles(args, batch, column, n % width, (int)right, first, stop);
    begin += stop - first;
  }
}
