/* trace: steps in Chrome's trace format, for chrome://tracing and ui.perfetto.dev: one event a
 * launch or call, complete events ("ph":"X"), microseconds. Written to a temporary file and renamed
 * when closed. */
#include "runtime/command/bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Trace {
  char *path;
  Text text;
  double clock; /* microseconds of all steps so far */
  int steps, events;
};

Status trace_open(const char *path, Trace **out) {
  Trace *trace = calloc(1, sizeof *trace);
  char *copy = strdup(path);
  if (!trace || !copy) {
    free(trace);
    free(copy);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  trace->path = copy;
  text_printf(&trace->text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  *out = trace;
  return STATUS_OK;
}

static void append_json(Text *out, const char *text) {
  for (const char *at = text; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c < 0x20)
      text_printf(out, "\\u%04x", c);
    else
      text_append(out, at, 1);
  }
}

static void append_event(Trace *trace, const PlanStep *step, double microseconds) {
  Text *out = &trace->text;
  text_printf(
      out,
      "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":\"",
      trace->events++ ? "," : "", trace->clock, microseconds, step_kind_text(step->kind));
  append_json(out, step->label);
  text_printf(out, "\",\"args\":{\"kernel\":\"");
  append_json(out, step->name);
  text_printf(out, "\",\"line\":%u,\"flops\":%lld,\"bytes\":%lld,\"step\":%d}}", step->line,
              (long long)step->flops, (long long)step->bytes, trace->steps);
  trace->clock += microseconds;
}

Status trace_step(Trace *trace, Exec *exec, ExecGraph graph, const void *batch) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  int64_t *times = calloc((size_t)plan->steps.count + 1, sizeof *times);
  if (!times) return status_fail(STATUS_FAULT, "out of memory");
  Status status = exec_run_timed(exec, graph, batch, times);
  for (int i = 0; i < plan->steps.count && status == STATUS_OK; i++)
    append_event(trace, &plan->steps.at[i], (double)times[i] * 1e-3);
  trace->steps++;
  free(times);
  return status;
}

Status trace_close(Trace *trace) {
  if (!trace) return STATUS_OK;
  text_printf(&trace->text, "\n]}\n");
  int error = text_write_file(trace->path, trace->text.at, trace->text.count);
  Status status = error ? status_errno(error, "%s", trace->path) : STATUS_OK;
  text_free(&trace->text);
  free(trace->path);
  free(trace);
  return status;
}
