#define _GNU_SOURCE /* memfd_create */
/* Any bytes as an IDX file, plain or gzip: opened, read and converted, or refused. */
#include "runtime/data/source_array.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef KIND
#define KIND "idx"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  int fd = memfd_create("fuzz", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  DataArray *array;
  if (fd >= 0 && write(fd, data, size) == (ssize_t)size && array_open(KIND, path, &array) == 0) {
    if (source_bytes_check(array->bytes) == STATUS_OK) {
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
    array_close(array);
  }
  close(fd);
  return 0;
}
