/* log_json: a line of the log as a JSON object (DESIGN section 9); declared in log_line.h. */
#include "runtime/command/log_line.h"
#include <stdlib.h>
#include <string.h>

/* JSON has no NaN and no infinity: null, and the line says so once. */
static void append_number(Text *out, const char *name, double value, bool *is_finite) {
  if (out->at[out->count - 1] != '{') text_append(out, ", ", 2);
  text_append_json(out, name);
  text_append(out, ": ", 2);
  log_table_number(out, value, is_finite);
}

static void append_metrics(Text *out, const LogStep *step, bool *is_finite) {
  for (int i = 0; i < step->metric_count; i++) {
    const LogMetric *metric = &step->metric[i];
    if (!metric->table) {
      append_number(out, metric->name, metric->value, is_finite);
      continue;
    }
    text_append(out, ", ", 2);
    text_append_json(out, metric->name);
    text_append(out, ": ", 2);
    log_table_append_json(out, metric->table, is_finite);
  }
}

void log_json_line(Text *out, const LogLine *line) {
  const LogStep *step = line->step, *mean = line->mean;
  bool is_finite = true;
  text_printf(out, "{\"step\": %lld", (long long)step->step);
  if (!mean)
    text_printf(out, ", \"eval\": true");
  else
    text_printf(out, ", \"epoch\": %lld", (long long)line->epoch);
  append_number(out, "loss", step->loss, &is_finite);
  if (step->has_lr) append_number(out, "lr", step->lr, &is_finite);
  if (mean) append_number(out, "samples_per_s", line->samples_per_s, &is_finite);
  append_metrics(out, step, &is_finite);
  if (step->has_grad_norm) append_number(out, "grad_norm", step->grad_norm, &is_finite);
  if (mean) append_number(out, "data_wait", line->data_wait, &is_finite);
  text_printf(out, ", \"split\": ");
  text_append_json(out, line->split);
  text_printf(out, ", \"time\": %.3f", line->time);
  if (mean) {
    text_printf(out, ", \"means\": {");
    append_number(out, "loss", mean->loss, &is_finite);
    append_metrics(out, mean, &is_finite);
    text_printf(out, "}");
  }
  if (!is_finite) text_printf(out, ", \"nonfinite\": true");
  text_printf(out, "}\n");
}

void log_json_event(Text *out, int64_t step, const char *what, const char *text) {
  text_printf(out, "{\"step\": %lld, \"%s\": ", (long long)step, what);
  text_append_json(out, text);
  text_printf(out, "}\n");
}

LogPlace log_json_place(const char *line) {
  static const char head[] = "{\"step\": ", eval[] = ", \"eval\"";
  if (strncmp(line, head, sizeof head - 1) != 0) return (LogPlace){.step = -1};
  char *end;
  int64_t step = strtoll(line + sizeof head - 1, &end, 10);
  return (LogPlace){step, strncmp(end, eval, sizeof eval - 1) == 0};
}
