/* calls_cpu: the library calls, copies and fills of a plan on the cpu, made ready once and run many
 * times. A call has one to three phases; a phase splits into parts that may run at the same time,
 * each on any thread, and a phase begins when all parts of the one before are done. Libraries run
 * inside a part with one thread. Nothing is allocated when a call runs: what libraries need lies in
 * the scratch of each thread, and what parts hand to each other in the library's shared scratch. */
#ifndef FT_RUNTIME_CALLS_CPU_H
#define FT_RUNTIME_CALLS_CPU_H
#include "plan/plan.h"
#include "runtime/common/status.h"

typedef struct CpuLibrary CpuLibrary; /* oneDNN's engine, streams and scratch */
/* Phases are cut for `threads`; so many, and `reserved` more, may run their parts. */
STATUS_CHECKED Status cpu_library_new(int threads, int reserved, CpuLibrary **out);
void cpu_library_free(CpuLibrary *library); /* NULL is fine; after all its calls */

typedef struct CpuCall CpuCall;
/* args[i] is the address of argument i of a CALL, COPY or FILL, which plan_parse has accepted. */
STATUS_CHECKED Status cpu_call_new(CpuLibrary *library, const PlanStep *step, char *const *args,
                                   CpuCall **out);
/* A product of the GPU's library, "matmul", of the plan's buffers: one part. */
STATUS_CHECKED Status cpu_matmul_new(CpuLibrary *library, const PlanStep *step,
                                     const PlanBuffer *buffers, char *const *args, CpuCall **out);
void cpu_call_free(CpuCall *call); /* NULL is fine */
int cpu_call_phases(const CpuCall *call);
int cpu_call_parts(const CpuCall *call, int phase);
/* Calls that share scratch must not overlap in time, whatever their arguments. */
bool cpu_call_shares_scratch(const CpuCall *call);
/* Runs on thread `thread` of the library's; no two threads may pass the same number at the same
 * time, since it says whose scratch is used. False if the library failed (no memory, it says). */
bool cpu_call_run(CpuCall *call, int phase, int part, int thread);
/* Argument `arg` lies elsewhere from now on. */
void cpu_call_move(CpuCall *call, int arg, char *address);
/* What does the work: "onednn brg:avx512_core", for bench and info. */
const char *cpu_call_text(const CpuCall *call);
#endif
