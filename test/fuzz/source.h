/* Any bytes as a file of KIND, a row of plan/sources.def, plain or gzip: opened, read and
 * converted, or refused. CMakeLists.txt makes a target of each row. Where the kind has options, the
 * last byte says what they are. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/data/source_array.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void convert_all(const DataArray *array) {
  int64_t count = shape_elements(&array->header.shape);
  if (count > 1 << 20) count = 1 << 20;
  for (int dtype = 0; dtype < DT_COUNT; dtype++) {
    if (!element_converts(array->header.element, (DType)dtype)) continue;
    void *to = malloc((size_t)count * 8 + 8);
    int64_t done = element_convert(array_at(array), array->header.element,
                                   array->header.is_big_endian, count, (DType)dtype, to);
    if (done < 0 || done > count) abort();
    free(to);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { MOST = 8 };
  char path[64], words[256];
  const char *names[MOST];
  double values[MOST];
  DataSource source = {.kind = KIND, .option_names = names, .option_values = values};
  snprintf(words, sizeof words, "%s", source_kind_find(KIND)->options);
  for (char *word = strtok(words, " "); word && source.option_count < MOST;
       word = strtok(NULL, " ")) {
    names[source.option_count] = word;
    values[source.option_count++] = size ? 16 * (data[size - 1] & 3) : 0;
  }
  int fd = memfd_create("fuzz", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  DataArray *array;
  if (fd >= 0 && write(fd, data, size) == (ssize_t)size && array_open(&source, path, &array) == 0) {
    if (source_bytes_check(array->bytes) == STATUS_OK) convert_all(array);
    array_close(array);
  }
  close(fd);
  return 0;
}
