/* run_series: see run_series.h. */
#include "runtime/command/run_series.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static RunBucket join_buckets(const RunBucket *a, const RunBucket *b) {
  RunBucket both = a->finite ? *a : *b;
  if (a->finite && b->finite) {
    if (b->least.value < both.least.value) both.least = b->least;
    if (b->greatest.value > both.greatest.value) both.greatest = b->greatest;
    both.last = b->last;
  }
  both.finite = a->finite + b->finite;
  both.faults = a->faults + b->faults;
  both.fault = a->faults ? a->fault : b->fault;
  return both;
}

static RunBucket bucket_of_point(RunPoint point) {
  bool is_finite = isfinite(point.value);
  return (RunBucket){point, point, point, point, point, is_finite, !is_finite};
}

static void halve_series(RunSeries *series) {
  for (int i = 0; i < RUN_BUCKETS / 2; i++)
    series->bucket[i] = join_buckets(&series->bucket[2 * i], &series->bucket[2 * i + 1]);
  series->used = RUN_BUCKETS / 2;
  series->width *= 2;
  series->in_last = series->width;
}

static Status grow_series(RunSeries *series) {
  int room = series->room ? 2 * series->room : 16;
  RunBucket *larger = realloc(series->bucket, (size_t)room * sizeof *larger);
  if (!larger) return status_errno(ENOMEM, "a curve of the log");
  series->bucket = larger;
  series->room = room;
  return STATUS_OK;
}

Status run_series_add(RunSeries *series, RunPoint point) {
  RunBucket one = bucket_of_point(point);
  if (!series->width) series->width = 1;
  if (series->used && series->in_last < series->width) {
    RunBucket *last = &series->bucket[series->used - 1];
    *last = join_buckets(last, &one);
    series->in_last++;
    return STATUS_OK;
  }
  if (series->used == RUN_BUCKETS) halve_series(series);
  if (series->used == series->room) STATUS_TRY(grow_series(series));
  series->bucket[series->used++] = one;
  series->in_last = 1;
  return STATUS_OK;
}

static double bucket_start(const RunBucket *bucket) {
  double fault = bucket->faults ? bucket->fault.step : INFINITY;
  return bucket->finite ? fmin(bucket->first.step, fault) : fault;
}

void run_series_cut(RunSeries *series, double step) {
  int before = series->used;
  while (series->used && bucket_start(&series->bucket[series->used - 1]) > step) series->used--;
  if (series->used < before) series->in_last = series->width;
}

void run_series_free(RunSeries *series) {
  free(series->bucket);
  *series = (RunSeries){0};
}

/* ── JSON ─────────────────────────────────────────────────────────────────────────────────── */

static void append_point(Text *out, const RunPoint *point, bool *is_first) {
  text_printf(out, "%s[%.0f,%.6g,", *is_first ? "" : ",", point->step, point->time);
  text_printf(out, isfinite(point->value) ? "%.7g]" : "null]", point->value);
  *is_first = false;
}

static void append_bucket(Text *out, const RunBucket *bucket, bool *is_first) {
  const RunPoint *inner[2] = {&bucket->least, &bucket->greatest};
  if (!bucket->finite) {
    append_point(out, &bucket->fault, is_first);
    return;
  }
  if (bucket->least.step > bucket->greatest.step)
    inner[0] = &bucket->greatest, inner[1] = &bucket->least;
  append_point(out, &bucket->first, is_first);
  const RunPoint *before = &bucket->first;
  for (int i = 0; i < 3; i++) {
    const RunPoint *point = i < 2 ? inner[i] : &bucket->last;
    if (point->step == before->step) continue;
    append_point(out, point, is_first);
    before = point;
  }
}

/* Buckets [from, from + count) as one. */
static RunBucket several_buckets(const RunSeries *series, int from, int count) {
  RunBucket all = series->bucket[from];
  for (int i = from + 1; i < from + count && i < series->used; i++)
    all = join_buckets(&all, &series->bucket[i]);
  return all;
}

void run_series_append_json(Text *out, const RunSeries *series, int most_buckets) {
  int each = (series->used + most_buckets - 1) / most_buckets;
  bool is_first = true;
  text_printf(out, "\"points\":[");
  for (int i = 0; i < series->used; i += each) {
    RunBucket bucket = several_buckets(series, i, each);
    append_bucket(out, &bucket, &is_first);
  }
  text_printf(out, "],\"faults\":[");
  is_first = true;
  for (int i = 0; i < series->used; i += each) {
    RunBucket bucket = several_buckets(series, i, each);
    if (!bucket.faults) continue;
    text_printf(out, "%s[%.0f,%.6g,%lld]", is_first ? "" : ",", bucket.fault.step,
                bucket.fault.time, (long long)bucket.faults);
    is_first = false;
  }
  text_printf(out, "]");
}
