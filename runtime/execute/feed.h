/* feed: the batches of a Source, in order, to an Exec: by way of a loader on the host, or, where
 * the device can keep the whole split, gathered there, many steps in one launch. The order of the
 * samples is the same either way. On several ranks it gives this one's rows of every batch. */
#ifndef FT_RUNTIME_FEED_H
#define FT_RUNTIME_FEED_H
#include "runtime/execute/programme.h"
#include "runtime/data/source.h"

typedef struct Feed Feed;
typedef struct {
  const Source *source;
  bool shuffle;
  uint64_t seed;
  int64_t first_step, end_step; /* see loader.h */
  int64_t total_steps;          /* of the training, by which its steps grow (plan/grow_rule.h); 0: all are whole */
  bool repeat_first;            /* every batch is batch 0 of epoch 0 */
  int workers, prefetch;        /* threads, and batches prepared ahead */
  bool by_batch;                /* feed_next is wanted: keep nothing on the device */
  Spans *spans;                 /* where the loader notes its batches; NULL: nowhere */
} FeedOptions;

/* The Exec and the Source must outlive the Feed. */
/* A step is one go through this programme of the plan. */
STATUS_CHECKED Status feed_new(Exec *exec, const char *programme, const FeedOptions *options,
                               Feed **out);
void feed_free(Feed *feed); /* NULL is fine */
/* Begins anew at another step, of this programme; what the device keeps stays. */
STATUS_CHECKED Status feed_restart(Feed *feed, const char *programme, int64_t first_step,
                                   int64_t end_step);
/* Goes on with other numbers of these, between two steps: the batches are the same. */
STATUS_CHECKED Status feed_resize(Feed *feed, int workers, int prefetch);
/* What the next step is: of several lengths of rows its batch has one. For a caller that brings the batches itself. */
STATUS_CHECKED Status feed_programme(Feed *feed, Programme *out);
/* The graph with the results of the last step that ran, or of which feed_programme told. */
ExecGraph feed_result(const Feed *feed);
/* Runs from 1 to `most` further steps; *steps says how many. */
STATUS_CHECKED Status feed_run(Feed *feed, int64_t most, int64_t *steps);
/* How many steps feed_run may run in a row after `step` steps. */
typedef int64_t FeedPause(const void *context, int64_t step);
/* Before feed_run: makes ready what it will run first on the device (DeviceType.make_ready), if
 * nothing else runs in between. Takes no batch. */
STATUS_CHECKED Status feed_make_ready(Feed *feed, FeedPause *pause, const void *context);
/* The next batch (each run of a step takes one), for a caller that runs it itself: only with
 * by_batch, or between feed_open_step and feed_close_step. */
STATUS_CHECKED Status feed_next(Feed *feed, const void **batch);
/* Between these two feed_next gives the batches of the next step, where the device keeps the split
 * too. */
STATUS_CHECKED Status feed_open_step(Feed *feed);
void feed_close_step(Feed *feed);
/* With by_batch: the sample in row `row` of the batch that feed_next has given `back` calls before
 * the last one. */
int64_t feed_sample(const Feed *feed, int64_t back, int64_t row);
bool feed_is_kept(const Feed *feed); /* is the split on the device? */
/* Are the files that the first batches come from inflated? */
bool feed_is_open(const Feed *feed);
/* Seconds so far in which the caller waited for a batch of the host's, or made it, … */
double feed_wait(const Feed *feed);
double feed_opening(const Feed *feed); /* … and before that, while files were inflated */
int64_t feed_memory(const Feed *feed); /* bytes of batches on the host */
#endif
