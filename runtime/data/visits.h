/* visits: in which order an epoch goes through the samples of the training data where data.order, or `buckets` of a
 * text, says more than data.shuffle: a closed form of (seed, epoch, position), so that a run starts
 * anywhere, and workers and ranks change nothing. Tables are made once, of 4 or 8 bytes a sample.
 *   balanced     each visit draws a class, all alike likely, then a sample of it, with replacement
 *   oversampled  each class has as many visits as the largest one has samples: each of its samples
 *                equally many but for one, in random order
 *   weighted     each visit draws a sample with a probability proportional to its weight
 *   curriculum   epoch e is about the easiest samples only, in random order, as often as it needs
 *                for as many visits: a share that grows from `from` to all of them in epoch `epochs`
 *   sorted       the first epochs go from the easiest sample to the hardest
 *   bucketed     (VisitData.buckets) each batch has samples of one class of lengths, or shorter ones that were left
 *                over there: the samples stand in a line, class by class from the shortest, in random order within each.
 *                What does not fill a batch is left out: a run of the line from a random place on, around its end, so
 *                each sample is as likely. What remains is cut into batches, which come in random order
 * Draws are words of Philox4x32-10 with the seed as key and the counter (position, position / 2^32,
 * epoch, 2^29). */
#ifndef FT_RUNTIME_VISITS_H
#define FT_RUNTIME_VISITS_H
#include "plan/order_rule.h"
#include "runtime/data/source.h"
#include "runtime/data/source_part.h"

/* The split that is ordered: `samples` of `total` in its files, rows[i] is the place there of sample
 * i (NULL: i). */
typedef struct {
  const char *label;
  int64_t samples, total;
  const uint32_t *rows;
  SampleLabel *class_of;
  const void *context;
  const TransformArgument *buckets; /* lengths of rows, ascending; NULL: one, and data.order says it */
  int64_t (*length_of)(const void *context, int64_t row);
} VisitData;

/* *out is NULL where data.order is empty. */
STATUS_CHECKED Status visits_new(const Plan *plan, const SourcePlaces *places,
                                 const VisitData *data, Visits **out);
void visits_free(Visits *visits);           /* NULL is fine */
int64_t visits_count(const Visits *visits); /* of an epoch */
int64_t visits_memory(const Visits *visits);
/* Appends its buckets, "rows of 64, 128", with a comma in front behind other words; nothing where there are none. */
void visits_append_buckets(const Visits *visits, Text *out);
uint64_t visits_sum(const Visits *visits); /* what distinguishes its tables from others */
/* whole: samples that one step takes, on all ranks and in all parts. */
int64_t visits_sample(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch,
                      int64_t position);
/* The length of rows in the batch of a step of the epoch; 0: the longest, or there are no buckets. */
int64_t visits_size(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch, int64_t step);
#endif
