/* runtime_prepare: prepared weights (runtime/execute/exec_prepare.c) are made once, and again whenever what
 * they are made of may have changed, by whatever way: by a hand-written plan whose kernels count how often
 * they run, and whose results say what they were made of. A value that changes behind the runtime's back
 * is noticed by the same check (test_planted), so it would be if some way were forgotten. */
#define _GNU_SOURCE /* mkdtemp */
#include "plan/plan_order.h"
#include "runtime/execute/exec_fetch.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 64, BATCH = 2, BYTES = N * 4 };
/* where tensors lie in the place state */
enum { STEP_AT = 0, MEAN_AT = 64, KEEP_AT = 128, EMA_AT = 384 };

static char folder[64];
static const char kernels[] =
    "typedef long I;\n"
    "int prepared_runs;\n"
    "void k_prepare(void **a, I b, I e) {\n" /* (w[0..32], mean) -> (prepared) */
    "  float *w = a[0], *m = a[1], *p = a[2];\n"
    "  for (I i = 0; i < 32 && b < e; i++) p[i] = 2 * w[i] + m[0];\n"
    "  if (b < e) prepared_runs++;\n"
    "}\n"
    "void k_eval(void **a, I b, I e) {\n" /* (prepared, x) -> (y, loss) */
    "  float *p = a[0], *x = a[1], *y = a[2], sum = 0;\n"
    "  for (I i = 0; i < 32 && b < e; i++) sum += p[i] * x[0];\n"
    "  if (b < e) y[0] = y[1] = *(float *)a[3] = sum;\n"
    "}\n"
    "void k_train(void **a, I b, I e) {\n" /* (w, ema, step, x) -> (w, ema, step, grads, loss) */
    "  float *w = a[4], *ema = a[5], *g = a[7]; \n"
    "  for (I i = 0; i < 64 && b < e; i++) g[i] = 1, w[i] += 1, ema[i] += 0.5f;\n"
    "  if (b < e) *(I *)a[6] += 1, *(float *)a[8] = w[0];\n"
    "}\n";

static Type type_of(DType dtype, int rank, int64_t a, int64_t b) {
  return (Type){dtype, {rank, {a, b}}};
}

static void add(Plan *plan, PlanGraph *graph, const char *name, int inputs, int count,
                const PlanBuffer *buffers) {
  int *args = ARENA_ARRAY(plan->arena, int, count);
  for (int i = 0; i < count; i++) {
    args[i] = graph->buffers.count;
    VEC_PUSH(plan->arena, graph->buffers, buffers[i]);
  }
  PlanStep step = {.kind = STEP_LAUNCH,
                   .name = name,
                   .args = args,
                   .arg_count = count,
                   .input_count = inputs,
                   .work = 1,
                   .grain = 1,
                   .label = name};
  VEC_PUSH(plan->arena, graph->steps, step);
  assert_null(plan_order_find(plan->arena, graph));
}

static void add_state(Plan *plan, const char *name, DType dtype, int64_t offset, LeafRole role) {
  PlanTensor state = {.name = name,
                      .place = PLACE_STATE,
                      .type = type_of(dtype, 0, 0, 0),
                      .offset = offset,
                      .init = {"zeros", {0}, 0},
                      .role = role};
  VEC_PUSH(plan->arena, plan->states, state);
}

static Plan *make_plan(Arena *arena) {
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena,
                 .model = "Prepared",
                 .source = "prepared.ft",
                 .target = "cpu",
                 .target_cpu = "x86-64",
                 .settings = settings_new(arena)};
  PlanTensor x = {.name = "x",
                  .type = type_of(DT_F32, 1, BATCH, 0),
                  .place = PLACE_INPUT,
                  .is_needed_for_predict = true};
  PlanTensor w = {.name = "w", .type = type_of(DT_F32, 1, N, 0), .init = {"const", {1}, 1}};
  VEC_PUSH(arena, plan->inputs, x);
  VEC_PUSH(arena, plan->params, w);
  plan_add_standard_places(plan);
  plan->places.at[PLACE_NARROW].elements = ELEMENTS_NONE;
  plan->places.at[PLACE_PARAMS].bytes = plan->places.at[PLACE_GRADS].bytes = BYTES;
  plan->places.at[PLACE_STATE].bytes = EMA_AT + BYTES;
  plan->places.at[PLACE_INPUT].bytes = plan->places.at[PLACE_OUTPUT].bytes = 64;
  plan->places.at[PLACE_WORK].bytes = 64;
  plan->places.at[PLACE_PREPARED].bytes = 128;
  add_state(plan, OWN_STEP, DT_I64, STEP_AT, ROLE_STEP);
  add_state(plan, "mean", DT_F32, MEAN_AT, ROLE_MODEL);
  static const LeafRole told[] = {ROLE_KEEP, ROLE_MISSING, ROLE_MORE, ROLE_PASS};
  for (int i = 0; i < 4; i++)
    add_state(plan, arena_printf(arena, "@eval.%s", role_text(told[i])), DT_F64, KEEP_AT + 64 * i,
              told[i]);
  PlanTensor average = {.name = "@ema",
                        .type = type_of(DT_F32, 1, N, 0),
                        .place = PLACE_STATE,
                        .offset = EMA_AT,
                        .init = {"zeros", {0}, 0},
                        .role = ROLE_AVERAGE};
  plan_add_slice(plan, &average);
  VEC_PUSH(arena, plan->states, average);
  static const char *const names[] = {"train", "eval", "eval.prepare"};
  for (int g = 0; g < 3; g++) VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = names[g]});
  Type row = type_of(DT_F32, 1, N, 0), part = type_of(DT_F32, 1, 32, 0), one = type_of(DT_F32, 0, 0, 0);
  Type count = type_of(DT_I64, 0, 0, 0);
  add(plan, &plan->graphs.at[0], "k_train", 4, 9,
      (PlanBuffer[]){{PLACE_PARAMS, 0, row},
                     {PLACE_STATE, EMA_AT, row},
                     {PLACE_STATE, STEP_AT, count},
                     {PLACE_INPUT, 0, x.type},
                     {PLACE_PARAMS, 0, row},
                     {PLACE_STATE, EMA_AT, row},
                     {PLACE_STATE, STEP_AT, count},
                     {PLACE_GRADS, 0, row},
                     {PLACE_OUTPUT, 0, one}});
  add(plan, &plan->graphs.at[1], "k_eval", 2, 4,
      (PlanBuffer[]){{PLACE_PREPARED, 0, part},
                     {PLACE_INPUT, 0, x.type},
                     {PLACE_WORK, 0, x.type},
                     {PLACE_OUTPUT, 0, one}});
  add(plan, &plan->graphs.at[2], "k_prepare", 2, 3,
      (PlanBuffer[]){
          {PLACE_PARAMS, 0, part}, {PLACE_STATE, MEAN_AT, one}, {PLACE_PREPARED, 0, part}});
  plan->graphs.at[1].prepare = names[2];
  for (int g = 0; g < 2; g++) {
    PlanOutput loss = {OUTPUT_LOSS, "loss", one, PLACE_OUTPUT, 0};
    VEC_PUSH(arena, plan->graphs.at[g].outputs, loss);
  }
  plan_add_run(plan, PROGRAMME_STEP, (PlanRun){.graph = 0});
  plan_add_run(plan, PROGRAMME_EVALUATE, (PlanRun){.graph = 1});
  plan_add_run(plan, PROGRAMME_EVALUATE_AVERAGE,
               (PlanRun){.graph = 1,
                         .reads = plan_find_place(plan, "@ema"),
                         .instead_of = PLACE_PARAMS});
  return plan;
}

/* The plan's text as a C string, with the kernels, through cc. */
static int make_folder(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text plan = {0}, source = {0};
  char path[128], command[512];
  strcpy(folder, "/tmp/ft_prepare_XXXXXX");
  if (!mkdtemp(folder)) return 1;
  plan_print(make_plan(arena), &plan);
  text_printf(&source, "%s\n__attribute__((section(\".ft_plan\"))) const char ft_plan[] =\n\"",
              kernels);
  for (const char *at = plan.at; *at; at++) {
    if (*at == '"' || *at == '\\') text_printf(&source, "\\");
    if (*at == '\n')
      text_printf(&source, "\\n\"\n\"");
    else
      text_append(&source, at, 1);
  }
  text_printf(&source, "\";\n");
  snprintf(path, sizeof path, "%s/model.c", folder);
  assert_int_equal(text_write_file(path, source.at, source.count), 0);
  snprintf(command, sizeof command, "cc -O1 -shared -fPIC -o %s/model.so %s", folder, path);
  assert_int_equal(system(command), 0);
  text_free(&plan);
  text_free(&source);
  arena_free(arena);
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

typedef struct {
  Artifact *artifact;
  Exec *exec;
  void *batch;
  ExecGraph train, eval, average;
} Model;

static Model open_model(int threads) {
  Model m;
  char path[128];
  snprintf(path, sizeof path, "%s/model.so", folder);
  GOOD(artifact_open(path, &m.artifact));
  GOOD(exec_new(m.artifact, &(ExecOptions){.threads = threads}, &m.exec));
  GOOD(exec_init(m.exec, 1));
  GOOD(exec_batch_new(m.exec, &m.batch));
  ((float *)m.batch)[0] = 1;
  m.train = exec_result_graph(m.exec, PROGRAMME_STEP);
  m.eval = exec_result_graph(m.exec, PROGRAMME_EVALUATE);
  m.average = exec_result_graph(m.exec, PROGRAMME_EVALUATE_AVERAGE);
  assert_true(m.average >= 0 && m.average != m.eval);
  return m;
}

static void close_model(Model *m) {
  exec_batch_free(m->exec, m->batch);
  exec_free(m->exec);
  artifact_close(m->artifact);
}

/* What the evaluation gives, whatever runs it. */
typedef enum { BY_RUN, BY_BESIDE, BY_CHECKED, BY_TIMED, BY_TRACED, WAYS } Way;

static double evaluate_by(Model *m, ExecGraph graph, Way way) {
  double loss;
  int64_t time[1];
  ExecStepTime times[1], sent;
  if (way == BY_RUN) GOOD(exec_run(m->exec, graph, m->batch));
  if (way == BY_BESIDE) GOOD(exec_run_beside(m->exec, graph, m->batch, NULL, NULL));
  if (way == BY_CHECKED) GOOD(exec_run_checked(m->exec, graph, m->batch));
  if (way == BY_TIMED) GOOD(exec_run_timed(m->exec, graph, m->batch, time));
  if (way == BY_TRACED) GOOD(exec_run_traced(m->exec, graph, m->batch, times, &sent));
  GOOD(exec_scalar(m->exec, graph, exec_find_output(m->exec, graph, OUTPUT_LOSS, NULL), &loss));
  return loss;
}

/* What it must give, from what is in memory now. */
static double wanted(Model *m, ExecGraph graph) {
  float w[N], mean;
  double sum = 0;
  const PlanTensor *average = &exec_plan(m->exec)->states.at[exec_find_state(m->exec, "@ema")];
  GOOD(exec_read(m->exec, graph == m->average ? average->place : PLACE_PARAMS, 0, BYTES, w));
  GOOD(exec_read(m->exec, PLACE_STATE, MEAN_AT, 4, &mean));
  for (int i = 0; i < 32; i++) sum += 2 * w[i] + mean;
  return sum;
}

static bool is_right(Model *m, ExecGraph graph, Way way) {
  return evaluate_by(m, graph, way) == wanted(m, graph);
}

static int runs(const Model *m) {
  const int *count = dlsym(m->artifact->library, "prepared_runs");
  assert_non_null(count);
  return *count;
}

static void write_float(Model *m, int place, int64_t offset, float value) {
  GOOD(exec_write(m->exec, place, offset, sizeof value, &value));
}

/* Once for all batches, and not again for what it is not made of. */
static void test_once(void **state) {
  (void)state;
  Model m = open_model(1);
  int first = runs(&m);
  for (int i = 0; i < 5; i++) assert_true(is_right(&m, m.eval, (Way)(i % WAYS)));
  assert_int_equal(runs(&m), first + 1);
  static const LeafRole told[] = {ROLE_KEEP, ROLE_MISSING, ROLE_MORE, ROLE_PASS};
  for (int i = 0; i < 4; i++) {
    double value = i;
    GOOD(exec_write_state(m.exec, plan_find_role(exec_plan(m.exec), told[i]), 8, &value));
    assert_true(is_right(&m, m.eval, BY_RUN));
  }
  write_float(&m, PLACE_PARAMS, 32 * 4, 7); /* which it does not read */
  GOOD(exec_set_step(m.exec, 3));
  assert_true(is_right(&m, m.eval, BY_RUN));
  assert_int_equal(runs(&m), first + 1);
  close_model(&m);
}

/* Each way of changing a weight, and each way of running behind it. */
static void test_changes(void **state) {
  (void)state;
  for (int threads = 1; threads <= 2; threads++) {
    Model m = open_model(threads);
    for (int way = 0; way < WAYS; way++) {
      int before = runs(&m);
      assert_true(is_right(&m, m.eval, (Way)way)); /* what the last round has left */
      write_float(&m, PLACE_PARAMS, 31 * 4, (float)way + 3);
      assert_true(is_right(&m, m.eval, (Way)way));
      write_float(&m, PLACE_STATE, MEAN_AT, (float)way + 5);
      assert_true(is_right(&m, m.eval, (Way)way));
      GOOD(exec_run(m.exec, m.train, m.batch));
      assert_true(is_right(&m, m.eval, (Way)way));
      GOOD(exec_run_checked(m.exec, m.train, m.batch));
      assert_true(is_right(&m, m.eval, (Way)way));
      GOOD(exec_init(m.exec, 1));
      assert_true(is_right(&m, m.eval, (Way)way));
      GOOD(exec_init_states(m.exec, 1));
      assert_true(is_right(&m, m.eval, (Way)way));
      write_float(&m, PLACE_PREPARED, 0, 99);
      assert_true(is_right(&m, m.eval, (Way)way));
      assert_true(runs(&m) >= before + 7);
    }
    close_model(&m);
  }
}

/* The same bytes hold what was made of the parameters, or of their average. */
static void test_average(void **state) {
  (void)state;
  Model m = open_model(1);
  int average = exec_find_state(m.exec, "@ema");
  for (int way = 0; way < WAYS; way++) {
    float value = (float)way + 11;
    GOOD(exec_run(m.exec, m.train, m.batch));
    assert_true(is_right(&m, m.eval, (Way)way));
    assert_true(is_right(&m, m.average, (Way)way));
    assert_true(is_right(&m, m.average, (Way)way));
    assert_true(is_right(&m, m.eval, (Way)way));
    assert_true(is_right(&m, m.average, (Way)way));
    GOOD(exec_write_state(m.exec, average, 4, &value));
    assert_true(is_right(&m, m.average, (Way)way));
    value++;
    GOOD(exec_write(m.exec, PLACE_STATE, EMA_AT, 4, &value)); /* the window's bytes */
    assert_true(is_right(&m, m.average, (Way)way));
    write_float(&m, PLACE_STATE, MEAN_AT, value);
    assert_true(is_right(&m, m.average, (Way)way));
    GOOD(exec_run(m.exec, m.train, m.batch));
    assert_true(is_right(&m, m.average, (Way)way));
    assert_true(is_right(&m, m.eval, (Way)way));
  }
  close_model(&m);
}

/* Two models in one process have memory of their own. */
static void test_two(void **state) {
  (void)state;
  Model a = open_model(1), b = open_model(1);
  assert_true(is_right(&a, a.eval, BY_RUN));
  write_float(&a, PLACE_PARAMS, 0, 5);
  assert_true(is_right(&b, b.eval, BY_RUN));
  assert_true(is_right(&a, a.eval, BY_RUN));
  assert_true(is_right(&b, b.eval, BY_RUN));
  assert_true(wanted(&a, a.eval) != wanted(&b, b.eval));
  close_model(&a);
  close_model(&b);
}

/* What is not told to the runtime, it cannot know; the checks above would see it. */
static void test_planted(void **state) {
  (void)state;
  Model m = open_model(1);
  float value = 77;
  assert_true(is_right(&m, m.eval, BY_RUN));
  GOOD(m.exec->type->write(m.exec->device, m.exec->base[PLACE_PARAMS], &value, 4));
  assert_false(is_right(&m, m.eval, BY_RUN));
  write_float(&m, PLACE_PARAMS, 0, value);
  assert_true(is_right(&m, m.eval, BY_RUN));
  GOOD(m.exec->type->run(m.exec->graph[m.train], m.batch));
  assert_false(is_right(&m, m.eval, BY_RUN));
  m.exec->prepare[m.eval].is_changed_by[m.train] = false;
  GOOD(exec_run(m.exec, m.train, m.batch));
  assert_false(is_right(&m, m.eval, BY_RUN));
  m.exec->prepare[m.eval].is_changed_by[m.train] = true;
  GOOD(exec_run(m.exec, m.train, m.batch));
  assert_true(is_right(&m, m.eval, BY_RUN));
  close_model(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_changes),
                                     cmocka_unit_test(test_average), cmocka_unit_test(test_two),
                                     cmocka_unit_test(test_planted)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
