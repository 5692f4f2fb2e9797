/* trace: steps in Chrome's trace format, for chrome://tracing and ui.perfetto.dev: complete events
 * ("ph":"X"), microseconds. Thread 1 is the compute queue: one event a launch, call, BEGIN or END,
 * of which an END lasts as long as the queue waits. Threads from 2 on are the queue communicate: what
 * was begun, until it has ended, whoever waits; as many as there are works under way at a time.
 * Written to a temporary file and renamed when closed. */
#include "runtime/command/bench.h"
#include "base/clock.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTE = 1, COMMUNICATE = 2, MOST_LANES = 32 };

struct Trace {
  char *path;
  Text text;
  int64_t start; /* by clock_nanoseconds */
  int steps, events;
  int lanes;        /* threads of the queue communicate that have been used */
  int64_t runs;     /* of graphs in which something was under way */
  double communication; /* seconds in which something was under way, */
  double exposed;       /* and the compute queue waited */
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
  trace->start = clock_nanoseconds();
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

static void append_event(Trace *trace, const PlanStep *step, int thread, const char *category,
                         int64_t start, int64_t time) {
  Text *out = &trace->text;
  text_printf(
      out,
      "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":\"",
      trace->events++ ? "," : "", thread, (double)(start - trace->start) * 1e-3,
      (double)time * 1e-3, category);
  append_json(out, step->label);
  text_printf(out, "\",\"args\":{\"kernel\":\"");
  append_json(out, step->name);
  text_printf(out, "\",\"line\":%u,\"flops\":%lld,\"bytes\":%lld,\"step\":%d}}", step->line,
              (long long)step->flops, (long long)step->bytes, trace->steps);
}

/* ── what goes on beside ──────────────────────────────────────────────────────────────────── */
static void name_thread(Trace *trace, int thread, const char *name) {
  text_printf(&trace->text,
              "%s\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
              "\"%s\"}}",
              trace->events++ ? "," : "", thread, name);
}

/* The first lane in which nothing is under way any more; viewers want no events that cross. */
static int find_lane(Trace *trace, int64_t *until, const ExecStepTime *work) {
  int lane = 0;
  while (lane < MOST_LANES - 1 && until[lane] > work->begun) lane++;
  until[lane] = work->ended;
  if (lane == 0 && !trace->lanes) name_thread(trace, COMPUTE, "compute");
  for (; trace->lanes <= lane; trace->lanes++)
    name_thread(trace, COMMUNICATE + trace->lanes, "communicate");
  return lane;
}

/* For how long of [from, to) something was under way. BEGINs are in the order in which they ran. */
static int64_t under_way(const PlanGraph *plan, const ExecStepTime *times, int64_t from,
                         int64_t to) {
  int64_t sum = 0;
  for (int i = 0; i < plan->steps.count; i++) {
    int64_t begun = times[i].begun > from ? times[i].begun : from;
    int64_t ended = times[i].ended < to ? times[i].ended : to;
    if (!times[i].begun || ended <= begun) continue;
    sum += ended - begun;
    from = ended;
  }
  return sum;
}

static void trace_beside(Trace *trace, const PlanGraph *plan, const ExecStepTime *times) {
  int64_t until[MOST_LANES] = {0};
  for (int i = 0; i < plan->steps.count; i++) {
    const PlanStep *step = &plan->steps.at[i];
    if (!times[i].begun) continue;
    int lane = find_lane(trace, until, &times[i]);
    append_event(trace, step, COMMUNICATE + lane, "communicate", times[i].begun,
                 times[i].ended - times[i].begun);
  }
}

/* The first run touches its memory for the first time: it counts only while there are no others. */
static void trace_sum_up(Trace *trace, const PlanGraph *plan, const ExecStepTime *times) {
  double seconds = 1e-9 * (double)under_way(plan, times, 0, INT64_MAX);
  if (!seconds) return;
  if (trace->runs == 1) trace->communication = trace->exposed = 0;
  trace->runs++;
  trace->communication += seconds;
  for (int i = 0; i < plan->steps.count; i++)
    if (plan->steps.at[i].kind == STEP_END)
      trace->exposed += 1e-9 * (double)under_way(plan, times, times[i].start,
                                                 times[i].start + times[i].time);
}

bool trace_communication(const Trace *trace, TraceCommunication *out) {
  *out = (TraceCommunication){0};
  if (!trace || !trace->lanes || trace->communication <= 0) return false;
  double runs = (double)(trace->runs > 1 ? trace->runs - 1 : 1);
  out->seconds = trace->communication / runs;
  out->exposed = trace->exposed / runs;
  out->hidden = 1 - trace->exposed / trace->communication;
  return true;
}

Status trace_step(Trace *trace, Exec *exec, ExecGraph graph, const void *batch) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  ExecStepTime *times = calloc((size_t)plan->steps.count + 1, sizeof *times);
  if (!times) return status_fail(STATUS_FAULT, "out of memory");
  Status status = exec_run_traced(exec, graph, batch, times);
  for (int i = 0; i < plan->steps.count && status == STATUS_OK; i++)
    append_event(trace, &plan->steps.at[i], COMPUTE, step_kind_text(plan->steps.at[i].kind),
                 times[i].start, times[i].time);
  if (status == STATUS_OK) trace_beside(trace, plan, times);
  if (status == STATUS_OK) trace_sum_up(trace, plan, times);
  trace->steps++;
  free(times);
  return status;
}

Status trace_close(Trace *trace) {
  if (!trace) return STATUS_OK;
  TraceCommunication all;
  text_printf(&trace->text, "\n]");
  if (trace_communication(trace, &all))
    text_printf(&trace->text,
                ",\"otherData\":{\"communication_us\":%.3f,\"exposed_us\":%.3f,\"hidden\":%.4f}",
                all.seconds * 1e6, all.exposed * 1e6, all.hidden);
  text_printf(&trace->text, "}\n");
  int error = text_write_file(trace->path, trace->text.at, trace->text.count);
  Status status = error ? status_errno(error, "%s", trace->path) : STATUS_OK;
  text_free(&trace->text);
  free(trace->path);
  free(trace);
  return status;
}
