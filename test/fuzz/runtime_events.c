/* Any bytes as an event file of an earlier training: what is kept of it is whole, and keeps its
 * length when it is looked at again. */
#include "runtime/command/event_file.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int64_t steps[] = {-1, 0, 7, INT64_MAX};
  uint8_t *exact = malloc(size + !size); /* so that the sanitizer sees a read beyond the end */
  memcpy(exact, data, size);
  size_t before = 0;
  for (int i = 0; i < 4; i++) {
    size_t kept = event_bytes_to_keep(exact, size, steps[i]);
    if (kept > size || kept < before) abort();
    if (event_bytes_to_keep(exact, kept, steps[i]) != kept) abort();
    before = kept;
  }
  /* the same bytes as a message in a record with the right sums */
  Text message = {0}, record = {0};
  text_append(&message, (const char *)exact, size);
  event_append_record(&record, &message);
  size_t kept = event_bytes_to_keep(record.at, record.count, INT64_MAX);
  if (kept != 0 && kept != record.count) abort();
  text_free(&message);
  text_free(&record);
  free(exact);
  return 0;
}
