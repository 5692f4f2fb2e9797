/* watch_run: see watch_run.h. Of what a log holds already, as one comes or as a resumed training has
 * cut it, only the last lines are said, from the newest header on. */
#include "runtime/command/watch_run.h"
#include "runtime/command/log_live.h"
#include "runtime/command/log_table.h"
#include "runtime/command/log_text.h"
#include "runtime/command/run_file.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEPT_LINES = 20, MOST_CELLS_SHOWN = 32 * 32 };

typedef struct {
  const RunFile *file;
  int restarts;  /* of the file, that are known */
  LogLive *live; /* NULL: plain lines */
  bool is_catching_up, has_new;
  char *kept[KEPT_LINES];
  int kept_count;
  double batch, total, per_epoch;
  double step, epoch, rate, wait, left; /* of the newest line */
  Text line, values;
} Watch;

/* ── lines that stay ──────────────────────────────────────────────────────────────────────── */

static void forget_kept(Watch *watch) {
  for (int i = 0; i < watch->kept_count; i++) free(watch->kept[i]);
  watch->kept_count = 0;
}

static void print_line(Watch *watch, const char *line) {
  if (watch->live) log_live_clear(watch->live);
  printf("%s\n", line);
}

/* Says watch->line, now or when all that is there already is read. */
static void say_line(Watch *watch) {
  text_make_printable(watch->line.at);
  if (!watch->is_catching_up) {
    print_line(watch, watch->line.at);
    return;
  }
  char *copy = strdup(watch->line.at);
  if (!copy) return;
  if (watch->kept_count == KEPT_LINES) {
    free(watch->kept[0]);
    memmove(watch->kept, watch->kept + 1, (KEPT_LINES - 1) * sizeof *watch->kept);
    watch->kept_count--;
  }
  watch->kept[watch->kept_count++] = copy;
}

static void end_catching_up(Watch *watch) {
  watch->is_catching_up = false;
  for (int i = 0; i < watch->kept_count; i++) print_line(watch, watch->kept[i]);
  forget_kept(watch);
}

/* ── what a line says ─────────────────────────────────────────────────────────────────────── */

static bool is_no_metric(const char *key) {
  static const char *const own[] = {"step",  "epoch",         "time",      "eval",
                                    "split", "nonfinite",     "loss",      "lr",
                                    "means", "samples_per_s", "data_wait", NULL};
  return text_is_one_of(key, own);
}

static void append_numbers_of(Text *out, json_t *object) {
  const char *key;
  json_t *value;
  log_text_value(out, "loss", run_number(object, "loss", NAN));
  json_object_foreach(object, key, value) {
    if (is_no_metric(key) || !(json_is_number(value) || json_is_null(value))) continue;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    text_append(out, "  ", 2);
    if (!strcmp(key, "loss_scale") || !strcmp(key, "skipped_steps"))
      text_printf(out, "%s %.9g", key, number);
    else
      log_text_value(out, key, number);
  }
}

/* A row or table of numbers, as the training shows it. */
static void append_table_of(Text *out, const char *key, json_t *rows) {
  bool is_nested = json_is_array(json_array_get(rows, 0));
  size_t height = is_nested ? json_array_size(rows) : 1;
  size_t width = json_array_size(is_nested ? json_array_get(rows, 0) : rows);
  double cell[MOST_CELLS_SHOWN];
  if (!width) return;
  for (size_t i = 0; i < height * width && i < MOST_CELLS_SHOWN; i++) {
    json_t *row = is_nested ? json_array_get(rows, i / width) : rows;
    json_t *value = json_array_get(row, i % width);
    cell[i] = json_is_number(value) ? json_number_value(value) : NAN;
  }
  int64_t sizes[2] = {(int64_t)height, (int64_t)width};
  LogTable table = {is_nested ? shape_of(2, sizes) : shape_of(1, sizes + 1), cell};
  log_table_append(out, key, &table);
}

static double whole_epochs(const Watch *watch) {
  return watch->per_epoch > 0 ? ceil(watch->total / watch->per_epoch) : 1;
}

static void append_place_of(const Watch *watch, Text *out) {
  if (watch->total > 0)
    text_printf(out, "epoch %.0f/%.0f  step %.0f/%.0f  ", watch->epoch, whole_epochs(watch),
                watch->step, watch->total);
  else
    text_printf(out, "step %.0f  ", watch->step);
}

static void take_values(Watch *watch, json_t *line) {
  json_t *means = json_object_get(line, "means");
  double lr = run_number(line, "lr", NAN);
  watch->step = run_number(line, "step", 0);
  watch->epoch = run_number(line, "epoch", 1);
  watch->rate = run_number(line, "samples_per_s", 0);
  watch->wait = run_number(line, "data_wait", 0);
  watch->left = watch->rate > 0 ? (watch->total - watch->step) * watch->batch / watch->rate : 0;
  watch->left = fmin(fmax(watch->left, 0), 1e9);
  watch->values.count = 0;
  append_numbers_of(&watch->values, json_is_object(means) ? means : line);
  if (isfinite(lr)) text_printf(&watch->values, "  lr %.3g", lr);
  text_make_printable(watch->values.at);
}

static void watch_step(Watch *watch, json_t *line) {
  take_values(watch, line);
  watch->has_new = true;
  if (watch->live) {
    log_live_note(watch->live, run_number(line, "loss", NAN));
    return;
  }
  append_place_of(watch, &watch->line);
  text_printf(&watch->line, "%s  %.0f samples/s  eta ", text_cstr(&watch->values), watch->rate);
  log_text_duration(&watch->line, watch->left);
  say_line(watch);
}

static void watch_evaluation(Watch *watch, json_t *line) {
  const char *key;
  json_t *value;
  watch->step = run_number(line, "step", 0);
  if (watch->per_epoch > 0 && watch->step > 0)
    watch->epoch = floor((watch->step - 1) / watch->per_epoch) + 1;
  append_place_of(watch, &watch->line);
  text_printf(&watch->line, "%s: ", run_text(line, "split"));
  append_numbers_of(&watch->line, line);
  json_object_foreach(line, key, value) if (json_is_array(value))
      append_table_of(&watch->line, key, value);
  say_line(watch);
}

static void watch_header(Watch *watch, json_t *header) {
  double first = run_number(header, "first_step", 0);
  watch->batch = run_number(header, "batch", 0);
  watch->total = run_number(header, "total_steps", 0);
  watch->per_epoch = run_number(header, "steps_per_epoch", 0);
  if (!(watch->total <= 0x1p53)) watch->total = 0;
  if (watch->is_catching_up) forget_kept(watch);
  text_printf(&watch->line, "%s on %s, from %s", run_text(header, "model"),
              run_text(header, "device"), run_text(header, "start_time"));
  if (first > 0) text_printf(&watch->line, ": resumed at step %.0f", first);
  say_line(watch);
}

/* The file is another one, or was cut: what it holds has been said, up to its newest header. */
static void begin_again(Watch *watch) {
  watch->restarts = run_file_restarts(watch->file);
  watch->is_catching_up = true;
  forget_kept(watch);
  if (!watch->live) return;
  log_live_clear(watch->live);
  log_live_free(watch->live);
  watch->live = log_live_new(stdout);
}

static void see_line(void *user, const RunLog *log, RunLineKind kind, json_t *line) {
  Watch *watch = user;
  (void)log;
  if (run_file_restarts(watch->file) != watch->restarts) begin_again(watch);
  watch->line.count = 0;
  text_append(&watch->line, "", 0);
  switch (kind) {
  case RUN_LINE_HEADER:
    watch_header(watch, line);
    return;
  case RUN_LINE_STEP:
    watch_step(watch, line);
    return;
  case RUN_LINE_EVAL:
    watch_evaluation(watch, line);
    return;
  case RUN_LINE_GENERATED:
    text_printf(&watch->line, "step %.0f writes: ", run_number(line, "step", 0));
    for (const char *at = run_text(line, "generated"); *at; at++)
      text_append(&watch->line, *at == '\n' ? " ↵ " : at, *at == '\n' ? strlen(" ↵ ") : 1);
    say_line(watch);
    return;
  case RUN_LINE_CHECKPOINT:
    text_printf(&watch->line, "checkpoint of step %.0f in %s", run_number(line, "step", 0),
                run_text(line, "checkpoint"));
    say_line(watch);
    return;
  default:
    return; /* said by watch_run */
  }
}

static void draw_block(Watch *watch) {
  if (!watch->live || !watch->has_new) return;
  double step_time = watch->rate > 0 ? watch->batch / watch->rate : 0;
  log_live_draw(watch->live,
                &(LogView){.epoch = (int64_t)fmin(fmax(watch->epoch, 0), 0x1p53),
                           .epochs = (int64_t)fmin(fmax(whole_epochs(watch), 0), 0x1p53),
                           .step = (int64_t)watch->step,
                           .steps = (int64_t)fmax(watch->total, watch->step),
                           .values = watch->values.at,
                           .rate = watch->rate,
                           .seconds = watch->left,
                           .data_wait = watch->wait,
                           .step_time = step_time,
                           .is_elsewhere = true});
  watch->has_new = false;
}

/* ── following ────────────────────────────────────────────────────────────────────────────── */

static Status end_of_run(Watch *watch, const RunFile *file, const RunLog *log) {
  if (log->has_failed)
    return status_fail(STATUS_USER, "%s: the training ended: %s", run_file_path(file), log->end);
  watch->line.count = 0;
  text_printf(&watch->line, "the training has ended after step %.0f: %s", log->step, log->end);
  say_line(watch);
  return STATUS_OK;
}

static Status follow_file(Watch *watch, RunFile *file) {
  bool more = true, has_changed, has_waited = false;
  for (;;) {
    STATUS_TRY(run_file_read(file, see_line, watch, &more, &has_changed));
    if (!run_file_is_there(file) && !has_waited) {
      printf("waiting for %s\n", run_file_path(file));
      has_waited = true;
    }
    if (!more) {
      if (run_file_is_there(file)) end_catching_up(watch);
      draw_block(watch);
      fflush(stdout);
      if (run_file_log(file)->is_over) return end_of_run(watch, file, run_file_log(file));
      nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
  }
}

Status watch_run(const char *path) {
  RunFile *file;
  Watch watch = {.is_catching_up = true};
  STATUS_TRY(run_file_new(path, &file));
  watch.file = file;
  if (log_live_can(stdout)) watch.live = log_live_new(stdout);
  Status status = follow_file(&watch, file);
  forget_kept(&watch);
  log_live_free(watch.live);
  text_free(&watch.line);
  text_free(&watch.values);
  run_file_free(file);
  return status;
}
