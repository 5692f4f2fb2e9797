/* trace: see trace.h. Chrome's format is for chrome://tracing and ui.perfetto.dev: complete events
 * ("ph":"X"), microseconds. Thread 1 is the compute queue: one event a launch, call, BEGIN or END,
 * of which an END lasts as long as the queue waits. Threads from 2 on are the queue communicate: what
 * was begun, until it has ended, whoever waits; as many as there are works under way at a time.
 * Perfetto's (perfetto.h) has the same as tracks, and more. Both are written to a temporary file
 * and renamed. */
#include "runtime/command/trace.h"
#include "base/clock.h"
#include "base/text.h"
#include "runtime/command/perfetto.h"
#include <errno.h>
#include <stdio.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTE = 1, COMMUNICATE = 2, MOST_LANES = 32 };
enum { WARM_UP = 10, WINDOW = 10 };                       /* steps */
enum { MOST_SPANS = 200000, MOST_JSON = 64 * (1 << 20) }; /* about as many bytes, either way */

struct Trace {
  char *path;
  bool is_perfetto, is_all; /* is_all: every step */
  int64_t first, last;
  int rank;
  Spans *spans; /* NULL: JSON */
  bool is_written;
  Text text;
  int64_t start; /* by clock_nanoseconds */
  int steps, events;
  int lanes;        /* threads of the queue communicate that have been used */
  int64_t runs;     /* of graphs in which something was under way */
  double communication; /* seconds in which something was under way, */
  double exposed;       /* and the compute queue waited */
};

/* ── the window ───────────────────────────────────────────────────────────────────────────── */
Status trace_parse_steps(const char *text, int64_t *first, int64_t *last) {
  char *end = NULL;
  errno = 0;
  *first = *last = 0;
  if (*text >= '0' && *text <= '9') *first = strtoll(text, &end, 10);
  if (end && *end == ':' && end[1] >= '0' && end[1] <= '9') *last = strtoll(end + 1, &end, 10);
  if (end && !*end && !errno && *first >= 1 && *last >= *first) return STATUS_OK;
  return status_fail(
      STATUS_USER, "--trace-steps %s: expected the first and the last step, such as 100:110", text);
}

/* A few steps once the training is warm, or the last ones of a short run. */
static void choose_window(const TraceOptions *options, Trace *trace) {
  int64_t steps = options->total - options->done;
  int64_t before = steps >= WARM_UP + WINDOW ? WARM_UP : steps > WINDOW ? steps - WINDOW : 0;
  trace->first = options->done + before + 1;
  trace->last = trace->first + WINDOW - 1;
  if (trace->last > options->total) trace->last = options->total;
}

static Status set_window(const TraceOptions *options, Trace *trace) {
  trace->first = options->first;
  trace->last = options->last;
  trace->is_all = !options->first && !trace->is_perfetto;
  if (!options->first) choose_window(options, trace);
  if (options->first && (options->last <= options->done || options->first > options->total))
    return status_fail(STATUS_USER,
                       "--trace-steps %" PRId64 ":%" PRId64 ": this run has steps %" PRId64
                       " to %" PRId64,
                       options->first, options->last, options->done + 1, options->total);
  return STATUS_OK;
}

bool trace_describe(const Trace *trace, char *text, size_t size) {
  if (trace->is_all) return false;
  snprintf(text, size,
           "steps %" PRId64 " to %" PRId64 " go to %s (--trace-steps FIRST:LAST chooses others)",
           trace->first, trace->last, trace->path);
  return true;
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
/* "a.pftrace" of rank 1: "a.rank1.pftrace". */
static char *path_of_rank(const char *path, int rank) {
  const char *dot = strrchr(path, '.');
  Text text = {0};
  text_append(&text, path, (size_t)(dot - path));
  text_printf(&text, ".rank%d%s", rank, dot);
  char *copy = strdup(text_cstr(&text));
  text_free(&text);
  return copy;
}

Status trace_open(const TraceOptions *options, Trace **out) {
  Trace *trace = calloc(1, sizeof *trace);
  *out = trace;
  if (!trace) return status_errno(ENOMEM, "--trace");
  const char *path = options->path;
  trace->is_perfetto = text_ends_with(path, ".pftrace") || text_ends_with(path, ".perfetto-trace");
  trace->rank = options->rank;
  trace->start = clock_nanoseconds();
  text_printf(&trace->text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  trace->path = !options->rank       ? strdup(path)
                : trace->is_perfetto ? path_of_rank(path, options->rank)
                                     : strdup("/dev/null");
  Status status = trace->path ? set_window(options, trace) : status_errno(ENOMEM, "--trace");
  if (status == STATUS_OK && trace->is_perfetto) status = spans_new(MOST_SPANS, &trace->spans);
  if (status == STATUS_OK) return STATUS_OK;
  trace_free(trace);
  *out = NULL;
  return status;
}

void trace_free(Trace *trace) {
  if (!trace) return;
  spans_free(trace->spans);
  text_free(&trace->text);
  free(trace->path);
  free(trace);
}

Spans *trace_spans(Trace *trace) { return trace ? trace->spans : NULL; }

bool trace_is_full(const Trace *trace) {
  return trace->spans ? spans_is_full(trace->spans) : trace->text.count > MOST_JSON;
}

Status trace_wants(Trace *trace, Exec *exec, int64_t step, bool *wants) {
  *wants = trace && !trace_is_full(trace) &&
           (trace->is_all || (step >= trace->first && step <= trace->last));
  if (!trace || !trace->spans) return STATUS_OK;
  spans_open(trace->spans, *wants);
  bool is_behind = !*wants && step > trace->first && !trace->is_written;
  return is_behind ? trace_write(trace, exec) : STATUS_OK;
}

/* ── Chrome's format ──────────────────────────────────────────────────────────────────────── */
static void append_event(Trace *trace, const PlanStep *step, int thread, const char *category,
                         int64_t start, int64_t time) {
  Text *out = &trace->text;
  text_printf(
      out,
      "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":",
      trace->events++ ? "," : "", thread, (double)(start - trace->start) * 1e-3,
      (double)time * 1e-3, category);
  text_append_json(out, step->label);
  text_printf(out, ",\"args\":{\"kernel\":");
  text_append_json(out, step->name);
  if (step->layer) text_printf(out, ",\"layer\":");
  if (step->layer) text_append_json(out, step->layer);
  text_printf(out, ",\"line\":%u,\"flops\":%lld,\"bytes\":%lld,\"step\":%d}}", step->line,
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
  if (lane == 0 && !trace->lanes && !trace->spans) name_thread(trace, COMPUTE, "compute");
  for (; trace->lanes <= lane; trace->lanes++)
    if (!trace->spans) name_thread(trace, COMMUNICATE + trace->lanes, "communicate");
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

static void trace_beside(Trace *trace, const PlanGraph *plan, const ExecStepTime *times,
                         int64_t number) {
  int64_t until[MOST_LANES] = {0};
  for (int i = 0; i < plan->steps.count; i++) {
    const PlanStep *step = &plan->steps.at[i];
    if (!times[i].begun) continue;
    int lane = find_lane(trace, until, &times[i]);
    if (trace->spans)
      spans_add(trace->spans,
                &(TraceSpan){SPAN_COMMUNICATE, lane, times[i].begun, times[i].ended, number, step});
    else
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

/* ── steps ────────────────────────────────────────────────────────────────────────────────── */
static void trace_kernels(Trace *trace, const PlanGraph *plan, const ExecStepTime *times,
                          int64_t number) {
  for (int i = 0; i < plan->steps.count; i++) {
    const PlanStep *step = &plan->steps.at[i];
    SpanTrack track = step->queue == QUEUE_COPY ? SPAN_COPY : SPAN_COMPUTE;
    if (trace->spans)
      spans_add(trace->spans, &(TraceSpan){track, 0, times[i].start, times[i].start + times[i].time,
                                           number, step});
    else
      append_event(trace, step, COMPUTE, step_kind_text(step->kind), times[i].start, times[i].time);
  }
}

/* One kernel after the other. */
static Status trace_apart(Trace *trace, Exec *exec, ExecGraph graph, const void *batch,
                          int64_t step, ExecStepTime *times) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  ExecStepTime sent = {0};
  STATUS_TRY(exec_run_traced(exec, graph, batch, times, &sent));
  if (sent.time && trace->spans)
    spans_add(trace->spans,
              &(TraceSpan){SPAN_COPY, 0, sent.start, sent.start + sent.time, step, NULL});
  trace_kernels(trace, plan, times, step);
  trace_beside(trace, plan, times, step);
  trace_sum_up(trace, plan, times);
  return STATUS_OK;
}

Status trace_step(Trace *trace, Exec *exec, ExecGraph graph, const void *batch, int64_t step) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  ExecStepTime *times = calloc((size_t)plan->steps.count + 1, sizeof *times);
  Status status = STATUS_OK;
  if (!times) return status_fail(STATUS_FAULT, "out of memory");
  if (trace->spans && exec_notes(exec)) {
    status = exec_run_noted(exec, graph, batch, trace->spans, step, times);
    if (status == STATUS_OK) trace_beside(trace, plan, times, step);
  } else {
    status = trace_apart(trace, exec, graph, batch, step, times);
  }
  trace->steps++;
  free(times);
  return status;
}

/* ── the file ─────────────────────────────────────────────────────────────────────────────── */
static Status write_perfetto(Trace *trace, const Exec *exec) {
  int64_t count;
  Text out = {0}, process = {0};
  TraceSpan *spans = spans_copy(trace->spans, &count);
  if (!spans) return status_errno(ENOMEM, "--trace");
  text_printf(&process, "rank %d: %s on %s", trace->rank, exec_plan(exec)->model,
              exec_device_text(exec));
  PerfettoProcess of = {trace->rank, text_cstr(&process)};
  Status status = perfetto_append(&out, &of, spans, count);
  int error = status == STATUS_OK ? text_write_file(trace->path, text_cstr(&out), out.count) : 0;
  if (error) status = status_errno(error, "%s", trace->path);
  trace->is_written = true;
  text_free(&process);
  text_free(&out);
  free(spans);
  return status;
}

static Status write_chrome(Trace *trace) {
  TraceCommunication all;
  Text *out = &trace->text;
  text_printf(out, "\n]");
  if (trace_communication(trace, &all))
    text_printf(out,
                ",\"otherData\":{\"communication_us\":%.3f,\"exposed_us\":%.3f,\"hidden\":%.4f}",
                all.seconds * 1e6, all.exposed * 1e6, all.hidden);
  text_printf(out, "}\n");
  int error = text_write_file(trace->path, out->at, out->count);
  return error ? status_errno(error, "%s", trace->path) : STATUS_OK;
}

Status trace_write(Trace *trace, const Exec *exec) {
  if (!trace) return STATUS_OK;
  return trace->spans ? write_perfetto(trace, exec) : write_chrome(trace);
}
