/* trace: `ftrun --trace FILE`: what a training did when, in one of two formats by the name of FILE.
 *   .pftrace, .perfetto-trace: Perfetto's, by default of a few steps once the training is warm
 *   any other: Chrome's JSON, by default of all steps
 * In Chrome's, and on devices other than the CPU, steps of the window run one kernel at a time;
 * else as ever, and threads note what they do. Evaluations and the writing of checkpoints are in a
 * trace of Perfetto whenever they come. A trace stops growing at a limit, whatever the run's
 * length. */
#ifndef FT_RUNTIME_TRACE_H
#define FT_RUNTIME_TRACE_H
#include "runtime/common/spans.h"
#include "runtime/execute/exec.h"

typedef struct Trace Trace;
typedef struct {
  const char *path;
  int64_t first, last; /* the steps of the window, from 1; 0, 0: the default */
  int64_t done, total; /* the run's: it begins behind `done` and ends with `total` */
  int rank;            /* of Perfetto each rank but 0 writes NAME.rank1.pftrace; of JSON nothing */
} TraceOptions;

STATUS_CHECKED Status trace_open(const TraceOptions *options, Trace **out);
/* "100:110", two steps from 1, both included. */
STATUS_CHECKED Status trace_parse_steps(const char *text, int64_t *first, int64_t *last);
/* The steps that will be there, as a sentence; false: all of them are. */
bool trace_describe(const Trace *trace, char *text, size_t size);
/* Is this step to be run by trace_step? Writes the file behind the last one. NULL: false. */
STATUS_CHECKED Status trace_wants(Trace *trace, Exec *exec, int64_t step, bool *wants);
/* Where else to note things; NULL: nowhere. */
Spans *trace_spans(Trace *trace);
/* Runs `graph` for training step `step`, timed, and records it in place of exec_run. */
STATUS_CHECKED Status trace_step(Trace *trace, Exec *exec, ExecGraph graph, const void *batch,
                                 int64_t step);
/* Of a run of a graph that communicates: for how long something was under way between the ranks,
 * for how long of that the compute queue waited, and the part in which it did not. The first run
 * does not count if there are others. */
typedef struct {
  double seconds, exposed, hidden;
} TraceCommunication;
bool trace_communication(const Trace *trace, TraceCommunication *out); /* false: there was none */
/* Did it come to its limit? Then it lacks what came later. */
bool trace_is_full(const Trace *trace);
STATUS_CHECKED Status trace_write(Trace *trace, const Exec *exec); /* the file; NULL is fine */
void trace_free(Trace *trace);                                     /* likewise */
#endif
