/* bench_count: `ftrun bench` on a device that counts. */
#ifndef FT_RUNTIME_BENCH_COUNT_H
#define FT_RUNTIME_BENCH_COUNT_H
#include "runtime/execute/exec.h"
#include <stdio.h>

/* The launches do the same, if on other memory. */
bool bench_are_alike(const PlanStep *a, const PlanStep *b);
/* Runs the graph that the programme ends with once, and prints the table; with a GPU, also the time that each kernel is reckoned to take
 * there. A sample is DeviceCounting's; of launches of one kernel that are alike the first is run. Only if
 * exec_counts(exec). */
STATUS_CHECKED Status bench_count(Exec *exec, const char *programme, const void *batch, const DeviceCounting *how, FILE *out);
#endif
