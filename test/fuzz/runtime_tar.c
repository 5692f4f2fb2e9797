/* Any bytes as a shard of samples, plain, gzip or zstd: listed, and every file of every sample read and
 * converted, or refused. The last byte says what the model's inputs are. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/data/sample_set.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 2 };
static const char *const keys[] = {"jpg;jpeg;png, cls", "npy, id;json", "json, json:a",
                                   "cls;json:x, v.npy"};

static void read_all(const SampleSet *set) {
  Sample room = {0}, other = {0};
  Text name = {0};
  _Alignas(8) uint8_t row[64];
  int64_t which, largest, total;
  for (int64_t i = 0; i < set->count; i++) {
    if (set->is_image && set->read(set, i, &room) == STATUS_OK && !room.count) abort();
    for (int k = set->is_image; k < 2; k++)
      if (set->write(set, i, k, 1, 2, &other, row) == STATUS_OK && k == 1 && row[0] > 9) abort();
    name.count = 0;
    set->name(set, i, &name);
  }
  if (set->measure(set, &which, &largest, &total) != STATUS_OK || which > set->count) abort();
  set->sum(set);
  text_free(&name);
  free(room.at);
  free(other.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char file[64], *path = file;
  unsigned said = size ? data[size - 1] : 0;
  const PlanTensor inputs[] = {
      {.name = "x", .type = {said & 4 ? DT_F32 : DT_I32, {2, {BATCH, 1 + (said >> 3 & 1)}}}},
      {.name = "y", .type = {DT_U8, {1, {BATCH}}}, .below = 10}};
  DataOption option = {.name = "keys", .text = keys[said & 3]};
  DataSource source = {.split = "train", .kind = "tar", .options = &option, .option_count = 1};
  int fd = memfd_create("fuzz", 0);
  snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
  SampleSetOptions options = {.data = &source,
                              .path = &path,
                              .path_count = 1,
                              .inputs = inputs,
                              .input_count = 2,
                              .rows = BATCH};
  SampleSet *set;
  if (fd >= 0 && write(fd, data, size) == (ssize_t)size &&
      tar_samples(&options, &set) == STATUS_OK) {
    read_all(set);
    sample_set_close(set);
  }
  close(fd);
  return 0;
}
