/* train_other: `ftrun eval` and `ftrun bench` (declared in train.h). */
#include "runtime/command/bench.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/evaluate.h"
#include "runtime/command/train.h"
#include "runtime/common/watchdog.h"
#include <stdlib.h>
#include <string.h>

/* ── eval ─────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  Artifact *artifact;
  Source *source;
  Exec *exec;
  Evaluator *evaluator;
  Log *log;
  Ranks ranks;
} Evaluation;

static Status evaluation_log(Evaluation *e, const EvalOptions *options) {
  bool writes = e->ranks.place.rank == 0;
  LogOptions log = {.console = writes,
                    .is_silent = !writes,
                    .is_plain = e->ranks.place.ranks > 1,
                    .jsonl = writes ? options->log_jsonl : NULL};
  STATUS_TRY(log_open(&log, &e->log));
  Text notes = {0};
  source_append_paths(e->source, &notes);
  log_say(e->log, "data: %s", text_cstr(&notes));
  text_free(&notes);
  if (e->ranks.comm) log_say(e->log, "ranks: %s", comm_text(e->ranks.comm));
  return STATUS_OK;
}

static Status open_evaluation(Evaluation *e, const EvalOptions *options, const char *split) {
  STATUS_TRY(source_check_evaluated(e->artifact->plan, split));
  STATUS_TRY(source_open(e->artifact->plan, split, &options->run.places, &e->source));
  source_start(e->source);
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  ExecOptions exec = {options->run.device, ranks_threads(&e->ranks, options->run.threads),
                      .only = only, .comm = e->ranks.comm};
  STATUS_TRY(exec_new(e->artifact, &exec, &e->exec));
  STATUS_TRY(exec_write_settings(e->exec));
  STATUS_TRY(exec_init_states(e->exec, 0));
  STATUS_TRY(evaluation_log(e, options));
  Text notes = {0};
  Status status = given_load_all(e->exec, &options->run.places, options->weights, &notes);
  if (status == STATUS_OK && notes.count) log_say(e->log, "%s", text_cstr(&notes));
  text_free(&notes);
  STATUS_TRY(status);
  return evaluate_new(e->exec, e->source, &e->ranks, &e->evaluator);
}

static Status evaluate(Evaluation *e, const EvalOptions *options) {
  const char *split = options->split ? options->split : "valid";
  STATUS_TRY(ranks_open(&options->run, &e->ranks, &e->artifact));
  watchdog_start(setting_number(e->artifact->plan->settings, "train.timeout"), "train.timeout");
  STATUS_TRY(ranks_agree(&e->ranks, open_evaluation(e, options, split)));
  STATUS_TRY(ranks_join_devices(&e->ranks, e->exec));
  const Source *sources[] = {e->source};
  STATUS_TRY(ranks_same(&e->ranks, e->artifact->plan, options->run.artifact, sources, 1));
  STATUS_TRY(ranks_same_values(&e->ranks, e->exec));
  LogStep result = {0};
  bool is_whole;
  double start = log_now();
  STATUS_TRY(evaluate_run(e->evaluator, PROGRAMME_EVALUATE, &result, &is_whole));
  STATUS_TRY(ranks_leave(&e->ranks));
  Text damaged = {0};
  if (source_say_damaged(e->source, &damaged)) log_warn(e->log, "%s", text_cstr(&damaged));
  text_free(&damaged);
  return log_eval(e->log, split, &result, source_samples(e->source), log_now() - start);
}

Status train_eval(const EvalOptions *options) {
  Evaluation evaluation = {0};
  Status status = evaluate(&evaluation, options);
  Status log = log_close(evaluation.log);
  status = ranks_close(&evaluation.ranks, status ? status : log);
  evaluate_free(evaluation.evaluator);
  exec_free(evaluation.exec);
  ranks_free(&evaluation.ranks);
  source_close(evaluation.source);
  artifact_close(evaluation.artifact);
  watchdog_stop();
  return status;
}

/* ── bench ────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  Artifact *artifact;
  Source *source;
  Exec *exec;
  Feed *feed;
} Bench;

/* Batches as in training, if the data can be found. */
static Status open_feed(Bench *bench, const RunOptions *options, const char **why) {
  const SettingValue *settings = bench->artifact->plan->settings;
  *why = NULL;
  if (source_open_train(bench->artifact->plan, &options->places, &bench->source) != STATUS_OK) {
    *why = status_message();
    return STATUS_OK;
  }
  FeedOptions feed = {.source = bench->source,
                      .shuffle = setting_number(settings, "data.shuffle") != 0,
                      .end_step = (int64_t)1 << 40,
                      .workers =
                          train_workers(bench->artifact->plan, bench->source, options->threads, 0),
                      .prefetch = train_prefetch(bench->artifact->plan)};
  if (source_epoch_samples(bench->source) <
      (int64_t)setting_number(settings, "train.batch") * exec_parts(bench->exec)) {
    *why = "the data does not fill a batch";
    return STATUS_OK;
  }
  STATUS_TRY(source_check(bench->source)); /* inflating is no part of a step */
  return feed_new(bench->exec, PROGRAMME_STEP, &feed, &bench->feed);
}

static Status run_bench(Bench *bench, const RunOptions *options, const char *programme, int steps, bool made_up_data,
                        const char *json, const DeviceCounting *counting) {
  STATUS_TRY(train_open(options, &bench->artifact));
  const char *only[] = {programme, NULL};
  ExecOptions exec = {options->device, options->threads, .only = only, .is_unchecked = counting->sample > 0};
  STATUS_TRY(exec_new(bench->artifact, &exec, &bench->exec));
  exec_set_derived(bench->exec, "train.total_steps", 1e6);
  STATUS_TRY(exec_write_settings(bench->exec));
  STATUS_TRY(exec_init(bench->exec, 0));
  STATUS_TRY(given_clear(bench->exec));
  bool is_step = !strcmp(programme, PROGRAMME_STEP);
  const char *why = made_up_data ? "--made-up-data" : is_step ? "--blocks" : "--eval";
  if (is_step && !made_up_data && !counting->sample) STATUS_TRY(open_feed(bench, options, &why));
  BenchOptions bench_options = {
      .programme = programme, .steps = steps, .per_kernel = true, .json = json, .gpu = counting->gpu, .sample = counting->sample, .feed = bench->feed};
  if (!bench->feed) printf("made-up batches, loading is not measured (%s)\n", why);
  return bench_run(bench->exec, &bench_options, stdout);
}

Status train_bench(const RunOptions *options, const char *programme, int steps, bool made_up_data, const char *json,
                   const DeviceCounting *counting) {
  Bench bench = {0};
  Status status = run_bench(&bench, options, programme, steps, made_up_data, json, counting);
  feed_free(bench.feed);
  exec_free(bench.exec);
  source_close(bench.source);
  artifact_close(bench.artifact);
  return status;
}
