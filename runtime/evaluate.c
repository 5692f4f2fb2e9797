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
  const PlanGraph *plan = exec_graph_plan(exec, scalars->graph);
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
    } else if (strcmp(output->name, OWN_LR) == 0) {
      out->has_lr = true;
      out->lr = value;
    } else if (out->metric_count < LOG_MOST_METRICS) {
      out->metric[out->metric_count++] =
          (LogMetric){own_shown(output->name), value, own_is(output->name)};
    }
  }
}

/* What batches add up to: for each value, the sum of weight times mean, and of the weights. */
typedef struct {
  LogStep value;
  double loss_weight, metric_weight[LOG_MOST_METRICS];
} Sums;

/* How many elements the mean `name` of this batch counts: samples, unless the plan tells. */
static double weight_of(const Evaluator *evaluator, const ExecScalars *scalars, const char *name) {
  const PlanGraph *plan = exec_graph_plan(evaluator->exec, scalars->graph);
  for (int i = 0; i < plan->outputs.count; i++)
    if (strcmp(plan->outputs.at[i].kind, "weight") == 0 &&
        strcmp(plan->outputs.at[i].name, name) == 0)
      return scalars->value[i];
  return (double)evaluator->batch;
}

/* A batch in which nothing counts has 0/0 as its mean. */
static void add_value(double value, double weight, double share, double *sum, double *weights) {
  if (weight == 0) return;
  *sum += share * weight * value;
  *weights += share * weight;
}

/* Adds `share` of each batch whose results have come; `wait`: of all. */
static Status add_results(Evaluator *evaluator, double share, bool wait, Sums *sums) {
  for (;;) {
    ExecScalars scalars;
    LogStep part = {0};
    bool is_there;
    STATUS_TRY(exec_fetched(evaluator->exec, wait, &scalars, &is_there));
    if (!is_there) return STATUS_OK;
    evaluate_take(evaluator->exec, &scalars, &part);
    add_value(part.loss, weight_of(evaluator, &scalars, "loss"), share, &sums->value.loss,
              &sums->loss_weight);
    for (int i = 0; i < part.metric_count; i++) {
      sums->value.metric[i].name = part.metric[i].name;
      add_value(part.metric[i].value, weight_of(evaluator, &scalars, part.metric[i].name), share,
                &sums->value.metric[i].value, &sums->metric_weight[i]);
    }
    sums->value.metric_count = part.metric_count;
  }
}

/* The feed is made at the first evaluation: by then the split is read. */
static Status start_feed(Evaluator *evaluator, ExecGraph graph, int64_t batches) {
  FeedOptions options = {
      .source = evaluator->source, .end_step = batches, .workers = 1, .prefetch = SLOTS - 1};
  if (evaluator->feed) return feed_restart(evaluator->feed, graph, 0, batches);
  return feed_new(evaluator->exec, graph, &options, &evaluator->feed);
}

static Status add_whole_batches(Evaluator *evaluator, ExecGraph graph, int64_t batches, Sums *sums,
                                bool *is_whole) {
  STATUS_TRY(start_feed(evaluator, graph, batches));
  for (int64_t i = 0, steps; i < batches && *is_whole; i += steps) {
    STATUS_TRY(feed_run(evaluator->feed, batches - i, &steps));
    if (exec_fetch_is_full(evaluator->exec)) STATUS_TRY(add_results(evaluator, 1, true, sums));
    STATUS_TRY(exec_fetch(evaluator->exec, graph, i));
    STATUS_TRY(add_results(evaluator, 1, false, sums));
    *is_whole = signals_pending() == 0;
  }
  return add_results(evaluator, 1, true, sums);
}

static Status add_batch(Evaluator *evaluator, ExecGraph graph, double share, Sums *sums) {
  STATUS_TRY(source_fill(evaluator->source, evaluator->samples, evaluator->slot));
  STATUS_TRY(exec_run(evaluator->exec, graph, evaluator->slot));
  STATUS_TRY(exec_fetch(evaluator->exec, graph, 0));
  return add_results(evaluator, share, true, sums); /* and the slot is free again */
}

static Status add_rest(Evaluator *evaluator, ExecGraph graph, int64_t first, int64_t count,
                       Sums *sums) {
  int64_t batch = evaluator->batch, last = first + count - 1;
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = i < count ? first + i : last;
  STATUS_TRY(add_batch(evaluator, graph, 1, sums));
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = last;
  return add_batch(evaluator, graph, -(double)(batch - count) / (double)batch, sums);
}

Status evaluate_run(Evaluator *evaluator, ExecGraph graph, LogStep *out, bool *is_whole) {
  int64_t samples = source_samples(evaluator->source), batch = evaluator->batch;
  Sums sums = {0};
  *is_whole = true;
  if (samples >= batch)
    STATUS_TRY(add_whole_batches(evaluator, graph, samples / batch, &sums, is_whole));
  if (*is_whole && samples % batch)
    STATUS_TRY(add_rest(evaluator, graph, samples - samples % batch, samples % batch, &sums));
  out->has_lr = false;
  out->loss = sums.value.loss / sums.loss_weight;
  out->metric_count = sums.value.metric_count;
  for (int i = 0; i < out->metric_count; i++)
    out->metric[i] = (LogMetric){sums.value.metric[i].name,
                                 sums.value.metric[i].value / sums.metric_weight[i], false};
  return STATUS_OK;
}
