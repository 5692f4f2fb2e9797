/* evaluate: see evaluate.h. */
#include "runtime/evaluate.h"
#include "runtime/feed.h"
#include "runtime/signals.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4 };

struct Evaluator {
  Exec *exec;
  const Source *source;
  int64_t batch;
  Feed *feed;
  void *slot; /* for the rest that fills no batch */
  int64_t *samples;
};

Status evaluate_new(Exec *exec, const Source *source, Evaluator **out) {
  *out = NULL;
  Evaluator *evaluator = calloc(1, sizeof *evaluator);
  if (!evaluator) return status_errno(ENOMEM, "evaluation");
  evaluator->exec = exec;
  evaluator->source = source;
  evaluator->batch = (int64_t)setting_number(exec_plan(exec)->settings, "train.batch");
  evaluator->samples = calloc((size_t)evaluator->batch, sizeof *evaluator->samples);
  Status status = evaluator->samples ? STATUS_OK : status_errno(ENOMEM, "evaluation");
  if (status == STATUS_OK) status = exec_batch_new(exec, &evaluator->slot);
  if (status == STATUS_OK)
    *out = evaluator;
  else
    evaluate_free(evaluator);
  return status;
}

void evaluate_free(Evaluator *evaluator) {
  if (!evaluator) return;
  feed_free(evaluator->feed);
  exec_batch_free(evaluator->exec, evaluator->slot);
  free(evaluator->samples);
  free(evaluator);
}

void evaluate_take(const Exec *exec, const ExecScalars *scalars, LogStep *out) {
  const PlanGraph *plan = &exec_plan(exec)->graph[scalars->graph];
  out->metric_count = 0;
  out->has_lr = false;
  for (int i = 0; i < plan->outputs.count; i++) {
    const PlanOutput *output = &plan->outputs.at[i];
    bool is_loss = strcmp(output->kind, "loss") == 0;
    if (shape_elements(&output->type.shape) != 1 ||
        (!is_loss && strcmp(output->kind, "metric") != 0))
      continue;
    double value = scalars->value[i];
    if (is_loss) {
      out->loss = value;
    } else if (strcmp(output->name, "lr") == 0) {
      out->has_lr = true;
      out->lr = value;
    } else if (out->metric_count < LOG_MOST_METRICS) {
      out->metric[out->metric_count++] = (LogMetric){output->name, value};
    }
  }
}

/* sum += weight * the means of each batch whose results have come; `wait`: of all. */
static Status add_results(Evaluator *evaluator, double weight, bool wait, LogStep *sum) {
  for (;;) {
    ExecScalars scalars;
    LogStep part = {0};
    bool is_there;
    STATUS_TRY(exec_fetched(evaluator->exec, wait, &scalars, &is_there));
    if (!is_there) return STATUS_OK;
    evaluate_take(evaluator->exec, &scalars, &part);
    sum->loss += weight * part.loss;
    for (int i = 0; i < part.metric_count; i++) {
      sum->metric[i].name = part.metric[i].name;
      sum->metric[i].value += weight * part.metric[i].value;
    }
    sum->metric_count = part.metric_count;
  }
}

/* The feed is made at the first evaluation: by then the split is read. */
static Status start_feed(Evaluator *evaluator, int64_t batches) {
  FeedOptions options = {
      .source = evaluator->source, .end_step = batches, .workers = 1, .prefetch = SLOTS - 1};
  if (evaluator->feed) return feed_restart(evaluator->feed, 0, batches);
  return feed_new(evaluator->exec, EXEC_EVAL, &options, &evaluator->feed);
}

static Status add_whole_batches(Evaluator *evaluator, int64_t batches, LogStep *sum,
                                bool *is_whole) {
  double weight = (double)evaluator->batch;
  STATUS_TRY(start_feed(evaluator, batches));
  for (int64_t i = 0, steps; i < batches && *is_whole; i += steps) {
    STATUS_TRY(feed_run(evaluator->feed, batches - i, &steps));
    if (exec_fetch_is_full(evaluator->exec)) STATUS_TRY(add_results(evaluator, weight, true, sum));
    STATUS_TRY(exec_fetch(evaluator->exec, EXEC_EVAL, i));
    STATUS_TRY(add_results(evaluator, weight, false, sum));
    *is_whole = signals_pending() == 0;
  }
  return add_results(evaluator, weight, true, sum);
}

static Status add_batch(Evaluator *evaluator, double weight, LogStep *sum) {
  STATUS_TRY(source_fill(evaluator->source, evaluator->samples, evaluator->slot));
  STATUS_TRY(exec_run(evaluator->exec, EXEC_EVAL, evaluator->slot));
  STATUS_TRY(exec_fetch(evaluator->exec, EXEC_EVAL, 0));
  return add_results(evaluator, weight, true, sum); /* and the slot is free again */
}

static Status add_rest(Evaluator *evaluator, int64_t first, int64_t count, LogStep *sum) {
  int64_t batch = evaluator->batch, last = first + count - 1;
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = i < count ? first + i : last;
  STATUS_TRY(add_batch(evaluator, (double)batch, sum));
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = last;
  return add_batch(evaluator, -(double)(batch - count), sum);
}

Status evaluate_run(Evaluator *evaluator, LogStep *out, bool *is_whole) {
  int64_t samples = source_samples(evaluator->source), batch = evaluator->batch;
  LogStep sum = {0};
  *is_whole = true;
  if (samples >= batch) STATUS_TRY(add_whole_batches(evaluator, samples / batch, &sum, is_whole));
  if (*is_whole && samples % batch)
    STATUS_TRY(add_rest(evaluator, samples - samples % batch, samples % batch, &sum));
  out->has_lr = false;
  out->loss = sum.loss / (double)samples;
  out->metric_count = sum.metric_count;
  for (int i = 0; i < sum.metric_count; i++)
    out->metric[i] = (LogMetric){sum.metric[i].name, sum.metric[i].value / (double)samples};
  return STATUS_OK;
}
