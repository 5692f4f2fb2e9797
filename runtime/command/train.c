/* train: see train.h. The order of a run: open and check everything, then step; after a step log,
 * evaluate, checkpoint as due; end at the last step or at a signal. Nothing is allocated between
 * two steps but for evaluations and checkpoints. */
#include "base/clock.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/common/inside.h"
#include "runtime/data/loader.h"
#include "runtime/command/plateau.h"
#include "runtime/command/rule.h"
#include "runtime/common/signals.h"
#include "runtime/common/watchdog.h"
#include "runtime/command/train_state.h"
#include "runtime/execute/programme.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ── setting up ───────────────────────────────────────────────────────────────────────────── */

static Status open_data(Training *training) {
  SourcePlaces places = training->options->run.places;
  places.may_index = !training->options->dry_run;
  STATUS_TRY(source_open_train(training->plan, &places, &training->train));
  source_start(training->train);
  if (train_number(training, "train.eval.every") > 0 && source_find_split(training->plan, "valid"))
    STATUS_TRY(source_open(training->plan, "valid", &places, &training->valid));
  STATUS_TRY(source_sum(training->train, &training->data.sum));
  if (training->valid) STATUS_TRY(source_same_classes(training->train, training->valid));
  int64_t samples = source_epoch_samples(training->train);
  training->parts = plan_batches(plan_find_programme(training->plan, PROGRAMME_STEP)) *
                    plan_parts_at_once(training->plan);
  int64_t whole = training->parts * training->ranks.shares;
  training->batch = (int64_t)train_number(training, "train.batch") * whole;
  training->steps_per_epoch = loader_steps_per_epoch(samples, training->batch);
  if (training->steps_per_epoch < 1) {
    char advice[80];
    if (samples >= whole)
      snprintf(advice, sizeof advice, "--set train.batch=%lld or smaller",
               (long long)(samples / whole));
    else if (samples >= training->parts)
      snprintf(advice, sizeof advice, "--set train.batch=1, and start fewer ranks");
    else
      snprintf(advice, sizeof advice, "fewer parts than train.accumulate=%lld",
               (long long)training->parts);
    return status_fail(STATUS_USER,
                       "train: %lld samples do not fill one batch of %lld; compile with %s",
                       (long long)samples, (long long)training->batch, advice);
  }
  return STATUS_OK;
}

/* --steps beats --epochs beats train.steps beats train.epochs. */
static Status decide_length(Training *training) {
  const TrainOptions *options = training->options;
  double epochs =
      options->epochs >= 0 ? (double)options->epochs : train_number(training, "train.epochs");
  double steps = train_number(training, "train.steps");
  if (options->epochs >= 0) steps = 0;
  if (options->steps >= 0) steps = (double)options->steps;
  bool by_steps = options->steps >= 0 || steps > 0;
  double total = by_steps ? steps : epochs * (double)training->steps_per_epoch;
  if (!(total >= 0) || total > 0x1p53)
    return status_fail(STATUS_USER, "train.epochs=%g, train.steps=%g: expected counts from 0",
                       epochs, steps);
  training->total_steps = (int64_t)total;
  exec_set_derived(training->exec, "train.steps_per_epoch", (double)training->steps_per_epoch);
  exec_set_derived(training->exec, "train.total_steps", (double)training->total_steps);
  training->seed = (uint64_t)train_number(training, "train.seed");
  training->shuffle = train_number(training, "data.shuffle") != 0 && !options->no_shuffle;
  if (source_visits(training->train) && !training->shuffle)
    return status_fail(STATUS_USER,
                       "%s%s needs data.shuffle=true, and no --no-shuffle: it is an order of its own",
                       *train_text(training, "data.order") ? "data.order=" : "pad(buckets=...)",
                       train_text(training, "data.order"));
  return STATUS_OK;
}

static Status train_initialise(Training *training) {
  const TrainOptions *options = training->options;
  bool is_whole = !options->init.keeps_missing && !options->init.keeps_mismatch;
  STATUS_TRY(options->init.path_count && is_whole
                 ? exec_init_states(training->exec, training->seed)
                 : exec_init(training->exec, training->seed));
  if (!options->init.path_count) return STATUS_OK;
  Text notes = {0};
  Status status = ckpt_init_weights(training->exec, &options->init, &notes);
  if (status == STATUS_OK && notes.count) log_say(training->log, "%s", text_cstr(&notes));
  text_free(&notes);
  return status;
}

/* Rank 0 chooses the checkpoint, or that there is none: others might see another one as the newest.
 * *used is NULL if there is none. */
static Status read_checkpoint(Training *training, CkptInfo *info, char **used) {
  Ranks *ranks = &training->ranks;
  Text notes = {0};
  Status status = STATUS_OK;
  bool is_any = true;
  if (training->writes && training->options->or_start)
    status = ckpt_is_any(training->options->resume, &is_any);
  if (training->writes && status == STATUS_OK && is_any)
    status = ckpt_resume(training->exec, training->options->resume, info, used, &notes);
  if (notes.count) log_warn(training->log, "%s", text_cstr(&notes));
  text_free(&notes);
  STATUS_TRY(ranks_agree(ranks, status));
  STATUS_TRY(ranks_share_text(ranks, used));
  if (training->writes || !*used) return STATUS_OK;
  char *path = *used;
  *used = NULL;
  status = ckpt_resume(training->exec, path, info, used, NULL);
  free(path);
  return status;
}

/* The same samples in the same order: how many ranks and parts they were shared out to does not
 * matter. */
static Status check_place(Training *training, const CkptInfo *info, const char *used) {
  int64_t samples = source_samples(training->train);
  int64_t own = training->batch / training->ranks.shares;
  char advice[48] = "", drawn[240];
  train_drawn(training, drawn);
  if (strcmp(info->drawn, drawn) != 0)
    return status_fail(
        STATUS_USER,
        "%s comes from a training on other samples, or in another order (%s), this one has: %s; it "
        "cannot go on exactly (--init %s starts a new training from its weights)",
        used, info->drawn[0] ? info->drawn : "all of its files",
        drawn[0] ? drawn : "all of its files", used);
  if (info->batch == training->batch && info->samples == samples) return STATUS_OK;
  if (info->samples == samples && info->batch % own == 0 &&
      setting_ranks(training->plan->settings) == 0)
    snprintf(advice, sizeof advice, " but on %lld rank%s", (long long)(info->batch / own),
             info->batch == own ? "" : "s");
  return status_fail(STATUS_USER,
                     "%s comes from a training with batch %lld on %lld samples, this one has "
                     "batch %lld on %lld: it cannot go on exactly%s (--init %s starts a new "
                     "training from its weights)",
                     used, (long long)info->batch, (long long)info->samples,
                     (long long)training->batch, (long long)samples, advice, used);
}

static Status go_on_from(Training *training, const CkptInfo *info, const char *used) {
  STATUS_TRY(check_place(training, info, used));
  STATUS_TRY(train_check_given(training, info, used));
  if (info->data && info->data != training->data.sum)
    log_warn(
        training->log,
        "the training data is not that of %s (names, lengths or bytes of its files differ): the "
        "order goes on, but its samples are others than the training began with",
        used);
  if (info->seed != training->seed || info->is_shuffled != training->shuffle)
    log_say(training->log, "the checkpoint's seed (%llu) and order (%s) are kept",
            (unsigned long long)info->seed, info->is_shuffled ? "shuffled" : "as stored");
  training->seed = info->seed;
  training->shuffle = info->is_shuffled;
  training->first_step = training->saved_step = training->asked_step = info->step;
  training->saved_in = training->options->resume;
  watchdog_saved(training->saved_step, training->saved_in);
  training->has_best =
      info->has_best && strcmp(info->best_of, train_text(training, "train.checkpoint.best")) == 0;
  training->best = info->best;
  training->owes_evaluation = info->owes_evaluation && training->valid;
  training->stop.memory = info->stop;
  training->plan->settings[setting_find("train.seed")].number = (double)info->seed;
  Status status = exec_write_settings(training->exec);
  if (status == STATUS_OK && info->plateau_of[0] && strcmp(info->plateau_of, train_text(training, "train.schedule.metric")) != 0)
    status = plateau_begin(training->exec);
  /* one at the end of a shorter training that a longer one would not have done */
  bool is_evaluated = train_is_due(training, "train.eval", info->step) || info->step == training->total_steps;
  if (status == STATUS_OK) status = log_cut(training->log, info->step, is_evaluated);
  if (info->leaves_moments)
    log_say(training->log, "moments in %s of parameters that are frozen now are left out", used);
  if (info->begins_moments)
    log_say(training->log, "parameters that were frozen in %s are trained: their moments begin anew",
            used);
  if (info->begins_rounding) log_say(training->log, "%s comes from a training without these layers' rounding, which begins now", used);
  if (info->begins_pruning) log_say(training->log, "%s comes from a training without pruning, which begins now", used);
  log_say(training->log, "resumed from %s: step %lld of %lld", used, (long long)info->step,
          (long long)training->total_steps);
  if (status == STATUS_OK) status = train_check_prune(training, info, used);
  return status;
}

/* What a run before has logged without coming to a checkpoint is not this one's. */
static Status start_anew(Training *training) {
  log_say(training->log, "%s holds no checkpoint yet: the training starts",
          training->options->resume);
  STATUS_TRY(train_check_prune(training, NULL, NULL));
  return log_cut(training->log, 0, false);
}

static Status train_resume(Training *training) {
  CkptInfo info = {0};
  char *used = NULL;
  Status status = read_checkpoint(training, &info, &used);
  if (status == STATUS_OK) status = used ? go_on_from(training, &info, used) : start_anew(training);
  free(used);
  return status;
}

/* No other training writes to the folder of checkpoints while this one lasts. */
static Status take_folder(Training *training) {
  const char *folder = train_text(training, "train.checkpoint.dir");
  if (!folder[0] || training->options->dry_run || !training->writes) return STATUS_OK;
  STATUS_TRY(inside_check_setting(training->plan->settings, "train.checkpoint.dir",
                                  training->options->run.places.allow_paths));
  return ckpt_lock(folder, &training->folder);
}

/* What earlier trainings left in it. */
static void look_into_folder(Training *training) {
  const char *folder = train_text(training, "train.checkpoint.dir");
  if (!folder[0] || training->options->dry_run || !training->writes) return;
  int64_t newest = ckpt_tidy(folder);
  if (newest > training->first_step)
    log_warn(training->log,
             "%s holds a checkpoint of step %lld from a training before: until this one has passed "
             "it, --resume %s would take that one",
             folder, (long long)newest, folder);
}

/* Of the whole model, whatever part of it a rank has. */
int64_t train_parameters(const Training *training) {
  const PlanStages *stages = exec_stages(training->exec);
  int64_t count = 0;
  for (int s = 0; s < stages->count; s++)
    for (int i = 0; i < stages->at[s]->params.count; i++) {
      Type whole = plan_whole(&stages->at[s]->params.at[i]);
      count += shape_elements(&whole.shape);
    }
  return count;
}

/* What each rank has to itself, up to the settings on the device. */
/* What a command prints is not known before it has run, and a dry run runs none. */
static const char *command_not_run(const Training *training) {
  const char *command = source_command(training->plan, "train");
  if (!command) command = source_command(training->plan, "valid");
  return training->options->dry_run ? command : NULL;
}

static Status say_command(const Training *training) {
  Text shown = {0};
  text_printf(&shown, "%s", command_not_run(training));
  text_make_printable(shown.at);
  if (training->writes)
    printf(
        "dry run: the model is in order and fits; its data is what \"%s\" prints, which a training "
        "runs with --allow-commands and a dry run does not; nothing was trained\n",
        text_cstr(&shown));
  text_free(&shown);
  return STATUS_OK;
}

static Status train_open_all(Training *training) {
  static const CommDoing opening = {.what = "opening its data"};
  const TrainOptions *options = training->options;
  comm_doing(training->ranks.comm, &opening);
  if (options->trace_steps && !options->trace)
    return status_fail(STATUS_USER, "--trace-steps goes with --trace FILE");
  if (options->trace && options->check_nan)
    return status_fail(STATUS_USER, "--trace and --check=nan do not go together: one at a time");
  if (options->or_start && !options->resume)
    return status_fail(STATUS_USER, "--or-start goes with --resume PATH: where PATH holds no "
                                    "checkpoint yet the training starts");
  if (options->init.path_count && options->resume && !options->or_start)
    return status_fail(STATUS_USER, "--init and --resume do not go together: a resumed training "
                                    "has its own weights; with --or-start as well, a training "
                                    "without a checkpoint starts from those of --init");
  if (!command_not_run(training)) STATUS_TRY(open_data(training));
  training->threads = ranks_threads(&training->ranks, options->run.threads);
  ExecOptions exec = {options->run.device, training->threads, options->deterministic,
                      .comm = training->ranks.comm};
  const char **only;
  STATUS_TRY(train_write_programmes(training, &only));
  exec.only = only;
  Status made = exec_new(training->artifact, &exec, &training->exec);
  free(only);
  STATUS_TRY(made);
  if (!training->train) return STATUS_OK;
  if (options->save_ema && !exec_has_ema(training->exec))
    return status_fail(STATUS_USER,
                       "--save-ema: the model keeps no average of its weights; compile "
                       "with ema = 0.999 in train { ... }");
  if (train_number(training, "train.statistics") != 0 && !options->init.path_count && !options->resume)
    return status_fail(STATUS_USER, "statistics = true computes the running statistics of weights that are there: "
                                    "say of which, --init W.safetensors");
  STATUS_TRY(decide_length(training));
  STATUS_TRY(rule_check(training->exec, training->valid != NULL, plateau_is_used(training->exec)));
  STATUS_TRY(take_folder(training));
  STATUS_TRY(train_open_log(training));
  return exec_write_settings(training->exec);
}

static Status start_values(Training *training) {
  static const CommDoing values = {.what = "reading the values to begin with", .may_last = true};
  comm_doing(training->ranks.comm, &values);
  STATUS_TRY(train_given(training));
  STATUS_TRY(train_initialise(training));
  return training->options->resume ? train_resume(training) : train_check_prune(training, NULL, NULL);
}

static Status start_trace(Training *training) {
  const TrainOptions *options = training->options;
  TraceOptions trace = {.path = options->trace,
                        .done = training->first_step,
                        .total = training->total_steps,
                        .rank = training->ranks.place.rank};
  char sentence[512];
  if (options->trace_steps)
    STATUS_TRY(trace_parse_steps(options->trace_steps, &trace.first, &trace.last));
  STATUS_TRY(trace_open(&trace, &training->trace));
  if (trace_describe(training->trace, sentence, sizeof sentence))
    log_say(training->log, "trace: %s", sentence);
  return STATUS_OK;
}

static Status start_work(Training *training) {
  static const CommDoing starting = {.what = "opening its files"};
  const TrainOptions *options = training->options;
  comm_doing(training->ranks.comm, &starting);
  train_finite_start(training);
  if (training->writes) STATUS_TRY(train_try_outputs(training));
  look_into_folder(training);
  if (options->trace) STATUS_TRY(start_trace(training));
  STATUS_TRY(train_layers_start(training));
  STATUS_TRY(train_start_feed(training));
  if (training->valid)
    STATUS_TRY(
        evaluate_new(training->exec, training->valid, &training->ranks, &training->evaluator));
  STATUS_TRY(train_write_start(training));
  train_say_header(training);
  train_stop_start(training);
  return train_begin_log(training);
}

/* A failure here is known to all ranks before any of them waits for others. */
static Status set_up(Training *training) {
  const TrainOptions *options = training->options;
  Ranks *ranks = &training->ranks;
  STATUS_TRY(ranks_open(&options->run, ranks, &training->artifact));
  training->plan = training->artifact->plan;
  training->writes = ranks->place.rank == 0;
  watchdog_start(setting_number(training->plan->settings, "train.timeout"), "train.timeout");
  STATUS_TRY(ranks_agree(ranks, train_open_all(training)));
  if (!training->train) return STATUS_OK;
  STATUS_TRY(ranks_join_devices(ranks, training->exec));
  const Source *sources[] = {training->train, training->valid};
  STATUS_TRY(ranks_same(ranks, training->plan, options->run.artifact, sources, 2));
  STATUS_TRY(ranks_same_flags(ranks, options));
  STATUS_TRY(ranks_agree(ranks, start_values(training)));
  STATUS_TRY(ranks_same_values(ranks, training->exec));
  STATUS_TRY(ranks_same_given(ranks, training->given));
  STATUS_TRY(ranks_agree(ranks, start_work(training)));
  return train_choose_writers(training);
}

static Status tear_down(Training *training, Status status) {
  Status log = log_close(training->log);
  if (status == STATUS_OK) status = log;
  ckpt_writer_free(training->writer);
  status = ranks_close(&training->ranks, status); /* a step that failed may have work under way */
  feed_free(training->feed);
  replay_free(training->check.replay);
  layers_free(training->layers);
  train_write_free(training->text);
  trace_free(training->trace); /* whose spans the writer and the feed have noted */
  evaluate_free(training->evaluator);
  source_close(training->train);
  source_close(training->valid);
  exec_free(training->exec);
  ranks_free(&training->ranks);
  artifact_close(training->artifact);
  ckpt_unlock(training->folder);
  watchdog_stop();
  return status;
}

/* Steps that may be run in a row after `step` before there is something to do on the host. */
static int64_t steps_until_pause(const void *context, int64_t step) {
  const Training *training = context;
  const struct {
    const char *section;
    bool is_wanted;
  } pauses[] = {{"train.eval", training->evaluator || training->text},
                {"train.checkpoint", train_text(training, "train.checkpoint.dir")[0] != 0}};
  int64_t most = train_last_step(training) - step, seen = train_layers_until(training, step);
  if (seen < most) most = seen;
  for (int i = 0; i < 2; i++) {
    int64_t every = train_interval(training, pauses[i].section);
    if (pauses[i].is_wanted && every > 0 && every - step % every < most)
      most = every - step % every;
  }
  return most;
}

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */

/* The reader of the log is gone: that ends a training as other signals do. */
Status train_logged(Training *training, Status status) {
  if (status == STATUS_OK || signals_pending() != SIGPIPE) return status;
  log_warn(training->log, "%s", status_message());
  return STATUS_OK;
}

/* Logs what has come back; `wait`: all that was asked for. */
static Status log_results(Training *training, bool wait) {
  for (;;) {
    ExecScalars scalars;
    bool is_there;
    STATUS_TRY(exec_fetched(training->exec, wait, &scalars, &is_there));
    if (!is_there) return STATUS_OK;
    LogStep result = {.step = scalars.tag};
    evaluate_take(training->exec, &scalars, &result);
    log_data_wait(training->log, feed_wait(training->feed));
    STATUS_TRY(train_logged(
        training, log_step(training->log, &result, result.step == train_last_step(training))));
    STATUS_TRY(train_check_result(training, &result));
  }
}

/* Until its first kernel runs. */
static const CommDoing reading = {.what = "reading its batch"};

/* Runs 1 to `most` steps after `step`. */
static Status train_run_steps(Training *training, int64_t step, int64_t most, int64_t *steps) {
  const void *batch;
  Programme programme;
  bool is_traced;
  *steps = 1;
  comm_doing(training->ranks.comm, &reading);
  STATUS_TRY(trace_wants(training->trace, training->exec, step + 1, &is_traced));
  if (training->options->check_nan) return train_check_step(training, step);
  if (train_layers_are_due(training, step + 1)) return train_layers_step(training, step + 1);
  if (!is_traced)
    return status_prefix(feed_run(training->feed, most, steps), "step %lld", (long long)step + 1);
  Spans *spans = trace_spans(training->trace);
  int64_t start = clock_nanoseconds();
  STATUS_TRY(feed_programme(training->feed, &programme));
  do {
    ExecGraph graph = programme_graph(&programme);
    int64_t asked = clock_nanoseconds();
    STATUS_TRY(feed_next(training->feed, &batch));
    spans_add(spans, &(TraceSpan){SPAN_WAIT, 0, asked, clock_nanoseconds(), step + 1, NULL});
    Status status = trace_step(training->trace, training->exec, graph, batch, step + 1);
    STATUS_TRY(status_prefix(status, "step %lld", (long long)step + 1));
  } while (!programme_advance(&programme, 1));
  spans_add(spans, &(TraceSpan){SPAN_STEP, 0, start, clock_nanoseconds(), step + 1, NULL});
  return STATUS_OK;
}

/* Results are asked for where a line is due, and everywhere if that costs nothing. */
static Status ask_for_results(Training *training, int64_t first, int64_t last) {
  if (exec_runs_ahead(training->exec) && !log_wants(training->log, first, last)) return STATUS_OK;
  if (exec_fetch_is_full(training->exec)) STATUS_TRY(log_results(training, true));
  return exec_fetch(training->exec, feed_result(training->feed), first);
}

static Status train_steps(Training *training, int64_t *done) {
  if (training->owes_evaluation) {
    source_start(training->valid);
    STATUS_TRY(train_evaluate(training, training->first_step));
    STATUS_TRY(train_start_writing(training, true));
  }
  if (!training->options->check_nan)
    STATUS_TRY(feed_make_ready(training->feed, steps_until_pause, training));
  log_start_clock(training->log, training->first_step);
  for (int64_t step = training->first_step, steps;
       step < train_last_step(training) && !training->stop.is_over; step += steps) {
    comm_at_step(training->ranks.comm, step + 1);
    training->ranks.is_busy = ckpt_writer_is_busy(training->writer);
    STATUS_TRY(ranks_signal(&training->ranks, &training->signal));
    STATUS_TRY(train_go_on_writing(training));
    if (training->signal) break;
    training->is_torn = true;
    double start = log_now();
    STATUS_TRY(train_run_steps(training, step, steps_until_pause(training, step), &steps));
    training->is_torn = false;
    *done = step + steps;
    STATUS_TRY(ask_for_results(training, step + 1, *done));
    bool is_due_now = *done == train_last_step(training) ||
                      train_is_due(training, "train.eval", *done) ||
                      train_is_due(training, "train.checkpoint", *done);
    STATUS_TRY(log_results(training, is_due_now));
    STATUS_TRY(train_note_data(training, steps, log_now() - start));
    if (step == training->first_step && training->valid) source_start(training->valid);
    STATUS_TRY(train_after_step(training, *done));
  }
  return log_results(training, true);
}

/* The machine failed while training: what is left. */
static Status say_what_is_left(const Training *training, Status status) {
  const char *folder = train_text(training, "train.checkpoint.dir");
  if (status != STATUS_FAULT || !folder[0] || training->saved_step < 0) return status;
  return status_fail(status,
                     "%s; the checkpoint of step %lld is whole: the same command with "
                     "--resume %s goes on from it",
                     status_message(), (long long)training->saved_step, training->saved_in);
}

static void say_communication(Training *training) {
  TraceCommunication all;
  if (training->trace && trace_is_full(training->trace))
    log_warn(training->log,
             "%s holds what came before it was full; --trace-steps FIRST:LAST asks for less",
             training->options->trace);
  if (!trace_communication(training->trace, &all)) return;
  log_say(training->log,
          "trace: communication takes %.3f ms a step, of which %.3f ms are exposed (%.0f %% hidden "
          "behind kernels)",
          all.seconds * 1e3, all.exposed * 1e3, all.hidden * 100);
}

/* What is read one by one: how much, and what the loader needs for it. */
static Status say_data(Training *training, const Source *source) {
  Text text = {0};
  int workers = train_workers(training->plan, source, training->threads, training->ranks.cores);
  Status status = source_describe(source, workers > 0 ? workers : 1, &text);
  if (status == STATUS_OK && text.count) log_say(training->log, "%s", text_cstr(&text));
  text_free(&text);
  return status;
}

static Status dry_run(Training *training) {
  if (!training->train) return say_command(training);
  STATUS_TRY(source_check(training->train));
  if (training->valid) STATUS_TRY(source_check(training->valid));
  STATUS_TRY(say_data(training, training->train));
  if (training->valid) STATUS_TRY(say_data(training, training->valid));
  log_say(training->log, "dry run: model, data and memory are in order; nothing was trained");
  return STATUS_OK;
}

/* For those who follow the log: that nothing more will come, and why. */
static void log_end_of_training(Training *training, int64_t done, Status status) {
  char why[320];
  if (!training->writes) return;
  if (training->signal == RANKS_TIME_IS_UP)
    snprintf(why, sizeof why, "the time is up (%s)", training->stop.whose);
  else if (training->signal)
    snprintf(why, sizeof why, "stopped by %s", strsignal(training->signal));
  else if (training->stop.why[0])
    snprintf(why, sizeof why, "%s", training->stop.why);
  else if (training->stop.is_over)
    snprintf(why, sizeof why, "the training had ended early");
  else if (done < training->total_steps)
    snprintf(why, sizeof why, "stopped after step %lld (--stop-at)", (long long)done);
  else
    snprintf(why, sizeof why, "all steps are done");
  if (status != STATUS_OK)
    log_event(training->log, done + 1, "error", status_message());
  else
    log_event(training->log, done, "end", why);
}

static Status train_loop(Training *training, int *exit_code) {
  STATUS_TRY(set_up(training));
  if (training->options->dry_run) return dry_run(training);
  int64_t done = training->first_step;
  signals_listen();
  Status status = train_steps(training, &done);
  Status logged = train_logged(training, log_end(training->log));
  if (status == STATUS_OK) status = logged;
  status = train_end_writing(training, status);
  if (status != STATUS_OK) status = train_put_aside(training, done, status);
  if (!training->signal && training->owes_evaluation) training->signal = training->ranks.signal;
  if (training->ranks.place.ranks == 1 && signals_pending()) /* one that came since counts too */
    training->signal = signals_pending();
  int signal = training->signal;
  *exit_code = signal == RANKS_TIME_IS_UP ? TRAIN_TIME_IS_UP : signal ? 128 + signal : 0;
  /* a short run may end before the checksum of its data is known */
  if (status == STATUS_OK && !signal)
    status = ranks_agree(&training->ranks, source_check(training->train));
  if (status == STATUS_OK) status = train_finish(training, done);
  if (status == STATUS_OK && (signal || (done < training->total_steps && !training->stop.is_over)))
    train_say_how_to_resume(training, done);
  if (status == STATUS_OK) train_say_data(training);
  if (status == STATUS_OK) say_communication(training);
  if (status != STATUS_OK) status = say_what_is_left(training, status);
  Text failure = {0};
  if (status != STATUS_OK) text_printf(&failure, "%s", status_message());
  log_end_of_training(training, done, status);
  Status trace = training->exec ? trace_write(training->trace, training->exec) : STATUS_OK;
  if (status == STATUS_OK) return trace;
  status_fail(status, "%s", text_cstr(&failure));
  text_free(&failure);
  return status;
}

Status train_run(const TrainOptions *options, int *exit_code) {
  *exit_code = 0;
  Training training = {.options = options, .saved_step = -1, .asked_step = -1};
  Status status = tear_down(&training, train_loop(&training, exit_code));
  for (int i = 0; i <= PLAN_MOST_METRICS; i++) free(training.ema_name[i]);
  if (!training.writes) *exit_code = 0; /* launchers end all when one rank's exit code is not 0 */
  return status;
}
