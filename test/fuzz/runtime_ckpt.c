/* runtime_ckpt: any bytes as a checkpoint or as weights of a small training: read whole, or refused
 * with nothing changed; never a crash. As they are, and with the right sum in them, so that the
 * fuzzer gets past it. The file is in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors_sum.h"
#include "test/unit/runtime_small.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static Exec *exec;

static void set_up(void) {
  static const char *const names[SMALL_NAMES] = {"w", "b", "mean", "@sgd.momentum"};
  Artifact *artifact;
  if (small_open(names, true, &artifact, &exec) || exec_init(exec, 1)) abort();
}

static void look(char *bytes) {
  if (exec_read(exec, PLACE_PARAMS, 0, SMALL_PARAM_BYTES, bytes) ||
      exec_read(exec, PLACE_STATE, 0, SMALL_STATE_BYTES, bytes + SMALL_PARAM_BYTES))
    abort();
}

static void read_all(const uint8_t *data, size_t size) {
  char path[64], before[SMALL_PARAM_BYTES + SMALL_STATE_BYTES],
      after[SMALL_PARAM_BYTES + SMALL_STATE_BYTES];
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
}

/* Puts the sum where there is a place for it. */
static bool mend_sum(uint8_t *data, size_t size) {
  Safetensors *file;
  if (safetensors_read(data, size, &file) != STATUS_OK) return false;
  size_t place;
  uint64_t data_sum = 0, bytes = 0;
  for (int i = 0; i < file->tensor_count; i++) {
    data_sum += safetensors_sum_part(bytes, file->tensor[i].data, file->tensor[i].bytes);
    bytes += file->tensor[i].bytes;
  }
  uint64_t sum =
      safetensors_sum_all((char *)data, file->private_head_bytes, data_sum, bytes, &place);
  char digits[SAFE_SUM_DIGITS + 1];
  safetensors_sum_text(sum, digits);
  if (place) memcpy(data + place, digits, SAFE_SUM_DIGITS);
  safetensors_close(file);
  return place != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!exec) set_up();
  read_all(data, size);
  uint8_t *copy = malloc(size + 1);
  if (!copy) abort();
  memcpy(copy, data, size);
  if (mend_sum(copy, size)) read_all(copy, size);
  free(copy);
  return 0;
}
