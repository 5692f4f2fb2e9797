/* sample_set: samples that are read one by one: the sources of forms SAMPLES and SHARDS in
 * plan/sources.def, and texts with transforms or labels (text_set.h). `<name>_samples` makes a set; a set is read-only, any number of threads read from
 * it. Its first input is an image file's bytes, the second their class; or a set writes inputs itself. */
#ifndef FT_RUNTIME_SAMPLE_SET_H
#define FT_RUNTIME_SAMPLE_SET_H
#include "plan/plan.h"
#include "runtime/common/status.h"
#include "runtime/text/bpe.h"

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
  const char **classes; /* by label; class_count 0: it has no names for them */
  char *const *files;   /* the shards; NULL: a folder */
  int file_count;
  bool
      is_image; /* the first input is an image, by `read`; else written by `write`, as the others */
  /* Of the image: *out is of this thread. The failure names the file; of one that is empty out->count is
   * 0, of another it is not. */
  Status (*read)(const SampleSet *set, int64_t index, Sample *out);
  /* The label alone, without reading; NULL: it takes reading. */
  int64_t (*label)(const SampleSet *set, int64_t index);
  /* Of a text: so many tokens of its row are no padding. NULL: of others. */
  int64_t (*length)(const SampleSet *set, int64_t index);
  const PlanTensor *label_of; /* where `write` writes that, too: the input that gets it */
  /* Where the set has more than images and classes: writes one sample of an input to `row`, in the
   * type that the plan has; the room is this thread's. What is random depends on seed, epoch and index.
   * The failure names the file. NULL: the second input is the label. */
  Status (*write)(const SampleSet *set, int64_t index, int input, uint64_t seed, uint64_t epoch,
                  Sample *room, void *row);
  /* Of the file that a sample is read from: its length, and its time of change in nanoseconds. False: there is no such
   * file, or it cannot be looked at. */
  bool (*stamp)(const SampleSet *set, int64_t index, uint64_t *size, uint64_t *time);
  /* Appends what a message calls the sample: the path of its file. */
  void (*name)(const SampleSet *set, int64_t index, Text *out);
  /* Looks at all samples: which has the most bytes, how many, and those of all. */
  Status (*measure)(const SampleSet *set, int64_t *which, int64_t *largest, int64_t *total);
  /* What distinguishes the list of samples, wherever it lies, from another one. */
  uint64_t (*sum)(const SampleSet *set);
  /* For --dry-run, of a set without images: what there is, and what it takes. NULL: `measure` says it. */
  void (*describe)(const SampleSet *set, Text *out);
  void (*close)(SampleSet *set);
};

/* What a set is made from: the paths that the recipe's names stand for, and the model's inputs. */
typedef struct {
  const DataSource *data; /* its options, may be NULL */
  char *const *path;
  int path_count;
  const PlanTensor *inputs;
  int input_count;
  int64_t rows;   /* of the inputs' batch */
  bool may_write; /* an index beside a file */
  Bpe *tokenizer; /* of a text whose options name one; the caller's */
} SampleSetOptions;
#define SAMPLES(name)                                                                              \
  STATUS_CHECKED Status name##_samples(const SampleSetOptions *options, SampleSet **out);
#define SHARDS SAMPLES
#define ARRAYS(name)
#define TEXT(name)
#define RECORDS(name)
#define SOURCE(name, form, ...) form(name)
#include "plan/sources.def"
#undef SOURCE
#undef SAMPLES
#undef SHARDS
#undef ARRAYS
#undef TEXT
#undef RECORDS
/* Of all kinds of form TEXT. */
STATUS_CHECKED Status text_samples(const SampleSetOptions *options, SampleSet **out);
static inline void sample_set_close(SampleSet *set) {
  if (set) set->close(set);
}
#endif
