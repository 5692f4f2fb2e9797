/* The cuda device on the fake driver (test/fake): products of cuBLASLt with every epilogue, and the
 * simulator's in their place, against plain loops, and that a step is not waited for. Plans and PTX
 * are written here, by hand. */
#include "plan/plan_text.h"
#include "runtime/execute/exec.h"
#include "runtime/data/source_array.h"
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/runtime_beside.h"

#define GOOD(call)                                                                                 \
  do {                                                                                             \
    if ((call) != STATUS_OK) fail_msg("%s: %s", #call, status_message());                          \
  } while (0)

enum { M = 5, N = 12, K = 7, GROUPS = 3 };

/* One product as a plan writes it. Types: of a and b, and of the result and what goes with it. */
typedef struct {
  int ta, tb, bias, act, aux, sums, accumulate, batch;
  DType operands, result;
} Case;

/* Arguments lie one behind the other in the state arena, 4 KiB each. */
enum { PLACE = 4096, ARGUMENTS = 6 };
static const char *const names[ARGUMENTS] = {"a", "b", "bias", "aux", "d", "sums"};

static int64_t aux_row(const Case *c) { return c->act == 1 || c->act == 3 ? 128 : (N + 7) / 8 * 8; }

static int sums_count(const Case *c) { return c->act >= 3 || c->sums == 2 ? N : M; }

static void type_of(const Case *c, int argument, char *out, size_t size) {
  int64_t row = aux_row(c);
  bool is_bits = c->act == 1 || c->act == 3;
  const char *operands = dtype_text(c->operands), *result = dtype_text(c->result);
  switch (argument) {
  case 0:
    snprintf(out, size, "%s[%d,%d,%d]", operands, c->batch, c->ta ? K : M, c->ta ? M : K);
    break;
  case 1:
    snprintf(out, size, "%s[%d,%d,%d]", operands, c->batch, c->tb ? N : K, c->tb ? K : N);
    break;
  case 2:
    snprintf(out, size, "%s[%d]", result, N);
    break;
  case 3:
    if (is_bits)
      snprintf(out, size, "u8[%d,%" PRId64 "]", M, row / 8);
    else
      snprintf(out, size, "%s[%d,%" PRId64 "]", result, M, row);
    break;
  case 4:
    snprintf(out, size, "%s[%d,%d,%d]", result, c->batch, M, N);
    break;
  default:
    snprintf(out, size, "%s[%d]", result, sums_count(c));
  }
}

/* The lists of the call, and of the launch that it replaces. */
static void write_arguments(const Case *c, Text *out) {
  bool reads_aux = c->aux && c->act >= 3;
  text_printf(out, "(0 1%s%s%s) -> (4%s%s)", c->bias ? " 2" : "", reads_aux ? " 3" : "",
              c->accumulate ? " 4" : "", c->aux && !reads_aux ? " 3" : "", c->sums ? " 5" : "");
}

static int compute_of(DType dtype) { return dtype == DT_BF16 ? 2 : dtype == DT_F16 ? 3 : 0; }

static const char programmes[] =
    "programme \"step\" run \"train\"\nprogramme \"evaluate\" run \"eval\"\n";

/* What every plan has: a loss, and a count of the steps; here both stay 0. An evaluation is no more
 * than its loss. */
static void write_rest_buffers(int buffers, int step_place, Text *out) {
  text_printf(out, "  buffer %d output+0 f32[]\n  buffer %d state+%d i64[]\n", buffers, buffers + 1,
              step_place);
}
static void write_rest(int buffers, Text *out) {
  text_printf(out,
              "  fill () -> (%d) queue=copy \"loss\"\n"
              "  fill () -> (%d) queue=copy \"step\"\n  loss \"loss\" f32[] at output+0\n"
              "graph \"eval\"\n  buffer 0 output+0 f32[]\n"
              "  fill () -> (0) queue=copy \"loss\"\n  loss \"loss\" f32[] at output+0\n",
              buffers, buffers + 1);
}

static void write_graphs(const Case *c, Text *out) {
  char type[64];
  text_printf(out, "graph \"train\"\n");
  for (int i = 0; i < ARGUMENTS; i++) {
    type_of(c, i, type, sizeof type);
    text_printf(out, "  buffer %d state+%d %s\n", i, i * PLACE, type);
  }
  write_rest_buffers(ARGUMENTS, ARGUMENTS * PLACE, out);
  text_printf(out, "  launch \"own\" ");
  write_arguments(c, out);
  text_printf(out, " queue=compute grid=1,1,1 block=1,1,1 \"own\"\n  instead 0 1 \"matmul\" ");
  write_arguments(c, out);
  text_printf(out,
              " batch=%d m=%d n=%d k=%d ta=%d tb=%d compute=%d bias=%d act=%d aux=%d sums=%d "
              "accumulate=%d \"product\"\n",
              c->batch, M, N, K, c->ta, c->tb, compute_of(c->operands), c->bias, c->act, c->aux,
              c->sums, c->accumulate);
  write_rest(ARGUMENTS, out);
}

/* path ends in XXXXXX, which becomes the file's name. */
static void write_temporary(char *path, const Text *content) {
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, content->at, content->count), content->count);
  close(fd);
}

/* A .ptx whose kernel does nothing, so that only the library can have made the result. */
static char *write_artifact(const Case *c) {
  static char path[] = "/tmp/ft-cuda-XXXXXX";
  strcpy(path + sizeof path - 7, "XXXXXX");
  Text plan = {0}, file = {0};
  char type[64];
  text_printf(&plan,
              "ft-plan 8\nmodel \"m\"\nsource \"m.ft\"\ntarget ptx \"sm_80\"\n"
              "place state %d for ever saved checkpoint\n"
              "place output 64 for batch to host\n",
              ARGUMENTS * PLACE + 64);
  for (int i = 0; i < ARGUMENTS; i++) {
    type_of(c, i, type, sizeof type);
    text_printf(&plan, "state \"%s\" %s at state+%d init zeros()\n", names[i], type, i * PLACE);
  }
  text_printf(&plan, "state \"@step\" i64[] at state+%d init zeros() role step\n",
              ARGUMENTS * PLACE);
  write_graphs(c, &plan);
  text_printf(&plan, "%s", programmes);
  text_printf(&plan, "checksum %016" PRIx64 "\n", plan_checksum(plan.at, plan.count));
  for (char *line = strtok(plan.at, "\n"); line; line = strtok(NULL, "\n"))
    text_printf(&file, "//@ft %s\n", line);
  text_printf(&file, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry own(");
  int count = 3 + c->bias + c->aux + c->accumulate + (c->sums > 0);
  for (int i = 0; i < count; i++) text_printf(&file, "%s.param .u64 own_%d", i ? ", " : "", i);
  text_printf(&file, ")\n{\n  ret;\n}\n");
  write_temporary(path, &file);
  text_free(&plan);
  text_free(&file);
  return path;
}

/* ── the same by loops ────────────────────────────────────────────────────────────────────── */
typedef struct {
  float a[4096 / 4], b[4096 / 4], bias[N], d[4096 / 4], sums[64], aux[4096 / 4];
  uint8_t bits[4096];
} Values;

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { /* by differences: another way than any formula */
  double step = 1e-5;
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

static double product(const Case *c, const Values *v, int g, int row, int column) {
  double sum = 0;
  for (int k = 0; k < K; k++)
    sum += (double)v->a[g * M * K + (c->ta ? k * M + row : row * K + k)] *
           (double)v->b[g * K * N + (c->tb ? column * K + k : k * N + column)];
  return sum + (c->bias ? v->bias[column] : 0);
}

/* What d, aux and sums must be, from the inputs in `in`. */
static void expect(const Case *c, const Values *in, Values *out) {
  *out = *in;
  if (c->aux && c->act == 1) memset(out->bits, 0, sizeof out->bits);
  memset(out->sums, 0, sizeof out->sums);
  for (int g = 0; g < c->batch; g++)
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        double x = product(c, in, g, i, j), y = x;
        int64_t bit = i * aux_row(c) + j;
        if (c->accumulate) y = x += in->d[(g * M + i) * N + j];
        if (c->act == 1) y = fmax(x, 0);
        if (c->act == 2) y = gelu(x);
        if (c->act == 3) y = in->bits[bit / 8] >> bit % 8 & 1 ? x : 0;
        if (c->act == 4) y = x * gelu_slope(in->aux[bit]);
        if (c->act == 1 && c->aux && x > 0) out->bits[bit / 8] |= (uint8_t)(1 << bit % 8);
        if (c->act == 2 && c->aux) out->aux[bit] = (float)x;
        out->d[(g * M + i) * N + j] = (float)y;
        if (c->sums && c->act >= 3) out->sums[j] += (float)y;
      }
  for (int k = 0; k < K && c->act == 0; k++) {
    for (int i = 0; i < M && c->sums == 1; i++)
      out->sums[i] += in->a[c->ta ? k * M + i : i * K + k];
    for (int j = 0; j < N && c->sums == 2; j++)
      out->sums[j] += in->b[c->tb ? j * K + k : k * N + j];
  }
}

/* As a tensor of this type is in memory, and back: what is not f32 is rounded. */
static void encode(DType dtype, const float *values, int count, void *out) {
  element_convert(values, ELEMENT_F32, false, count, dtype, out);
}

static void decode(DType dtype, const void *bytes, int count, float *out) {
  Element type = dtype == DT_F32 ? ELEMENT_F32 : dtype == DT_F16 ? ELEMENT_F16 : ELEMENT_BF16;
  element_convert(bytes, type, false, count, DT_F32, out);
}

static void round_values(DType dtype, float *values, int count) {
  char bytes[PLACE];
  encode(dtype, values, count, bytes);
  decode(dtype, bytes, count, values);
}

static void fill(float *values, int count, unsigned *state) {
  for (int i = 0; i < count; i++) {
    *state = *state * 1664525u + 1013904223u;
    values[i] = (float)(*state >> 8) * 0x1p-23f - 1;
  }
}

static void check_floats(const Case *c, const char *what, const float *have, const float *want,
                         int count) {
  for (int i = 0; i < count; i++)
    if (!(fabsf(have[i] - want[i]) <=
          (c->result == DT_F32 ? 1e-4f : 0x1p-6f) * fmaxf(1, fabsf(want[i]))))
      fail_msg("%s -> %s ta=%d tb=%d bias=%d act=%d aux=%d sums=%d accumulate=%d batch=%d: %s[%d] "
               "is %g, not %g",
               dtype_text(c->operands), dtype_text(c->result), c->ta, c->tb, c->bias, c->act,
               c->aux, c->sums, c->accumulate, c->batch, what, i, (double)have[i], (double)want[i]);
}

static void check_case(const Case *c, const char *device) {
  static Values in, want, have;
  unsigned state = 7;
  bool is_bits = c->act == 1 || c->act == 3;
  memset(&in, 0, sizeof in);
  fill(in.a, c->batch * M * K, &state);
  fill(in.b, c->batch * K * N, &state);
  fill(in.bias, N, &state);
  fill(in.d, c->batch * M * N, &state);
  if (c->act == 4) fill(in.aux, M * (int)aux_row(c), &state);
  for (int i = 0; i < M * (int)aux_row(c) / 8 && c->act == 3; i++)
    in.bits[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
  round_values(c->operands, in.a, c->batch * M * K);
  round_values(c->operands, in.b, c->batch * K * N);
  round_values(c->result, in.bias, N);
  round_values(c->result, in.d, c->batch * M * N);
  round_values(c->result, in.aux, M * (int)aux_row(c));
  expect(c, &in, &want);
  have = in;
  float *const places[ARGUMENTS] = {have.a, have.b, have.bias, have.aux, have.d, have.sums};
  char bytes[PLACE];
  Artifact *artifact;
  Exec *exec;
  void *batch;
  char *path = write_artifact(c);
  GOOD(artifact_open(path, &artifact));
  GOOD(exec_new(artifact, &(ExecOptions){.device = device}, &exec));
  GOOD(exec_batch_new(exec, &batch));
  for (int pass = 0; pass < 2; pass++) {
    if (pass) GOOD(exec_run(exec, exec_result_graph(exec, PROGRAMME_STEP), batch));
    for (int i = 0; i < ARGUMENTS; i++) {
      const PlanTensor *tensor = &artifact->plan->states.at[i];
      int64_t count = shape_elements(&tensor->type.shape), size = type_bytes(&tensor->type);
      DType dtype = tensor->type.dtype;
      void *at = dtype == DT_U8 ? (void *)have.bits : bytes;
      if (dtype != DT_U8 && !pass) encode(dtype, places[i], (int)count, bytes);
      GOOD(pass ? exec_read(exec, tensor->place, tensor->offset, size, at)
                : exec_write(exec, tensor->place, tensor->offset, size, at));
      if (dtype != DT_U8 && pass) decode(dtype, bytes, (int)count, places[i]);
    }
  }
  check_floats(c, "d", have.d, want.d, c->batch * M * N);
  if (c->sums) check_floats(c, "sums", have.sums, want.sums, sums_count(c));
  for (int i = 0; i < M && c->aux; i++)
    if (is_bits)
      for (int j = 0; j < N; j++) {
        int64_t bit = i * aux_row(c) + j;
        assert_int_equal(have.bits[bit / 8] >> bit % 8 & 1, want.bits[bit / 8] >> bit % 8 & 1);
      }
    else
      check_floats(c, "aux", have.aux + i * aux_row(c), want.aux + i * aux_row(c), N);
  exec_batch_free(exec, batch);
  exec_free(exec);
  artifact_close(artifact);
  unlink(path);
}

static void test_epilogues(void **state) {
  (void)state;
  static const Case cases[] = {
      {.batch = 1},
      {.batch = 1, .bias = 1},
      {.batch = 1, .act = 1},
      {.batch = 1, .bias = 1, .act = 1},
      {.batch = 1, .bias = 1, .act = 1, .aux = 1},
      {.batch = 1, .act = 1, .aux = 1},
      {.batch = 1, .bias = 1, .act = 2},
      {.batch = 1, .bias = 1, .act = 2, .aux = 1},
      {.batch = 1, .act = 2, .aux = 1},
      {.batch = 1, .act = 3, .aux = 1},
      {.batch = 1, .act = 3, .aux = 1, .sums = 1},
      {.batch = 1, .act = 4, .aux = 1},
      {.batch = 1, .act = 4, .aux = 1, .sums = 1},
      {.batch = 1, .sums = 1},
      {.batch = 1, .sums = 2},
      {.batch = 1, .accumulate = 1},
      {.batch = 1, .sums = 1, .accumulate = 1},
      {.batch = 1, .sums = 2, .accumulate = 1},
      {.batch = GROUPS},
      {.batch = GROUPS, .bias = 1, .act = 1},
      {.batch = GROUPS, .accumulate = 1},
  };
  static const DType types[][2] = {
      {DT_F32, DT_F32}, {DT_BF16, DT_BF16}, {DT_BF16, DT_F32}, {DT_F16, DT_F16}, {DT_F16, DT_F32}};
  setenv("FT_CUBLASLT", "library", 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t t = 0; t < 4; t++) {
      Case one = cases[i];
      one.ta = t & 1;
      one.tb = t >> 1;
      one.operands = types[(i + t) % 5][0]; /* four of five with each epilogue */
      one.result = types[(i + t) % 5][1];
      check_case(&one, "cuda");
      check_case(&one, "sim"); /* on the host */
    }
}

/* With our own kernel, which does nothing here, d stays as it was: so the test above can fail. */
static void test_without_library(void **state) {
  (void)state;
  Case c = {.batch = 1, .operands = DT_F32, .result = DT_F32};
  Artifact *artifact;
  Exec *exec;
  void *batch;
  float value = 3;
  setenv("FT_CUBLASLT", "own", 1);
  char *path = write_artifact(&c);
  GOOD(artifact_open(path, &artifact));
  GOOD(exec_new(artifact, &(ExecOptions){.device = "cuda"}, &exec));
  GOOD(exec_batch_new(exec, &batch));
  GOOD(exec_write(exec, 0, 4 * PLACE, sizeof value, &value));
  GOOD(exec_run(exec, exec_result_graph(exec, PROGRAMME_STEP), batch));
  GOOD(exec_read(exec, 0, 4 * PLACE, sizeof value, &value));
  assert_true(value == 3);
  exec_batch_free(exec, batch);
  exec_free(exec);
  artifact_close(artifact);
  unlink(path);
}

/* ── tensor maps ──────────────────────────────────────────────────────────────────────────── */
/* A launch that adds a box of 32 x 16 of a state to another, through shared memory. */
static char *write_mapped(void) {
  static char path[] = "/tmp/ft-cuda-XXXXXX";
  strcpy(path + sizeof path - 7, "XXXXXX");
  Text plan = {0}, file = {0};
  text_printf(&plan,
              "ft-plan 8\nmodel \"m\"\nsource \"m.ft\"\ntarget ptx \"sm_90a\"\n"
              "place state 8256 for ever saved checkpoint\nplace output 64 for batch to host\n");
  text_printf(&plan, "state \"to\" f32[16,32] at state+4096 init zeros()\n"
                     "state \"@step\" i64[] at state+8192 init zeros() role step\n"
                     "graph \"train\"\n  buffer 0 state+0 f32[16,40]\n"
                     "  buffer 1 state+4096 f32[16,32]\n");
  write_rest_buffers(2, 8192, &plan);
  text_printf(&plan, "  launch \"own\" (0 1) -> (1) queue=compute grid=1,1,1 block=32,1,1 map "
                     "0+0 f32 dims=40,16 strides=160 box=32,16 \"copy\"\n");
  write_rest(2, &plan);
  text_printf(&plan, "%s", programmes);
  text_printf(&plan, "checksum %016" PRIx64 "\n", plan_checksum(plan.at, plan.count));
  for (char *line = strtok(plan.at, "\n"); line; line = strtok(NULL, "\n"))
    text_printf(&file, "//@ft %s\n", line);
  text_printf(
      &file,
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry own(.param .u64 a, .param "
      ".u64 b, .param .u64 c, .param .align 128 .b8 map[128])\n{\n.reg .pred %%p<4>; .reg .b32 "
      "%%r<4>; .reg .f32 %%f<4>; .reg .b64 %%rd<4>;\n.shared .align 128 .b8 s[2048]; .shared "
      ".align "
      "8 .b8 full[8];\nmov.b64 %%rd1, map; cvta.param.u64 %%rd1, %%rd1; ld.param.u64 %%rd2, [c];\n"
      "mov.u32 %%r1, %%tid.x; setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra $L1;\n"
      "mbarrier.init.shared.b64 [full], 1; fence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 2048;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%%rd1, "
      "{4, "
      "0}], [full];\n$L1:\nbar.sync 0;\n$L2:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 %%p2, [full], 0; @!%%p2 bra $L2;\n"
      "shl.b32 %%r2, %%r1, 2;\n$L3:\nsetp.ge.u32 %%p3, %%r2, 2048; @%%p3 bra $L4;\n"
      "cvt.u64.u32 %%rd3, %%r2; add.s64 %%rd3, %%rd2, %%rd3; ld.shared.f32 %%f1, [%%r2];\n"
      "ld.global.f32 %%f2, [%%rd3]; add.f32 %%f1, %%f1, %%f2; st.global.f32 [%%rd3], %%f1;\n"
      "add.s32 %%r2, %%r2, 128; bra.uni $L3;\n$L4:\nret;\n}\n");
  write_temporary(path, &file);
  text_free(&plan);
  text_free(&file);
  return path;
}

/* Three runs, of one captured graph on cuda. */
static void check_mapped(const char *device) {
  Artifact *artifact;
  Exec *exec;
  void *batch;
  float a[16 * 40], b[16 * 32] = {0};
  char *path = write_mapped();
  GOOD(artifact_open(path, &artifact));
  GOOD(exec_new(artifact, &(ExecOptions){.device = device}, &exec));
  GOOD(exec_batch_new(exec, &batch));
  GOOD(exec_write(exec, 0, 4096, sizeof b, b));
  for (int t = 0; t < 3; t++) {
    for (int i = 0; i < 16 * 40; i++) a[i] = (float)(i + 1000 * t);
    GOOD(exec_write(exec, 0, 0, sizeof a, a));
    GOOD(exec_run(exec, exec_result_graph(exec, PROGRAMME_STEP), batch));
  }
  GOOD(exec_read(exec, 0, 4096, sizeof b, b));
  for (int row = 0; row < 16; row++)
    for (int i = 0; i < 32; i++) assert_int_equal(b[row * 32 + i], 3 * (row * 40 + i + 4) + 3000);
  exec_batch_free(exec, batch);
  exec_free(exec);
  artifact_close(artifact);
  unlink(path);
}

static void test_maps(void **state) {
  (void)state;
  setenv("FT_FAKE_CUDA_CC", "90", 1);
  check_mapped("sim");
  check_mapped("cuda");
  setenv("FT_FAKE_CUDA_CC", "80", 1);
}

/* A plan may say what the devices cannot do yet. */
static void test_beside(void **state) {
  (void)state;
  setenv("FT_FAKE_CUDA_CC", "90", 1);
  char *path = write_mapped();
  beside_refused(path, "sim");
  beside_refused(path, "cuda");
  unlink(path);
  setenv("FT_FAKE_CUDA_CC", "80", 1);
}

/* The fakes lie in build/fake, this program in build/unit. */
static int find_fakes(void **state) {
  (void)state;
  char here[4096], path[4200];
  ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  if (length < 0) return 1;
  here[length] = 0;
  *strrchr(here, '/') = 0;
  snprintf(path, sizeof path, "%s/../fake/libfake_cuda.so", here);
  if (access(path, R_OK) != 0) return 1;
  setenv("FT_CUDA_LIBRARY", path, 1);
  snprintf(path, sizeof path, "%s/../fake/libfake_blas.so", here);
  setenv("FT_FAKE_CUDA_CC", "80", 1); /* a small workspace */
  return setenv("FT_CUBLASLT_LIBRARY", path, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_epilogues),
      cmocka_unit_test(test_without_library),
      cmocka_unit_test(test_maps),
      cmocka_unit_test(test_beside),
  };
  return cmocka_run_group_tests(tests, find_fakes, NULL);
}
