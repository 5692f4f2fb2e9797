/* find_lr: see find_lr.h. The schedule is held at 1 by its own settings, so that train.lr is what is
 * tried, whatever schedule is compiled in. */
#include "runtime/command/find_lr.h"
#include "base/text.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/evaluate.h"
#include "runtime/command/lr_curve.h"
#include "runtime/command/ranks.h"
#include "runtime/execute/feed.h"
#include "runtime/execute/programme.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIND_STEPS = 100, MOST_FIND_STEPS = 1000000 };

typedef struct {
  const FindLrOptions *options;
  Artifact *artifact;
  Plan *plan;
  Source *source;
  Exec *exec;
  Feed *feed;
  Ranks ranks;
  LrCurve curve;
  double low, high;
  int64_t steps;
} FindLr;

/* ── setting up ───────────────────────────────────────────────────────────────────────────── */

static Status find_lr_read(FindLr *find) {
  const FindLrOptions *options = find->options;
  const TrainOptions *train = options->train;
  const char *range = options->range ? options->range : "1e-7:10";
  int end = 0;
  bool is_read = sscanf(range, "%lf:%lf%n", &find->low, &find->high, &end) == 2 && !range[end];
  if (!is_read || !(find->low > 0) || !(find->high > find->low) || !isfinite(find->high))
    return status_fail(STATUS_USER, "--lr-range %s: expected two rates such as 1e-7:10", range);
  find->steps = train->steps >= 0 ? train->steps : FIND_STEPS;
  if (find->steps < 2 || find->steps > MOST_FIND_STEPS)
    return status_fail(STATUS_USER, "--steps %lld: --find-lr takes from 2 to %d steps",
                       (long long)find->steps, MOST_FIND_STEPS);
  if (train->save || train->save_ema || train->resume || train->trace || train->check_nan ||
      train->dry_run || train->epochs >= 0)
    return status_fail(STATUS_USER, "--find-lr starts anew and leaves nothing behind: it goes with "
                                    "--init, but not with --save, --save-ema, --resume, --trace, "
                                    "--check, --dry-run and --epochs");
  find->curve.at = calloc((size_t)find->steps, sizeof *find->curve.at);
  return find->curve.at ? STATUS_OK : status_errno(ENOMEM, "--find-lr");
}

static void set_setting(Plan *plan, const char *key, double value) {
  plan->settings[setting_find(key)].number = value;
}

/* A factor of 1 in every step, of any schedule. */
static void hold_schedule(FindLr *find) {
  static const char *const ones[] = {"train.schedule.final", "train.schedule.gamma",
                                     "train.schedule.div_factor",
                                     "train.schedule.final_div_factor", "train.freeze.rate.final"};
  set_setting(find->plan, "train.schedule.warmup", 0);
  for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) set_setting(find->plan, ones[i], 1);
  exec_set_derived(find->exec, "train.total_steps", (double)find->steps);
}

static Status find_lr_values(FindLr *find) {
  const CkptInit *init = &find->options->train->init;
  uint64_t seed = (uint64_t)setting_number(find->plan->settings, "train.seed");
  STATUS_TRY(exec_init(find->exec, seed));
  STATUS_TRY(given_load(find->exec, &find->options->train->run.places, true, NULL, NULL));
  return init->path_count ? ckpt_init_weights(find->exec, init, NULL) : STATUS_OK;
}

static Status find_lr_data(FindLr *find) {
  const TrainOptions *train = find->options->train;
  const SettingValue *settings = find->plan->settings;
  int64_t batch = (int64_t)setting_number(settings, "train.batch") * exec_parts(find->exec);
  int64_t samples = source_epoch_samples(find->source);
  if (samples < batch)
    return status_fail(STATUS_USER, "train: %lld samples do not fill one batch of %lld",
                       (long long)samples, (long long)batch);
  FeedOptions feed = {.source = find->source,
                      .shuffle =
                          setting_number(settings, "data.shuffle") != 0 && !train->no_shuffle,
                      .seed = (uint64_t)setting_number(settings, "train.seed"),
                      .end_step = find->steps,
                      .repeat_first = train->overfit_batch,
                      .workers = train_workers(find->plan, find->source, train->run.threads, 0),
                      .prefetch = train_prefetch(find->plan)};
  exec_set_derived(find->exec, "train.steps_per_epoch", (double)(samples / batch));
  return feed_new(find->exec, PROGRAMME_STEP, &feed, &find->feed);
}

static Status find_lr_open(FindLr *find) {
  static const char *const only[] = {PROGRAMME_STEP, NULL};
  const RunOptions *run = &find->options->train->run;
  STATUS_TRY(find_lr_read(find));
  STATUS_TRY(ranks_open(run, &find->ranks, &find->artifact));
  find->plan = find->artifact->plan;
  STATUS_TRY(source_open_train(find->plan, &run->places, &find->source));
  source_start(find->source);
  ExecOptions exec = {run->device, run->threads, find->options->train->deterministic, .only = only};
  STATUS_TRY(exec_new(find->artifact, &exec, &find->exec));
  hold_schedule(find);
  STATUS_TRY(exec_write_settings(find->exec));
  STATUS_TRY(find_lr_values(find));
  return find_lr_data(find);
}

static void find_lr_close(FindLr *find) {
  feed_free(find->feed);
  source_close(find->source);
  exec_free(find->exec);
  ranks_free(&find->ranks);
  artifact_close(find->artifact);
  free(find->curve.at);
}

/* ── the test ─────────────────────────────────────────────────────────────────────────────── */

static Status find_lr_step(FindLr *find, int64_t i, double lr, double *loss) {
  ExecScalars scalars;
  LogStep result = {0};
  int64_t ran;
  bool is_there;
  set_setting(find->plan, "train.lr", lr);
  STATUS_TRY(exec_write_settings(find->exec));
  STATUS_TRY(status_prefix(feed_run(find->feed, 1, &ran), "step %lld", (long long)i + 1));
  STATUS_TRY(exec_fetch(find->exec, feed_result(find->feed), i));
  for (;;) {
    STATUS_TRY(exec_fetched(find->exec, true, &scalars, &is_there));
    if (!is_there) break;
    evaluate_take(find->exec, &scalars, &result);
  }
  *loss = result.loss;
  return STATUS_OK;
}

static Status find_lr_steps(FindLr *find) {
  LrCurve *curve = &find->curve;
  printf("--find-lr: %lld steps, train.lr from %g to %g; nothing is saved\n%8s %12s %12s %12s\n",
         (long long)find->steps, find->low, find->high, "step", "train.lr", "loss", "smoothed");
  for (int64_t i = 0; i < find->steps && !curve->has_diverged; i++) {
    double lr = lr_curve_rate(find->low, find->high, i, find->steps), loss;
    int64_t before = curve->count;
    STATUS_TRY(find_lr_step(find, i, lr, &loss));
    lr_curve_add(curve, lr, loss);
    if (curve->count > before)
      printf("%8lld %12.4g %12.6g %12.6g\n", (long long)i + 1, lr, loss, curve->at[i].smoothed);
    else
      printf("%8lld %12.4g %12s\n", (long long)i + 1, lr, isnan(loss) ? "NaN" : "infinite");
    fflush(stdout);
  }
  return STATUS_OK;
}

/* ── what it says ─────────────────────────────────────────────────────────────────────────── */

static Status find_lr_file(const char *flag, const char *path, const Text *text) {
  if (!path) return STATUS_OK;
  int error = text_write_file(path, text_cstr(text), text->count);
  return error ? status_fail(error == TEXT_IRREGULAR ? STATUS_USER : STATUS_FAULT,
                             "%s: cannot write %s: %s", flag, path, text_error(error))
               : STATUS_OK;
}

static Status find_lr_plot(const FindLr *find) {
  Text text = {0};
  char *bytes = NULL;
  size_t count = 0;
  FILE *file = find->options->plot ? open_memstream(&bytes, &count) : NULL;
  if (!find->options->plot) return STATUS_OK;
  if (!file) return status_errno(ENOMEM, "--plot");
  lr_curve_svg(&find->curve, file);
  fclose(file);
  text_append(&text, bytes, count);
  free(bytes);
  Status status = find_lr_file("--plot", find->options->plot, &text);
  text_free(&text);
  return status;
}

static Status find_lr_lines(const FindLr *find, int64_t suggested) {
  Text text = {0};
  for (int64_t i = 0; i < find->curve.count; i++) {
    const LrPoint *point = &find->curve.at[i];
    text_printf(&text, "{\"step\":%lld,\"lr\":%.17g,\"loss\":%.17g,\"smoothed\":%.17g}\n",
                (long long)i + 1, point->lr, point->loss, point->smoothed);
  }
  if (suggested >= 0)
    text_printf(&text, "{\"suggested_lr\":%.17g}\n", find->curve.at[suggested].lr);
  Status status = find_lr_file("--log-jsonl", find->options->train->log_jsonl, &text);
  text_free(&text);
  return status;
}

static Status find_lr_report(const FindLr *find) {
  const LrCurve *curve = &find->curve;
  if (!curve->count)
    return status_fail(STATUS_USER,
                       "the loss of the first step is not finite, at train.lr=%g: "
                       "--check=nan finds out why",
                       find->low);
  int64_t suggested = lr_curve_suggest(curve);
  lr_curve_print(curve, stdout);
  const LrPoint *lowest = &curve->at[curve->lowest];
  printf("the smoothed loss is lowest, %.6g, at train.lr=%.3g%s\n", lowest->smoothed, lowest->lr,
         curve->has_diverged ? "; the test ended where the training diverges" : "");
  if (suggested >= 0)
    printf("suggestion: --set train.lr=%.3g, where the smoothed loss falls fastest\n",
           curve->at[suggested].lr);
  else
    printf("no suggestion: the smoothed loss falls nowhere; try more --steps, or a wider "
           "--lr-range\n");
  STATUS_TRY(find_lr_plot(find));
  if (find->options->plot) printf("plot written to %s\n", find->options->plot);
  return find_lr_lines(find, suggested);
}

Status find_lr_run(const FindLrOptions *options) {
  FindLr find = {.options = options};
  Status status = find_lr_open(&find);
  if (status == STATUS_OK) status = find_lr_steps(&find);
  if (status == STATUS_OK) status = source_check(find.source);
  if (status == STATUS_OK) status = find_lr_report(&find);
  status = ranks_close(&find.ranks, status);
  find_lr_close(&find);
  return status;
}
