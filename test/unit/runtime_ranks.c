/* Ranks as threads of this process, over an engine of the test's (test/fake/engine): works of many
 * threads at a time, and plans with BEGIN and END on the CPU device, alone and on several ranks. */
#include "runtime/communicate/comm_private.h"
#include "runtime/device/dev.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char engine[] = FT_FAKE_ENGINE;
enum { RANKS = 3 };

typedef struct {
  int rank, ranks;
  double timeout;
  Comm *comm;
  int wrong; /* assertions of cmocka are the main thread's */
  Status status;
  char message[1024];
} Rank;
typedef void Body(Rank *rank);
static Body *body;
static bool is_apart; /* the engine does all works */

static void *rank_main(void *argument) {
  Rank *rank = argument;
  CommPlace place = {rank->rank, rank->ranks, rank->rank, rank->ranks, "a test"};
  CommOptions options = {.timeout = rank->timeout, .library = engine, .is_apart = is_apart};
  rank->status = comm_open_at(&place, &options, &rank->comm);
  if (rank->status == STATUS_OK) body(rank);
  snprintf(rank->message, sizeof rank->message, "%s",
           rank->status == STATUS_OK ? "" : status_message());
  comm_close(rank->comm, rank->status);
  return NULL;
}

static void run_ranks(int ranks, double timeout, Body *what, Rank *out) {
  pthread_t thread[RANKS];
  body = what;
  for (int r = 0; r < ranks; r++) {
    out[r] = (Rank){.rank = r, .ranks = ranks, .timeout = timeout};
    assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &out[r]), 0);
  }
  for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
}

static void expect_good(const Rank *rank, int ranks) {
  for (int r = 0; r < ranks; r++) {
    if (rank[r].status != STATUS_OK) fail_msg("rank %d: %s", r, rank[r].message);
    assert_int_equal(rank[r].wrong, 0);
  }
}

/* ── works ────────────────────────────────────────────────────────────────────────────────── */
enum { COUNT = 60, WORKS = 300, AT_ONCE = 20 };

static void do_many(Rank *rank) {
  static const CommKind kinds[] = {COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_BROADCAST,
                                   COMM_REDUCE_SCATTER};
  float x[AT_ONCE][COUNT], out[AT_ONCE][COUNT * RANKS];
  int64_t number[AT_ONCE];
  for (int i = 0; i < WORKS && rank->status == STATUS_OK; i++) {
    int at = i % AT_ONCE;
    CommKind kind = kinds[i % 4];
    if (i >= AT_ONCE) {
      int k = i - AT_ONCE;
      rank->status = comm_end(rank->comm, number[at]);
      float sum = (float)(rank->ranks * k + 3), got = out[at][1];
      float expected = kinds[k % 4] == COMM_ALL_GATHER  ? (float)k
                       : kinds[k % 4] == COMM_BROADCAST ? (float)k + 1
                                                        : sum;
      if (kinds[k % 4] == COMM_REDUCE_SCATTER) expected = sum;
      if (got != expected) rank->wrong++;
    }
    for (int j = 0; j < COUNT; j++) x[at][j] = (float)(i + rank->rank);
    CommWork work = {.kind = kind,
                     .peer = kind == COMM_BROADCAST,
                     .dtype = DT_F32,
                     .count = COUNT,
                     .x = x[at],
                     .out = out[at],
                     .label = "many"};
    if (rank->status == STATUS_OK) rank->status = comm_begin(rank->comm, &work, &number[at]);
  }
  for (int i = WORKS - AT_ONCE; i < WORKS && rank->status == STATUS_OK; i++)
    rank->status = comm_end(rank->comm, number[i % AT_ONCE]);
  if (rank->status == STATUS_OK) rank->status = comm_barrier(rank->comm, "the end");
  int same = 7;
  if (rank->status == STATUS_OK) rank->status = comm_same(rank->comm, "seven", &same, sizeof same);
  if (rank->status == STATUS_OK &&
      comm_same(rank->comm, "the rank", &rank->rank, sizeof rank->rank) != STATUS_USER)
    rank->wrong++;
  if (rank->status == STATUS_OK && comm_end(rank->comm, 12345) != STATUS_USER) rank->wrong++;
}

static void many(void **state) {
  (void)state;
  Rank rank[RANKS];
  for (int i = 0; i < 2; i++) {
    is_apart = i == 1;
    run_ranks(RANKS, 60, do_many, rank);
    expect_good(rank, RANKS);
  }
  is_apart = false;
  assert_string_equal(comm_text(NULL), "1 rank");
}

/* ── large works in memory of all ranks ───────────────────────────────────────────────────── */
enum { LARGE = 99 * 1000, LARGES = 90, LARGE_BYTES = LARGE * 4 };

/* Whole numbers, so that the order of a sum does not show. */
static float large_value(int rank, int i, int64_t j) { return (float)(rank * 7 + i + j % 1001); }

static float large_sum(int i, int64_t j) {
  float sum = 0;
  for (int r = 0; r < RANKS; r++) sum += large_value(r, i, j);
  return sum;
}

/* What element j of the result is. */
static float large_expected(CommKind kind, int rank, int i, int64_t j) {
  int64_t part = LARGE / RANKS;
  switch (kind) {
  case COMM_ALL_REDUCE:
    return large_sum(i, j);
  case COMM_REDUCE_SCATTER:
    return large_sum(i, rank * part + j);
  case COMM_ALL_GATHER:
    return large_value((int)(j / LARGE), i, j % LARGE);
  case COMM_ALL_TO_ALL:
    return large_value((int)(j / part), i, rank * part + j % part);
  default:
    return large_value(1, i, j);
  }
}

static void do_large_one(Rank *rank, int i, float *x, float *out) {
  CommKind kind = (CommKind)(i % 5);
  bool can_be_in_place = kind != COMM_REDUCE_SCATTER && kind != COMM_ALL_GATHER;
  if (can_be_in_place && i % 2) out = x;
  int64_t made = kind == COMM_ALL_GATHER       ? LARGE * RANKS
                 : kind == COMM_REDUCE_SCATTER ? LARGE / RANKS
                                               : LARGE;
  for (int64_t j = 0; j < LARGE; j++) x[j] = large_value(rank->rank, i, j);
  CommWork work = {.kind = kind,
                   .peer = kind == COMM_BROADCAST,
                   .dtype = DT_F32,
                   .count = LARGE,
                   .x = x,
                   .out = out,
                   .is_shared = true,
                   .label = "large"};
  int64_t number;
  rank->status = i % 3 ? comm_begin(rank->comm, &work, &number) : comm_do(rank->comm, &work);
  if (i % 3 && rank->status == STATUS_OK) rank->status = comm_end(rank->comm, number);
  for (int64_t j = 0; j < made && rank->status == STATUS_OK; j += j % 7 + 1)
    rank->wrong += out[j] != large_expected(kind, rank->rank, i, j);
}

/* Memory comes and goes, and is not had for ever. */
static void do_large(Rank *rank) {
  enum { PER_MEMORY = 30, MOST = 100 };
  char *more[MOST];
  int count = 0;
  for (int i = 0; i < LARGES && rank->status == STATUS_OK; i += PER_MEMORY) {
    char *memory = comm_memory_new(rank->comm, (RANKS + 1) * LARGE_BYTES);
    if (!memory || !comm_holds(rank->comm, memory + 4, LARGE_BYTES)) rank->wrong++;
    if (rank->wrong) return;
    for (int k = i; k < i + PER_MEMORY && rank->status == STATUS_OK; k++)
      do_large_one(rank, k, (float *)(void *)memory, (float *)(void *)(memory + LARGE_BYTES));
    if (rank->status == STATUS_OK) rank->status = comm_barrier(rank->comm, "a memory");
    rank->wrong += !comm_memory_free(rank->comm, memory);
  }
  while (count < MOST && (more[count] = comm_memory_new(rank->comm, 100))) count++;
  rank->wrong += count == 0 || count == MOST || comm_memory_free(rank->comm, (char *)rank);
  while (count) rank->wrong += !comm_memory_free(rank->comm, more[--count]);
}

static void large(void **state) {
  (void)state;
  Rank rank[RANKS];
  run_ranks(RANKS, 60, do_large, rank);
  expect_good(rank, RANKS);
}

static void do_differently(Rank *rank) {
  float x[8] = {0};
  CommWork work = {.dtype = DT_F32, .count = 8, .x = x, .out = x, .label = "weights"};
  for (int i = 0; i < 20 && rank->status == STATUS_OK; i++) {
    if (i == 7 && rank->rank == 2) work.label = "gradients";
    rank->status = comm_do(rank->comm, &work);
    usleep(20000);
  }
}

static void another_work(void **state) {
  (void)state;
  Rank rank[RANKS];
  run_ranks(RANKS, 60, do_differently, rank);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(rank[r].status, STATUS_FAULT);
    assert_non_null(strstr(rank[r].message, "has begun all_reduce of 8 f32 (gradients) as "
                                            "collective #8, and rank 0 all_reduce of 8 f32 "
                                            "(weights)"));
  }
}

static void stay_away(Rank *rank) {
  float x[8] = {0};
  CommWork work = {.dtype = DT_F32, .count = 8, .x = x, .out = x, .label = "weights"};
  rank->status = comm_do(rank->comm, &work);
  for (bool has_failed = rank->rank != 1; !has_failed; usleep(1000)) {
    pthread_mutex_lock(&rank->comm->lock);
    has_failed = rank->comm->has_failed;
    pthread_mutex_unlock(&rank->comm->lock);
  }
  if (rank->status == STATUS_OK) rank->status = comm_do(rank->comm, &work);
}

static void missing(void **state) {
  (void)state;
  Rank rank[RANKS];
  run_ranks(RANKS, 5, stay_away, rank); /* they join, and do the first work, in that time too */
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(rank[r].status, STATUS_FAULT);
    assert_non_null(strstr(rank[r].message, "has not entered all_reduce #2 (weights)"));
    assert_non_null(strstr(rank[r].message, "rank 1 (host"));
    assert_non_null(strstr(rank[r].message, "the other 2 wait"));
  }
}

/* The engine of one rank fails: the others are told so. */
static void cut(void **state) {
  (void)state;
  Rank rank[RANKS];
  is_apart = true;
  setenv("FAKE_ENGINE_FAILS", "40", 1);
  run_ranks(RANKS, 60, do_many, rank);
  unsetenv("FAKE_ENGINE_FAILS");
  is_apart = false;
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(rank[r].status, STATUS_FAULT);
    assert_non_null(strstr(rank[r].message, "rank 1 (host"));
    assert_non_null(strstr(rank[r].message, "the cable is cut"));
  }
}

/* ── plans ────────────────────────────────────────────────────────────────────────────────── */
/* Buckets of gradients: for each, k_make makes it, its sum goes on beside the making of the next,
 * and k_use adds it to the weights. */
enum { BUCKETS = 6, ITEMS = 256, BYTES = ITEMS * 4 };

void k_make(void *const *args, int64_t begin, int64_t end);
void k_use(void *const *args, int64_t begin, int64_t end);
void k_make(void *const *args, int64_t begin, int64_t end) {
  const float *seed = args[0];
  float *out = args[1];
  usleep((unsigned)seed[0] * 37 % 11 * 30); /* on each rank another bucket is ready first */
  for (int64_t i = begin; i < end; i++) out[i] = seed[i] * 2 + 1;
}
void k_use(void *const *args, int64_t begin, int64_t end) {
  const float *sum = args[0];
  float *weights = args[2];
  for (int64_t i = begin; i < end; i++) weights[i] += sum[i];
}

static int add(Plan *plan, PlanGraph *graph, PlanStep step, int after) {
  int *waits = ARENA_ARRAY(plan->arena, int, 1);
  waits[0] = after;
  step.after = waits;
  step.after_count = after >= 0;
  VEC_PUSH(plan->arena, graph->steps, step);
  return graph->steps.count - 1;
}

static int *list(Plan *plan, int a, int b, int c) {
  int *args = ARENA_ARRAY(plan->arena, int, 3);
  args[0] = a, args[1] = b, args[2] = c;
  return args;
}

static PlanStep launch(Plan *plan, const char *kernel, int a, int b, int c, int inputs) {
  return (PlanStep){.kind = STEP_LAUNCH,
                    .name = kernel,
                    .args = list(plan, a, b, c),
                    .arg_count = inputs + 1,
                    .input_count = inputs,
                    .work = ITEMS,
                    .grain = 16,
                    .label = kernel};
}

static PlanStep begin_of(Plan *plan, const char *kind, int x, int out, int end) {
  static const PlanInt ints[] = {{"group", 0}, {"op", 0}, {"peer", 0}};
  bool has_peer = !strcmp(kind, "broadcast"), has_op = !strcmp(kind, "all_reduce");
  return (PlanStep){.kind = STEP_BEGIN,
                    .name = kind,
                    .args = list(plan, x, out, 0),
                    .arg_count = 2,
                    .input_count = 1,
                    .ints = has_peer ? ints + 2 : ints,
                    .int_count = has_peer || !has_op ? 1 : 2,
                    .partner = end,
                    .queue = QUEUE_COMMUNICATE,
                    .label = "a bucket"};
}

/* Buffers: the seeds, the buckets, the weights. */
static Plan *make_plan(Arena *arena, const char *kind) {
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena, .target = "cpu", .target_cpu = "x86-64"};
  VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = "train"});
  PlanGraph *graph = &plan->graphs.at[0];
  for (int i = 0; i < 2 * BUCKETS + 1; i++) {
    PlanBuffer buffer = {PLACE_WORK, i * BYTES, {DT_F32, {1, {ITEMS}}}};
    VEC_PUSH(arena, graph->buffers, buffer);
  }
  int use = -1, begun[BUCKETS];
  for (int i = 0; i < BUCKETS; i++) {
    PlanStep step = launch(plan, "k_make", i, BUCKETS + i, 0, 1);
    step.grain = ITEMS; /* each by one thread */
    int make = add(plan, graph, step, -1);
    begun[i] = add(plan, graph,
                   begin_of(plan, kind, BUCKETS + i, BUCKETS + i, 2 * BUCKETS + 2 * i), make);
  }
  for (int i = 0; i < BUCKETS; i++) {
    PlanStep end = {.kind = STEP_END,
                    .name = "end",
                    .partner = begun[i],
                    .queue = QUEUE_COMMUNICATE,
                    .label = "a bucket"};
    int ended = add(plan, graph, end, begun[i]);
    use = add(plan, graph, launch(plan, "k_use", BUCKETS + i, 2 * BUCKETS, 2 * BUCKETS, 2), ended);
    if (i == 0) continue;
    PlanStep *step = &graph->steps.at[use]; /* and for the one before it */
    int *waits = ARENA_ARRAY(arena, int, 2);
    waits[0] = use - 2, waits[1] = ended;
    step->after = waits;
    step->after_count = 2;
  }
  return plan;
}

enum { RUNS = 60 };

typedef struct {
  Arena *arena;
  Artifact *artifact;
  Device *device;
  DeviceGraph *graph;
  char *memory;
  void *library;
} Run;

static Status open_run(Run *run, const char *kind, Comm *comm, int reserved) {
  DeviceOptions options = {.threads = 2 + reserved, .reserved = reserved, .comm = comm};
  char *base[STANDARD_PLACE_COUNT] = {0};
  *run = (Run){.arena = arena_new()};
  run->library = dlopen(NULL, RTLD_NOW);
  run->memory = aligned_alloc(64, (2 * BUCKETS + 1) * BYTES);
  memset(run->memory, 0, (2 * BUCKETS + 1) * BYTES);
  base[PLACE_WORK] = run->memory;
  STATUS_TRY(artifact_from_plan(make_plan(run->arena, kind), run->library, &run->artifact));
  STATUS_TRY(dev_cpu.open(run->artifact, &options, &run->device));
  return dev_cpu.bind(run->device, run->artifact, 0, base, &run->graph);
}

static void close_run(Run *run) {
  dev_cpu.unbind(run->graph);
  dev_cpu.close(run->device);
  artifact_close(run->artifact);
  arena_free(run->arena);
  free(run->memory);
}

static float *buffer_of(const Run *run, int index) {
  return (float *)(void *)(run->memory + index * BYTES);
}

/* A bucket after a run, of ranks whose seeds are their number + 1 + the bucket + the run. */
static float expected_sum(int ranks, int bucket, int run) {
  float sum = 0;
  for (int rank = 0; rank < ranks; rank++) sum += (float)(rank + 1 + bucket + run) * 2 + 1;
  return sum;
}

static void set_seeds(const Run *run, int rank, int number) {
  for (int b = 0; b < BUCKETS; b++)
    for (int i = 0; i < ITEMS; i++) buffer_of(run, b)[i] = (float)(rank + 1 + b + number);
}

static Status do_runs(Run *run, int rank, int ranks, bool in_parts, int *wrong) {
  float expected = 0;
  int steps = run->artifact->plan->graphs.at[0].steps.count;
  int64_t time = 0;
  for (int n = 0; n < RUNS; n++) {
    set_seeds(run, rank, n);
    for (int b = 0; b < BUCKETS; b++) expected += expected_sum(ranks, b, n);
    for (int i = 0; in_parts && i < steps; i++)
      STATUS_TRY(dev_cpu.run_part(run->graph, run->memory, i, i + 1, &time));
    if (!in_parts) STATUS_TRY(dev_cpu.run(run->graph, run->memory));
    for (int i = 0; i < ITEMS; i++)
      if (buffer_of(run, 2 * BUCKETS)[i] != expected) ++*wrong;
    for (int b = 0; b < BUCKETS; b++) /* none was summed with another one's */
      if (buffer_of(run, BUCKETS + b)[7] != expected_sum(ranks, b, n)) ++*wrong;
  }
  return dev_cpu.sync(run->device);
}

static void alone(void **state) {
  (void)state;
  static const char *const kinds[] = {"all_reduce", "broadcast", "all_gather", "all_to_all"};
  for (int i = 0; i < 16; i++) {
    Run run;
    int wrong = 0;
    assert_int_equal(open_run(&run, kinds[i % 4], NULL, i / 4 % 2), STATUS_OK);
    assert_int_equal(do_runs(&run, 0, 1, i >= 8, &wrong), STATUS_OK);
    assert_int_equal(wrong, 0);
    close_run(&run);
  }
}

/* What one rank cannot do, and what is for other groups and other numbers of ranks. */
static void refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"send", "which needs several ranks"},
                                         {"group", "no group 5 of ranks"},
                                         {"parts", "another number of ranks than 1: compile it with ftc --set distributed.data=1"}};
  for (int i = 0; i < 3; i++) {
    Run run;
    char *base[STANDARD_PLACE_COUNT] = {0};
    assert_int_equal(open_run(&run, "all_reduce", NULL, 0), STATUS_OK);
    PlanGraph *graph = &run.artifact->plan->graphs.at[0];
    PlanStep *step = &graph->steps.at[1];
    static const PlanInt group[] = {{"group", MESH_AXIS_COUNT}, {"op", 0}};
    DeviceGraph *bound;
    if (i == 0) step->name = "send", step->arg_count = 1;
    if (i == 1) step->ints = group;
    if (i == 2) step->name = "reduce_scatter", graph->buffers.at[0].type.shape.dim[0] = ITEMS / 2,
                ((int *)(uintptr_t)step->args)[1] = 0;
    base[PLACE_WORK] = run.memory;
    assert_int_equal(dev_cpu.bind(run.device, run.artifact, 0, base, &bound), STATUS_USER);
    if (!strstr(status_message(), cases[i][1])) fail_msg("%s", status_message());
    close_run(&run);
  }
}

static bool in_parts;
static int reserved;
static void do_plan(Rank *rank) {
  Run run;
  rank->status = open_run(&run, "all_reduce", rank->comm, reserved);
  if (rank->status == STATUS_OK)
    rank->status = do_runs(&run, rank->rank, rank->ranks, in_parts, &rank->wrong);
  close_run(&run);
}

static void plans(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    Rank rank[RANKS];
    in_parts = i & 1;
    reserved = i >> 1;
    run_ranks(RANKS, 60, do_plan, rank);
    expect_good(rank, RANKS);
  }
}

/* The run ends with the sentence, on every rank. */
static void plan_is_cut(void **state) {
  (void)state;
  Rank rank[RANKS];
  is_apart = true;
  setenv("FAKE_ENGINE_FAILS", "40", 1);
  run_ranks(RANKS, 60, do_plan, rank);
  unsetenv("FAKE_ENGINE_FAILS");
  is_apart = false;
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(rank[r].status, STATUS_FAULT);
    assert_non_null(strstr(rank[r].message, "all_reduce (a bucket): the cable is cut"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many),  cmocka_unit_test(another_work), cmocka_unit_test(missing),
      cmocka_unit_test(cut),   cmocka_unit_test(alone),        cmocka_unit_test(refused),
      cmocka_unit_test(plans), cmocka_unit_test(plan_is_cut),  cmocka_unit_test(large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
