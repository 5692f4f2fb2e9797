/* runtime_calls: library calls against plain loops in double, over odd shapes: groups, dilation,
 * asymmetric padding, both layouts, empty dimensions, every thread count from 1 to 3. */
#include "plan/plan_calls.h"
#include "runtime/device/cpu/calls_cpu.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t seed = 1;
static float noise(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / (1 << 23) - 1;
}

static float *filled(int64_t count) {
  float *at = aligned_alloc(64, ((size_t)count * 4 + 127) & ~(size_t)63);
  for (int64_t i = 0; i < count + 8; i++) at[i] = noise();
  return at;
}

/* Runs a call as the device would: every share, in order. Moves each argument once on the way, to
 * see that moving works. */
static void run(int threads, const char *name, const char *const *keys, const int64_t *values,
                int count, float **args, const int64_t *sizes, int arg_count, int inputs) {
  Arena *arena = arena_new();
  PlanInt ints[CALL_MAX_INTS];
  PlanBuffer buffers[CALL_MAX_ARGS];
  int indices[CALL_MAX_ARGS];
  for (int i = 0; i < count; i++) ints[i] = (PlanInt){keys[i], values[i]};
  for (int i = 0; i < arg_count; i++) {
    indices[i] = i;
    buffers[i] = (PlanBuffer){PLACE_WORK, 0, {DT_F32, {1, {sizes[i]}}}};
  }
  PlanStep step = {.kind = STEP_CALL,
                   .name = name,
                   .args = indices,
                   .arg_count = arg_count,
                   .input_count = inputs,
                   .ints = ints,
                   .int_count = count,
                   .label = ""};
  const char *why = NULL;
  if (!call_check(arena, &step, buffers, &why)) fail_msg("%s", why);
  for (int i = 0; i < arg_count; i++) { /* one element too few anywhere is noticed */
    if (!sizes[i]) continue;
    buffers[i].type.shape.dim[0]--;
    assert_false(call_check(arena, &step, buffers, &why));
    buffers[i].type.shape.dim[0]++;
  }
  CpuLibrary *library;
  CpuCall *call;
  assert_int_equal(cpu_library_new(threads, 0, &library), STATUS_OK);
  char *addresses[CALL_MAX_ARGS];
  for (int i = 0; i < arg_count; i++) addresses[i] = (char *)filled(sizes[i]);
  if (cpu_call_new(library, &step, addresses, &call) != STATUS_OK) fail_msg("%s", status_message());
  for (int i = 0; i < arg_count; i++) cpu_call_move(call, i, (char *)args[i]);
  for (int phase = 0; phase < cpu_call_phases(call); phase++)
    for (int i = 0; i < cpu_call_parts(call, phase); i++)
      assert_true(cpu_call_run(call, phase, i, i));
  cpu_call_free(call);
  for (int i = 0; i < arg_count; i++) free(addresses[i]);
  cpu_library_free(library);
  arena_free(arena);
}

/* Nothing is written behind the result: its last 8 floats are a fence. */
static void compare(const char *what, const float *got, const double *want, int64_t count,
                    double terms) {
  double tolerance = 2e-6 * (sqrt(terms) + 1);
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
      fail_msg("%s: element %lld is %g, expected %g", what, (long long)i, got[i], want[i]);
  for (int64_t i = count; i < count + 8; i++)
    if (got[i] != 12345) fail_msg("%s: wrote behind the end", what);
}

static float *fenced(int64_t count) {
  float *at = filled(count);
  for (int64_t i = 0; i < 8; i++) at[count + i] = 12345;
  return at;
}

/* ── gemm ─────────────────────────────────────────────────────────────────────────────────── */
static void check_gemm(int64_t batch, int64_t m, int64_t n, int64_t k, int ta, int tb, int bias,
                       int act, int threads) {
  static const char *const keys[] = {"batch", "m", "n", "k", "ta", "tb", "bias", "act"};
  const int64_t values[] = {batch, m, n, k, ta, tb, bias, act};
  float *a = filled(batch * m * k), *b = filled(batch * k * n), *v = filled(n),
        *c = fenced(batch * m * n);
  double *want = calloc((size_t)(batch * m * n) + 1, sizeof *want);
  for (int64_t z = 0; z < batch; z++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = bias ? v[j] : 0;
        for (int64_t p = 0; p < k; p++)
          sum += (double)a[z * m * k + (ta ? p * m + i : i * k + p)] *
                 b[z * k * n + (tb ? j * k + p : p * n + j)];
        want[(z * m + i) * n + j] = act && sum < 0 ? 0 : sum;
      }
  char what[128];
  snprintf(what, sizeof what, "gemm %lldx%lldx%lldx%lld ta=%d tb=%d bias=%d act=%d threads=%d",
           (long long)batch, (long long)m, (long long)n, (long long)k, ta, tb, bias, act, threads);
  if (bias)
    run(threads, "gemm", keys, values, 8, (float *[]){a, b, v, c},
        (int64_t[]){batch * m * k, batch * k * n, n, batch * m * n}, 4, 3);
  else
    run(threads, "gemm", keys, values, 8, (float *[]){a, b, c},
        (int64_t[]){batch * m * k, batch * k * n, batch * m * n}, 3, 2);
  compare(what, c, want, batch * m * n, (double)k);
  free(a), free(b), free(v), free(c), free(want);
}

static void gemm_shapes(void) {
  static const int64_t shapes[][4] = {
      {1, 1, 1, 1},    {1, 64, 128, 784}, {1, 64, 10, 64},   {1, 7, 13, 5},   {1, 1, 100, 33},
      {1, 100, 1, 33}, {1, 65, 47, 129},  {3, 5, 9, 17},     {8, 33, 40, 24}, {1, 4, 4, 0},
      {1, 0, 4, 4},    {0, 3, 4, 4},      {1, 128, 300, 64}, {2, 17, 1, 100}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int flags = 0; flags < 16; flags++)
      for (int threads = 1; threads <= 3; threads++)
        check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], flags & 1,
                   flags >> 1 & 1, flags >> 2 & 1, flags >> 3 & 1, threads);
}

static void test_gemm(void **state) {
  (void)state;
  gemm_shapes();
}

static void test_gemm_openblas(void **state) {
  (void)state;
  setenv("FT_GEMM", "openblas", 1);
  gemm_shapes();
  unsetenv("FT_GEMM");
}

/* ── convolutions ─────────────────────────────────────────────────────────────────────────── */
static const char *const conv_keys[] = {"n",  "c",      "h",      "w",    "o",  "kh", "kw",
                                        "sh", "sw",     "pt",     "pl",   "pb", "pr", "dh",
                                        "dw", "groups", "layout", "bias", "act"};

typedef struct {
  int64_t n, c, h, w, o, kh, kw, sh, sw, pt, pl, pb, pr, dh, dw, groups;
} Geometry;

typedef struct {
  float *x, *w, *y, *bias;
  double *dx, *dw, *out;
  int64_t xs, ws, ys, ho, wo;
} Case;

static int64_t at_image(int64_t n, int64_t c, int64_t h, int64_t w, int64_t channels,
                        int64_t height, int64_t width, int layout) {
  return layout ? ((n * height + h) * width + w) * channels + c
                : ((n * channels + c) * height + h) * width + w;
}

/* All three from one loop nest: out from (x, w, bias), dx from (y, w), dw from (y, x). */
static void reference(const Geometry *g, int layout, int act, Case *k) {
  int64_t ci = g->c / g->groups, oi = g->o / g->groups;
  for (int64_t n = 0; n < g->n; n++)
    for (int64_t o = 0; o < g->o; o++)
      for (int64_t oy = 0; oy < k->ho; oy++)
        for (int64_t ox = 0; ox < k->wo; ox++) {
          int64_t y = at_image(n, o, oy, ox, g->o, k->ho, k->wo, layout);
          double sum = k->bias ? k->bias[o] : 0;
          for (int64_t i = 0; i < ci; i++)
            for (int64_t ky = 0; ky < g->kh; ky++)
              for (int64_t kx = 0; kx < g->kw; kx++) {
                int64_t iy = oy * g->sh + ky * g->dh - g->pt, ix = ox * g->sw + kx * g->dw - g->pl;
                if (iy < 0 || ix < 0 || iy >= g->h || ix >= g->w) continue;
                int64_t x = at_image(n, o / oi * ci + i, iy, ix, g->c, g->h, g->w, layout);
                int64_t w = at_image(o, i, ky, kx, ci, g->kh, g->kw, layout);
                sum += (double)k->x[x] * k->w[w];
                k->dx[x] += (double)k->y[y] * k->w[w];
                k->dw[w] += (double)k->y[y] * k->x[x];
              }
          k->out[y] = act && sum < 0 ? 0 : sum;
        }
}

static void check_conv(const Geometry *g, int layout, int bias, int act, int threads) {
  Case k = {.ho = (g->h + g->pt + g->pb - g->dh * (g->kh - 1) - 1) / g->sh + 1,
            .wo = (g->w + g->pl + g->pr - g->dw * (g->kw - 1) - 1) / g->sw + 1};
  k.xs = g->n * g->c * g->h * g->w, k.ws = g->o * (g->c / g->groups) * g->kh * g->kw;
  k.ys = g->n * g->o * k.ho * k.wo;
  k.x = filled(k.xs), k.w = filled(k.ws), k.y = filled(k.ys), k.bias = bias ? filled(g->o) : NULL;
  k.dx = calloc((size_t)k.xs + 1, 8), k.dw = calloc((size_t)k.ws + 1, 8),
  k.out = calloc((size_t)k.ys + 1, 8);
  reference(g, layout, act, &k);
  int64_t values[19];
  memcpy(values, g, sizeof *g);
  values[16] = layout, values[17] = bias, values[18] = act;
  char what[160];
  snprintf(what, sizeof what,
           "n%lld c%lld %lldx%lld o%lld k%lldx%lld groups %lld layout %d bias %d act %d threads %d",
           (long long)g->n, (long long)g->c, (long long)g->h, (long long)g->w, (long long)g->o,
           (long long)g->kh, (long long)g->kw, (long long)g->groups, layout, bias, act, threads);
  double taps = (double)((g->c / g->groups) * g->kh * g->kw);
  float *out = fenced(k.ys), *dx = fenced(k.xs), *dw = fenced(k.ws);
  if (bias)
    run(threads, "conv", conv_keys, values, 19, (float *[]){k.x, k.w, k.bias, out},
        (int64_t[]){k.xs, k.ws, g->o, k.ys}, 4, 3);
  else
    run(threads, "conv", conv_keys, values, 19, (float *[]){k.x, k.w, out},
        (int64_t[]){k.xs, k.ws, k.ys}, 3, 2);
  compare(what, out, k.out, k.ys, taps);
  run(threads, "conv_grad_input", conv_keys, values, 17, (float *[]){k.y, k.w, dx},
      (int64_t[]){k.ys, k.ws, k.xs}, 3, 2);
  compare(what, dx, k.dx, k.xs, (double)(g->o / g->groups * g->kh * g->kw));
  run(threads, "conv_grad_weight", conv_keys, values, 17, (float *[]){k.y, k.x, dw},
      (int64_t[]){k.ys, k.xs, k.ws}, 3, 2);
  compare(what, dw, k.dw, k.ws, (double)(g->n * k.ho * k.wo));
  free(k.x), free(k.w), free(k.y), free(k.bias), free(k.dx), free(k.dw), free(k.out);
  free(out), free(dx), free(dw);
}

static void test_conv(void **state) {
  (void)state;
  static const Geometry shapes[] = {
      /* n c  h  w  o  kh kw sh sw pt pl pb pr dh dw groups */
      {2, 1, 28, 28, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
      {3, 32, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
      {2, 3, 9, 11, 5, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1},
      {2, 4, 9, 11, 6, 3, 2, 2, 1, 1, 0, 0, 2, 1, 1, 2},
      {1, 8, 12, 12, 8, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1},
      {2, 6, 10, 7, 9, 2, 3, 1, 2, 0, 3, 1, 1, 3, 1, 3},
      {2, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 16},
      {2, 5, 1, 1, 7, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1},
      {3, 7, 5, 5, 3, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1},
      {2, 16, 8, 8, 32, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1},
      {1, 1, 1, 9, 1, 1, 4, 1, 3, 0, 0, 0, 0, 1, 2, 1},
      {0, 3, 8, 8, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
      {2, 3, 2, 2, 4, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1},
      {2, 12, 8, 8, 12, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4},
      {2, 3, 7, 7, 4, 2, 2, 3, 3, 4, 0, 0, 3, 1, 1, 1},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int layout = 0; layout < 2; layout++)
      for (int flags = 0; flags < 4; flags++)
        check_conv(&shapes[i], layout, flags & 1, flags >> 1, 1 + (int)(i + (size_t)flags) % 3);
}

/* A copy of `bytes`, or zeros where `from` is NULL. */
static void copy(int threads, float *from, float *to, int64_t bytes) {
  int args[] = {0, 1}, count = from ? 2 : 1;
  PlanStep step = {.kind = from ? STEP_COPY : STEP_FILL,
                   .name = "copy",
                   .args = args,
                   .arg_count = count,
                   .input_count = count - 1,
                   .work = bytes,
                   .label = ""};
  char *at[] = {(char *)(from ? from : to), (char *)to};
  CpuLibrary *library;
  CpuCall *call;
  assert_int_equal(cpu_library_new(threads, 0, &library), STATUS_OK);
  assert_int_equal(cpu_call_new(library, &step, at, &call), STATUS_OK);
  for (int i = 0; i < cpu_call_parts(call, 0); i++) assert_true(cpu_call_run(call, 0, i, i));
  cpu_call_free(call);
  cpu_library_free(library);
}

static void test_copy(void **state) {
  (void)state;
  for (int threads = 1; threads <= 3; threads++)
    for (int64_t count = 0; count < 200000; count = count * 3 + 1) {
      int64_t bytes = count * 4;
      float *from = filled(count), *to = fenced(count), *zeros = fenced(count);
      double *want = calloc((size_t)count + 1, sizeof *want);
      copy(threads, NULL, zeros, bytes);
      compare("fill", zeros, want, count, 0);
      for (int64_t i = 0; i < count; i++) want[i] = from[i];
      copy(threads, from, to, bytes);
      compare("copy", to, want, count, 0);
      free(from), free(to), free(zeros), free(want);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm),
      cmocka_unit_test(test_gemm_openblas),
      cmocka_unit_test(test_conv),
      cmocka_unit_test(test_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
