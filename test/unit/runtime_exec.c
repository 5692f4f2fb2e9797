/* runtime_exec: a hand-written plan with kernels compiled here by cc: linear regression, trained
 * some steps and compared with the same in plain C; then damaged artifacts, each refused with one
 * line. */
#define _GNU_SOURCE /* memmem, mkdtemp */
#include "plan/plan_order.h"
#include "runtime/command/bench.h"
#include "runtime/command/trace.h"
#include "runtime/execute/exec.h"
#include "runtime/ft.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/runtime_beside.h"
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOOKS_FOR_LEAKS
#include <sanitizer/lsan_interface.h>
#endif
#endif

enum { BATCH = 96, IN = 40, OUT = 24 };
static char folder[64];

static const char *path_of(const char *name) {
  static char path[4][128];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
  return path[next];
}

static const char kernels[] =
    "typedef long I;\n"
    "void k_error(void **a, I b, I e) {\n" /* (p, t) -> (gradient of p) */
    "  float *p = a[0], *t = a[1], *g = a[2];\n"
    "  for (I i = b; i < e; i++) g[i] = (p[i] - t[i]) * (2.0f / (96 * 24));\n"
    "}\n"
    "void k_loss(void **a, I b, I e) {\n" /* (p, t) -> (loss) */
    "  float *p = a[0], *t = a[1]; double sum = 0;\n"
    "  for (I i = 0; i < 96 * 24; i++) sum += (double)(p[i] - t[i]) * (p[i] - t[i]);\n"
    "  if (b < e) *(float *)a[2] = sum / (96 * 24);\n"
    "}\n"
    "void k_update(void **a, I b, I e) {\n" /* (params, grads, lr) -> (params) */
    "  float *p = a[0], *g = a[1], *q = a[3]; double lr = *(double *)a[2];\n"
    "  for (I i = b; i < e; i++) q[i] = p[i] - (float)lr * g[i];\n"
    "}\n"
    "void k_step(void **a, I b, I e) { if (b < e) *(long *)a[1] = *(long *)a[0] + 1; }\n";

static Type f32(int rank, int64_t a, int64_t b) { return (Type){DT_F32, {rank, {a, b}}}; }

static void add_step(Plan *plan, PlanGraph *graph, PlanStep step, int count, const int *args) {
  int *copy = ARENA_ARRAY(plan->arena, int, count);
  memcpy(copy, args, sizeof *args * (size_t)count);
  step.args = copy;
  step.arg_count = count;
  VEC_PUSH(plan->arena, graph->steps, step);
}

static Plan *make_plan(Arena *arena) {
  static const PlanInt forward[] = {{"batch", 1}, {"m", BATCH}, {"n", OUT},  {"k", IN},
                                    {"ta", 0},    {"tb", 1},    {"bias", 0}, {"act", 0}};
  static const PlanInt backward[] = {{"batch", 1}, {"m", OUT}, {"n", IN},   {"k", BATCH},
                                     {"ta", 1},    {"tb", 0},  {"bias", 0}, {"act", 0}};
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena,
                 .model = "Linear",
                 .source = "linear.ft",
                 .target = "cpu",
                 .target_cpu = "x86-64",
                 .settings = settings_new(arena)};
  PlanTensor x = {
      .name = "x", .type = f32(2, BATCH, IN), .place = PLACE_INPUT, .is_needed_for_predict = true};
  PlanTensor t = {
      .name = "t", .type = f32(2, BATCH, OUT), .place = PLACE_INPUT, .offset = BATCH * IN * 4};
  PlanTensor w = {.name = "weight", .type = f32(2, OUT, IN), .init = {"normal", {0, 0.1}, 2}};
  PlanTensor step = {.name = OWN_STEP,
                     .type = {DT_I64, {0}},
                     .place = PLACE_STATE,
                     .init = {"zeros", {0}, 0},
                     .role = ROLE_STEP};
  PlanTensor lr = {.name = "train.lr", .type = {DT_F64, {0}}, .place = PLACE_SETTINGS};
  VEC_PUSH(arena, plan->inputs, x);
  VEC_PUSH(arena, plan->inputs, t);
  VEC_PUSH(arena, plan->params, w);
  VEC_PUSH(arena, plan->states, step);
  VEC_PUSH(arena, plan->scalars, lr);
  plan_add_standard_places(plan);
  plan->places.at[PLACE_NARROW].elements = ELEMENTS_NONE;
  plan->places.at[PLACE_PARAMS].bytes = plan->places.at[PLACE_GRADS].bytes = OUT * IN * 4;
  plan->places.at[PLACE_STATE].bytes = plan->places.at[PLACE_SETTINGS].bytes = 64;
  plan->places.at[PLACE_INPUT].bytes = BATCH * (IN + OUT) * 4;
  plan->places.at[PLACE_OUTPUT].bytes = 64;
  plan->places.at[PLACE_WORK].bytes = 2 * BATCH * OUT * 4;
  for (int g = 0; g < 2; g++) {
    plan_add_run(plan, g ? PROGRAMME_EVALUATE : PROGRAMME_STEP, (PlanRun){.graph = g});
    VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = g ? "eval" : "train"});
    PlanGraph *graph = &plan->graphs.at[g];
    const PlanBuffer buffers[] = {
        {PLACE_INPUT, 0, x.type},        {PLACE_INPUT, t.offset, t.type},
        {PLACE_PARAMS, 0, w.type},       {PLACE_WORK, BATCH * OUT * 4, t.type},
        {PLACE_WORK, 0, t.type},         {PLACE_GRADS, 0, w.type},
        {PLACE_OUTPUT, 0, f32(0, 0, 0)}, {PLACE_SETTINGS, 0, lr.type},
        {PLACE_STATE, 0, step.type},
    };
    for (int i = 0; i < 9; i++) VEC_PUSH(arena, graph->buffers, buffers[i]);
    PlanStep gemm = {.kind = STEP_CALL,
                     .name = "gemm",
                     .ints = forward,
                     .int_count = 8,
                     .input_count = 2,
                     .label = "predict",
                     .line = 3};
    PlanStep launch = {
        .kind = STEP_LAUNCH, .work = 1, .grain = 1, .input_count = 2, .label = "loss", .line = 4};
    add_step(plan, graph, gemm, 3, (int[]){0, 2, 3});
    launch.name = "k_loss";
    add_step(plan, graph, launch, 3, (int[]){3, 1, 6});
    PlanOutput loss = {OUTPUT_LOSS, "loss", f32(0, 0, 0), PLACE_OUTPUT, 0};
    PlanOutput y = {OUTPUT_RESULT, "y", t.type, PLACE_WORK, BATCH * OUT * 4};
    VEC_PUSH(arena, graph->outputs, loss);
    VEC_PUSH(arena, graph->outputs, y);
    if (g) {
      plan_order_find(arena, graph);
      continue;
    }
    launch.name = "k_error", launch.work = BATCH * OUT, launch.grain = 100, launch.label = "error";
    add_step(plan, graph, launch, 3, (int[]){3, 1, 4});
    gemm.ints = backward, gemm.label = "gradient";
    add_step(plan, graph, gemm, 3, (int[]){4, 0, 5});
    launch.name = "k_update", launch.work = OUT * IN, launch.input_count = 3, launch.label = "sgd";
    add_step(plan, graph, launch, 4, (int[]){2, 5, 7, 2});
    launch.name = "k_step", launch.work = launch.grain = launch.input_count = 1;
    add_step(plan, graph, launch, 2, (int[]){8, 8});
    plan_order_find(arena, graph);
  }
  return plan;
}

static void write_file(const char *path, const void *bytes, size_t count) {
  assert_int_equal(text_write_file(path, bytes, count), 0);
}

/* The plan's text as a C string, with the kernels, through cc. */
static void build_library(const char *path, const char *code) {
  Arena *arena = arena_new();
  Text plan = {0}, source = {0};
  plan_print(make_plan(arena), &plan);
  text_printf(&source, "%s\n__attribute__((section(\".ft_plan\"))) const char ft_plan[] =\n\"",
              code);
  for (const char *at = plan.at; *at; at++) {
    if (*at == '"' || *at == '\\') text_printf(&source, "\\");
    if (*at == '\n')
      text_printf(&source, "\\n\"\n\"");
    else
      text_append(&source, at, 1);
  }
  text_printf(&source, "\";\n");
  write_file(path_of("model.c"), source.at, source.count);
  char command[512];
  snprintf(command, sizeof command, "cc -O1 -shared -fPIC -o %s %s", path, path_of("model.c"));
  assert_int_equal(system(command), 0);
  text_free(&plan);
  text_free(&source);
  arena_free(arena);
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/ft_exec_XXXXXX");
  if (!mkdtemp(folder)) return 1;
  build_library(path_of("model.so"), kernels);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

#define GOOD(expression)                                                                           \
  do {                                                                                             \
    if ((expression) != STATUS_OK) fail_msg("%s: %s", #expression, status_message());              \
  } while (0)

static float noise(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) / (1 << 24) - 0.5f;
}

/* One step in plain C; returns the loss before it. */
static double reference_step(float *w, const float *x, const float *t, double lr) {
  static float gradient[OUT * IN];
  double loss = 0;
  memset(gradient, 0, sizeof gradient);
  for (int i = 0; i < BATCH; i++)
    for (int o = 0; o < OUT; o++) {
      double p = 0;
      for (int k = 0; k < IN; k++) p += (double)x[i * IN + k] * w[o * IN + k];
      double error = p - t[i * OUT + o];
      loss += error * error / (BATCH * OUT);
      for (int k = 0; k < IN; k++)
        gradient[o * IN + k] += (float)(2 * error / (BATCH * OUT) * x[i * IN + k]);
    }
  for (int i = 0; i < OUT * IN; i++) w[i] -= (float)lr * gradient[i];
  return loss;
}

static void train_with(int threads) {
  Artifact *artifact;
  Exec *exec;
  void *batch[2];
  float *w = calloc(OUT * IN, 4), *got = calloc(OUT * IN, 4);
  uint32_t seed = 7;
  GOOD(artifact_open(path_of("model.so"), &artifact));
  const char *why;
  assert_true(setting_set(artifact->arena, artifact->plan->settings, setting_find("train.lr"),
                          "0.5", &why));
  GOOD(exec_new(artifact, &(ExecOptions){.threads = threads}, &exec));
  GOOD(exec_write_settings(exec));
  GOOD(exec_init(exec, 42));
  GOOD(exec_read(exec, PLACE_PARAMS, 0, OUT * IN * 4, w));
  for (int i = 0; i < 2; i++) GOOD(exec_batch_new(exec, &batch[i]));
  ExecGraph graph = exec_result_graph(exec, PROGRAMME_STEP);
  int loss_index = exec_find_output(exec, graph, OUTPUT_LOSS, NULL);
  assert_int_equal(loss_index, 0);
  for (int step = 0; step < 7; step++) {
    float *x = batch[step % 2], *t = x + BATCH * IN; /* the batch's address changes */
    for (int i = 0; i < BATCH * (IN + OUT); i++) x[i] = noise(&seed);
    double expected = reference_step(w, x, t, 0.5), loss;
    GOOD(exec_run(exec, graph, x));
    GOOD(exec_scalar(exec, graph, loss_index, &loss));
    assert_true(fabs(loss - expected) < 1e-5 * expected);
  }
  int64_t steps;
  GOOD(exec_step(exec, &steps));
  assert_int_equal(steps, 7);
  GOOD(exec_read(exec, PLACE_PARAMS, 0, OUT * IN * 4, got));
  for (int i = 0; i < OUT * IN; i++) assert_true(fabsf(got[i] - w[i]) < 1e-5f);
  GOOD(exec_set_step(exec, 3));
  GOOD(exec_step(exec, &steps));
  assert_int_equal(steps, 3);
  for (int i = 0; i < 2; i++) exec_batch_free(exec, batch[i]);
  exec_free(exec);
  artifact_close(artifact);
  free(w);
  free(got);
}

static void test_training(void **state) {
  (void)state;
  for (int threads = 1; threads <= 4; threads++) train_with(threads);
}

/* What is opened for training only has no results of a prediction. */
static void test_uses(void **state) {
  (void)state;
  FtModel *model;
  FtOptions options = {.threads = 1, .uses = FT_TRAIN};
  static float x[BATCH * IN], t[BATCH * OUT], y[BATCH * OUT];
  double loss;
  assert_int_equal(ft_open_with(path_of("model.so"), &options, &model), 0);
  assert_int_equal(ft_init(model, 1), 0);
  assert_int_equal(ft_train_step(model, (const void *[]){x, t}, &loss), 0);
  assert_true(ft_predict(model, (const void *[]){x, t}) != 0);
  assert_true(ft_read_output(model, "y", y, sizeof y) != 0);
  assert_non_null(strstr(ft_error(), "FT_PREDICT is not among its uses"));
  ft_close(model);
}

/* A plan may say what the devices cannot do yet. */
static void test_beside(void **state) {
  (void)state;
  beside_refused(path_of("model.so"), NULL);
}

static void test_checked_and_timed(void **state) {
  (void)state;
  Artifact *artifact;
  Exec *exec;
  void *batch;
  int64_t time[8] = {0};
  GOOD(artifact_open(path_of("model.so"), &artifact));
  GOOD(exec_new(artifact, &(ExecOptions){.threads = 2}, &exec));
  GOOD(exec_init(exec, 1));
  ExecGraph graph = exec_result_graph(exec, PROGRAMME_STEP);
  GOOD(exec_batch_new(exec, &batch));
  GOOD(exec_run_checked(exec, graph, batch));
  GOOD(exec_run_timed(exec, graph, batch, time));
  for (int i = 0; i < 6; i++) assert_true(time[i] > 0);
  ((float *)batch)[BATCH * IN + 5] = NAN;
  assert_int_equal(exec_run_checked(exec, graph, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "input t is not finite"));
  ((float *)batch)[BATCH * IN + 5] = 1e30f; /* its square is not */
  assert_int_equal(exec_run_checked(exec, graph, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "linear.ft:4: "));
  assert_non_null(strstr(status_message(), "kernel 1, loss"));
  float y[4];
  assert_int_equal(exec_read_output(exec, graph, 1, y, 4), STATUS_USER);
  assert_int_equal(exec_read(exec, PLACE_PARAMS, OUT * IN * 4, 4, y), STATUS_USER);
  assert_int_equal(exec_write(exec, PLACE_PARAMS, -4, 4, y), STATUS_USER);
  exec_batch_free(exec, batch);
  exec_free(exec);
  artifact_close(artifact);
}

static void refused(const char *path, const char *message) {
  Artifact *artifact = NULL;
  Status status = artifact_open(path, &artifact);
  if (status == STATUS_OK) fail_msg("%s was opened", path);
  if (!strstr(status_message(), message) || strchr(status_message(), '\n'))
    fail_msg("%s: %s", path, status_message());
}

/* A .so that is cut between the reading of its plan and its loading, and while it runs. */
static void test_cut_artifacts(void **state) {
  (void)state;
  Text whole = {0};
  Artifact *artifact;
  FtModel *model;
  static float x[BATCH * IN], t[BATCH * OUT];
  const char *path = path_of("cut.so");
  assert_int_equal(text_read_file(&whole, path_of("model.so")), 0);
  for (size_t left = 100; left < whole.count; left += whole.count / 5) {
    write_file(path, whole.at, whole.count);
    GOOD(artifact_open(path, &artifact));
    assert_int_equal(truncate(path, (off_t)left), 0);
    assert_int_equal(artifact_load(artifact), STATUS_USER);
    assert_non_null(strstr(status_message(), "not the one that was read"));
    artifact_close(artifact);
  }
  write_file(path, whole.at, whole.count);
  assert_int_equal(ft_open(path, 2, &model), 0);
  assert_int_equal(truncate(path, 0), 0);
  assert_int_equal(ft_init(model, 1), 0);
  assert_int_equal(ft_train_step(model, (const void *[]){x, t}, NULL), 0);
  assert_int_equal(ft_predict(model, (const void *[]){x, t}), 0);
  ft_close(model);
  text_free(&whole);
}

static void test_damaged_artifacts(void **state) {
  (void)state;
  Text whole = {0};
  const char *path = path_of("bad.so");
  assert_int_equal(text_read_file(&whole, path_of("model.so")), 0);
  refused(path_of("missing.so"), "No such file");
  refused(folder, "is a folder, not a model");
  write_file(path, "", 0);
  refused(path, "empty");
  write_file(path, "\177ELF", 4);
  refused(path, "not a 64-bit shared object");
  write_file(path, "hello\n", 6);
  refused(path, "neither a .so nor a .ptx");
  for (size_t cut = 64; cut < whole.count; cut += whole.count / 40) {
    write_file(path, whole.at, cut);
    Artifact *artifact = NULL;
    if (artifact_open(path, &artifact) == STATUS_OK)
      artifact_close(artifact); /* only sections lost */
    unlink(path);               /* a mapped file must not change in place */
  }
  char *plan = memmem(whole.at, whole.count, "ft-plan ", 8);
  assert_non_null(plan);
  char version = plan[8];
  plan[8] = '1';
  write_file(path, whole.at, whole.count);
  refused(path, "version 1");
  plan[8] = version;
  plan[40] ^= 1;
  unlink(path);
  write_file(path, whole.at, whole.count);
  refused(path, "checksum");
  build_library(path_of("lack.so"), "void k_loss(void) {}");
  Artifact *lack; /* its plan can be looked at; it cannot run */
  Exec *exec;
  GOOD(artifact_open(path_of("lack.so"), &lack));
  assert_int_equal(exec_new(lack, &(ExecOptions){0}, &exec), STATUS_USER);
  assert_non_null(strstr(status_message(), "kernel k_error, which the file lacks"));
  artifact_close(lack);
  char command[256];
  snprintf(command, sizeof command, "echo 'int x;' | cc -shared -fPIC -x c -o %s -",
           path_of("other.so"));
  assert_int_equal(system(command), 0);
  refused(path_of("other.so"), "not one that ftc made");
  text_free(&whole);
}

static void test_devices(void **state) {
  (void)state;
  Artifact *artifact;
  Exec *exec;
  GOOD(artifact_open(path_of("model.so"), &artifact));
  assert_int_equal(exec_new(artifact, &(ExecOptions){.device = "tpu"}, &exec), STATUS_USER);
  assert_non_null(strstr(status_message(), "no device 'tpu'"));
  assert_int_equal(exec_new(artifact, &(ExecOptions){.device = "cuda:0"}, &exec), STATUS_USER);
  assert_int_equal(exec_new(artifact, &(ExecOptions){.threads = -1}, &exec), STATUS_USER);
  artifact->plan->target = "ptx";
  assert_int_equal(exec_new(artifact, &(ExecOptions){0}, &exec), STATUS_USER);
  assert_non_null(strstr(status_message(), "ftc linear.ft -o"));
  artifact_close(artifact);
}

/* What people read: the words that matter are there, and the trace is JSON to its end. */
static void test_reports(void **state) {
  (void)state;
  Artifact *artifact;
  Exec *exec;
  Trace *trace;
  void *batch;
  char *text = NULL;
  size_t length = 0;
  GOOD(artifact_open(path_of("model.so"), &artifact));
  GOOD(exec_new(artifact, &(ExecOptions){.threads = 2}, &exec));
  GOOD(exec_init(exec, 1));
  GOOD(exec_batch_new(exec, &batch));
  FILE *out = open_memstream(&text, &length);
  GOOD(bench_run(exec, &(BenchOptions){.programme = PROGRAMME_STEP, .steps = 20, .per_kernel = true}, out));
  GOOD(info_print(artifact, out));
  fclose(out);
  static const char *const words[] = {
      "median",   "samples/s",         "gradient (gemm)", "sgd (k_update)",
      "20 steps", "from linear.ft",    "weight",          "normal(0, 0.1)",
      "train.lr", "f32[96,24] work+0", "loss   loss"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strstr(text, words[i])) fail_msg("'%s' is missing in:\n%s", words[i], text);
  free(text);
  GOOD(trace_open(&(TraceOptions){.path = path_of("trace.json"), .total = 2}, &trace));
  ExecGraph graph = exec_result_graph(exec, PROGRAMME_STEP);
  for (int i = 0; i < 2; i++) GOOD(trace_step(trace, exec, graph, batch, i + 1));
  GOOD(trace_write(trace, exec));
  trace_free(trace);
  char command[256];
  snprintf(
      command, sizeof command,
      "python3 -c 'import json; t = json.load(open(\"%s\"))[\"traceEvents\"]; assert len(t) == 12'",
      path_of("trace.json"));
  assert_int_equal(system(command), 0);
  exec_batch_free(exec, batch);
  exec_free(exec);
  artifact_close(artifact);
}

/* The embedding interface: the same training, and mistakes that get a message. */
static void test_embedding(void **state) {
  (void)state;
  FtModel *model;
  FtTensor tensor;
  static float x[BATCH * IN], t[BATCH * OUT], w[OUT * IN], y[BATCH * OUT];
  uint32_t seed = 3;
  double loss;
  for (int i = 0; i < BATCH * IN; i++) x[i] = noise(&seed);
  for (int i = 0; i < BATCH * OUT; i++) t[i] = noise(&seed);
  for (int i = 0; i < OUT * IN; i++) w[i] = noise(&seed);
  const void *batch[] = {x, t}, *unlabelled[] = {x, NULL};
  assert_int_equal(ft_open(path_of("missing.so"), 0, &model), 1);
  assert_non_null(strstr(ft_error(), "missing.so"));
  if (ft_open(path_of("model.so"), 2, &model)) fail_msg("%s", ft_error());
  assert_int_equal(ft_set(model, "train.lr", "0.25"), 0);
  assert_int_equal(ft_set(model, "train.lt", "0.25"), 1);
  assert_non_null(strstr(ft_error(), "did you mean train.lr?"));
  assert_int_equal(ft_set(model, "train.batch", "8"), 1);
  assert_int_equal(ft_set(model, "train.lr", "fast"), 1);
  assert_int_equal(ft_input(model, 0, &tensor), 0);
  assert_string_equal(tensor.name, "x");
  assert_int_equal(tensor.bytes, sizeof x);
  assert_int_equal(ft_input(model, 2, &tensor), 1);
  assert_int_equal(ft_param(model, 0, &tensor), 0);
  assert_string_equal(tensor.name, "weight");
  assert_int_equal(ft_output(model, 1, &tensor), 0);
  assert_int_equal(tensor.dim[1], OUT);
  assert_int_equal(ft_write_param(model, "weight", w, sizeof w), 0);
  assert_int_equal(ft_write_param(model, "weight", w, 4), 1);
  assert_int_equal(ft_write_param(model, "weihgt", w, sizeof w), 1);
  for (int step = 0; step < 3; step++) {
    double expected = reference_step(w, x, t, 0.25);
    if (ft_train_step(model, batch, &loss)) fail_msg("%s", ft_error());
    assert_true(fabs(loss - expected) < 1e-5 * expected);
  }
  assert_int_equal(ft_steps(model), 3);
  assert_int_equal(ft_train_step(model, unlabelled, &loss), 1);
  assert_int_equal(ft_predict(model, unlabelled), 0);
  assert_int_equal(ft_read_output(model, "y", y, sizeof y), 0);
  double first = 0;
  for (int k = 0; k < IN; k++) first += (double)x[k] * w[k];
  assert_true(fabs(first - y[0]) < 1e-4);
  assert_int_equal(ft_read_output(model, "z", y, sizeof y), 1);
  assert_int_equal(ft_init(model, 1), 0);
  assert_int_equal(ft_steps(model), 0);
  ft_close(model);
  ft_close(NULL);
}

/* ── no memory ────────────────────────────────────────────────────────────────────────────── */
/* Allocations of ft itself (the linker wraps them, not those of libraries); the one that the count
 * reaches fails. */
static _Thread_local int64_t allocations, fails_at;
static bool fails(void) { return fails_at && ++allocations == fails_at; }
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes) { return fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) {
  return fails() ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
  return fails() ? NULL : __real_realloc(old, bytes);
}

/* What a program does with a model, up to the first failure. */
static int use_model(FtModel **model) {
  static float x[BATCH * IN], t[BATCH * OUT];
  const void *batch[] = {x, t};
  char path[128];
  int status = ft_open(path_of("model.so"), 1, model);
  if (!status) status = ft_set(*model, "train.lr", "0.25");
  if (!status) status = ft_init(*model, 1);
  if (!status) status = ft_train_step(*model, batch, NULL);
  if (!status) status = ft_predict(*model, batch);
  snprintf(path, sizeof path, "%s", path_of("w.safetensors"));
  if (!status) status = ft_save_weights(*model, path);
  if (!status) status = ft_load_weights(*model, path);
  snprintf(path, sizeof path, "%s", path_of("c.safetensors"));
  if (!status) status = ft_save(*model, path);
  if (!status) status = ft_resume(*model, path);
  return status;
}

/* Each allocation fails in turn: a status and a sentence, and never the end of this process. What a
 * call had taken when memory ended may be lost, as ft.h says. */
static void test_no_memory(void **state) {
  (void)state;
  int64_t count = 0;
#ifdef LOOKS_FOR_LEAKS
  __lsan_disable();
#endif
  for (bool is_done = false; !is_done; count++) {
    FtModel *model = NULL;
    unlink(path_of("w.safetensors")); /* what a call says that it has written is there */
    unlink(path_of("c.safetensors"));
    allocations = 0;
    fails_at = count + 1;
    int status = use_model(&model);
    is_done = allocations < fails_at;
    fails_at = 0;
    if (status != 0 && (is_done || status != 3)) /* some can be done without */
      fail_msg("allocation %d: status %d: %s", (int)count, status, ft_error());
    if (status && !strstr(ft_error(), "memory"))
      fail_msg("allocation %d: %s", (int)count, ft_error());
    ft_close(model);
  }
#ifdef LOOKS_FOR_LEAKS
  __lsan_enable();
#endif
  assert_true(count > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_training),
      cmocka_unit_test(test_uses),
      cmocka_unit_test(test_beside),
      cmocka_unit_test(test_checked_and_timed),
      cmocka_unit_test(test_damaged_artifacts),
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_reports),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_cut_artifacts),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
