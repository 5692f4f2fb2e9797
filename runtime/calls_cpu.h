/* calls_cpu: the library calls of a plan on the cpu, made ready once and run many times.
 * A call either splits into independent shares, run by the threads of a parallel region that is
 * already open, or it stands alone and brings its own threads (parts 0).
 * Nothing is allocated when a call runs: what libraries need lies in the scratch of each share. */
#ifndef FT_RUNTIME_CALLS_CPU_H
#define FT_RUNTIME_CALLS_CPU_H
#include "plan/plan.h"
#include "runtime/status.h"

typedef struct CpuLibrary
    CpuLibrary; /* oneDNN's engine, streams and scratch, for so many threads */
STATUS_CHECKED Status cpu_library_new(int threads, CpuLibrary **out);
void cpu_library_free(CpuLibrary *library); /* NULL is fine; after all its calls */

typedef struct CpuCall CpuCall;
/* args[i] is the address of argument i. The step was accepted by call_check. */
STATUS_CHECKED Status cpu_call_new(CpuLibrary *library, const PlanStep *step, char *const *args,
                                   CpuCall **out);
void cpu_call_free(CpuCall *call); /* NULL is fine */
/* 0: stands alone. Else: cpu_call_run(call, 0 … parts-1) in any order, each by one thread. */
int cpu_call_parts(const CpuCall *call);
/* False if the library failed (no memory, it says). */
bool cpu_call_run(CpuCall *call, int part);
/* Argument `arg` lies elsewhere from now on. */
void cpu_call_move(CpuCall *call, int arg, char *address);
/* What does the work: "onednn brg:avx512_core", for bench and info. */
const char *cpu_call_text(const CpuCall *call);
#endif
