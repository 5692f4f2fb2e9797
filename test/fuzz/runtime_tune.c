/* runtime_tune: any bytes as a study's journal, whose lines also hold ranges of --space and
 * conditions of --where, give trials or lines passed over; what was
 * taken in is within its space. */
#define _GNU_SOURCE
#include "runtime/tune/journal_private.h"
#include "runtime/tune/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Journal journal = {.fd = -1, .path = strdup("journal")};
  for (size_t at = 0; at < size;) {
    const uint8_t *newline = memchr(data + at, '\n', size - at);
    size_t count = newline ? (size_t)(newline - data) - at : size - at;
    if (count && journal_take_line(&journal, (const char *)data + at, count)) abort();
    at += count + 1;
  }
  double nothing[SPACE_MOST];
  for (int d = 0; d < SPACE_MOST; d++) nothing[d] = NAN;
  space_allows(&journal.space, nothing);
  for (int i = 0; i < journal.count; i++) {
    for (int d = 0; d < journal.space.count; d++) {
      const Dim *dim = &journal.space.dim[d];
      double value = journal.trial[i].point[d];
      if (isnan(value) == space_is_active(&journal.space, d, journal.trial[i].point)) abort();
      if (dim->kind == DIM_CHOICE && value >= dim->choice_count) abort();
      if (dim->kind != DIM_CHOICE && (value < dim->low || value > dim->high)) abort();
    }
    space_allows(&journal.space, journal.trial[i].point);
    for (int kind = PRUNE_NONE; kind <= PRUNE_HYPERBAND; kind++)
      prune_now(&(PruneRule){(PruneKind)kind, 0, 3}, &journal, i);
  }
  journal_close(&journal);
  return 0;
}
