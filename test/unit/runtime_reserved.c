/* A thread that the cpu device leaves to queues beside compute and to loading: it does their steps
 * while a step computes, loads, and no step waits for it when it does not come. The kernels tell
 * which thread they ran on. */
#define _GNU_SOURCE /* mkdtemp, gettid */
#include "runtime/device/dev.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* tell: (a) -> (thread). wait: (thread) -> (b), does not return before tell has run. read: (thread)
 * -> (c) */
static const char kernels[] =
    "typedef long I; int gettid(void); int usleep(unsigned);\n"
    "void k_tell(void **a, I b, I e) {\n"
    "  for (I i = b; i < e; i++) ((volatile int *)a[1])[i] = gettid();\n"
    "}\n"
    "void k_slow(void **a, I b, I e) {\n"
    "  usleep(300);\n"
    "  for (I i = b; i < e; i++) ((volatile int *)a[1])[i] = *(int *)a[0] + 1;\n"
    "}\n"
    "void k_wait(void **a, I b, I e) {\n"
    "  for (int i = 0; b < e && !*(volatile int *)a[0] && i < 30000; i++) usleep(1000);\n"
    "  if (b < e) *(int *)a[1] = *(volatile int *)a[0];\n"
    "}\n"
    "void k_read(void **a, I b, I e) {\n"
    "  if (b < e) *(int *)a[1] = *(int *)a[0];\n"
    "}\n";

enum { ITEMS = 64, PLACE = 1024, PLACES = 4 };
static _Alignas(64) char memory[PLACE * PLACES];
static int *place(int number) { return (int *)(void *)(memory + number * PLACE); }

static void add(Plan *plan, PlanGraph *graph, const char *kernel, int from, int to, QueueId queue,
                int after) {
  int *args = ARENA_ARRAY(plan->arena, int, 2), *waits = ARENA_ARRAY(plan->arena, int, 1);
  args[0] = from;
  args[1] = to;
  waits[0] = after;
  PlanStep step = {.kind = STEP_LAUNCH,
                   .name = kernel,
                   .args = args,
                   .arg_count = 2,
                   .input_count = 1,
                   .queue = queue,
                   .after = waits,
                   .after_count = after >= 0,
                   .work = ITEMS,
                   .grain = 1,
                   .label = kernel};
  VEC_PUSH(plan->arena, graph->steps, step);
}

static PlanGraph *add_graph(Plan *plan, const char *name) {
  VEC_PUSH(plan->arena, plan->graphs, (PlanGraph){.name = name});
  PlanGraph *graph = &plan->graphs.at[plan->graphs.count - 1];
  for (int i = 0; i < PLACES; i++) {
    PlanBuffer buffer = {PLACE_WORK, i * PLACE, {DT_I32, {1, {ITEMS}}}};
    VEC_PUSH(plan->arena, graph->buffers, buffer);
  }
  return graph;
}

typedef struct {
  void *library;
  Artifact *artifact;
  Arena *arena;
  Device *device;
  DeviceGraph *beside, *behind, *between;
} Fixture;

static void *build(void) {
  char folder[] = "/tmp/ft-reserved-XXXXXX", command[256], path[64], source[64];
  assert_non_null(mkdtemp(folder));
  snprintf(source, sizeof source, "%s/k.c", folder);
  snprintf(path, sizeof path, "%s/k.so", folder);
  FILE *file = fopen(source, "w");
  assert_non_null(file);
  fputs(kernels, file);
  fclose(file);
  snprintf(command, sizeof command, "cc -w -O1 -shared -fPIC -o %s %s", path, source);
  assert_int_equal(system(command), 0);
  void *library = dlopen(path, RTLD_NOW);
  assert_non_null(library);
  unlink(source);
  unlink(path);
  rmdir(folder);
  return library;
}

static void open_all(Fixture *f, int threads, int reserved) {
  DeviceOptions options = {.threads = threads, .reserved = reserved};
  char *base[STANDARD_PLACE_COUNT] = {[PLACE_WORK] = memory};
  memset(memory, 0, sizeof memory);
  f->library = build();
  f->arena = arena_new();
  Plan *plan = ARENA_NEW(f->arena, Plan);
  *plan = (Plan){.arena = f->arena, .target = "cpu", .target_cpu = "x86-64"};
  /* beside one another: the first does not end before the second has run */
  PlanGraph *graph = add_graph(plan, "beside");
  add(plan, graph, "k_wait", 1, 2, QUEUE_COMPUTE, -1);
  add(plan, graph, "k_tell", 0, 1, QUEUE_COMMUNICATE, -1);
  graph = add_graph(plan, "behind");
  add(plan, graph, "k_tell", 0, 1, QUEUE_HOST, -1);
  add(plan, graph, "k_read", 1, 3, QUEUE_COMPUTE, 0);
  graph = add_graph(plan, "between");
  add(plan, graph, "k_slow", 0, 1, QUEUE_COMPUTE, -1);
  add(plan, graph, "k_read", 1, 2, QUEUE_COMMUNICATE, 0);
  add(plan, graph, "k_read", 2, 3, QUEUE_COMPUTE, 1);
  assert_int_equal(artifact_from_plan(plan, f->library, &f->artifact), STATUS_OK);
  assert_int_equal(dev_cpu.open(f->artifact, &options, &f->device), STATUS_OK);
  assert_int_equal(dev_cpu.bind(f->device, f->artifact, 0, base, &f->beside), STATUS_OK);
  assert_int_equal(dev_cpu.bind(f->device, f->artifact, 1, base, &f->behind), STATUS_OK);
  assert_int_equal(dev_cpu.bind(f->device, f->artifact, 2, base, &f->between), STATUS_OK);
}

static void close_all(Fixture *f) {
  dev_cpu.unbind(f->beside);
  dev_cpu.unbind(f->behind);
  dev_cpu.unbind(f->between);
  dev_cpu.close(f->device);
  artifact_close(f->artifact);
  arena_free(f->arena);
  dlclose(f->library);
}

static void run(DeviceGraph *graph) { assert_int_equal(dev_cpu.run(graph, memory), STATUS_OK); }

static void does_its_queues(void **state) {
  (void)state;
  for (int computing = 1; computing <= 2; computing++) {
    Fixture f;
    open_all(&f, computing + 1, 1);
    assert_non_null(strstr(dev_cpu.describe(f.device), "and 1 reserved"));
    int first = 0;
    for (int i = 0; i < 20; i++) {
      memset(memory, 0, sizeof memory);
      run(f.beside);
      int thread = *place(1);
      assert_int_not_equal(thread, 0);
      assert_int_equal(*place(2), thread);
      if (computing == 1) { /* nobody else is there */
        assert_int_not_equal(thread, gettid());
        if (first) assert_int_equal(thread, first);
        first = thread;
      }
      for (int k = 0; k < ITEMS; k++) assert_int_equal(place(1)[k], thread); /* not split */
    }
    close_all(&f);
  }
}

/* It waits for what its steps read, and is waited for. */
static void keeps_the_order(void **state) {
  (void)state;
  for (int threads = 2; threads <= 4; threads++) {
    Fixture f;
    open_all(&f, threads, 1);
    for (int i = 1; i < 300; i++) {
      *place(0) = i;
      run(f.between);
      assert_int_equal(*place(3), i + 1);
    }
    close_all(&f);
  }
}

static atomic_int loader; /* the thread that loads */
static atomic_bool may_end;
static void load(void *context) {
  (void)context;
  atomic_store(&loader, gettid());
  while (!atomic_load(&may_end)) usleep(100);
}

/* It is at something else: its steps are done by who needs them. */
static void nobody_waits_for_it(void **state) {
  (void)state;
  Fixture f;
  open_all(&f, 2, 1);
  atomic_store(&loader, 0);
  atomic_store(&may_end, false);
  for (int i = 0; i < 30000 && !atomic_load(&loader); i++) {
    assert_int_equal(dev_cpu.run_beside(f.behind, memory, load, NULL), STATUS_OK);
    usleep(100);
  }
  assert_int_not_equal(atomic_load(&loader), 0);
  assert_int_not_equal(atomic_load(&loader), gettid());
  for (int i = 0; i < 200; i++) {
    memset(memory, 0, sizeof memory);
    run(f.behind);
    assert_int_equal(*place(3), gettid());
  }
  atomic_store(&may_end, true);
  assert_int_equal(dev_cpu.sync(f.device), STATUS_OK);
  memset(memory, 0, sizeof memory);
  run(f.beside);
  assert_int_equal(*place(1), atomic_load(&loader)); /* it is back */
  close_all(&f);
}

/* None reserved: other threads of the pool do those steps, in parts. */
static void none(void **state) {
  (void)state;
  Fixture f;
  open_all(&f, 2, 0);
  assert_null(strstr(dev_cpu.describe(f.device), "reserved"));
  for (int i = 0; i < 20; i++) {
    memset(memory, 0, sizeof memory);
    run(f.behind);
    assert_int_not_equal(*place(3), 0);
  }
  close_all(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(does_its_queues),
                                     cmocka_unit_test(keeps_the_order),
                                     cmocka_unit_test(nobody_waits_for_it), cmocka_unit_test(none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
