/* gemm_ptx: the body of kernels/gemm_ptx.c (REAL float) and gemm64_ptx.c (REAL double): matrix
 * products and convolutions as implicit matrix products, specialised by ftc, which defines the
 * constants and callbacks below.
 *
 * A block of 256 threads makes a square tile of 16 * micro rows and columns; a thread has micro x
 * micro of its results in registers, in groups of four neighbours. Panels of 16 steps of k go
 * through shared memory, and the next panel is under way in registers while one is multiplied. With
 * splits, a block sums its part of k only and leaves it in the workspace; gemm_combine adds the
 * parts in order, so results do not depend on timing.
 *
 * The product is, for each batch (of a convolution: each group), rows x columns over depth:
 *   kind 0  dot               a[m, k] b[k, n]
 *   kind 1  conv              rows: images and their output places; columns: output channels;
 *                             depth: window places and input channels
 *   kind 2  conv_grad_input   rows: images and their input places; columns: input channels; depth:
 *                             window places and output channels
 *   kind 3  conv_grad_weight  rows: output channels; columns: input channels and window places;
 *                             depth: images and their output places */
#include <stdint.h>

int gemm_kind(void), gemm_m(void), gemm_n(void), gemm_k(void), gemm_splits(void);
int gemm_micro(void);                     /* 4 or 8 */
int gemm_ta(void), gemm_tb(void);         /* dot: a is stored [k, m]; b is stored [n, k] */
int gemm_a_deep(void), gemm_b_deep(void); /* neighbours in memory are neighbours in k */
/* Convolutions: of the forward one, whatever the kind. */
int gemm_images(void), gemm_groups(void), gemm_nhwc(void);
int gemm_in_channels(void), gemm_in_height(void), gemm_in_width(void); /* channels: of a group */
int gemm_out_channels(void), gemm_out_height(void), gemm_out_width(void);
int gemm_kernel_height(void), gemm_kernel_width(void), gemm_stride_height(void);
int gemm_stride_width(void), gemm_pad_top(void), gemm_pad_left(void), gemm_dilation_height(void);
int gemm_dilation_width(void);
/* Element `index` of the operands, converted. */
REAL gemm_element_a(void *const *args, int index);
REAL gemm_element_b(void *const *args, int index);
REAL *gemm_workspace(void *const *args);
/* What becomes of a finished element. */
void gemm_epilogue(void *const *args, int batch, int row, int column, REAL value);

#define ALWAYS static inline __attribute__((always_inline))
#define SHARED static __attribute__((address_space(3), aligned(16)))
enum { STEPS = 16, THREADS = 256, MAX_MICRO = 8, MAX_TILE = 16 * MAX_MICRO };

SHARED REAL gemm_panel_a[STEPS][MAX_TILE + 4];
SHARED REAL gemm_panel_b[STEPS][MAX_TILE + 4];

/* ── where elements lie ──────────────────────────────────────────────────────────────────────── */

ALWAYS int image_index(int is_input, int image, int channel, int y, int x) {
  int height = is_input ? gemm_in_height() : gemm_out_height();
  int width = is_input ? gemm_in_width() : gemm_out_width();
  int channels = gemm_groups() * (is_input ? gemm_in_channels() : gemm_out_channels());
  return gemm_nhwc() ? ((image * height + y) * width + x) * channels + channel
                     : ((image * channels + channel) * height + y) * width + x;
}

/* x under window place (ky, kx) of output place (y, x), or 0 in the padding. */
ALWAYS REAL input_under(void *const *args, int is_a, int image, int channel, int y, int x, int ky,
                        int kx) {
  int row = y * gemm_stride_height() - gemm_pad_top() + ky * gemm_dilation_height();
  int column = x * gemm_stride_width() - gemm_pad_left() + kx * gemm_dilation_width();
  if ((unsigned)row >= (unsigned)gemm_in_height() || (unsigned)column >= (unsigned)gemm_in_width())
    return 0;
  int index = image_index(1, image, channel, row, column);
  return is_a ? gemm_element_a(args, index) : gemm_element_b(args, index);
}

/* dy whose window place (ky, kx) lies on input place (y, x), or 0 if there is none. */
ALWAYS REAL output_over(void *const *args, int image, int channel, int y, int x, int ky, int kx) {
  int row = y + gemm_pad_top() - ky * gemm_dilation_height();
  int column = x + gemm_pad_left() - kx * gemm_dilation_width();
  if (row < 0 || column < 0 || row % gemm_stride_height() || column % gemm_stride_width()) return 0;
  row /= gemm_stride_height();
  column /= gemm_stride_width();
  if (row >= gemm_out_height() || column >= gemm_out_width()) return 0;
  return gemm_element_a(args, image_index(0, image, channel, row, column));
}

ALWAYS REAL weight(void *const *args, int out_channel, int in_channel, int ky, int kx) {
  int index = ((out_channel * gemm_in_channels() + in_channel) * gemm_kernel_height() + ky) *
                  gemm_kernel_width() +
              kx;
  return gemm_element_b(args, index);
}

ALWAYS REAL load_a(void *const *args, int batch, int row, int k) {
  int in = gemm_in_channels(), out = gemm_out_channels(), kw = gemm_kernel_width();
  if (gemm_kind() == 0) {
    int index = gemm_ta() ? k * gemm_m() + row : row * gemm_k() + k;
    return gemm_element_a(args, batch * gemm_m() * gemm_k() + index);
  }
  if (gemm_kind() == 1) {
    int places = gemm_out_height() * gemm_out_width(), place = row % places, window = k / in;
    return input_under(args, 1, row / places, batch * in + k % in, place / gemm_out_width(),
                       place % gemm_out_width(), window / kw, window % kw);
  }
  if (gemm_kind() == 2) {
    int places = gemm_in_height() * gemm_in_width(), place = row % places, window = k / out;
    return output_over(args, row / places, batch * out + k % out, place / gemm_in_width(),
                       place % gemm_in_width(), window / kw, window % kw);
  }
  int places = gemm_out_height() * gemm_out_width(), place = k % places;
  return gemm_element_a(args, image_index(0, k / places, batch * out + row,
                                          place / gemm_out_width(), place % gemm_out_width()));
}

ALWAYS REAL load_b(void *const *args, int batch, int k, int column) {
  int in = gemm_in_channels(), out = gemm_out_channels(), kw = gemm_kernel_width();
  if (gemm_kind() == 0) {
    int index = gemm_tb() ? column * gemm_k() + k : k * gemm_n() + column;
    return gemm_element_b(args, batch * gemm_k() * gemm_n() + index);
  }
  if (gemm_kind() == 1) {
    int window = k / in;
    return weight(args, batch * out + column, k % in, window / kw, window % kw);
  }
  if (gemm_kind() == 2) {
    int window = k / out;
    return weight(args, batch * out + k % out, column, window / kw, window % kw);
  }
  int places = gemm_out_height() * gemm_out_width(), place = k % places;
  int windows = gemm_kernel_height() * kw, window = column % windows;
  return input_under(args, 0, k / places, batch * in + column / windows, place / gemm_out_width(),
                     place % gemm_out_width(), window / kw, window % kw);
}

/* ── the product ─────────────────────────────────────────────────────────────────────────────── */

/* Element e of the micro that this thread brings into a panel: its place along the tile and in k.
 * `deep`: four neighbours run along k, else along the tile. */
ALWAYS void panel_place(int thread, int e, int deep, int *along, int *k) {
  int tile = 16 * gemm_micro(), group = thread + e / 4 * THREADS;
  if (deep) {
    *along = group / (STEPS / 4);
    *k = group % (STEPS / 4) * 4 + e % 4;
  } else {
    *along = group % (tile / 4) * 4 + e % 4;
    *k = group / (tile / 4);
  }
}

ALWAYS void fetch(void *const *args, int batch, int row0, int column0, int k0, int end, int thread,
                  REAL *next_a, REAL *next_b) {
  int tile = 16 * gemm_micro(), along, k;
#pragma clang loop unroll(full)
  for (int e = 0; e < gemm_micro(); e++) {
    panel_place(thread, e, gemm_a_deep(), &along, &k);
    int inside = (gemm_m() % tile == 0 || row0 + along < gemm_m()) &&
                 ((gemm_splits() == 1 && gemm_k() % STEPS == 0) || k0 + k < end);
    next_a[e] = inside ? load_a(args, batch, row0 + along, k0 + k) : (REAL)0;
  }
#pragma clang loop unroll(full)
  for (int e = 0; e < gemm_micro(); e++) {
    panel_place(thread, e, gemm_b_deep(), &along, &k);
    int inside = (gemm_n() % tile == 0 || column0 + along < gemm_n()) &&
                 ((gemm_splits() == 1 && gemm_k() % STEPS == 0) || k0 + k < end);
    next_b[e] = inside ? load_b(args, batch, k0 + k, column0 + along) : (REAL)0;
  }
}

ALWAYS void keep(int thread, const REAL *next_a, const REAL *next_b) {
  int along, k;
#pragma clang loop unroll(full)
  for (int e = 0; e < gemm_micro(); e++) {
    panel_place(thread, e, gemm_a_deep(), &along, &k);
    gemm_panel_a[k][along] = next_a[e];
    panel_place(thread, e, gemm_b_deep(), &along, &k);
    gemm_panel_b[k][along] = next_b[e];
  }
}

/* Row (column) i of a thread's micro: groups of four neighbours, 64 apart. */
ALWAYS int spread(int lane, int i) { return lane * 4 + i % 4 + i / 4 * 64; }

/* batch counts batches and, within each, splits of k. */
__attribute__((always_inline)) void gemm_tile(void *const *args, int row_block, int column_block,
                                              int batch_split, int thread) {
  int micro = gemm_micro(), tile = 16 * micro, batch = batch_split / gemm_splits();
  int split = batch_split % gemm_splits();
  int part = (gemm_k() + gemm_splits() - 1) / gemm_splits();
  part = (part + STEPS - 1) / STEPS * STEPS;
  int begin = split * part, end = begin + part < gemm_k() ? begin + part : gemm_k();
  int row0 = row_block * tile, column0 = column_block * tile;
  int lane_row = thread / 16, lane_column = thread % 16;
  REAL sum[MAX_MICRO][MAX_MICRO], next_a[MAX_MICRO], next_b[MAX_MICRO];
#pragma clang loop unroll(full)
  for (int i = 0; i < micro; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < micro; j++) sum[i][j] = 0;
  if (gemm_k() > 0) fetch(args, batch, row0, column0, begin, end, thread, next_a, next_b);
#pragma clang loop unroll(disable)
  for (int k0 = begin; k0 < end; k0 += STEPS) {
    keep(thread, next_a, next_b);
    __nvvm_bar_sync(0);
    if (k0 + STEPS < end)
      fetch(args, batch, row0, column0, k0 + STEPS, end, thread, next_a, next_b);
#pragma clang loop unroll_count(4)
    for (int k = 0; k < STEPS; k++) {
      REAL left[MAX_MICRO], right[MAX_MICRO];
#pragma clang loop unroll(full)
      for (int i = 0; i < micro; i++) {
        left[i] = gemm_panel_a[k][spread(lane_row, i)];
        right[i] = gemm_panel_b[k][spread(lane_column, i)];
      }
#pragma clang loop unroll(full)
      for (int i = 0; i < micro; i++)
#pragma clang loop unroll(full)
        for (int j = 0; j < micro; j++) sum[i][j] += left[i] * right[j];
    }
    __nvvm_bar_sync(0);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < micro; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < micro; j++) {
      int row = row0 + spread(lane_row, i), column = column0 + spread(lane_column, j);
      if ((gemm_m() % tile && row >= gemm_m()) || (gemm_n() % tile && column >= gemm_n())) continue;
      if (gemm_splits() == 1)
        gemm_epilogue(args, batch, row, column, sum[i][j]);
      else
        gemm_workspace(args)[((int64_t)batch_split * gemm_m() + row) * gemm_n() + column] =
            sum[i][j];
    }
}

/* With splits: element `index` of batches x rows x columns. */
__attribute__((always_inline)) void gemm_combine(void *const *args, int index) {
  int area = gemm_m() * gemm_n(), batch = index / area, place = index % area;
  const REAL *parts = gemm_workspace(args) + (int64_t)batch * gemm_splits() * area + place;
  REAL sum = 0;
#pragma clang loop unroll_count(8)
  for (int split = 0; split < gemm_splits(); split++) sum += parts[(int64_t)split * area];
  gemm_epilogue(args, batch, place / gemm_n(), place % gemm_n(), sum);
}
