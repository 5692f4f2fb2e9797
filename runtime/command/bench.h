/* bench, info, trace: what `ftrun bench`, `ftrun info` and `--trace` print. */
#ifndef FT_RUNTIME_BENCH_H
#define FT_RUNTIME_BENCH_H
#include "runtime/execute/feed.h"
#include <stdio.h>

typedef struct {
  int steps;        /* measured; 0: as many as fit in about two seconds, at least 20 */
  bool per_kernel;  /* also the table of launches and calls */
  const char *json; /* a file for the table, or NULL */
  Feed *feed; /* steps on loaded data, loading included in the time; NULL: one made-up batch */
} BenchOptions;
/* exec_write_settings and exec_init must have been called. */
STATUS_CHECKED Status bench_run(Exec *exec, const BenchOptions *options, FILE *out);
/* A made-up batch for an Exec: uniform numbers in floats and u8, zeros in other integers. */
void bench_fill_batch(const Plan *plan, void *batch, uint64_t seed);

/* The plan, readable: model, target, parameters, memory, inputs, data, settings, launches. */
STATUS_CHECKED Status info_print(const Plan *plan, FILE *out);

/* Chrome/Perfetto trace of steps: open, add each step run (timed alone), close. */
typedef struct Trace Trace;
STATUS_CHECKED Status trace_open(const char *path, Trace **out);
/* Runs one step of `graph` timed and records it in place of exec_run. */
STATUS_CHECKED Status trace_step(Trace *trace, Exec *exec, ExecGraph graph, const void *batch);
/* Of a run of a graph that communicates: for how long something was under way between the ranks,
 * for how long of that the compute queue waited, and the part in which it did not. The first run
 * does not count if there are others. */
typedef struct {
  double seconds, exposed, hidden;
} TraceCommunication;
bool trace_communication(const Trace *trace, TraceCommunication *out); /* false: there was none */
STATUS_CHECKED Status trace_close(Trace *trace); /* writes the file; NULL is fine */
#endif
