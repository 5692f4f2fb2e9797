/* calls_internal: what calls_cpu.c and conv_cpu.c share: a call's table of functions and one oneDNN
 * primitive with its bound memory. */
#ifndef FT_RUNTIME_CALLS_INTERNAL_H
#define FT_RUNTIME_CALLS_INTERNAL_H
#include "plan/plan_calls.h"
#include "runtime/device/cpu/calls_cpu.h"
#include "runtime/device/cpu/dnnl_library.h"

/* What one thread owns. It belongs to the thread that runs a part, whichever part that is: parts of
 * different calls run at the same time, and any thread may run any of them. */
typedef struct {
  dnnl_stream_t stream;
  void *scratch;
} CpuThread;

struct CpuLibrary {
  int threads, all_threads; /* parts are cut for; that may run them */
  dnnl_engine_t engine; /* NULL until a primitive is made */
  CpuThread *thread;
  size_t scratch_bytes; /* of each thread */
  void *common;         /* scratch that the parts of one call hand to each other */
  size_t common_bytes;
};

enum { CPU_MAX_ARGS = 6, CPU_TEXT = 64, CPU_MAX_PHASES = 3 };

/* Where an argument of a primitive lies. */
typedef enum { PLACE_ADDRESS, PLACE_SCRATCH, PLACE_COMMON } Place;

typedef struct {
  CpuLibrary *library;
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[CPU_MAX_ARGS];
  Place place[CPU_MAX_ARGS];
  int64_t offset[CPU_MAX_ARGS]; /* in its scratch */
  int arg_count;
  void *scratch, *common; /* as bound; another thread has another scratch, and they grow */
  bool is_reference;
  char text[CPU_TEXT];
} CpuPrimitive;

struct CpuCall {
  CpuLibrary *library;
  int phases, parts[CPU_MAX_PHASES];
  bool shares_scratch;
  bool (*run)(CpuCall *call, int phase, int part, int thread);
  void (*move)(CpuCall *call, int arg, char *address);
  void (*free)(CpuCall *call); /* what it owns beside itself; may be NULL */
  char text[CPU_TEXT];
};

Status cpu_dnnl(dnnl_status_t status, const char *what);
Status cpu_need_engine(CpuLibrary *library); /* opens oneDNN; before anything of it is called */
/* new (or reorder), query, bind every argument, finish (binds oneDNN's scratchpad at an offset of
 * the scratch), run and move, free. */
Status cpu_primitive_new(CpuLibrary *library, const_dnnl_op_desc_t desc, const_dnnl_post_ops_t post,
                         const_dnnl_primitive_desc_t hint, CpuPrimitive *out);
Status cpu_reorder_new(CpuLibrary *library, const dnnl_memory_desc_t *from,
                       const dnnl_memory_desc_t *to, CpuPrimitive *out);
const dnnl_memory_desc_t *cpu_primitive_query(const CpuPrimitive *primitive, dnnl_query_t what);
Status cpu_primitive_bind(CpuPrimitive *primitive, int arg, const dnnl_memory_desc_t *desc,
                          void *address);
Status cpu_primitive_bind_scratch(CpuPrimitive *primitive, int arg, const dnnl_memory_desc_t *desc,
                                  Place place, int64_t offset);
/* The bytes of oneDNN's own scratchpad. */
size_t cpu_primitive_scratchpad(const CpuPrimitive *primitive);
Status cpu_primitive_finish(CpuPrimitive *primitive, int64_t offset);
void cpu_primitive_move(CpuPrimitive *primitive, int arg, void *address);
bool cpu_primitive_run(CpuPrimitive *primitive, int thread);
void cpu_primitive_free(CpuPrimitive *primitive); /* a zeroed one is fine */

Status cpu_conv_new(CpuLibrary *library, const PlanStep *step, CallId id, char *const *args,
                    CpuCall **out);
#endif
