/* sample_set: samples that are read one by one, each an image file and its class: the sources of
 * form SAMPLES in plan/sources.def. `<name>_samples` makes a set; a set is read-only, any number of
 * threads read from it. */
#ifndef FT_RUNTIME_SAMPLE_SET_H
#define FT_RUNTIME_SAMPLE_SET_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* The bytes of one, in memory that grows and is used again. */
typedef struct {
  uint8_t *at;
  size_t count, room;
  int64_t label;
} Sample;

typedef struct SampleSet SampleSet;
struct SampleSet {
  int64_t count, class_count;
  int64_t memory;       /* bytes that it takes */
  const char *path;     /* what it was opened from */
  const char **classes; /* by label */
  /* *out is of this thread. The failure names the file. */
  Status (*read)(const SampleSet *set, int64_t index, Sample *out);
  /* The label alone, without reading; NULL: it takes reading. */
  int64_t (*label)(const SampleSet *set, int64_t index);
  /* Appends what a message calls the sample: the path of its file. */
  void (*name)(const SampleSet *set, int64_t index, Text *out);
  /* Looks at all samples: which has the most bytes, how many, and those of all. */
  Status (*measure)(const SampleSet *set, int64_t *which, int64_t *largest, int64_t *total);
  void (*close)(SampleSet *set);
};

/* Of the folder (file) of this path. data: its options, may be NULL. */
STATUS_CHECKED Status folder_samples(const DataSource *data, const char *path, SampleSet **out);
static inline void sample_set_close(SampleSet *set) {
  if (set) set->close(set);
}
#endif
