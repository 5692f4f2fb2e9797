/* evaluate: see evaluate.h. */
#include "runtime/evaluate.h"
#include "runtime/loader.h"
#include "runtime/signals.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4 };

struct Evaluator {
  Exec *exec;
  const Source *source;
  int64_t batch;
  void *slots[SLOTS];
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
  for (int i = 0; i < SLOTS && status == STATUS_OK; i++)
    status = exec_batch_new(exec, &evaluator->slots[i]);
  if (status == STATUS_OK)
    *out = evaluator;
  else
    evaluate_free(evaluator);
  return status;
}

void evaluate_free(Evaluator *evaluator) {
  if (!evaluator) return;
  for (int i = 0; i < SLOTS; i++) exec_batch_free(evaluator->exec, evaluator->slots[i]);
  free(evaluator->samples);
  free(evaluator);
}

Status evaluate_read(Exec *exec, ExecGraph graph, LogStep *out) {
  const PlanGraph *plan = &exec_plan(exec)->graph[graph];
  out->metric_count = 0;
  out->has_lr = false;
  for (int i = 0; i < plan->outputs.count; i++) {
    const PlanOutput *output = &plan->outputs.at[i];
    bool is_loss = strcmp(output->kind, "loss") == 0;
    if (shape_elements(&output->type.shape) != 1 ||
        (!is_loss && strcmp(output->kind, "metric") != 0))
      continue;
    double value;
    STATUS_TRY(exec_scalar(exec, graph, i, &value));
    if (is_loss) {
      out->loss = value;
    } else if (strcmp(output->name, "lr") == 0) {
      out->has_lr = true;
      out->lr = value;
    } else if (out->metric_count < LOG_MOST_METRICS) {
      out->metric[out->metric_count++] = (LogMetric){output->name, value};
    }
  }
  return STATUS_OK;
}

/* sum += weight * the batch's means */
static Status add_batch(Evaluator *evaluator, const void *batch, double weight, LogStep *sum) {
  LogStep part = {0};
  STATUS_TRY(exec_run(evaluator->exec, EXEC_EVAL, batch));
  STATUS_TRY(evaluate_read(evaluator->exec, EXEC_EVAL, &part));
  sum->loss += weight * part.loss;
  for (int i = 0; i < part.metric_count; i++) {
    sum->metric[i].name = part.metric[i].name;
    sum->metric[i].value += weight * part.metric[i].value;
  }
  sum->metric_count = part.metric_count;
  return STATUS_OK;
}

static Status add_whole_batches(Evaluator *evaluator, int64_t batches, LogStep *sum,
                                bool *is_whole) {
  Loader *loader;
  LoaderOptions options = {.source = evaluator->source,
                           .batch = evaluator->batch,
                           .end_step = batches,
                           .workers = 1,
                           .slots = evaluator->slots,
                           .slot_count = SLOTS};
  STATUS_TRY(loader_new(&options, &loader));
  Status status = STATUS_OK;
  for (int64_t i = 0; i < batches && status == STATUS_OK && *is_whole; i++) {
    const void *batch;
    status = loader_next(loader, &batch);
    if (status == STATUS_OK) status = add_batch(evaluator, batch, (double)evaluator->batch, sum);
    *is_whole = signals_pending() == 0;
  }
  loader_free(loader);
  return status;
}

static Status add_rest(Evaluator *evaluator, int64_t first, int64_t count, LogStep *sum) {
  int64_t batch = evaluator->batch, last = first + count - 1;
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = i < count ? first + i : last;
  STATUS_TRY(source_fill(evaluator->source, evaluator->samples, evaluator->slots[0]));
  STATUS_TRY(add_batch(evaluator, evaluator->slots[0], (double)batch, sum));
  for (int64_t i = 0; i < batch; i++) evaluator->samples[i] = last;
  STATUS_TRY(source_fill(evaluator->source, evaluator->samples, evaluator->slots[0]));
  return add_batch(evaluator, evaluator->slots[0], -(double)(batch - count), sum);
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
