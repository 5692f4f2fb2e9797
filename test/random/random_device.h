/* random_device: a compiled program on the device that users train on, with more threads than the
 * machine may have cores, so that the steps run beside each other in whatever order the moment
 * makes. All that is left in memory must be, to the bit, what the same steps leave one by one. The
 * helpers' runs above go through the steps in one thread and make the products themselves: of the
 * executor, and of the libraries that it calls in several threads at once, they see nothing. */
#ifndef FT_TEST_RANDOM_DEVICE_H
#define FT_TEST_RANDOM_DEVICE_H
#include "test/random/random_case.h"

enum { DEVICE_THREADS = 5, DEVICE_TURNS = 4 };

/* The device stays open from program to program, as its threads and its libraries do for a user. */
static Device *open_device(const Artifact *artifact) {
  static Device *device;
  DeviceOptions options = {.threads = DEVICE_THREADS + 1, .reserved = 1};
  if (!device && dev_cpu.open(artifact, &options, &device) != STATUS_OK)
    reject("%s", status_message());
  return device;
}

/* In half of the programs some steps are in a queue beside compute, which the reserved thread has
 * for its own: the lists of who waits for whom are what they were. */
static void put_aside(Plan *plan) {
  for (int which = 0; which < plan->graphs.count; which++) {
    PlanGraph *graph = &plan->graphs.at[which];
    for (int i = 0; i < graph->steps.count && graph->steps.count % 2; i++)
      if (i * 2654435761u >> 16 & 1)
        graph->steps.at[i].queue = i % 3 ? QUEUE_COMMUNICATE : QUEUE_HOST;
  }
}

static void bind_device(Case *c) {
  put_aside(c->code.code.plan);
  if (artifact_from_plan(c->code.code.plan, c->code.library, &c->artifact) != STATUS_OK)
    reject("%s", status_message());
  Device *device = open_device(c->artifact);
  for (int which = 0; which < c->artifact->plan->graphs.count; which++)
    if (dev_cpu.bind(device, c->artifact, which, c->code.memory, &c->bound[which]) != STATUS_OK)
      reject("%s", status_message());
}

static void unbind_device(Case *c) {
  for (int which = 0; which < PROGRAM_GRAPHS; which++) dev_cpu.unbind(c->bound[which]);
  artifact_close(c->artifact);
}

/* One by one: with a barrier after each step. */
static void execute_on_device(Case *c, int which, bool one_by_one) {
  const char *batch = c->code.memory[PLACE_INPUT];
  int steps = c->code.code.plan->graphs.at[which].steps.count;
  int64_t time = 0;
  Status status = STATUS_OK;
  if (!one_by_one) status = dev_cpu.run(c->bound[which], batch);
  for (int i = 0; one_by_one && i < steps && status == STATUS_OK; i++)
    status = dev_cpu.run_part(c->bound[which], batch, i, i + 1, &time);
  if (status != STATUS_OK) reject("%s", status_message());
}
#endif
