/* train_data: the training's batches (declared in train_state.h): how they are prepared, whether that
 * is tried out while training (data_tune.h), and what is said where steps waited for them. */
#include "runtime/command/train_state.h"
#include "runtime/data/source_part.h"
#include <math.h>
#include <string.h>

enum { MOST_AUTO_WORKERS = 16, AUTO_PREFETCH = 4 };
static const double told_share = 0.05, told_seconds = 0.5;

void train_drawn(const Training *training, char out[240]) {
  Text text = {0};
  source_part_describe(training->plan, source_find_split(training->plan, "train"), &text);
  const char *order = train_text(training, "data.order");
  if (*order) text_printf(&text, "%sdata.order = %s", text.count ? ", " : "", order);
  source_append_buckets(training->train, &text);
  snprintf(out, 240, "%s", text.count ? text_cstr(&text) : "");
  text_free(&text);
}

static bool is_auto(const Training *training, const char *key) {
  return train_number(training, key) == SETTING_AUTO;
}

int train_prefetch(const Plan *plan) {
  double number = setting_number(plan->settings, "data.prefetch");
  return number == SETTING_AUTO ? AUTO_PREFETCH : (int)fmin(fmax(number, 1), 4096);
}

Status train_start_feed(Training *training) {
  int cores = train_cores(training->ranks.cores);
  FeedOptions options = {
      .source = training->train,
      .shuffle = training->shuffle,
      .seed = training->seed,
      .first_step = training->first_step,
      .end_step = training->total_steps,
      .total_steps = training->total_steps,
      .repeat_first = training->options->overfit_batch,
      .workers =
          train_workers(training->plan, training->train, training->threads, training->ranks.cores),
      .prefetch = train_prefetch(training->plan),
      .by_batch =
          training->options->trace || training->options->check_nan || training->options->dry_run,
      .spans = trace_spans(training->trace),
  };
  training->data.tune = data_tune_start(
      is_auto(training, "data.workers"), is_auto(training, "data.prefetch"), options.workers,
      options.prefetch, cores < MOST_AUTO_WORKERS ? cores : MOST_AUTO_WORKERS);
  training->data.cores = cores;
  STATUS_TRY(feed_new(training->exec, PROGRAMME_STEP, &options, &training->feed));
  if (feed_is_kept(training->feed)) training->data.tune.is_over = true;
  training->data.is_open = feed_is_open(training->feed);
  return STATUS_OK;
}

/* Once, as soon as it is so: what is decoded anew makes every epoch longer. */
static void say_full(Training *training) {
  Text text = {0};
  bool is_full = source_say_full(training->train, &text) ||
                 (training->valid && source_say_full(training->valid, &text));
  if (is_full) log_warn(training->log, "%s", text_cstr(&text));
  training->data.said_full = is_full;
  text_free(&text);
}

Status train_note_data(Training *training, int64_t steps, double took) {
  TrainData *data = &training->data;
  DataTune *tune = &data->tune;
  if (!data->said_full) say_full(training);
  if (!data->is_open) { /* says nothing of how batches are prepared */
    data->opening_took += took;
    data->is_open = feed_is_open(training->feed);
    return STATUS_OK;
  }
  double waited = feed_wait(training->feed) - data->waited;
  data->waited += waited;
  data->took += took;
  data->steps += steps;
  if (!data_tune_note(tune, steps, took, waited)) return STATUS_OK;
  if (tune->is_over)
    log_say(training->log, "data: no faster: back to workers=%d, prefetch=%d", tune->workers,
            tune->prefetch);
  else
    log_say(training->log,
            "data: steps wait %.0f %% of the time for batches: workers=%d, prefetch=%d",
            100 * tune->share, tune->workers, tune->prefetch);
  return feed_resize(training->feed, tune->workers, tune->prefetch);
}

static void say_damaged(const Training *training, const Source *source) {
  Text text = {0};
  if (source && source_say_damaged(source, &text)) log_warn(training->log, "%s", text_cstr(&text));
  text_free(&text);
}

void train_say_data(const Training *training) {
  say_damaged(training, training->train);
  say_damaged(training, training->valid);
  const TrainData *data = &training->data;
  double share = data->took > 0 ? data->waited / data->took : 0;
  double opening = feed_opening(training->feed), whole = data->took + data->opening_took;
  if (whole >= told_seconds && opening > told_share * whole)
    log_say(training->log,
            "data: at the start steps waited %.2g s for files to be inflated, %.0f %% of all their "
            "time; of files that are not compressed they wait for nothing",
            opening, 100 * opening / whole);
  char advice[120];
  if (share <= told_share || data->took < told_seconds || !data->steps) return;
  if (data->tune.workers < data->cores && !is_auto(training, "data.workers"))
    snprintf(advice, sizeof advice, "data.workers=auto, or %d, may help",
             data->tune.workers ? 2 * data->tune.workers : 1);
  else if (data->tune.workers && !is_auto(training, "data.prefetch"))
    snprintf(advice, sizeof advice, "data.prefetch=auto, or %d, may help", 2 * data->tune.prefetch);
  else
    snprintf(advice, sizeof advice, "with %d workers on %d cores a cheaper source would help",
             data->tune.workers, data->cores);
  log_say(training->log,
          "data: steps waited %.0f %% of their time for batches (%.3g of %.3g ms): %s", 100 * share,
          data->waited * 1e3 / (double)data->steps, data->took * 1e3 / (double)data->steps, advice);
}
