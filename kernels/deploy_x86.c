/* deploy_x86: the run of a deployed model (ftc --inference, codegen/deploy.c): a batch to the workspace, the
 * steps in order on the caller's thread, results from there. It has no memory of its own and changes none
 * but the caller's, so any number of threads may call it, each with a workspace. */
#include <stddef.h>
#include <stdint.h>

/* The rows that codegen/deploy.c writes: numbers of 64 bits and addresses. An address in memory is 2 offset,
 * in the weights, or 2 offset + 1, in the workspace. */
typedef void Kernel(void *const *args, int64_t begin, int64_t end);
typedef enum { LAUNCH, COPY, FILL, GEMM, CONV } Kind;
typedef struct {
  int64_t kind;
  Kernel *kernel;
  int64_t work, count; /* items, or bytes; arguments */
  const int64_t *args, *ints;
} Step;
typedef struct {
  int64_t at, sample; /* in the workspace; bytes of a sample */
  int64_t element;    /* bytes of one, negative: of a signed type */
  int64_t below, ignore, has_ignore;
  int64_t is_needed, bytes; /* of the whole */
} Port;
typedef struct {
  int64_t from, to, bytes; /* from the weights to the workspace, before each run */
} Part;
typedef struct {
  char *weights; /* never written */
  int64_t batch, workspace, step_count, input_count, output_count, part_count;
  const Step *step;
  const Port *input, *output;
  const Part *part;
} Tables;

enum { MOST_ARGS = 256 };

static void deploy_copy(char *to, const char *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

static void deploy_clear(char *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = 0;
}

/* ── the library calls of plan/calls.def ────────────────────────────────────────────────────── */
enum { LANES = 16 };

/* In LANES partial sums, which are added in order. */
static float dot_product(const float *a, const float *b, int64_t b_step, int64_t count) {
  float sum[LANES] = {0}, total = 0;
  int64_t i = 0;
  for (; b_step == 1 && i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) sum[k] += a[i + k] * b[i + k];
  for (; i < count; i++) total += a[i] * b[i * b_step];
  for (int k = 0; k < LANES; k++) total += sum[k];
  return total;
}

static float activate(float value, int64_t act) { return act && !(value > 0) && value == value ? 0 : value; }

static void deploy_gemm(void *const *args, const int64_t *ints) {
  enum { BATCH, M, N, K, TA, TB, BIAS, ACT };
  int64_t m = ints[M], n = ints[N], k = ints[K], a_row = ints[TA] ? 1 : k, a_k = ints[TA] ? m : 1;
  const float *bias = ints[BIAS] ? args[2] : NULL;
  for (int64_t row = 0; row < ints[BATCH] * m; row++) {
    const float *a = (const float *)args[0] + row / m * m * k + row % m * a_row;
    const float *b = (const float *)args[1] + row / m * n * k;
    float *c = (float *)args[ints[BIAS] ? 3 : 2] + row * n;
    for (int64_t j = 0; j < n; j++) c[j] = 0;
    for (int64_t i = 0; i < k && !ints[TB]; i++) {
      float left = a[i * a_k];
      for (int64_t j = 0; j < n; j++) c[j] += left * b[i * n + j];
    }
    for (int64_t j = 0; j < n && ints[TB]; j++) c[j] = dot_product(b + j * k, a, a_k, k);
    for (int64_t j = 0; j < n; j++) c[j] = activate(c[j] + (bias ? bias[j] : 0), ints[ACT]);
  }
}

enum { C_N, C_C, C_H, C_W, C_O, C_KH, C_KW, C_SH, C_SW, C_PT, C_PL, C_PB, C_PR, C_DH, C_DW, C_GROUPS, C_LAYOUT, C_BIAS, C_ACT };

/* One element, before bias: of image x, at row and column of the kernel's corner. With images nhwc the
 * channels, and with one group and no dilation the columns too, are a run of both operands. */
static float conv_element(const float *x, const float *w, const int64_t *ints, int64_t group,
                          int64_t row, int64_t column) {
  int64_t channels = ints[C_C] / ints[C_GROUPS], is_nhwc = ints[C_LAYOUT];
  int64_t plane = ints[C_H] * ints[C_W], window = ints[C_KH] * ints[C_KW];
  float total = 0;
  for (int64_t i = 0; i < ints[C_KH]; i++) {
    int64_t y = row + i * ints[C_DH], first = 0, end = ints[C_KW];
    if (y < 0 || y >= ints[C_H]) continue;
    while (first < end && column + first * ints[C_DW] < 0) first++;
    while (end > first && column + (end - 1) * ints[C_DW] >= ints[C_W]) end--;
    int64_t is_run = is_nhwc && ints[C_GROUPS] == 1 && ints[C_DW] == 1;
    for (int64_t j = first; j < end; j = is_run ? end : j + 1) {
      int64_t at = y * ints[C_W] + column + j * ints[C_DW], tap = i * ints[C_KW] + j;
      if (is_nhwc)
        total += dot_product(w + tap * channels, x + at * ints[C_C] + group * channels, 1,
                             is_run ? (end - first) * channels : channels);
      for (int64_t c = 0; c < channels && !is_nhwc; c++)
        total += w[c * window + tap] * x[(group * channels + c) * plane + at];
    }
  }
  return total;
}

static void deploy_conv(void *const *args, const int64_t *ints) {
  int64_t rows = (ints[C_H] + ints[C_PT] + ints[C_PB] - ints[C_DH] * (ints[C_KH] - 1) - 1) / ints[C_SH] + 1;
  int64_t columns = (ints[C_W] + ints[C_PL] + ints[C_PR] - ints[C_DW] * (ints[C_KW] - 1) - 1) / ints[C_SW] + 1;
  int64_t filter = ints[C_C] / ints[C_GROUPS] * ints[C_KH] * ints[C_KW], outs = ints[C_O];
  const float *bias = ints[C_BIAS] ? args[2] : NULL;
  float *to = args[ints[C_BIAS] ? 3 : 2];
  for (int64_t place = 0; place < ints[C_N] * rows * columns; place++) {
    int64_t image = place / (rows * columns), at = place % (rows * columns);
    const float *x = (const float *)args[0] + image * ints[C_C] * ints[C_H] * ints[C_W];
    for (int64_t o = 0; o < outs; o++) {
      float value = conv_element(x, (const float *)args[1] + o * filter, ints,
                                 o / (outs / ints[C_GROUPS]), at / columns * ints[C_SH] - ints[C_PT],
                                 at % columns * ints[C_SW] - ints[C_PL]);
      int64_t index = ints[C_LAYOUT] ? place * outs + o : (image * outs + o) * rows * columns + at;
      to[index] = activate(value + (bias ? bias[o] : 0), ints[C_ACT]);
    }
  }
}

static int64_t element_at(const char *from, int64_t element, int64_t index) {
  switch (element) {
  case 1:
    return ((const uint8_t *)from)[index];
  case 4:
    return ((const uint32_t *)(const void *)from)[index];
  case -4:
    return ((const int32_t *)(const void *)from)[index];
  default:
    return ((const int64_t *)(const void *)from)[index];
  }
}

/* Are all values in the range that the model looks up? */
static int deploy_in_range(const Port *port, const char *from, int64_t samples) {
  int64_t bytes = port->element < 0 ? -port->element : port->element;
  int64_t count = port->below ? samples * port->sample / bytes : 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t value = element_at(from, port->element, i);
    if (port->has_ignore && value == port->ignore) continue;
    if (value < 0 || value >= port->below) return 0;
  }
  return 1;
}

static void deploy_step(const Tables *tables, const Step *step, char *workspace) {
  void *args[MOST_ARGS];
  for (int64_t i = 0; i < step->count; i++)
    args[i] = (step->args[i] & 1 ? workspace : tables->weights) + (step->args[i] >> 1);
  switch ((Kind)step->kind) {
  case LAUNCH:
    step->kernel(args, 0, step->work);
    break;
  case COPY:
    deploy_copy(args[1], args[0], step->work);
    break;
  case FILL:
    deploy_clear(args[0], step->work);
    break;
  case GEMM:
    deploy_gemm(args, step->ints);
    break;
  case CONV:
    deploy_conv(args, step->ints);
  }
}

/* 0; -1: an argument is wrong; 1 + i: input i has a value that the model has no place for. */
int ft_deploy_run(const void *const *inputs, void *const *outputs, int64_t samples, void *workspace,
                  size_t workspace_bytes, const Tables *tables) {
  if (!inputs || !outputs || !workspace || samples < 1 || samples > tables->batch ||
      workspace_bytes < (size_t)tables->workspace || (uintptr_t)workspace % 64)
    return -1;
  for (int64_t i = 0; i < tables->input_count; i++) {
    if (!tables->input[i].is_needed) continue;
    if (!inputs[i]) return -1;
    if (!deploy_in_range(&tables->input[i], inputs[i], samples)) return (int)(1 + i);
  }
  for (int64_t i = 0; i < tables->output_count; i++)
    if (!outputs[i]) return -1;
  for (int64_t i = 0; i < tables->input_count; i++) {
    const Port *port = &tables->input[i];
    if (!port->is_needed && port->at >= 0) deploy_clear((char *)workspace + port->at, port->bytes);
    if (!port->is_needed) continue;
    char *to = (char *)workspace + port->at;
    const char *from = inputs[i];
    deploy_copy(to, from, samples * port->sample);
    for (int64_t s = samples; s < tables->batch; s++)
      deploy_copy(to + s * port->sample, from + (samples - 1) * port->sample, port->sample);
  }
  for (int64_t i = 0; i < tables->part_count; i++)
    deploy_copy((char *)workspace + tables->part[i].to, tables->weights + tables->part[i].from,
               tables->part[i].bytes);
  for (int64_t i = 0; i < tables->step_count; i++)
    deploy_step(tables, &tables->step[i], workspace);
  for (int64_t i = 0; i < tables->output_count; i++)
    deploy_copy(outputs[i], (char *)workspace + tables->output[i].at,
               samples * tables->output[i].sample);
  return 0;
}
