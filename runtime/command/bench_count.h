/* bench_count: `ftrun bench` on a device that counts. */
#ifndef FT_RUNTIME_BENCH_COUNT_H
#define FT_RUNTIME_BENCH_COUNT_H
#include "runtime/execute/exec.h"
#include <stdio.h>

/* Runs one step and prints the table; only if exec_counts(exec). */
STATUS_CHECKED Status bench_count(Exec *exec, const void *batch, FILE *out);
#endif
