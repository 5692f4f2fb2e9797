/* bench_sums: the times of a graph's steps summed by layer and by kind of work, each by phase. */
#ifndef FT_RUNTIME_BENCH_SUMS_H
#define FT_RUNTIME_BENCH_SUMS_H
#include "plan/plan.h"
#include "runtime/common/status.h"
#include <stdio.h>

/* nanoseconds[i]: of step i; negative: another step's library call has done it. */
STATUS_CHECKED Status bench_print_sums(const PlanGraph *graph, const int64_t *nanoseconds,
                                       FILE *out);
#endif
