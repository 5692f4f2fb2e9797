/* report_times: see report_times.h. */
#include "runtime/command/report_times.h"
#include "runtime/command/report_data.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 4000 };

typedef struct {
  const char *label, *layer, *phase, *work; /* the parsed file's */
  double us, flops, bytes;
  int64_t count;
} TimeRow;

typedef struct {
  TimeRow *row;
  int count;
  json_t *index;   /* label: which row */
  double left_out; /* µs of rows that there was no room for */
} TimeRows;

static double positive(json_t *object, const char *key) {
  double value = run_number(object, key, 0);
  return value > 0 && value < 1e18 ? value : 0; /* sums stay finite */
}

static void add_time(TimeRows *rows, const TimeRow *row) {
  json_t *known = json_object_get(rows->index, row->label);
  int at = known ? (int)json_integer_value(known) : rows->count;
  if (!known && at == MOST_ROWS) {
    rows->left_out += row->us;
    return;
  }
  if (!known) {
    rows->row[rows->count++] = *row;
    if (json_object_set_new(rows->index, row->label, json_integer(at)) != 0) return;
    return;
  }
  TimeRow *sum = &rows->row[at];
  sum->us += row->us;
  sum->flops += row->flops;
  sum->bytes += row->bytes;
  sum->count += row->count;
}

/* ── the two kinds of files ───────────────────────────────────────────────────────────────── */

static void take_bench(TimeRows *rows, json_t *kernels) {
  size_t i;
  json_t *kernel;
  json_array_foreach(kernels, i, kernel) {
    if (!json_is_object(kernel)) continue;
    add_time(rows,
             &(TimeRow){run_text(kernel, "label"), run_text(kernel, "layer"),
                        run_text(kernel, "phase"), run_text(kernel, "work"), positive(kernel, "us"),
                        positive(kernel, "flops"), positive(kernel, "bytes"), 1});
  }
}

/* A trace names no phase but in the label. */
static const char *phase_of_label(const char *label) {
  if (!strncmp(label, "update", 6)) return "update";
  if (strstr(label, "forward and backward")) return "both";
  return strstr(label, "backward") ? "backward" : "forward";
}

/* Sums over the traced steps; returns how many these are. */
static double take_trace(TimeRows *rows, json_t *events) {
  size_t i;
  json_t *event;
  double first = INFINITY, last = -INFINITY;
  json_array_foreach(events, i, event) {
    json_t *of = json_object_get(event, "args");
    const char *label = run_text(event, "name");
    if (strcmp(run_text(event, "ph"), "X") != 0 || run_number(event, "tid", 0) != 1) continue;
    double step = run_number(of, "step", NAN);
    if (!isfinite(step) || fabs(step) > 0x1p53) continue;
    first = fmin(first, step);
    last = fmax(last, step);
    add_time(rows,
             &(TimeRow){label, run_text(of, "layer"), phase_of_label(label), "",
                        positive(event, "dur"), positive(of, "flops"), positive(of, "bytes"), 1});
  }
  return last >= first ? last - first + 1 : 1;
}

/* ── the rows ─────────────────────────────────────────────────────────────────────────────── */

static int by_time(const void *a, const void *b) {
  const TimeRow *x = a, *y = b;
  return (x->us < y->us) - (x->us > y->us);
}

static void append_rows(Text *out, TimeRows *rows, double steps) {
  qsort(rows->row, (size_t)rows->count, sizeof *rows->row, by_time);
  text_printf(out, ",\"left_out\":%.6g,\"rows\":[", rows->left_out / steps);
  for (int i = 0; i < rows->count; i++) {
    const TimeRow *row = &rows->row[i];
    const char *const texts[] = {row->label, row->layer, row->phase, row->work};
    text_printf(out, i ? ",\n[" : "\n[");
    for (int k = 0; k < 4; k++) {
      report_string(out, texts[k]);
      text_append(out, ",", 1);
    }
    text_printf(out, "%.6g,%lld,%.6g,%.6g]", row->us / steps, (long long)row->count,
                row->flops / steps, row->bytes / steps);
  }
  text_printf(out, "]}");
}

static Status append_times(Text *out, const char *path, json_t *whole) {
  json_t *kernels = json_object_get(whole, "kernels"),
         *events = json_object_get(whole, "traceEvents");
  if (!json_is_array(kernels) && !json_is_array(events))
    return status_fail(STATUS_USER,
                       "%s: neither a table of `ftrun bench --json FILE` nor a trace of `ftrun "
                       "--trace FILE.json`",
                       path);
  TimeRows rows = {.row = calloc(MOST_ROWS, sizeof *rows.row), .index = json_object()};
  Status status = rows.row && rows.index ? STATUS_OK : status_errno(ENOMEM, "%s", path);
  if (status == STATUS_OK) {
    double steps = 1;
    bool is_bench = json_is_array(kernels);
    if (is_bench)
      take_bench(&rows, kernels);
    else
      steps = take_trace(&rows, events);
    text_printf(out, "{\"path\":");
    report_string(out, path);
    text_printf(out, ",\"kind\":\"%s\",\"device\":", is_bench ? "bench" : "trace");
    report_string(out, run_text(whole, "device"));
    text_printf(out, ",\"model\":");
    report_string(out, run_text(whole, "model"));
    text_printf(out, ",\"steps\":%.0f,\"step_ms\":%.6g", steps, positive(whole, "step_ms"));
    append_rows(out, &rows, steps);
  }
  json_decref(rows.index);
  free(rows.row);
  return status;
}

Status report_append_times(Text *out, const char *path) {
  Text text = {0};
  json_t *whole = NULL;
  if (text_ends_with(path, ".pftrace") || text_ends_with(path, ".perfetto-trace"))
    return status_fail(STATUS_USER,
                       "%s: a trace of Perfetto is for ui.perfetto.dev; `ftrun --trace FILE.json` "
                       "writes one that a report can show",
                       path);
  int error = text_read_file(&text, path);
  if (error) return status_errno(error, "%s", path);
  Status status = status_prefix(json_parse(text.at ? text.at : "", text.count, &whole), "%s", path);
  text_free(&text);
  if (status == STATUS_OK) status = append_times(out, path, whole);
  json_decref(whole);
  return status;
}
