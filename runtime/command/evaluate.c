/* evaluate: see evaluate.h. */
#include "runtime/command/evaluate.h"
#include "runtime/command/tables.h"
#include "runtime/execute/feed.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, EVALUATE_WORKERS = 64 };

struct Evaluator {
  Exec *exec;
  const Source *source;
  Ranks *ranks;
  int64_t batch, whole; /* of this rank, of all ranks */
  Feed *feed;
  Tables *tables;
  void *slot; /* for the rest that fills no batch, */
  SourceWorker *worker;
  int64_t *samples;
};

/* Of random transforms, should an evaluation have some. */
static uint64_t evaluate_seed(const Evaluator *evaluator) {
  return (uint64_t)setting_number(exec_plan(evaluator->exec)->settings, "train.seed");
}

Status evaluate_new(Exec *exec, const Source *source, Ranks *ranks, Evaluator **out) {
  *out = NULL;
  Evaluator *evaluator = calloc(1, sizeof *evaluator);
  if (!evaluator) return status_errno(ENOMEM, "evaluation");
  evaluator->exec = exec;
  evaluator->source = source;
  evaluator->ranks = ranks;
  evaluator->batch = (int64_t)setting_number(exec_plan(exec)->settings, "train.batch");
  evaluator->whole = evaluator->batch * exec_ranks(exec);
  evaluator->samples = calloc((size_t)evaluator->batch, sizeof *evaluator->samples);
  Status status = evaluator->samples ? STATUS_OK : status_errno(ENOMEM, "evaluation");
  if (status == STATUS_OK)
    status = source_worker_new(source, evaluate_seed(evaluator), &evaluator->worker);
  if (status == STATUS_OK) status = exec_batch_new(exec, &evaluator->slot);
  if (status == STATUS_OK)
    status = tables_new(exec, ranks, source_samples(source), &evaluator->tables);
  if (status == STATUS_OK)
    *out = evaluator;
  else
    evaluate_free(evaluator);
  return status;
}

void evaluate_free(Evaluator *evaluator) {
  if (!evaluator) return;
  feed_free(evaluator->feed);
  tables_free(evaluator->tables);
  exec_batch_free(evaluator->exec, evaluator->slot);
  source_worker_free(evaluator->worker);
  free(evaluator->samples);
  free(evaluator);
}

void evaluate_take(const Exec *exec, const ExecScalars *scalars, LogStep *out) {
  const PlanGraph *plan = exec_graph_plan(exec, scalars->graph);
  out->metric_count = 0;
  out->has_lr = out->has_grad_norm = false;
  for (int i = 0; i < plan->outputs.count; i++) {
    const PlanOutput *output = &plan->outputs.at[i];
    double value = scalars->value[i];
    switch (output->kind) {
    case OUTPUT_LOSS:
      out->loss = value;
      break;
    case OUTPUT_RATE:
      out->has_lr = true;
      out->lr = value;
      break;
    case OUTPUT_GRAD_NORM:
      out->has_grad_norm = true;
      out->grad_norm = value;
      break;
    case OUTPUT_AUC: /* and tables: not a number until tables_take */
      out->metric[out->metric_count++] =
          (LogMetric){own_shown(output->name), NAN, OUTPUT_METRIC, NULL};
      break;
    case OUTPUT_METRIC:
    case OUTPUT_LOSS_SCALE:
    case OUTPUT_SKIPPED: /* as many as plan_check lets pass */
      out->metric[out->metric_count++] =
          (LogMetric){own_shown(output->name), value, output->kind, NULL};
      break;
    case OUTPUT_RESULT:
    case OUTPUT_PASSES:
    case OUTPUT_GRAD_FACTOR: /* for layers.h */
    case OUTPUT_KINDS:
      break;
    }
  }
}

/* ── the states that make batches an evaluation (plan/plan.h) ─────────────────────────────── */
static Status set_state(Evaluator *evaluator, LeafRole role, double value) {
  Exec *exec = evaluator->exec;
  int index = plan_find_role(exec_plan(exec), role);
  if (index < 0) return STATUS_OK;
  return exec_write_state(exec, index, sizeof value, &value);
}

static Status set_states(Evaluator *evaluator, bool goes_on, int64_t missing, int64_t more,
                         int64_t pass) {
  STATUS_TRY(exec_sync(evaluator->exec)); /* batches under way read them */
  STATUS_TRY(set_state(evaluator, ROLE_KEEP, goes_on));
  STATUS_TRY(set_state(evaluator, ROLE_MISSING, (double)missing));
  STATUS_TRY(set_state(evaluator, ROLE_MORE, (double)more));
  return set_state(evaluator, ROLE_PASS, (double)pass);
}

/* The feed is made at the first evaluation: by then the split is read. */
static Status evaluate_start_feed(Evaluator *evaluator, const char *programme, int64_t batches) {
  double workers = setting_number(exec_plan(evaluator->exec)->settings, "data.workers");
  bool is_single = source_is_single(evaluator->source) && workers > 1;
  FeedOptions options = {.source = evaluator->source,
                         .seed = evaluate_seed(evaluator),
                         .end_step = batches,
                         .workers = is_single ? (int)fmin(workers, EVALUATE_WORKERS) : 1,
                         .prefetch = SLOTS - 1};
  if (evaluator->feed) return feed_restart(evaluator->feed, programme, 0, batches);
  return feed_new(evaluator->exec, programme, &options, &evaluator->feed);
}

/* "more" is what the split has beyond a batch of all ranks. */
static Status set_batch(Evaluator *evaluator, bool goes_on, int64_t missing, int64_t pass) {
  int64_t samples = source_samples(evaluator->source);
  return set_states(evaluator, goes_on, missing, samples - evaluator->whole, pass);
}

/* On several ranks each takes its rows of every batch, as in training. */
static Status run_whole_batches(Evaluator *evaluator, const char *programme, int64_t pass,
                                bool *is_whole) {
  int64_t batches = source_samples(evaluator->source) / evaluator->whole;
  int signal;
  if (!batches) return STATUS_OK;
  STATUS_TRY(evaluate_start_feed(evaluator, programme, batches));
  for (int64_t i = 0, steps; i < batches && *is_whole; i += steps) {
    bool is_alone = i == 0 || tables_collect(evaluator->tables);
    STATUS_TRY(feed_run(evaluator->feed, is_alone ? 1 : batches - i, &steps));
    STATUS_TRY(tables_batch(evaluator->tables));
    if (i == 0) STATUS_TRY(set_batch(evaluator, true, 0, pass));
    STATUS_TRY(ranks_signal(evaluator->ranks, &signal));
    *is_whole = signal == 0;
  }
  return STATUS_OK;
}

/* The last batch is filled with copies of its last sample, which do not count; a rank that has none
 * of its samples runs it too. */
static Status run_rest(Evaluator *evaluator, ExecGraph graph, int64_t pass) {
  int64_t samples = source_samples(evaluator->source), batch = evaluator->batch;
  int64_t whole = samples - samples % evaluator->whole;
  int64_t first = whole + exec_rank(evaluator->exec) * batch, own = samples - first;
  if (whole == samples) return STATUS_OK;
  own = own < 0 ? 0 : own < batch ? own : batch;
  for (int64_t i = 0; i < batch; i++)
    evaluator->samples[i] = i < own ? first + i : own ? first + own - 1 : samples - 1;
  STATUS_TRY(set_batch(evaluator, whole > 0, batch - own, pass));
  STATUS_TRY(
      source_fill(evaluator->source, evaluator->worker, evaluator->samples, evaluator->slot));
  STATUS_TRY(exec_run(evaluator->exec, graph, evaluator->slot));
  return tables_batch(evaluator->tables);
}

/* The last batch's results are those of all. *passes: how many its evaluation takes. */
static Status take_results(Evaluator *evaluator, ExecGraph graph, LogStep *out, double *passes) {
  int index = exec_find_output(evaluator->exec, graph, OUTPUT_PASSES, NULL);
  ExecScalars scalars;
  bool is_there;
  STATUS_TRY(exec_fetch(evaluator->exec, graph, 0));
  for (;;) {
    STATUS_TRY(exec_fetched(evaluator->exec, true, &scalars, &is_there));
    if (!is_there) return STATUS_OK;
    evaluate_take(evaluator->exec, &scalars, out);
    *passes = index < 0 ? 1 : scalars.value[index];
  }
}

Status evaluate_run(Evaluator *evaluator, const char *programme, LogStep *out, bool *is_whole) {
  ExecGraph graph = exec_result_graph(evaluator->exec, programme);
  double passes = 1;
  *is_whole = true;
  ranks_new_pace(evaluator->ranks);
  for (int64_t pass = 0; pass < passes && *is_whole; pass++) {
    STATUS_TRY(set_batch(evaluator, false, 0, pass));
    tables_begin(evaluator->tables, strcmp(programme, PROGRAMME_EVALUATE_AVERAGE) == 0);
    STATUS_TRY(run_whole_batches(evaluator, programme, pass, is_whole));
    if (!*is_whole) break;
    STATUS_TRY(run_rest(evaluator, graph, pass));
    STATUS_TRY(take_results(evaluator, graph, out, &passes));
  }
  if (*is_whole) STATUS_TRY(tables_take(evaluator->tables, out));
  out->has_lr = out->has_grad_norm = false;
  ranks_new_pace(evaluator->ranks);
  return set_states(evaluator, false, 0, 0, 0);
}
