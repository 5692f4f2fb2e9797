/* runtime_train: any bytes as the plan of an artifact whose kernels are those of train.ptx: opened,
 * initialised, trained two steps and evaluated on the simulator, saved as weights and as a
 * checkpoint, and both read back. Each part may be refused with a sentence, but what was saved must
 * be taken again, and nothing crashes. The plan's checksum is made right first. train.ptx is
 * train.ft, compiled; it must itself come to the end, or this target tests nothing. */
#define _GNU_SOURCE /* memfd_create */
#include "plan/plan_text.h"
#include "runtime/command/bench.h"
#include "runtime/execute/programme.h"
#include "runtime/checkpoint/ckpt.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__asm__(".section .rodata\n"
        ".global fuzz_train_ptx\n"
        "fuzz_train_ptx:\n"
        ".incbin \"test/fuzz/train.ptx\"\n"
        ".byte 0\n"
        ".text\n");
extern const char fuzz_train_ptx[];

enum { MOST_BYTES = 1 << 20, MOST_STEPS = 64, MOST_THREADS = 4096 };
static char weights[64], checkpoint[64];

static void remove_files(void) {
  unlink(weights);
  unlink(checkpoint);
  *strrchr(weights, '/') = 0;
  rmdir(weights);
}

/* Larger ones are as good, and take longer. */
static bool is_small(const Plan *plan) {
  int64_t bytes = 0;
  for (int i = 0; i < plan->places.count; i++) {
    if (plan->places.at[i].bytes > MOST_BYTES) return false;
    bytes += plan->places.at[i].bytes;
  }
  for (int g = 0; g < plan->graphs.count; g++) {
    if (plan->graphs.at[g].steps.count > MOST_STEPS) return false;
    for (int i = 0; i < plan->graphs.at[g].steps.count; i++) {
      const PlanStep *step = &plan->graphs.at[g].steps.at[i];
      int64_t threads = 1;
      for (int k = 0; k < 3 && step->kind == STEP_LAUNCH; k++) {
        if (step->grid[k] > MOST_THREADS || step->block[k] > MOST_THREADS) return false;
        threads *= step->grid[k] * step->block[k];
        if (threads > MOST_THREADS) return false;
      }
    }
  }
  return bytes <= MOST_BYTES && setting_number(plan->settings, "train.accumulate") < 8;
}

static Status train(Exec *exec) {
  void *batch;
  Programme programme;
  STATUS_TRY(programme_start(exec, PROGRAMME_STEP, &programme));
  STATUS_TRY(exec_batch_new(exec, &batch));
  bench_fill_batch(exec_plan(exec), batch, 1);
  Status status = exec_write_settings(exec);
  if (status == STATUS_OK) status = exec_init(exec, 1);
  for (int step = 0; step < 2 && status == STATUS_OK; step++) {
    do status = exec_run(exec, programme_graph(&programme), batch);
    while (status == STATUS_OK && !programme_advance(&programme, 1));
  }
  ExecGraph graph = exec_result_graph(exec, PROGRAMME_STEP);
  ExecGraph average = exec_result_graph(exec, PROGRAMME_EVALUATE_AVERAGE);
  int loss = exec_find_output(exec, graph, OUTPUT_LOSS, NULL);
  double value;
  if (status == STATUS_OK && loss >= 0) status = exec_scalar(exec, graph, loss, &value);
  if (status == STATUS_OK)
    status = exec_run(exec, exec_result_graph(exec, PROGRAMME_EVALUATE), batch);
  if (status == STATUS_OK && average >= 0) status = exec_run(exec, average, batch);
  if (status == STATUS_OK) {
    status = exec_check_params(exec);
    if (status == STATUS_USER) status = STATUS_OK; /* anything may have been computed */
  }
  exec_batch_free(exec, batch);
  return status;
}

/* What can be written can be read. */
static void save(Exec *exec) {
  CkptInfo info = {.step = 2, .batch = 2, .samples = 2}, found;
  Text notes = {0};
  bool is_damaged;
  if (ckpt_save_weights(exec, NULL, weights) == STATUS_OK &&
      ckpt_load_weights(exec, weights, &notes) != STATUS_OK) {
    fprintf(stderr, "weights: %s\n", status_message());
    abort();
  }
  if (ckpt_save(exec, NULL, checkpoint, &info) == STATUS_OK &&
      (ckpt_resume_file(exec, checkpoint, &found, &is_damaged) != STATUS_OK || found.step != 2)) {
    fprintf(stderr, "checkpoint: %s\n", status_message());
    abort();
  }
  text_free(&notes);
}

/* Returns whether it came to the end. */
static bool take(const char *bytes, size_t size) {
  char path[64];
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  Artifact *artifact = NULL;
  Exec *exec = NULL;
  Status status = artifact_open(path, &artifact);
  bool is_whole = false;
  if (status == STATUS_OK && is_small(artifact->plan)) {
    status = exec_new(artifact, &(ExecOptions){.device = "sim", .threads = 1}, &exec);
    if (status == STATUS_OK) status = train(exec);
    if (status == STATUS_OK) save(exec);
    is_whole = status == STATUS_OK;
  }
  if (status != STATUS_OK && !status_message()[0]) abort();
  exec_free(exec);
  if (artifact) artifact_close(artifact);
  close(fd);
  return is_whole;
}

static void set_up(void) {
  char folder[32] = "/tmp/ft-fuzz-XXXXXX";
  if (!mkdtemp(folder)) abort();
  snprintf(weights, sizeof weights, "%s/w", folder);
  snprintf(checkpoint, sizeof checkpoint, "%s/c", folder);
  atexit(remove_files);
  if (take(fuzz_train_ptx, strlen(fuzz_train_ptx))) return;
  fprintf(stderr, "test/fuzz/train.ptx: %s; compile train.ft again\n", status_message());
  abort();
}

/* The lines without a checksum of their own, as the head of the artifact, and the right one. */
static void append_head(Text *out, const char *plan, size_t size) {
  Text body = {0};
  for (const char *at = plan, *stop = plan + size; at < stop;) {
    const char *end = memchr(at, '\n', (size_t)(stop - at));
    size_t length = (size_t)((end ? end : stop) - at);
    if (length < 9 || memcmp(at, "checksum ", 9) != 0) {
      text_append(&body, at, length);
      text_append(&body, "\n", 1);
      text_append(out, "//@ft ", 6);
      text_append(out, at, length);
      text_append(out, "\n", 1);
    }
    at += length + 1;
  }
  text_printf(out, "//@ft checksum %016" PRIx64 "\n", plan_checksum(text_cstr(&body), body.count));
  text_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!weights[0]) set_up();
  Text artifact = {0};
  append_head(&artifact, (const char *)data, size);
  const char *body = strstr(fuzz_train_ptx, ".version");
  text_append(&artifact, body, strlen(body));
  take(artifact.at, artifact.count);
  text_free(&artifact);
  return 0;
}
