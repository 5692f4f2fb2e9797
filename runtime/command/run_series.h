/* run_series: one curve of a log in bounded memory, however long the log: buckets of equally many
 * points, of which each keeps its first, least, greatest and last one, so that no spike is lost, and
 * how many were not finite. When all buckets are used, two become one. */
#ifndef FT_RUNTIME_RUN_SERIES_H
#define FT_RUNTIME_RUN_SERIES_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdint.h>

enum { RUN_BUCKETS = 512 };

typedef struct {
  double step, time, value; /* time: seconds of training; value NAN or infinite: a fault */
} RunPoint;

typedef struct {
  RunPoint first, least, greatest, last; /* of the finite ones; meaningless where there are none */
  RunPoint fault;                        /* the first that is not finite, if there is one */
  int64_t finite, faults;
} RunBucket;

typedef struct {
  RunBucket *bucket; /* owned */
  int used, room;
  int64_t width, in_last; /* points of a full bucket, and in the last one */
} RunSeries;

STATUS_CHECKED Status run_series_add(RunSeries *series, RunPoint point);
/* A resumed run repeats the steps after `step`: their points go. Where buckets hold several points,
 * one that begins before stays whole. */
void run_series_cut(RunSeries *series, double step);
void run_series_free(RunSeries *series);
/* "points": [[step, time, value] …], "faults": [[step, time, count] …]: at most 4 points a bucket,
 * and at most so many buckets; value null is a gap. */
void run_series_append_json(Text *out, const RunSeries *series, int most_buckets);
#endif
