/* report_data: see report_data.h. */
#include "runtime/command/report_data.h"
#include "runtime/common/utf8.h"
#include <math.h>
#include <string.h>

enum { MOST_TEXT = 4000, MOST_KEYS = 1000, MOST_CELLS = 128 * 128, MOST_SIDE = 128 };
enum { MOST_BUCKETS_OF_ALL = 60000 }; /* at about 80 bytes */

/* ── texts ────────────────────────────────────────────────────────────────────────────────── */

static void append_character(Text *out, const char *at, int length) {
  unsigned char c = (unsigned char)*at;
  if (c == '"' || c == '\\')
    text_printf(out, "\\%c", c);
  else if (c < 0x20 || c == '<' || c == '>' || c == '&' || c == '\'' || c == 0x7f)
    text_printf(out, "\\u%04x", c);
  else if (length == 3 && !memcmp(at, "\xe2\x80", 2) && ((unsigned char)at[2] & 0xfe) == 0xa8)
    text_printf(out, "\\u202%x", (unsigned char)at[2] & 0xf); /* ends a line of JavaScript */
  else
    text_append(out, at, (size_t)length);
}

void report_string(Text *out, const char *text) {
  size_t length = strlen(text), at = 0;
  text_append(out, "\"", 1);
  while (at < length && at < MOST_TEXT) {
    int one = utf8_character(text + at, length - at);
    if (one)
      append_character(out, text + at, one);
    else
      text_printf(out, "\\ufffd");
    at += one ? (size_t)one : 1;
  }
  if (at < length) text_printf(out, "\\u2026");
  text_append(out, "\"", 1);
}

static void append_json_value(Text *out, json_t *value) {
  if (json_is_string(value)) {
    report_string(out, json_string_value(value));
  } else if (json_is_integer(value)) {
    text_printf(out, "%lld", (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    text_printf(out, "%.9g", json_real_value(value));
  } else if (json_is_boolean(value)) {
    text_printf(out, json_is_true(value) ? "true" : "false");
  } else {
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    report_string(out, dump ? dump : "");
    free(dump);
  }
}

/* ── the header ───────────────────────────────────────────────────────────────────────────── */

static void append_pair(Text *out, int *count, const char *prefix, const char *key, json_t *value) {
  char whole[256];
  if (*count == MOST_KEYS) return;
  snprintf(whole, sizeof whole, "%s%s", prefix, key);
  text_printf(out, (*count)++ ? ",[" : "[");
  report_string(out, whole);
  text_append(out, ",", 1);
  append_json_value(out, value);
  text_append(out, "]", 1);
}

/* Settings under their own names; what else holds others, under both. */
static void report_header(Text *out, json_t *header) {
  const char *key, *inner;
  json_t *value, *below;
  int count = 0;
  text_printf(out, "\"header\":[");
  json_object_foreach(header, key, value) {
    char prefix[128] = "";
    if (strcmp(key, "settings") != 0) snprintf(prefix, sizeof prefix, "%.100s.", key);
    if (!json_is_object(value))
      append_pair(out, &count, "", key, value);
    else
      json_object_foreach(value, inner, below) append_pair(out, &count, prefix, inner, below);
  }
  text_printf(out, "]");
}

/* ── tables of an evaluation ──────────────────────────────────────────────────────────────── */

static void append_cell(Text *out, double value, bool is_first) {
  text_printf(out, isfinite(value) ? "%s%.7g" : "%snull", is_first ? "" : ",", value);
}

static double number_at(json_t *list, size_t index) {
  json_t *value = json_array_get(list, index);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A row, by class for example. */
static void append_row(Text *out, json_t *list) {
  size_t count = json_array_size(list), shown = count < MOST_CELLS ? count : MOST_CELLS;
  text_printf(out, "\"columns\":%zu,\"block\":1,\"values\":[", count);
  for (size_t i = 0; i < shown; i++) append_cell(out, number_at(list, i), i == 0);
  text_printf(out, "]");
}

/* A table that is too large is shown as sums of square blocks of it. */
static void append_square(Text *out, json_t *rows) {
  size_t height = json_array_size(rows), width = json_array_size(json_array_get(rows, 0));
  size_t longest = height > width ? height : width, block = (longest + MOST_SIDE - 1) / MOST_SIDE;
  bool is_first = true;
  text_printf(out, "\"rows\":%zu,\"columns\":%zu,\"block\":%zu,\"values\":[", height, width, block);
  for (size_t i = 0; i < height; i += block)
    for (size_t j = 0; j < width; j += block) {
      double sum = 0;
      for (size_t k = i; k < i + block && k < height; k++)
        for (size_t l = j; l < j + block && l < width; l++)
          sum += number_at(json_array_get(rows, k), l);
      append_cell(out, sum, is_first);
      is_first = false;
    }
  text_printf(out, "]");
}

static void append_tables(Text *out, json_t *line, bool *is_first) {
  const char *key;
  json_t *value;
  json_object_foreach(line, key, value) {
    if (!json_array_size(value)) continue;
    text_printf(out, *is_first ? "{\"split\":" : ",{\"split\":");
    report_string(out, run_text(line, "split"));
    text_printf(out, ",\"name\":");
    report_string(out, key);
    text_printf(out, ",\"step\":%.0f,", run_number(line, "step", 0));
    if (json_array_size(json_array_get(value, 0)))
      append_square(out, value);
    else
      append_row(out, value);
    text_printf(out, "}");
    *is_first = false;
  }
}

/* ── a run ────────────────────────────────────────────────────────────────────────────────── */

static void append_marks(Text *out, const char *name, const RunMark *marks, int count) {
  text_printf(out, ",\"%s\":[", name);
  for (int i = 0; i < count; i++)
    text_printf(out, "%s[%.0f,%.6g]", i ? "," : "", marks[i].step, marks[i].time);
  text_printf(out, "]");
}

static void append_curves(Text *out, const RunLog *log, int most_buckets) {
  static const char *const kinds[] = {"step", "mean", "eval"};
  text_printf(out, ",\"curves\":[");
  for (int i = 0; i < log->curve_count; i++) {
    const RunCurve *curve = &log->curve[i];
    text_printf(out, "%s{\"kind\":\"%s\",\"split\":", i ? ",\n" : "\n", kinds[curve->kind]);
    report_string(out, curve->split);
    text_printf(out, ",\"name\":");
    report_string(out, curve->name);
    text_printf(out, ",\"each\":%lld,", (long long)curve->series.width);
    run_series_append_json(out, &curve->series, most_buckets);
    text_printf(out, "}");
  }
  text_printf(out, "]");
}

void report_append_run(Text *out, const RunLog *log, const char *name, int most_buckets) {
  bool is_first = true;
  text_printf(out, "{\"name\":");
  report_string(out, name);
  text_printf(out, ",\"path\":");
  report_string(out, log->path);
  text_printf(out, ",\"step\":%.0f,\"time\":%.6g,\"state\":\"%s\",\"end\":", log->step, log->time,
              log->has_failed                   ? "failed"
              : log->is_over                    ? "ended"
              : log->header || log->curve_count || log->layers.step_count ? "open"
                                                : "empty");
  report_string(out, log->end);
  if (log->has_clock) text_printf(out, ",\"last\":%.3f", log->clock + log->time);
  text_printf(out, ",\"unreadable\":%lld,\"first_unreadable\":%lld,\"left_out\":%s",
              (long long)log->unreadable, (long long)log->first_unreadable,
              log->has_left_out ? "true" : "false");
  text_printf(out, ",\"checkpoints\":%lld", (long long)log->checkpoints);
  append_marks(out, "resumed", log->resumed, log->resumed_count);
  append_marks(out, "saved", log->checkpoint, log->checkpoint_count);
  text_printf(out, ",");
  report_header(out, log->header);
  append_curves(out, log, most_buckets);
  text_printf(out, ",\"layers\":");
  run_layers_append_json(out, &log->layers, report_string);
  text_printf(out, ",\"generated\":[");
  for (int i = 0; i < log->written_count; i++) {
    text_printf(out, "%s[%.0f,", i ? "," : "", log->written[i].step);
    report_string(out, log->written[i].text);
    text_printf(out, "]");
  }
  text_printf(out, "],\"tables\":[");
  for (int i = 0; i < log->evaluation_count; i++) append_tables(out, log->evaluation[i], &is_first);
  text_printf(out, "]}");
}

/* ── several ──────────────────────────────────────────────────────────────────────────────── */

/* "runs/a/log.jsonl" is a, "runs/b.jsonl" is b. */
static void short_name(const char *path, char *out, size_t size) {
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  size_t length = strlen(file);
  if (text_ends_with(file, ".jsonl")) length -= 6;
  if (slash && length == 3 && !memcmp(file, "log", 3)) {
    const char *folder = slash;
    while (folder > path && folder[-1] != '/') folder--;
    if (slash - folder > 0 && strncmp(folder, ".", (size_t)(slash - folder)) != 0)
      file = folder, length = (size_t)(slash - folder);
  }
  snprintf(out, size, "%.*s", (int)length, file);
}

static bool has_same_name(RunLog *const *logs, int count, int index) {
  char name[256], other[256];
  short_name(logs[index]->path, name, sizeof name);
  for (int i = 0; i < count; i++) {
    short_name(logs[i]->path, other, sizeof other);
    if (i != index && !strcmp(name, other)) return true;
  }
  return false;
}

void report_append_runs(Text *out, RunLog *const *logs, int count) {
  int curves = 1;
  for (int i = 0; i < count; i++) curves += logs[i]->curve_count;
  int most = MOST_BUCKETS_OF_ALL / curves;
  if (most > RUN_BUCKETS) most = RUN_BUCKETS;
  text_printf(out, "[");
  for (int i = 0; i < count; i++) {
    char name[256];
    short_name(logs[i]->path, name, sizeof name);
    if (i) text_printf(out, ",\n");
    report_append_run(out, logs[i], has_same_name(logs, count, i) ? logs[i]->path : name,
                      most > 8 ? most : 8);
  }
  text_printf(out, "]");
}
