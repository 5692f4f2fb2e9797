/* log: see log.h. */
#include "runtime/command/log.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/text.h"
#include "runtime/command/events.h"
#include "runtime/command/log_file.h"
#include "runtime/command/log_line.h"
#include "runtime/command/log_live.h"
#include "runtime/command/log_text.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What was logged since a line, for the means of the next. */
typedef struct {
  double time, wait; /* when that line was made, and log->wait then */
  int64_t step, count;
  double loss, metric[LOG_MOST_METRICS];
} LogSums;

struct Log {
  LogOptions options;
  FILE *out;
  LogFile json, csv;
  Events *events;
  LogColumns columns;
  LogLive *live;          /* NULL: lines on the console are plain ones that stay */
  double show_time;       /* of the last update of the terminal */
  double flush_time;      /* of the files, for those who follow them */
  LogSums console, files; /* since the last line on the console, and in the files */
  LogStep last;
  double wait; /* seconds that the host has waited for batches */
  double rate; /* smoothed samples/s, for the ETA */
  Text line;
};

double log_now(void) { return (double)clock_nanoseconds() * 1e-9; }

static double seconds_since_1970(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

Status log_open(const LogOptions *options, Log **out) {
  *out = NULL;
  Log *log = calloc(1, sizeof *log);
  if (!log) return status_errno(ENOMEM, "log");
  log->options = *options;
  log->out = options->out ? options->out : stdout;
  bool is_live = options->console && !options->is_plain && log_live_can(log->out);
  log->live = is_live ? log_live_new(log->out) : NULL;
  Status status = log_file_open(&log->json, options->jsonl, options->append);
  if (status == STATUS_OK) status = log_file_open(&log->csv, options->csv, options->append);
  if (status == STATUS_OK) {
    *out = log;
    return STATUS_OK;
  }
  Status ignored = log_file_close(&log->json);
  (void)ignored;
  log_live_free(log->live);
  free(log);
  return status;
}

Status log_flush(Log *log) {
  Status status = log_file_flush(&log->json), csv = log_file_flush(&log->csv);
  Status events = log->events ? events_flush(log->events) : STATUS_OK;
  return status != STATUS_OK ? status : csv != STATUS_OK ? csv : events;
}

static bool has_events(const Log *log) {
  return log->options.tensorboard && log->options.tensorboard[0];
}

Events *log_events(Log *log) { return log->events; }

Status log_cut(Log *log, int64_t step, bool is_evaluated) {
  if (has_events(log)) STATUS_TRY(events_cut(log->options.tensorboard, step));
  STATUS_TRY(log_file_cut(&log->json, step, is_evaluated, log_json_place));
  return log_file_cut(&log->csv, step, is_evaluated, log_csv_place);
}

/* The columns of a file that the training goes on in are those it has. */
static Status begin_csv(Log *log) {
  Text *line = &log->line, old = {0};
  line->count = 0;
  log_csv_header(line, &log->columns);
  if (!log->csv.file) return STATUS_OK;
  if (!log->options.append || log_file_is_empty(&log->csv)) return log_file_write(&log->csv, line);
  int error = text_read_file(&old, log->csv.path);
  bool is_same = !error && old.count >= line->count && !memcmp(old.at, line->at, line->count);
  text_free(&old);
  if (is_same || error == TEXT_IRREGULAR) return STATUS_OK;
  if (error) return status_errno(error, "the log %s", log->csv.path);
  return status_fail(STATUS_USER,
                     "the log %s has other columns than this training; move it away, or name "
                     "another with --set train.log.csv=FILE",
                     log->csv.path);
}

Status log_begin(Log *log, int64_t first_step, const char *header, const LogColumns *columns) {
  log->columns = *columns;
  log->line.count = 0;
  text_printf(&log->line, "%s\n", header);
  STATUS_TRY(log_file_write(&log->json, &log->line));
  STATUS_TRY(begin_csv(log));
  if (has_events(log) && !log->options.append) STATUS_TRY(events_cut(log->options.tensorboard, 0));
  if (has_events(log)) STATUS_TRY(events_open(log->options.tensorboard, first_step, &log->events));
  return log_flush(log);
}

/* ── lines on the console ─────────────────────────────────────────────────────────────────── */

static void clear_block(Log *log) {
  if (log->live) log_live_clear(log->live);
}

void log_say(Log *log, const char *format, ...) {
  if (!log->options.console) return;
  Text text = {0};
  va_list args;
  va_start(args, format);
  text_vprintf(&text, format, args);
  va_end(args);
  text_append(&text, "\n", 1);
  text_make_printable(text.at); /* paths and names of someone else's */
  clear_block(log);
  fputs(text.at, log->out);
  fflush(log->out);
  text_free(&text);
}

void log_warn(Log *log, const char *format, ...) {
  if (log->options.is_silent) return;
  clear_block(log);
  fflush(log->out);
  va_list args;
  va_start(args, format);
  say_begin(SAY_WARNING);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
}

void log_start_clock(Log *log, int64_t step) {
  log->console = log->files = (LogSums){.time = log_now(), .wait = log->wait, .step = step};
  log->last.step = step;
}

void log_skip_time(Log *log, double seconds) {
  log->console.time += seconds;
  log->files.time += seconds;
}

static void append_values(Text *line, double loss, const LogMetric *metrics, int count) {
  log_text_value(line, "loss", loss);
  for (int i = 0; i < count; i++) {
    if (metrics[i].table) continue; /* below the line */
    text_append(line, "  ", 2);
    if (metrics[i].kind != OUTPUT_METRIC)
      text_printf(line, "%s %.9g", metrics[i].name, metrics[i].value);
    else
      log_text_value(line, metrics[i].name, metrics[i].value);
  }
}

static int64_t epoch_of(const Log *log, int64_t step) {
  int64_t per_epoch = log->options.steps_per_epoch;
  return per_epoch > 0 ? (step - 1) / per_epoch + 1 : 1;
}

static void append_place(const Log *log, Text *line, int64_t step) {
  int64_t per_epoch = log->options.steps_per_epoch, total = log->options.total_steps;
  if (step == 0) return; /* an evaluation outside of a training */
  int64_t epochs = per_epoch > 0 ? (total + per_epoch - 1) / per_epoch : 1;
  text_printf(line, "epoch %lld/%lld  step %lld/%lld", (long long)epoch_of(log, step),
              (long long)epochs, (long long)step, (long long)total);
  text_append(line, "  ", 2);
}

/* Of what has no mean, a loss scale for example, the last value. */
static void take_means(const LogSums *sums, const LogStep *last, LogStep *mean) {
  double count = (double)sums->count;
  mean->loss = sums->loss / count;
  mean->metric_count = last->metric_count;
  for (int i = 0; i < last->metric_count; i++) {
    mean->metric[i] = last->metric[i];
    if (last->metric[i].kind == OUTPUT_METRIC) mean->metric[i].value = sums->metric[i] / count;
  }
}

static void add_to_sums(LogSums *sums, const LogStep *step) {
  sums->loss += step->loss;
  for (int i = 0; i < step->metric_count; i++) sums->metric[i] += step->metric[i].value;
  sums->count++;
}

static void restart_sums(const Log *log, LogSums *sums, double now) {
  sums->time = now;
  sums->wait = log->wait;
  sums->step = log->last.step;
  sums->loss = 0;
  sums->count = 0;
  memset(sums->metric, 0, (size_t)log->last.metric_count * sizeof *sums->metric);
}

/* In the steps behind `from`, up to `to`. */
static double samples_between(const Log *log, int64_t from, int64_t to) {
  const LogOptions *options = &log->options;
  double samples = 0;
  if (options->grow.kind != GROW_BATCH) return (double)(to - from) * (double)options->batch;
  for (int64_t step = from, until = to; step < to; step = until, until = to) {
    int64_t size = grow_size(&options->grow, options->settings, options->total_steps, step, &until);
    if (until > to) until = to;
    double share = size ? (double)size / setting_number(options->settings, "train.batch") : 1;
    samples += (double)(until - step) * share * (double)options->batch;
  }
  return samples;
}

/* As a plain line, or in the block. */
static void log_show(Log *log, const LogStep *step, double now, bool is_line) {
  Text *line = &log->line;
  LogStep mean = {0};
  double seconds = fmax(now - log->console.time, 1e-9);
  double steps = (double)(step->step - log->console.step);
  double rate = samples_between(log, log->console.step, step->step) / seconds;
  line->count = 0;
  take_means(&log->console, step, &mean);
  if (!log->live) append_place(log, line, step->step);
  append_values(line, mean.loss, mean.metric, mean.metric_count);
  if (step->has_lr) text_printf(line, "  lr %.3g", step->lr);
  if (log->options.shows_grad_norm && step->has_grad_norm)
    text_printf(line, "  grad_norm %.3g", step->grad_norm);
  if (is_line) log->rate = log->rate > 0 ? 0.5 * (log->rate + rate) : rate;
  double left = samples_between(log, step->step, log->options.total_steps) / (log->rate > 0 ? log->rate : rate);
  text_make_printable(line->at); /* names of someone else's */
  if (!log->live) {
    text_printf(line, "  %.0f samples/s  eta ", rate);
    log_text_duration(line, left);
    fprintf(log->out, "%s\n", text_cstr(line));
    fflush(log->out);
    return;
  }
  log_live_draw(log->live, &(LogView){.epoch = epoch_of(log, step->step),
                                      .epochs = epoch_of(log, log->options.total_steps),
                                      .step = step->step,
                                      .steps = log->options.total_steps,
                                      .values = line->at,
                                      .rate = rate,
                                      .seconds = left,
                                      .data_wait = (log->wait - log->console.wait) / steps,
                                      .step_time = seconds / steps});
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */

static Status log_to_files(Log *log, const LogLine *line) {
  Text *text = &log->line;
  text->count = 0;
  if (log->json.file) log_json_line(text, line);
  Status status = log->json.file ? log_file_write(&log->json, text) : STATUS_OK;
  text->count = 0;
  if (log->csv.file) log_csv_line(text, &log->columns, line);
  Status csv = log->csv.file ? log_file_write(&log->csv, text) : STATUS_OK;
  Status events = log->events ? events_line(log->events, line) : STATUS_OK;
  return status != STATUS_OK ? status : csv != STATUS_OK ? csv : events;
}

/* The line of the last step. */
static Status write_step(Log *log, double now) {
  LogSums *sums = &log->files;
  LogStep mean = {0};
  if (!log->json.file && !log->csv.file && !log->events) return STATUS_OK;
  double steps = (double)(log->last.step - sums->step);
  take_means(sums, &log->last, &mean);
  LogLine line = {.step = &log->last,
                  .mean = &mean,
                  .split = "train",
                  .epoch = epoch_of(log, log->last.step),
                  .time = seconds_since_1970(),
                  .samples_per_s =
                      samples_between(log, sums->step, log->last.step) / fmax(now - sums->time, 1e-9),
                  .data_wait = (log->wait - sums->wait) / steps};
  STATUS_TRY(log_to_files(log, &line));
  restart_sums(log, sums, now);
  if (now - log->flush_time < 1) return STATUS_OK;
  log->flush_time = now;
  return log_flush(log);
}

void log_event(Log *log, int64_t step, const char *what, const char *text) {
  if (!log->json.file) return;
  log->line.count = 0;
  log_json_event(&log->line, step, what, text);
  Status ignored = log_file_write(&log->json, &log->line); /* that it fails log_close says */
  if (ignored == STATUS_OK) ignored = log_file_flush(&log->json);
  (void)ignored;
}

Status log_layers(Log *log, const LogLayers *layers) {
  Text *line = &log->line;
  line->count = 0;
  log_layers_json(line, layers);
  Status status = log->json.file ? log_file_write(&log->json, line) : STATUS_OK;
  if (log->events && status == STATUS_OK) status = events_layers(log->events, layers);
  if (!log->options.shows_layers) return status;
  line->count = 0;
  log_layers_table(line, layers);
  log_say(log, "%s", text_cstr(line));
  return status;
}

/* ── events ───────────────────────────────────────────────────────────────────────────────── */

bool log_wants(const Log *log, int64_t first, int64_t last) {
  int64_t every = log->options.every;
  if (last == log->options.total_steps) return true;
  if (every > 0 && last / every > (first - 1) / every) return true;
  return log->live && log_now() - log->show_time >= 0.1;
}

void log_data_wait(Log *log, double seconds) { log->wait = seconds; }

/* Every step: without the metrics that there are not, which are most of its bytes. */
static void keep_last(Log *log, const LogStep *step) {
  memcpy(&log->last, step, offsetof(LogStep, metric));
  memcpy(log->last.metric, step->metric, (size_t)step->metric_count * sizeof *step->metric);
  log->last.metric_count = step->metric_count;
}

static void write_console(Log *log, double now, bool is_line) {
  log_show(log, &log->last, now, is_line);
  log->show_time = now;
  if (is_line) restart_sums(log, &log->console, now);
}

Status log_step(Log *log, const LogStep *step, bool is_last) {
  int64_t every = log->options.every;
  bool is_line = every > 0 && (is_last || step->step % every == 0);
  double now = log_now();
  keep_last(log, step);
  add_to_sums(&log->console, step);
  add_to_sums(&log->files, step);
  if (log->live) log_live_note(log->live, step->loss);
  Status status = is_line ? write_step(log, now) : STATUS_OK;
  bool is_shown = is_line || (log->live && now - log->show_time >= 0.1);
  if (log->options.console && is_shown) write_console(log, now, is_line);
  return status;
}

Status log_end(Log *log) {
  double now = log_now();
  bool is_owed = log->options.every > 0 && log->files.count > 0;
  if (log->options.console && log->options.every > 0 && log->console.count > 0)
    write_console(log, now, true);
  return is_owed ? write_step(log, now) : STATUS_OK;
}

Status log_eval(Log *log, const char *split, const LogStep *result, int64_t samples,
                double seconds) {
  LogLine file_line = {.step = result,
                       .split = split,
                       .epoch = epoch_of(log, result->step),
                       .time = seconds_since_1970()};
  Status status = log_to_files(log, &file_line);
  if (status == STATUS_OK) status = log_flush(log);
  Text *line = &log->line;
  line->count = 0;
  append_place(log, line, result->step);
  text_printf(line, "%s: ", split);
  append_values(line, result->loss, result->metric, result->metric_count);
  text_printf(line, "  (%lld samples in %.2f s)", (long long)samples, seconds);
  for (int i = 0; i < result->metric_count; i++)
    if (result->metric[i].table)
      log_table_append(line, result->metric[i].name, result->metric[i].table);
  log_say(log, "%s", text_cstr(line));
  return status;
}

Status log_close(Log *log) {
  if (!log) return STATUS_OK;
  fflush(log->out);
  log_live_free(log->live);
  Status status = log_file_close(&log->json), csv = log_file_close(&log->csv);
  Status events = events_close(log->events);
  text_free(&log->line);
  free(log);
  return status != STATUS_OK ? status : csv != STATUS_OK ? csv : events;
}
