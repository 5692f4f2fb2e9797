/* source_state: what source.c and source_about.c know of a source; others have source.h. */
#ifndef FT_RUNTIME_SOURCE_STATE_H
#define FT_RUNTIME_SOURCE_STATE_H
#include "runtime/data/source.h"
#include "runtime/data/source_column.h"
#include "runtime/data/source_images.h"
#include "runtime/data/source_part.h"
#include "runtime/data/visits.h"

struct Source {
  const char *label; /* starts every message: "train" */
  Column *column;
  int column_count;
  int64_t samples;
  int64_t batch, rows; /* of a part, and of all that a step takes at once (plan_parts_at_once) */
  int64_t window;      /* text: tokens of a sample, less the one that follows; else 0 */
  int64_t first;       /* text: the first window of the split */
  int64_t last;        /* text: where the last window begins */
  SourcePart part;     /* of a split that shares its files: its samples */
  Visits *visits;      /* in which order training takes them; NULL: as data.shuffle says */
  SourceImages images; /* of a set of files, then there are no columns; or of the first column */
};
#endif
