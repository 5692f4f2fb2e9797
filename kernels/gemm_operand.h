/* gemm_operand: what all kernels of products share: the addresses of the operands' elements, copies
 * into shared memory, and the way of finished sums to the epilogue. The kernels' bodies define
 * REAL, the type of sums, and include this; ftc defines the constants and callbacks declared here.
 *
 * The product is, for each batch (of a convolution: each group), rows x columns over depth:
 *   kind 0  dot               a[m, k] b[k, n]
 *   kind 1  conv              rows: images and their output places; columns: output channels;
 *                             depth: window places and input channels
 *   kind 2  conv_grad_input   rows: images and their input places; columns: input channels; depth:
 *                             window places and output channels; with a stride in classes (below)
 *   kind 3  conv_grad_weight  rows: output channels; columns: window places and input channels;
 *                             depth: images and their output places
 * Channels run fastest, so that in NHWC neighbours in depth (kind 3: columns) are neighbours in
 * memory; weights are then OHWI, else OIHW. */
#ifndef FT_KERNELS_GEMM_OPERAND_H
#define FT_KERNELS_GEMM_OPERAND_H
#include <stdint.h>

int gemm_kind(void), gemm_m(void), gemm_n(void), gemm_k(void), gemm_splits(void);
int gemm_batches(void);
int gemm_ta(void), gemm_tb(void);           /* dot: a is stored [k, m]; b is stored [n, k] */
int gemm_a_pitch(void), gemm_b_pitch(void); /* dot: elements between the beginnings of rows */
/* Columns of the workspace: gemm_n, or with gemm_finish4 the next multiple of four. */
int gemm_wide_n(void);
int gemm_a_deep(void), gemm_b_deep(void);   /* neighbours in memory are neighbours in k */
int gemm_a_wide(void), gemm_b_wide(void);   /* that many, aligned: 1, or 16 bytes' worth */
int gemm_a_async(void), gemm_b_async(void); /* multiplied as memory has it */
/* Of convolutions: the shape of the forward convolution, whatever the kind. */
int gemm_groups(void), gemm_nhwc(void);
int gemm_in_channels(void), gemm_in_height(void), gemm_in_width(void); /* channels: of a group */
int gemm_out_channels(void), gemm_out_height(void), gemm_out_width(void);
int gemm_kernel_height(void), gemm_kernel_width(void), gemm_stride_height(void);
int gemm_stride_width(void), gemm_pad_top(void), gemm_pad_left(void), gemm_dilation_height(void);
int gemm_dilation_width(void);
int gemm_period_height(void), gemm_period_width(void); /* stride / gcd(stride, dilation) */
/* The operands, for async. */
const void *gemm_pointer_a(void *const *args);
const void *gemm_pointer_b(void *const *args);
REAL *gemm_workspace(void *const *args);
/* What an epilogue gets of a sum: it itself, but of whole numbers (gemm_whole.h). */
#ifndef VALUE
#define VALUE REAL
#endif
int gemm_steps(void);            /* of k in a panel */
REAL gemm_sum_lanes(REAL value); /* over eight neighbouring lanes, in a fixed order */
/* The epilogue: of one finished sum, or of columns 4 * group to 4 * group + 3, which it also adds
 * to the thread's `columns`. */
void gemm_finish(void *const *args, int batch, int row, int column, VALUE value);
void gemm_finish4(void *const *args, REAL *columns, int batch, int row, int group, VALUE a, VALUE b,
                  VALUE c, VALUE d);
int gemm_by_four(void); /* gemm_finish4 may be used */

/* Sums of columns (gemm_columns.h): how many plain ones, and how many pairs of moments. There are
 * some only with gemm_finish4, in f32, and without splits of k. The last gemm_maxima() of the plain ones are
 * largest sizes in place of sums. */
int gemm_totals(void), gemm_maxima(void), gemm_moments(void);

#define ALWAYS static inline __attribute__((always_inline))
#define SHARED __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
typedef REAL Four __attribute__((vector_size(4 * sizeof(REAL)), aligned(16)));
typedef REAL Two __attribute__((vector_size(2 * sizeof(REAL)), aligned(8)));
typedef VALUE Values __attribute__((vector_size(4 * sizeof(VALUE)), aligned(16)));

enum { MAX_NUMBERS = 8 };
typedef struct {
  REAL at[MAX_NUMBERS][4]; /* of a thread's four columns */
} Columns;

/* ── classes of input places ─────────────────────────────────────────────────────────────────── */

/* Kind 2 with a stride: input places that are equal modulo the stride are reached by the same few
 * places of the window, every gemm_period-th from the first on. Each such class is a product of its
 * own: its rows (image, y, x) are the input places (start + y * stride) of an image, also those
 * past its end where the stride does not divide it. Within a class the output places are as without
 * a stride: y + shift for the first tap, and a constant step back for each further tap. The classes
 * are ordered by their number of taps, the most first. */
typedef struct {
  int tap, taps, start, shift; /* tap: the first place of the window; start: the first place */
} Along;
typedef struct {
  Along y, x;
  uint32_t inverse; /* of x.taps, in 2^-31 */
} Class;

ALWAYS Along along(int number, int kernel, int stride, int period, int pad, int dilation) {
  int tap = number % period, past = number / period; /* past > 0: no tap meets these places */
  int place = tap * dilation - pad + past, up = (pad + stride - 1) / stride;
  int before = (place + up * stride) / stride - up;
  return (Along){.tap = tap,
                 .taps = past || tap >= kernel ? 0 : (kernel - tap + period - 1) / period,
                 .start = place - before * stride,
                 .shift = -before};
}
ALWAYS Class class_of(int number) {
  int across = gemm_stride_width();
  Class class = {along(number / across, gemm_kernel_height(), gemm_stride_height(),
                       gemm_period_height(), gemm_pad_top(), gemm_dilation_height()),
                 along(number % across, gemm_kernel_width(), across, gemm_period_width(),
                       gemm_pad_left(), gemm_dilation_width()),
                 0};
  if (class.x.taps) class.inverse = ((1u << 31) + (uint32_t)class.x.taps - 1) / class.x.taps;
  return class;
}
ALWAYS int classes(void) {
  return gemm_kind() == 2 ? gemm_stride_height() * gemm_stride_width() : 1;
}
ALWAYS int class_depth(const Class *class) {
  return classes() > 1 ? class->y.taps * class->x.taps * gemm_out_channels() : gemm_k();
}
ALWAYS void split_tap(const Class *class, int tap, int *y, int *x) {
  *y = gemm_stride_width() == 1 ? tap / gemm_kernel_width()
                                : (int)((uint64_t)(uint32_t)tap * class->inverse >> 31);
  *x = tap - *y * class->x.taps;
}
/* The place in the window of tap number `tap` of a class. */
ALWAYS int window_of(const Class *class, int tap) {
  if (classes() == 1) return tap;
  int y, x;
  split_tap(class, tap, &y, &x);
  return (class->y.tap + y * gemm_period_height()) * gemm_kernel_width() + class->x.tap +
         x * gemm_period_width();
}
/* A step of k; for kinds 1 and 2, its tap of the window and its channel. */
typedef struct {
  int k, tap, channel;
} Step;
/* Step `k` of the panel that begins at k0. Where the channels are a multiple of a panel, all of the
 * panel has one tap. */
ALWAYS Step step_of(int k0, int k) {
  int channels = gemm_kind() == 1 ? gemm_in_channels() : gemm_out_channels();
  int is_whole = channels % gemm_steps() == 0, from = is_whole ? k0 : k0 + k;
  return (Step){k0 + k, from / channels, from % channels + (is_whole ? k : 0)};
}
ALWAYS int class_height(void) {
  return (gemm_in_height() + gemm_stride_height() - 1) / gemm_stride_height();
}
ALWAYS int class_width(void) {
  return (gemm_in_width() + gemm_stride_width() - 1) / gemm_stride_width();
}
/* The row of the whole result that a row of a class is, or -1. */
ALWAYS int result_row(const Class *class, int row) {
  if (classes() == 1) return row;
  int places = class_height() * class_width(), place = row % places;
  int y = class->y.start + place / class_width() * gemm_stride_height();
  int x = class->x.start + place % class_width() * gemm_stride_width();
  if (y >= gemm_in_height() || x >= gemm_in_width()) return -1;
  return (row / places * gemm_in_height() + y) * gemm_in_width() + x;
}

/* ── where elements lie ──────────────────────────────────────────────────────────────────────── */

/* An element's number in its operand. Where it is not inside, it is a zero, and its number may be
 * any: so neighbouring pieces have numbers a constant distance apart, and one address for all. */
typedef struct {
  int index, is_inside;
} Element;

/* Place `number` of images of height x width: number = (image * height + y) * width + x. */
typedef struct {
  int number, image, y, x;
} Place;

ALWAYS Place image_place(int number, int height, int width) {
  uint32_t row = (uint32_t)number / (uint32_t)width;
  return (Place){number, (int)(row / (uint32_t)height), (int)(row % (uint32_t)height),
                 (int)((uint32_t)number % (uint32_t)width)};
}

/* Is the place (y + dy, x + dx) of x for each place (y, x) of the result, and the same way back? */
ALWAYS int is_same_size(void) {
  return gemm_nhwc() && gemm_stride_height() == 1 && gemm_stride_width() == 1 &&
         gemm_in_height() == gemm_out_height() && gemm_in_width() == gemm_out_width();
}

/* A channel at (row, column) of an image of the input or the result. from: the place of the other
 * one that it belongs to. */
ALWAYS Element at_place(int is_input, const Place *from, int channel, int row, int column) {
  int height = is_input ? gemm_in_height() : gemm_out_height();
  int width = is_input ? gemm_in_width() : gemm_out_width();
  int channels = gemm_groups() * (is_input ? gemm_in_channels() : gemm_out_channels());
  int line = is_same_size() ? from->number + (row - from->y) * width + (column - from->x)
                            : (from->image * height + row) * width + column;
  return (Element){gemm_nhwc()
                       ? line * channels + channel
                       : ((from->image * channels + channel) * height + row) * width + column,
                   (unsigned)row < (unsigned)height && (unsigned)column < (unsigned)width};
}

/* The element of x at window place (ky, kx) of an output place. */
ALWAYS Element input_under(const Place *of, int channel, int ky, int kx) {
  int row = of->y * gemm_stride_height() - gemm_pad_top() + ky * gemm_dilation_height();
  int column = of->x * gemm_stride_width() - gemm_pad_left() + kx * gemm_dilation_width();
  return at_place(1, of, channel, row, column);
}

/* The element of dy that tap number `tap` of a class multiplies for one of its places. */
ALWAYS Element output_over(const Class *class, const Place *of, int channel, int tap) {
  int down, across;
  split_tap(class, tap, &down, &across);
  int period_y = gemm_period_height(), period_x = gemm_period_width();
  int step_y = period_y * gemm_dilation_height() / gemm_stride_height();
  int step_x = period_x * gemm_dilation_width() / gemm_stride_width();
  return at_place(0, of, channel, of->y + class->y.shift - down * step_y,
                  of->x + class->x.shift - across * step_x);
}

ALWAYS int weight(int out_channel, int in_channel, int window) {
  int windows = gemm_kernel_height() * gemm_kernel_width();
  return gemm_nhwc() ? (out_channel * windows + window) * gemm_in_channels() + in_channel
                     : (out_channel * gemm_in_channels() + in_channel) * windows + window;
}

ALWAYS Element index_a(int batch, const Class *class, int row, Step step) {
  int k = step.k, in = gemm_in_channels(), out = gemm_out_channels(), kw = gemm_kernel_width();
  if (gemm_kind() == 0)
    return (Element){batch * (gemm_ta() ? gemm_k() : gemm_m()) * gemm_a_pitch() +
                         (gemm_ta() ? k * gemm_a_pitch() + row : row * gemm_a_pitch() + k),
                     1};
  if (gemm_kind() == 1) {
    Place place = image_place(row, gemm_out_height(), gemm_out_width());
    return input_under(&place, batch * in + step.channel, step.tap / kw, step.tap % kw);
  }
  if (gemm_kind() == 2) {
    Place place = image_place(row, class_height(), class_width());
    return output_over(class, &place, batch * out + step.channel, step.tap);
  }
  if (gemm_nhwc()) return (Element){k * (gemm_groups() * out) + batch * out + row, 1};
  int places = gemm_out_height() * gemm_out_width(), image = (int)((uint32_t)k / (uint32_t)places);
  return (Element){(image * gemm_groups() * out + batch * out + row) * places + k - image * places,
                   1};
}

ALWAYS int weight_b(int batch, const Class *class, Step step, int column) {
  int first = batch * gemm_out_channels();
  if (gemm_kind() == 2) return weight(first + step.channel, column, window_of(class, step.tap));
  return gemm_nhwc() ? (first + column) * gemm_k() + step.k
                     : weight(first + column, step.channel, step.tap);
}

ALWAYS Element index_b(int batch, const Class *class, Step step, int column) {
  int k = step.k, in = gemm_in_channels(), kw = gemm_kernel_width();
  if (gemm_kind() == 0)
    return (Element){batch * (gemm_tb() ? gemm_n() : gemm_k()) * gemm_b_pitch() +
                         (gemm_tb() ? column * gemm_b_pitch() + k : k * gemm_b_pitch() + column),
                     1};
  if (gemm_kind() != 3) return (Element){weight_b(batch, class, step, column), 1};
  int window = column / in;
  Place place = image_place(k, gemm_out_height(), gemm_out_width());
  return input_under(&place, batch * in + column % in, window / kw, window % kw);
}

/* ── copies that need no register (cp.async; sm_80) ──────────────────────────────────────────── */

/* `wide` elements of `size` bytes from `element` on, or zeros where it is not inside, and behind the
 * first `left`; of no bytes the address is not looked at (PTX ISA, "cp.async": src-size).
 * is_reused: this multiprocessor reads them again soon, so that they are worth its first-level
 * cache. */
ALWAYS void copy_async(SHARED void *to, const void *base, Element element, int wide, int left,
                       int size, int is_reused) {
  int bytes = element.is_inside ? (left < wide ? left : wide) * size : 0;
  const GLOBAL char *from = (const GLOBAL char *)base + (int64_t)element.index * size;
  if (wide * size == 4)
    __nvvm_cp_async_ca_shared_global_4(to, from, bytes);
  else if (is_reused)
    __nvvm_cp_async_ca_shared_global_16(to, from, bytes);
  else
    __nvvm_cp_async_cg_shared_global_16(to, from, bytes);
}
ALWAYS void async_commit(void) {
  if (gemm_a_async() || gemm_b_async()) __nvvm_cp_async_commit_group();
}
/* Waits for all groups but the last `open`. */
ALWAYS void async_wait(int open) {
  if (!gemm_a_async() && !gemm_b_async()) return;
  if (open == 0)
    __nvvm_cp_async_wait_group(0);
  else if (open == 1)
    __nvvm_cp_async_wait_group(1);
  else
    __nvvm_cp_async_wait_group(2);
}

/* ── a block's share, and the way out ────────────────────────────────────────────────────────── */

typedef struct {
  int batch, row0, column0, thread, batch_split;
  int begin, end; /* this block's part of k */
  Class class;
} Where;

/* batch_split counts batches, in each of them classes, and in each of those splits of k. */
ALWAYS Where where(int row0, int column0, int batch_split, int thread) {
  int class = batch_split / gemm_splits(), split = batch_split % gemm_splits();
  Where w = {.batch = class / classes(),
             .row0 = row0,
             .column0 = column0,
             .thread = thread,
             .batch_split = batch_split,
             .class = class_of(class % classes())};
  int depth = class_depth(&w.class), panels = (depth + gemm_steps() - 1) / gemm_steps();
  int part = (panels + gemm_splits() - 1) / gemm_splits() * gemm_steps();
  w.begin = split * part;
  w.end = w.begin + part < depth ? w.begin + part : depth;
  return w;
}

/* How many neighbours are given to the epilogue at once, where parts of sums are added. */
ALWAYS int group_width(void) { return gemm_by_four() ? 4 : 1; }

#ifdef WHOLE
#include "kernels/gemm_whole.h"
#else
ALWAYS Values values_of(void *const *args, int batch, int row, int column, Four sums) {
  (void)args, (void)batch, (void)row, (void)column;
  return sums;
}
#endif

/* Gives four neighbours (column is a multiple of 4; some may lie outside) to the epilogue, or
 * stores them in this split's part of the workspace. */
ALWAYS void finish_group(void *const *args, const Where *w, int row, int column, Four total,
                         Columns *columns) {
  if (gemm_splits() > 1) {
    REAL *to =
        gemm_workspace(args) + ((int64_t)w->batch_split * gemm_m() + row) * gemm_wide_n() + column;
    if (gemm_wide_n() % 4 == 0) {
      *(Four *)to = total;
      return;
    }
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++)
      if (column + e < gemm_n()) to[e] = total[e];
    return;
  }
  row = result_row(&w->class, row);
  if (row < 0) return;
  Values values = values_of(args, w->batch, row, column, total);
  if (gemm_by_four()) {
    gemm_finish4(args, columns->at[0], w->batch, row, column / 4, values[0], values[1], values[2],
                 values[3]);
    return;
  }
#pragma clang loop unroll(disable)
  for (int e = 0; e < 4; e++) {
    if (gemm_n() % 4 && column + e >= gemm_n()) break;
    gemm_finish(args, w->batch, row, column + e,
                e == 0   ? values[0]
                : e == 1 ? values[1]
                : e == 2 ? values[2]
                         : values[3]);
  }
}

enum { LANES_OF_A_SUM = 8 };

/* How many elements, or with gemm_finish4 groups of four, there are of batches x classes x rows x columns; and the parts of
 * one of them, class_groups() apart: its number in its class is *place. */
ALWAYS int class_groups(void) { return gemm_m() * gemm_wide_n() / group_width(); }
ALWAYS const REAL *parts_of(void *const *args, int index, int *place) {
  *place = index % class_groups();
  return gemm_workspace(args) + ((int64_t)(index / class_groups()) * gemm_splits() * class_groups() + *place) * group_width();
}
ALWAYS Four part_at(const REAL *parts, int split) {
  if (gemm_by_four()) return *(const Four *)(parts + (int64_t)split * class_groups() * 4);
  return (Four){parts[(int64_t)split * class_groups()], 0, 0, 0};
}

/* Gives the sum to the epilogue. */
ALWAYS void finish_sum(void *const *args, int index, int place, Four sum) {
  int part = index / class_groups(), across = gemm_wide_n() / group_width();
  Class class = class_of(part % classes());
  int batch = part / classes(), row = result_row(&class, place / across);
  if (row < 0) return;
  Columns none;
  Values values = values_of(args, batch, row, place % across * group_width(), sum);
  if (gemm_by_four())
    gemm_finish4(args, none.at[0], batch, row, place % across, values[0], values[1], values[2], values[3]);
  else
    gemm_finish(args, batch, row, place % across, values[0]);
}

/* With splits: eight neighbouring threads add the parts of one element, or of one group of four. All
 * threads of a warp take part; those beyond the end do the last element again. */
__attribute__((always_inline)) void gemm_combine(void *const *args, int thread) {
  int all = class_groups() * gemm_batches() * classes(), lane = thread % LANES_OF_A_SUM, place;
  int index = thread / LANES_OF_A_SUM, is_inside = index < all;
  if (!is_inside) index = all - 1;
  const REAL *parts = parts_of(args, index, &place);
  Four sum = {0, 0, 0, 0};
#pragma clang loop unroll_count(4)
  for (int split = lane; split < gemm_splits(); split += LANES_OF_A_SUM) sum += part_at(parts, split);
#pragma clang loop unroll(full)
  for (int e = 0; e < group_width(); e++) sum[e] = gemm_sum_lanes(sum[e]);
  if (is_inside && !lane) finish_sum(args, index, place, sum);
}

/* The same of elements, or groups of four, [first, end), by a block of so many threads: a thread adds all parts, in order. */
__attribute__((always_inline)) void gemm_combine_rows(void *const *args, int first, int end, int threads, int thread) {
#pragma clang loop unroll(disable)
  for (int index = first + thread; index < end; index += threads) {
    int place;
    const REAL *parts = parts_of(args, index, &place);
    Four sum = {0, 0, 0, 0};
#pragma clang loop unroll_count(8)
    for (int split = 0; split < gemm_splits(); split++) sum += part_at(parts, split);
    finish_sum(args, index, place, sum);
  }
}
#endif
