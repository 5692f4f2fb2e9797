/* source_images: how the first input of a split is made where its data is a set of image files, or
 * where transforms stand behind an array of images; for files, the second input is their class. */
#ifndef FT_RUNTIME_SOURCE_IMAGES_H
#define FT_RUNTIME_SOURCE_IMAGES_H
#include "runtime/data/damaged.h"
#include "runtime/data/disk_cache.h"
#include "runtime/data/image_cache.h"
#include "runtime/data/pipe.h"
#include "runtime/data/sample_set.h"
#include "runtime/data/source.h"
#include "runtime/data/source_column.h"

typedef struct {
  const char *label; /* the split */
  SampleSet *set;    /* NULL: an array */
  ImageCache *cache; /* of what the transforms make before the first random one; NULL: none */
  DiskCache *disk; /* of the same, in files; NULL: none, or none yet and nothing is to be written */
  int64_t disk_budget;     /* bytes of data.disk_cache in … */
  const char *disk_folder; /* … data.cache_dir; NULL and 0: nothing is kept on disk */
  Damaged *damaged;        /* samples that cannot be decoded; NULL: one ends the reading */
  bool turns;              /* as EXIF says */
  bool scales;             /* decodes as small as the first transform needs */
  Pipe pipe;
  const PlanTensor *image, *target; /* target NULL: the model has one input, or the set writes it */
  const PlanTensor *inputs;         /* those that the set writes, from `image` or behind it on */
  int input_count, first_written;   /* all of the model's */
  ImageLayout from;                 /* of an array's samples */
} SourceImages;

struct SourceWorker {
  uint64_t seed;
  PipeWorker pipe;
  Sample sample, other; /* other: room for what the set writes */
  bool takes_whole;     /* decodes all of a picture, whatever of it is used */
  int64_t decoded;      /* bytes of pictures, as a cache keeps them */
};

void images_close(SourceImages *images);
/* Opens the set of these paths and checks it against the model's inputs. */
STATUS_CHECKED Status images_open_set(const Plan *plan, const DataSource *data,
                                      const SampleSetOptions *options, SourceImages *out);
/* Samples of the column, which has its files, go through the transforms of `data` to the input. */
STATUS_CHECKED Status images_bind_column(const DataSource *data, const PlanTensor *input,
                                         int64_t rows, Column *column, SourceImages *out);
/* Reads sample `index` and writes row `row` of the batch's inputs. */
STATUS_CHECKED Status images_fill_row(const SourceImages *images, SourceWorker *worker,
                                      uint64_t epoch, int64_t index, int64_t row, void *batch);
/* The same of an array's sample, which is in memory. file: what a message calls its file. */
STATUS_CHECKED Status images_fill_from(const SourceImages *images, SourceWorker *worker,
                                       uint64_t epoch, int64_t index, const char *file,
                                       const uint8_t *at, uint8_t *out);
/* The class of sample `index`, if that is what the model's input of this name gets. */
STATUS_CHECKED Status images_label(const SourceImages *images, const char *input, int64_t index,
                                   int64_t *out);
/* See source.h: source_say_damaged, source_say_full, source_sum, source_describe, source_same_classes. */
bool images_say_damaged(const SourceImages *images, Text *out);
bool images_say_full(const SourceImages *images, Text *out);
uint64_t images_list_sum(const SourceImages *images);
STATUS_CHECKED Status images_describe(const SourceImages *images, int workers, Text *out);
STATUS_CHECKED Status images_same_classes(const SourceImages *train, const SourceImages *other);
#endif
