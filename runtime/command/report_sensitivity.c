/* report_sensitivity: see report_sensitivity.h. */
#include "runtime/command/report_sensitivity.h"
#include "runtime/command/report.h"
#include "runtime/command/report_data.h"
#include <math.h>
#include <string.h>

enum { NAME_WIDTH = 32 };

/* ── numbers ────────────────────────────────────────────────────────────────────────────────── */
static bool is_number_metric(const LogMetric *metric) { return metric->kind == OUTPUT_METRIC && !metric->table; }

static const LogMetric *first_metric(const LogStep *result) {
  for (int i = 0; i < result->metric_count; i++)
    if (is_number_metric(&result->metric[i])) return &result->metric[i];
  return NULL;
}

static double shown_number(const LogStep *result) {
  const LogMetric *metric = first_metric(result);
  return metric ? metric->value : result->loss;
}

static void append_sensitivity_number(Text *out, double value) {
  if (isfinite(value))
    text_printf(out, "%.9g", value);
  else
    text_printf(out, "null");
}

void report_sensitivity_string(Text *out, const char *text) {
  if (text)
    report_string(out, text);
  else
    text_printf(out, "null");
}

void report_sensitivity_numbers(Text *out, const LogStep *result) {
  text_printf(out, ",\"loss\":");
  append_sensitivity_number(out, result->loss);
  for (int i = 0; i < result->metric_count; i++) {
    if (!is_number_metric(&result->metric[i])) continue;
    text_printf(out, ",");
    report_string(out, result->metric[i].name);
    text_printf(out, ":");
    append_sensitivity_number(out, result->metric[i].value);
  }
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────── */
static void print_sensitivity_number(double value, FILE *out) {
  if (!isfinite(value))
    fprintf(out, " %7s", "nan");
  else
    fprintf(out, fabs(value) < 1e4 ? " %7.4f" : " %7.1e", value);
}

void report_sensitivity_head(const Sensitivity *all, int parameters, FILE *out) {
  const LogMetric *metric = first_metric(&all->base);
  fprintf(out, "%s of %s, one parameter pruned at a time (structure %s); as it is: %s %.4f", metric ? metric->name : "loss", all->split,
          all->structure, metric ? metric->name : "loss", shown_number(&all->base));
  if (metric) fprintf(out, ", loss %.4f", all->base.loss);
  fprintf(out, "\n%d parameter%s, %d evaluations\n%-*s %10s", parameters, parameters == 1 ? "" : "s",
          parameters * all->share_count + (all->has_suggestion ? 3 : 1), NAME_WIDTH, "sparsity", "weights");
  for (int i = 0; i < all->share_count; i++) fprintf(out, " %7g", all->share[i]);
  fprintf(out, "\n");
  fflush(out);
}

void report_sensitivity_row(const Sensitivity *all, const SensitivityCurve *curve, FILE *out) {
  fprintf(out, "%-*s %10lld", NAME_WIDTH, curve->name, (long long)curve->elements);
  for (int i = 0; i < all->share_count; i++) print_sensitivity_number(shown_number(&curve->point[i].result), out);
  fprintf(out, "\n");
  fflush(out);
}

static void print_together(const Sensitivity *all, const char *how, const SensitivityPoint *point, FILE *out) {
  const LogMetric *metric = first_metric(&all->base);
  int64_t elements = 0;
  for (int i = 0; i < all->curves.count; i++) elements += all->curves.at[i].elements;
  fprintf(out, "%s: %.1f %% of the weights are 0, loss %.4f", how, 100 * (double)point->zeros / (double)elements, point->result.loss);
  if (metric) fprintf(out, ", %s %.4f", metric->name, shown_number(&point->result));
  fprintf(out, "\n");
}

void report_sensitivity_end(const Sensitivity *all, FILE *out) {
  fprintf(out, "\nsuggested for %g of all weights:\n", all->budget);
  for (int i = 0; i < all->curves.count; i++)
    fprintf(out, "%-*s %10.3f\n", NAME_WIDTH, all->curves.at[i].name, all->curves.at[i].suggested);
  print_together(all, "as suggested", &all->suggested, out);
  print_together(all, "the same share of each", &all->uniform, out);
}

/* ── the page ───────────────────────────────────────────────────────────────────────────────── */
static void append_result(Text *out, const LogStep *result) {
  text_printf(out, "[");
  append_sensitivity_number(out, result->loss);
  for (int i = 0; i < result->metric_count; i++) {
    if (!is_number_metric(&result->metric[i])) continue;
    text_printf(out, ",");
    append_sensitivity_number(out, result->metric[i].value);
  }
  text_printf(out, "]");
}

static void append_names(Text *out, const LogStep *result) {
  text_printf(out, "[\"loss\"");
  for (int i = 0; i < result->metric_count; i++) {
    if (!is_number_metric(&result->metric[i])) continue;
    text_printf(out, ",");
    report_string(out, result->metric[i].name);
  }
  text_printf(out, "]");
}

static void append_sensitivity_curve(Text *out, const Sensitivity *all, const SensitivityCurve *curve) {
  text_printf(out, "{\"name\":");
  report_string(out, curve->name);
  text_printf(out, ",\"elements\":%lld,\"suggested\":%.6g,\"points\":[", (long long)curve->elements, curve->suggested);
  for (int i = 0; i < all->share_count; i++) {
    text_printf(out, "%s[%.9g,%lld,", i ? "," : "", curve->point[i].share, (long long)curve->point[i].zeros);
    append_result(out, &curve->point[i].result);
    text_printf(out, "]");
  }
  text_printf(out, "]}");
}

static void append_sensitivity(Text *out, const Sensitivity *all) {
  text_printf(out, "{\"sensitivity\":{\"model\":");
  report_string(out, all->model);
  text_printf(out, ",\"weights\":");
  report_string(out, all->weights);
  text_printf(out, ",\"split\":");
  report_string(out, all->split);
  text_printf(out, ",\"structure\":");
  report_string(out, all->structure);
  text_printf(out, ",\"numbers\":");
  append_names(out, &all->base);
  text_printf(out, ",\"base\":");
  append_result(out, &all->base);
  if (all->has_suggestion) {
    text_printf(out, ",\"budget\":%.9g,\"suggested\":[%lld,", all->budget, (long long)all->suggested.zeros);
    append_result(out, &all->suggested.result);
    text_printf(out, "],\"uniform\":[%lld,", (long long)all->uniform.zeros);
    append_result(out, &all->uniform.result);
    text_printf(out, "]");
  }
  text_printf(out, ",\"curves\":[");
  for (int i = 0; i < all->curves.count; i++) {
    text_printf(out, i ? ",\n" : "\n");
    append_sensitivity_curve(out, all, &all->curves.at[i]);
  }
  text_printf(out, "]}}");
}

Status report_sensitivity_write(const Sensitivity *all, const char *path) {
  Text data = {0}, page = {0};
  append_sensitivity(&data, all);
  report_sensitivity_page(&page, &data);
  int error = text_write_file(path, page.at, page.count);
  Status status = error ? status_errno(error, "cannot write %s", path) : STATUS_OK;
  if (status == STATUS_OK) printf("%s: %.1f MB\n", path, (double)page.count * 1e-6);
  text_free(&data);
  text_free(&page);
  return status;
}
