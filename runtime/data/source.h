/* source: the samples of one split ("train", "valid", "test"): its files found, opened and checked
 * against the model's inputs, and samples gathered into batches in the layout of the plan's input
 * arena. A Source is read-only after opening: any number of threads may fill batches. */
#ifndef FT_RUNTIME_SOURCE_H
#define FT_RUNTIME_SOURCE_H
#include "plan/plan.h"
#include "runtime/data/source_array.h"

typedef struct Source Source;
typedef struct Visits Visits; /* visits.h */
/* What a thread that fills batches has to itself: buffers for an image. Such a split fills no batch
 * without one. */
typedef struct SourceWorker SourceWorker;

/* Where relative file names are looked for: in data_dir (--data) and nowhere else; without it in
 * this order: the artifact's folder, the .ft file's folder (of an artifact: if its path is relative
 * and without ".."), the current folder, each folder in /usr/share/datasets. */
typedef struct {
  const char *data_dir;      /* NULL: none */
  const char *artifact_path; /* NULL: none */
  bool allow_paths;          /* paths that the model's file names may lead anywhere */
  bool may_index;            /* files of ours may be written beside data: indexes of shards */
  bool allow_commands;       /* a name "| command" may be run (spool.h) */
} SourcePlaces;

/* Is there such a split in the plan? */
const DataSource *source_find_split(const Plan *plan, const char *split);
/* The first of the split's files that is a command; NULL: there is none. */
const char *source_command(const Plan *plan, const char *split);
/* Can evaluations and predictions take this split? Their graphs have one normalize: valid's, else
 * test's. */
STATUS_CHECKED Status source_check_evaluated(const Plan *plan, const char *split);
/* Finds one file. *out is malloc'd. The failure lists the places and what to do. A command is run, where
 * that is allowed, and *out is its name. */
STATUS_CHECKED Status source_find_file(const Plan *plan, const SourcePlaces *places,
                                       const char *file, char **out);
/* The same of a name that may be a pattern, "x-*.npy", as the shell has them (*, ?, [abc]): all files
 * of the first place that has one, in the order of their names' bytes. Braces stand for several names,
 * as in a shell, all of which have to be there: "x-{000..009}.tar", "{a,b}.npy". A file that has this
 * very name goes before. Appends to *out, which starts as {0} and is to be freed in any case. */
typedef struct {
  char **path;
  int count;
} SourceFiles;
STATUS_CHECKED Status source_find_files(const Plan *plan, const SourcePlaces *places,
                                        const char *name, SourceFiles *out);
void source_files_free(SourceFiles *files);

/* The plan must outlive the Source. Nothing is inflated before source_start or the first fill. */
STATUS_CHECKED Status source_open(const Plan *plan, const char *split, const SourcePlaces *places,
                                  Source **out);
/* The split "train" to be trained on: in the order that data.order says. */
STATUS_CHECKED Status source_open_train(const Plan *plan, const SourcePlaces *places, Source **out);
/* Its order where data.order says one; else NULL. */
const Visits *source_visits(const Source *source);
/* Appends "rows of 64, 128, 256", with a comma in front behind other words, where batches have one of several lengths. */
void source_append_buckets(const Source *source, Text *out);
/* How many samples an epoch of training has; without data.order source_samples. */
int64_t source_epoch_samples(const Source *source);
/* `ftrun predict`: some of the model's inputs from one file each, kind told by its content. The
 * parts of a batch that belong to other inputs are left alone. */
typedef struct {
  const PlanTensor *input;
  const char *path;
} SourceInput;
STATUS_CHECKED Status source_open_inputs(const Plan *plan, const SourceInput *inputs, int count,
                                         Source **out);
/* Starts inflating in the background. */
void source_start(const Source *source);
void source_close(Source *source); /* NULL is fine */
int64_t source_samples(const Source *source);
/* Is it a text, cut into windows? Then index i + m * samples is window i moved by m tokens, so that
 * an epoch need not cut where the one before did: source_moved is what a shuffled epoch adds to its
 * indices, a closed form like its order; 0 for other data. */
bool source_is_text(const Source *source);
int64_t source_moved(const Source *source, uint64_t seed, uint64_t epoch);
/* Element i of an input of integers is 0 or more and below this; 0: it may be anything. */
int64_t source_bound(const PlanTensor *input, int64_t i);
/* Where the first of `count` values is that the input may not hold, and in *text which it is and
 * what the input takes; -1: there is none. */
enum { SOURCE_RANGE = 320 };
int64_t source_find_outside(const PlanTensor *input, const void *values, int64_t count,
                            char text[SOURCE_RANGE]);
/* Are samples read one by one, each at a cost that differs? */
bool source_is_single(const Source *source);
/* Does filling take a worker? */
bool source_takes_worker(const Source *source);
/* Is a sample another one in each epoch? */
bool source_is_random(const Source *source);
/* *out is NULL where none is needed. The seed is that of random transforms. */
STATUS_CHECKED Status source_worker_new(const Source *source, uint64_t seed, SourceWorker **out);
void source_worker_free(SourceWorker *worker); /* NULL is fine */
/* Samples [sample[0], …, sample[batch-1]] into `batch`, as random transforms make them in epoch
 * 0. Waits for bytes still being inflated. */
STATUS_CHECKED Status source_fill(const Source *source, SourceWorker *worker, const int64_t *sample,
                                  void *batch);
/* The same of an epoch, and of a place with the rows of several parts (plan_parts_at_once): of the
 * one of that number. */
STATUS_CHECKED Status source_fill_part(const Source *source, SourceWorker *worker, uint64_t epoch,
                                       const int64_t *sample, int64_t part, void *batch);
/* One sample into one row of all parts; only where source_is_single. */
STATUS_CHECKED Status source_fill_row(const Source *source, SourceWorker *worker, uint64_t epoch,
                                      int64_t sample, int64_t row, void *batch);
/* Asks the processor for these samples, as far as they are in memory. */
void source_prefetch(const Source *source, const int64_t *sample);
/* Is filling a batch no more than copying memory: no conversion of note, no reading of a disk? */
bool source_is_cheap(const Source *source);
/* Are files inflated whose inflating was started? */
bool source_is_inflating(const Source *source);
/* Waits until all is read and right: --dry-run. */
STATUS_CHECKED Status source_check(const Source *source);
/* Appends the paths of its files, with commas between. */
void source_append_paths(const Source *source, Text *out);
/* Appends where a sample of this input of the plan is from: "sample 5 of train-images.gz". */
void source_append_sample(const Source *source, const PlanTensor *input, int64_t sample, Text *out);
const char *source_label(const Source *source); /* "train", "valid" … */
/* The path of file `index`; NULL: there are no more. */
const char *source_path(const Source *source, int index);
/* Memory taken by inflated files and by lists of files, bytes. */
int64_t source_memory(const Source *source);
/* What distinguishes its data from other data, wherever it lies: lengths and some bytes of its files,
 * names in a folder, samples. */
STATUS_CHECKED Status source_sum(const Source *source, uint64_t *out);
/* For --dry-run: files, classes, the largest sample. Nothing for data that is no set of files. */
STATUS_CHECKED Status source_describe(const Source *source, int workers, Text *out);
/* Appends how many damaged images were left out so far, and the first; false: none. */
bool source_say_damaged(const Source *source, Text *out);
/* Appends that the disk cache has no room for all images; false: it has had so far. */
bool source_say_full(const Source *source, Text *out);
/* The name of class `value` of an input; NULL: it has none. */
const char *source_class(const Source *source, const PlanTensor *input, int64_t value);
/* Have both the same classes in the same order? Data without names of classes has. */
STATUS_CHECKED Status source_same_classes(const Source *train, const Source *other);
#endif
