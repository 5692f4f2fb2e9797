/* runtime_ckpt: any bytes as a checkpoint or as weights of a small training: read whole, or refused
 * with nothing changed; never a crash. The file is in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/ckpt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARAM_BYTES = 128, STATE_BYTES = 256 };
static Exec *exec;

static PlanTensor tensor(const char *name, DType dtype, int rank, int64_t a, int64_t b,
                         int64_t offset) {
  return (PlanTensor){.name = name,
                      .type = {dtype, {rank, {a, b}}},
                      .offset = offset,
                      .init = {.text = "normal", .arg = {0, 1}, .arg_count = 2}};
}

static void set_up(void) {
  Artifact *artifact;
  Arena *arena = arena_new();
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena,
                 .model = "Test",
                 .source = "test.ft",
                 .target = "cpu",
                 .target_cpu = "x86-64",
                 .settings = settings_new(arena)};
  VEC_PUSH(arena, plan->params, tensor("w", DT_F32, 2, 3, 4, 0));
  VEC_PUSH(arena, plan->params, tensor("b", DT_F32, 1, 3, 0, 64));
  VEC_PUSH(arena, plan->states, tensor("mean", DT_F32, 1, 3, 0, 0));
  plan->states.at[0].is_saved = true;
  VEC_PUSH(arena, plan->states, tensor("sgd.momentum", DT_F32, 1, 32, 0, 64));
  plan->states.at[1].is_sliced = true;
  PlanTensor step = tensor("step", DT_I64, 0, 0, 0, 192);
  step.init = (Init){.text = "zeros"};
  VEC_PUSH(arena, plan->states, step);
  plan->arena_bytes[ARENA_PARAMS] = PARAM_BYTES;
  plan->arena_bytes[ARENA_STATE] = STATE_BYTES;
  plan->graph[0].name = "train";
  plan->graph[1].name = "eval";
  if (artifact_from_plan(plan, NULL, &artifact) || exec_new(artifact, &(ExecOptions){0}, &exec) ||
      exec_init(exec, 1))
    abort();
}

static void look(char *bytes) {
  if (exec_read(exec, ARENA_PARAMS, 0, PARAM_BYTES, bytes) ||
      exec_read(exec, ARENA_STATE, 0, STATE_BYTES, bytes + PARAM_BYTES))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64], before[PARAM_BYTES + STATE_BYTES], after[PARAM_BYTES + STATE_BYTES];
  if (!exec) set_up();
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  for (int as_weights = 0; as_weights < 2; as_weights++) {
    CkptInfo info;
    Text notes = {0};
    bool is_damaged;
    look(before);
    Status status = as_weights ? ckpt_load_weights(exec, path, &notes)
                               : ckpt_resume_file(exec, path, &info, &is_damaged);
    look(after);
    if (status != STATUS_OK && memcmp(before, after, sizeof before) != 0) abort();
    if (status != STATUS_OK && !status_message()[0]) abort();
    if (!as_weights && status == STATUS_OK && info.step < 0) abort();
    text_free(&notes);
  }
  close(fd);
  return 0;
}
