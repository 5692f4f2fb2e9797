/* run_log: see run_log.h. */
#include "runtime/command/run_log.h"
#include "runtime/common/utf8.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status run_log_new(const char *path, RunLog **out) {
  RunLog *log = calloc(1, sizeof *log);
  *out = log;
  if (log) log->curve = calloc(RUN_MOST_SERIES, sizeof *log->curve);
  if (log) log->path = path;
  if (log && log->curve) return STATUS_OK;
  free(log);
  *out = NULL;
  return status_errno(ENOMEM, "%s", path);
}

static void forget_all(RunLog *log) {
  json_decref(log->header);
  json_decref(log->last);
  for (int i = 0; i < log->evaluation_count; i++) json_decref(log->evaluation[i]);
  for (int i = 0; i < log->curve_count; i++) run_series_free(&log->curve[i].series);
  for (int i = 0; i < log->written_count; i++) free(log->written[i].text);
  text_free(&log->rest);
  run_layers_free(&log->layers);
}

void run_log_restart(RunLog *log) {
  forget_all(log);
  *log = (RunLog){.path = log->path, .curve = log->curve};
  memset(log->curve, 0, RUN_MOST_SERIES * sizeof *log->curve);
}

void run_log_free(RunLog *log) {
  if (!log) return;
  forget_all(log);
  free(log->curve);
  free(log);
}

double run_number(json_t *object, const char *key, double otherwise) {
  json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : otherwise;
}

const char *run_text(json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* As much of it as there is room for, and no part of a character. */
static void keep_text(char *out, size_t size, const char *text) {
  size_t length = strlen(text), kept = 0;
  for (int one; kept < length && (one = utf8_character(text + kept, length - kept)) > 0;) {
    if (kept + (size_t)one >= size) break;
    kept += (size_t)one;
  }
  memcpy(out, text, kept);
  out[kept] = 0;
}

/* ── time ─────────────────────────────────────────────────────────────────────────────────── */

/* Seconds of training: the time between a run and the one that goes on with it is none of it, and a
 * clock that was set back stands still. */
static void note_time(RunLog *log, json_t *line, bool is_start) {
  double clock = run_number(line, "time", NAN);
  if (!(fabs(clock) < 1e15)) return;
  if (is_start || !log->has_clock) log->clock = clock - log->time;
  log->has_clock = true;
  log->time = fmax(log->time, clock - log->clock);
}

/* The newest are kept. */
static void add_mark(RunMark *marks, int *count, RunMark mark) {
  if (*count == RUN_MOST_MARKS) memmove(marks, marks + 1, (size_t)--*count * sizeof *marks);
  marks[(*count)++] = mark;
}

/* ── curves ───────────────────────────────────────────────────────────────────────────────── */

const RunCurve *run_log_find(const RunLog *log, RunCurveKind kind, const char *split,
                             const char *name) {
  for (int i = 0; i < log->curve_count; i++) {
    const RunCurve *curve = &log->curve[i];
    if (curve->kind == kind && !strcmp(curve->name, name) && !strcmp(curve->split, split))
      return curve;
  }
  return NULL;
}

static Status add_value(RunLog *log, RunCurveKind kind, const char *split, const char *long_name,
                        double value) {
  char name[RUN_NAME];
  keep_text(name, sizeof name, long_name);
  RunCurve *curve = (RunCurve *)run_log_find(log, kind, split, name);
  if (!curve && log->curve_count == RUN_MOST_SERIES) {
    log->has_left_out = true;
    return STATUS_OK;
  }
  if (!curve) {
    curve = &log->curve[log->curve_count++];
    curve->kind = kind;
    memcpy(curve->name, name, sizeof name);
    keep_text(curve->split, sizeof curve->split, split);
  }
  return run_series_add(&curve->series, (RunPoint){log->step, log->time, value});
}

static bool is_own_field(const char *key) {
  static const char *const own[] = {"step",  "epoch", "time",      "eval",
                                    "split", "means", "nonfinite", NULL};
  return text_is_one_of(key, own);
}

/* null is what JSON has for a number that is not finite. */
static Status run_log_values(RunLog *log, RunCurveKind kind, const char *split, json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    if (is_own_field(key) || !(json_is_number(value) || json_is_null(value))) continue;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    STATUS_TRY(add_value(log, kind, split, key, number));
  }
  return STATUS_OK;
}

/* ── lines ────────────────────────────────────────────────────────────────────────────────── */

static void keep_line(json_t **kept, json_t *line) {
  json_decref(*kept);
  *kept = json_incref(line);
}

/* Where there is no room every second one goes: what is kept is from all over the run. */
static Status take_written(RunLog *log, double step, const char *text) {
  if (log->written_count == RUN_MOST_TEXTS) {
    int kept = 0;
    for (int i = 0; i < RUN_MOST_TEXTS; i++)
      if (i % 2)
        free(log->written[i].text);
      else
        log->written[kept++] = log->written[i];
    log->written_count = kept;
  }
  size_t length = strlen(text), size = (length < RUN_MOST_TEXT ? length : RUN_MOST_TEXT) + 1;
  char *copy = malloc(size);
  if (!copy) return status_errno(ENOMEM, "%s", log->path);
  keep_text(copy, size, text);
  log->written[log->written_count++] = (RunWritten){step, copy};
  return STATUS_OK;
}

/* A run that goes on where an earlier one was: what it repeats goes. */
static void take_header(RunLog *log, json_t *line) {
  double first = run_number(line, "first_step", 0);
  if (!(first >= 0 && first <= 0x1p53)) first = 0;
  bool is_first = !log->header;
  keep_line(&log->header, line);
  note_time(log, line, true);
  log->is_over = log->has_failed = false;
  log->end[0] = 0;
  if (is_first) {
    log->step = first;
    return;
  }
  for (int i = 0; i < log->curve_count; i++) run_series_cut(&log->curve[i].series, first);
  while (log->checkpoint_count && log->checkpoint[log->checkpoint_count - 1].step > first)
    log->checkpoint_count--, log->checkpoints--;
  while (log->written_count && log->written[log->written_count - 1].step > first)
    free(log->written[--log->written_count].text);
  log->step = first;
  add_mark(log->resumed, &log->resumed_count, (RunMark){first, log->time});
}

static void take_end(RunLog *log, const char *sentence, bool has_failed) {
  log->is_over = true;
  log->has_failed = has_failed;
  keep_text(log->end, sizeof log->end, sentence);
}

static void keep_evaluation(RunLog *log, const char *split, json_t *line) {
  int at = 0;
  while (at < log->evaluation_count && strcmp(run_text(log->evaluation[at], "split"), split)) at++;
  if (at == RUN_MOST_SPLITS) return;
  if (at == log->evaluation_count) log->evaluation_count++;
  keep_line(&log->evaluation[at], line);
}

static Status run_log_step(RunLog *log, json_t *line, bool is_eval) {
  char split[RUN_NAME];
  keep_text(split, sizeof split, run_text(line, "split"));
  note_time(log, line, false);
  if (is_eval) {
    keep_evaluation(log, split, line);
    return run_log_values(log, RUN_EVAL, split, line);
  }
  keep_line(&log->last, line);
  STATUS_TRY(run_log_values(log, RUN_STEP, split, line));
  json_t *means = json_object_get(line, "means");
  return json_is_object(means) ? run_log_values(log, RUN_MEAN, split, means) : STATUS_OK;
}

static bool kind_of_line(json_t *line, RunLineKind *kind) {
  double step = run_number(line, "step", -1);
  if (json_is_string(json_object_get(line, "ft"))) return *kind = RUN_LINE_HEADER, true;
  if (!(step >= 0 && step <= 0x1p53)) return false;
  static const struct {
    const char *key;
    RunLineKind kind;
  } texts[] = {
      {"error", RUN_LINE_ERROR}, {"end", RUN_LINE_END}, {"checkpoint", RUN_LINE_CHECKPOINT},
      {"generated", RUN_LINE_GENERATED}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (json_is_string(json_object_get(line, texts[i].key))) return *kind = texts[i].kind, true;
  if (json_is_object(json_object_get(line, "parameters"))) return *kind = RUN_LINE_LAYERS, true;
  *kind = json_is_true(json_object_get(line, "eval")) ? RUN_LINE_EVAL : RUN_LINE_STEP;
  return true;
}

static Status take_line(RunLog *log, RunLineKind kind, json_t *line) {
  double step = run_number(line, "step", 0);
  switch (kind) {
  case RUN_LINE_HEADER:
    take_header(log, line);
    return STATUS_OK;
  case RUN_LINE_ERROR:
    take_end(log, run_text(line, "error"), true);
    return STATUS_OK;
  case RUN_LINE_END:
    take_end(log, run_text(line, "end"), false);
    return STATUS_OK;
  case RUN_LINE_GENERATED:
    return take_written(log, step, run_text(line, "generated"));
  case RUN_LINE_LAYERS:
    return run_layers_take(&log->layers, step, line);
  case RUN_LINE_CHECKPOINT:
    log->checkpoints++;
    add_mark(log->checkpoint, &log->checkpoint_count, (RunMark){step, log->time});
    return STATUS_OK;
  default:
    log->step = step;
    return run_log_step(log, line, kind == RUN_LINE_EVAL);
  }
}

static Status run_log_line(RunLog *log, const char *bytes, size_t count, RunSeen *seen,
                           void *user) {
  json_t *line = NULL;
  RunLineKind kind;
  log->lines++;
  while (count && (bytes[count - 1] == '\r' || bytes[count - 1] == ' ')) count--;
  if (!count) return STATUS_OK;
  Status status = json_parse(bytes, count, &line);
  if (status == STATUS_FAULT) return status;
  if (json_is_object(line) && kind_of_line(line, &kind)) {
    status = take_line(log, kind, line);
    if (status == STATUS_OK && seen) seen(user, log, kind, line);
  } else {
    status = STATUS_OK;
    if (!log->unreadable++) log->first_unreadable = log->lines;
  }
  json_decref(line);
  return status;
}

static void run_log_skip(RunLog *log) {
  log->is_skipping = true;
  log->rest.count = 0;
  if (!log->unreadable++) log->first_unreadable = log->lines + 1;
}

Status run_log_feed(RunLog *log, const char *bytes, size_t count, RunSeen *seen, void *user) {
  const char *end = bytes + count;
  while (bytes < end) {
    const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
    size_t part = (size_t)((newline ? newline : end) - bytes);
    if (!log->is_skipping && log->rest.count + part > RUN_MOST_LINE) run_log_skip(log);
    if (log->is_skipping) {
      if (newline) log->is_skipping = false, log->lines++;
    } else if (!newline) {
      text_append(&log->rest, bytes, part);
    } else if (log->rest.count) {
      text_append(&log->rest, bytes, part);
      STATUS_TRY(run_log_line(log, log->rest.at, log->rest.count, seen, user));
      log->rest.count = 0;
    } else {
      STATUS_TRY(run_log_line(log, bytes, part, seen, user));
    }
    bytes += part + (newline != NULL);
  }
  return STATUS_OK;
}
