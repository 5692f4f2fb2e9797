/* log_csv: a line of the log as a row of comma-separated values; declared in log_line.h. A value
 * that a row has not is empty, and rows and tables of numbers have no columns; NaN and infinities are nan, inf and -inf, as Python reads them. Names
 * are those of the language, which have no commas and no quotes. */
#include "runtime/command/log_line.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void log_csv_header(Text *out, const LogColumns *columns) {
  text_printf(out, "step,epoch,time,loss,lr,samples_per_s,data_wait");
  if (columns->has_grad_norm) text_printf(out, ",grad_norm");
  for (int i = 0; i < columns->train_count; i++) text_printf(out, ",%s", columns->train[i]);
  text_printf(out, ",mean.loss");
  for (int i = 0; i < columns->train_count; i++) text_printf(out, ",mean.%s", columns->train[i]);
  if (columns->has_valid) text_printf(out, ",valid.loss");
  for (int i = 0; i < columns->valid_count; i++) text_printf(out, ",valid.%s", columns->valid[i]);
  text_printf(out, "\n");
}

static void append_field(Text *out, double value) {
  if (isfinite(value))
    text_printf(out, ",%.9g", value);
  else
    text_printf(out, isnan(value) ? ",nan" : value > 0 ? ",inf" : ",-inf");
}

/* The loss and each metric by its name; empty where `step` is NULL or has none of that name. */
static void append_fields(Text *out, const LogStep *step, const char *const *names, int count) {
  for (int i = 0; i < count; i++) {
    int at = 0;
    while (step && at < step->metric_count && strcmp(step->metric[at].name, names[i]) != 0) at++;
    if (step && at < step->metric_count)
      append_field(out, step->metric[at].value);
    else
      text_printf(out, ",");
  }
}

static void append_optional(Text *out, bool is_there, double value) {
  if (is_there)
    append_field(out, value);
  else
    text_printf(out, ",");
}

void log_csv_line(Text *out, const LogColumns *columns, const LogLine *line) {
  bool is_eval = log_line_is_eval(line);
  const LogStep *step = line->step, *train = is_eval ? NULL : step, *valid = is_eval ? step : NULL;
  text_printf(out, "%lld,%lld,%.3f", (long long)step->step, (long long)line->epoch, line->time);
  append_optional(out, train != NULL, step->loss);
  append_optional(out, train && step->has_lr, step->lr);
  append_optional(out, train != NULL, line->samples_per_s);
  append_optional(out, train != NULL, line->data_wait);
  if (columns->has_grad_norm) append_optional(out, train && step->has_grad_norm, step->grad_norm);
  append_fields(out, train, columns->train, columns->train_count);
  append_optional(out, line->mean != NULL, line->mean ? line->mean->loss : 0);
  append_fields(out, line->mean, columns->train, columns->train_count);
  if (columns->has_valid) append_optional(out, valid != NULL, step->loss);
  append_fields(out, valid, columns->valid, columns->valid_count);
  text_printf(out, "\n");
}

/* An evaluation's row has nothing under `loss`, the fourth column. */
LogPlace log_csv_place(const char *line) {
  char *end;
  int64_t step = strtoll(line, &end, 10);
  if (end == line || *end != ',') return (LogPlace){.step = -1};
  for (int i = 0; i < 2; i++) end += 1 + strcspn(end + 1, ",\n");
  return (LogPlace){step, strncmp(end, ",,", 2) == 0};
}
