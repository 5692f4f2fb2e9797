/* loader: batches of a Source in order, made ahead of the step by worker threads in a ring of
 * slots. The order depends on (seed, epoch, position) only, never on the number of workers or
 * ranks, and starts anywhere at once. Invariant: slot of step s is s modulo slots; it is filled by
 * workers and read by the consumer, never both. Random transforms draw by the seed and the epoch,
 * too. */
#ifndef FT_RUNTIME_LOADER_H
#define FT_RUNTIME_LOADER_H
#include "runtime/common/spans.h"
#include "runtime/data/source.h"

typedef struct Loader Loader;
typedef struct {
  const Source *source;
  int64_t batch;      /* of this rank: */
  int64_t rank, ranks; /* … rows rank * batch and on of one of `ranks` times as many; 0, 0: alone */
  int64_t parts; /* so many such batches, one behind the other, are one for the step; 0: 1 */
  int64_t group; /* batches that belong together: an epoch is a whole number of groups; 0: 1 */
  bool shuffle;
  uint64_t seed;
  int64_t first_step, end_step; /* step s is batch s % (batches of an epoch) of epoch s / … */
  bool repeat_first;            /* --overfit-batch: every batch is batch 0 of epoch 0 */
  int workers;                  /* 0: batches are filled by loader_next itself */
  void **slots;                 /* of the plan's place for batches; owned by the caller */
  int slot_count;               /* >= holds + 2 with workers or `aside`, >= holds + 1 without */
  bool aside;                   /* without workers: loader_fill_ahead will be called */
  int holds;                    /* a batch stays as it is for so many further loader_next */
  Spans *spans;                 /* where to note when batches are made; NULL: nowhere */
} LoaderOptions;

/* Whole batches in `samples`. */
int64_t loader_steps_per_epoch(int64_t samples, int64_t batch);
STATUS_CHECKED Status loader_new(const LoaderOptions *options, Loader **out);
/* The next step's batch, valid until the next call, or the one `holds` calls later. */
STATUS_CHECKED Status loader_next(Loader *loader, const void **batch);
/* Without workers, from any thread: makes the next batch, unless it is made or being made. Never
 * again after loader_free: wait first for all threads that may call it. */
void loader_fill_ahead(void *loader);
/* The length of rows in that step's batch (visits_size). */
int64_t loader_size(const Loader *loader, int64_t step);
/* The sample in row `row` of step `step`'s batch, as source_fill takes it. */
int64_t loader_sample(const Loader *loader, int64_t step, int64_t row);
void loader_free(Loader *loader); /* stops the workers; NULL is fine */
/* Nanoseconds that loader_next has waited for data so far: is loading the bottleneck? */
int64_t loader_waited(const Loader *loader);
#endif
