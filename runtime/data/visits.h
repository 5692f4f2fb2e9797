/* visits: in which order an epoch goes through the samples of the training data where data.order
 * says more than data.shuffle: a closed form of (seed, epoch, position), so that a run starts
 * anywhere, and workers and ranks change nothing. Tables are made once, of 4 or 8 bytes a sample.
 *   balanced     each visit draws a class, all alike likely, then a sample of it, with replacement
 *   oversampled  each class has as many visits as the largest one has samples: each of its samples
 *                equally many but for one, in random order
 *   weighted     each visit draws a sample with a probability proportional to its weight
 *   curriculum   epoch e is about the easiest samples only, in random order, as often as it needs
 *                for as many visits: a share that grows from `from` to all of them in epoch `epochs`
 *   sorted       the first epochs go from the easiest sample to the hardest
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
} VisitData;

/* *out is NULL where data.order is empty. */
STATUS_CHECKED Status visits_new(const Plan *plan, const SourcePlaces *places,
                                 const VisitData *data, Visits **out);
void visits_free(Visits *visits);           /* NULL is fine */
int64_t visits_count(const Visits *visits); /* of an epoch */
int64_t visits_memory(const Visits *visits);
uint64_t visits_sum(const Visits *visits); /* what distinguishes its tables from others */
int64_t visits_sample(const Visits *visits, uint64_t seed, uint64_t epoch, int64_t position);
#endif
