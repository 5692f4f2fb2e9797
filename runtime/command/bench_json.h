/* bench_json: `ftrun bench --json FILE`. */
#ifndef FT_RUNTIME_BENCH_JSON_H
#define FT_RUNTIME_BENCH_JSON_H
#include "runtime/execute/exec.h"

typedef struct {
  double step_ms;             /* the median of whole steps */
  const int64_t *nanoseconds; /* by step of the graph, each alone;
                                 less than 0: done by another one's call */
} BenchTimes;
STATUS_CHECKED Status bench_write_json(const char *path, const Exec *exec, const PlanGraph *graph, const BenchTimes *times);
#endif
