/* host_private: what the CPU skeletons share: the frame of a kernel, loops, costs. */
#ifndef FT_CODEGEN_HOST_PRIVATE_H
#define FT_CODEGEN_HOST_PRIVATE_H
#include "codegen/collapse.h"
#include "codegen/host.h"
#include "codegen/reductions.h"
#include "kernels/operand_host.h"
#include "passes/fuse.h"

/* A kernel while it is emitted. The builder stands in the body function, whose parameters are the
 * pointers and the range of work items [begin, end). */
typedef struct {
  Emitter emitter;
  Module *module;
  Arena *scratch;
  const Node *node;
  const Graph *body; /* NULL: the node is not fused */
  const char *name;
  const int *alias;
  Domain domain;
  int64_t elements; /* of the kernel's domain */
  LLVMValueRef begin, end;
  LLVMBasicBlockRef entry; /* allocas go here */
  LLVMValueRef workspace;  /* NULL: the kernel has none */
} HostKernel;

/* An OPERAND_... */
int64_t host_operand_type(DType dtype);

/* ── frame (host.c) ── */
/* Starts entry point `name`; host_finish ends it with a return. */
void host_start(HostKernel *kernel, const char *name, bool has_workspace);
void host_finish(HostKernel *kernel);
/* The builder and the emitter stand in a function that works on the kernel's tensors, whose first
 * parameters are operands and results; the first `apart` do not overlap as far as aliases tell. */
void host_open(HostKernel *kernel, LLVMValueRef function, int apart);
/* Writes `function`: it loads `count` pointers from the array that is its first argument, and hands
 * them to `body`, and behind them as many of its other arguments as that takes. */
void host_unpack(HostKernel *kernel, LLVMValueRef function, LLVMValueRef body, int count);
/* The entry point `name`, which hands its arguments to run(data, args, begin, end) of a
 * kernels/..._x86.c. */
void host_call_library(HostKernel *kernel, const char *name, const char *run, LLVMValueRef data);
LLVMValueRef host_alloca(HostKernel *kernel, LLVMTypeRef type, int64_t count);
/* Stores the values of some results (NULL: all) at `index`: all are made before the first is
 * stored, for that may lie in place of an operand that another reads (passes/memplan.h). */
void host_store_results(HostKernel *kernel, const bool *which, const Index *index);
/* The digits of an outer index that counts digits [0, count) of `extent`, as index values. */
void host_unravel(HostKernel *kernel, LLVMValueRef outer, const int64_t *extent, int count,
                  LLVMValueRef *value);

/* ── loops (host_loop.c) ── */
typedef struct {
  LLVMValueRef counter, step;
  LLVMBasicBlockRef head, exit;
  bool is_items;
  int64_t trips; /* 0: not known here */
  int carried_count;
  LLVMValueRef carried[KERNEL_MOST_ACCUMULATORS]; /* phi nodes: at the head, and after the loop */
} HostLoop;
/* for (counter = from; counter < to; counter += step); carried values start as initial[]. Opens a
 * scope of the emitter. The builder stands in the loop's body. */
HostLoop host_loop_open(HostKernel *kernel, LLVMValueRef from, LLVMValueRef to, int64_t step,
                        LLVMValueRef *initial, int carried_count);
/* The loop over work items of a kernel with reductions: never vectorised or unrolled across items,
 * so that an item is computed by the same instructions wherever its thread's range begins and ends.
 */
HostLoop host_items_open(HostKernel *kernel);
/* next[]: the carried values for the next round. The builder stands after the loop. */
void host_loop_close(HostKernel *kernel, HostLoop *loop, LLVMValueRef *next);

/* Stores all results over the whole domain; the kernel is started, and the caller finishes it. */
void host_loop_nest(HostKernel *kernel, const char *name, Kernel *out);

/* ── loops that read transposed (host_transpose.c) ── */
enum { HOST_MOST_TURNED = 4 };
typedef struct HostTurn HostTurn;
typedef struct {
  HostTurn *turn;
  const Node *node;    /* the transpose */
  LLVMValueRef memory; /* a tile of it in the results' order */
} HostTurned;
typedef struct {
  int64_t size, count, room; /* of a tile along a digit; how many; what the largest one takes */
} HostTile;
struct HostTurn {
  HostKernel *kernel;
  int count, row; /* digits; the one along which the transposes read neighbours. Along the last one results lie */
  int64_t extent[MAX_RANK], tiles[MAX_RANK];
  HostTile rows, columns;
  int64_t items; /* tiles */
  HostTurned turned[HOST_MOST_TURNED];
  int turned_count;
  LLVMValueRef room;  /* a tile of one of them in its own order */
  LLVMValueRef place; /* in its tile: the element that is being made */
};
/* Stores what a loop makes at an index. */
typedef void HostStore(HostKernel *kernel, const Index *index, void *user);
/* Is there a transpose that a loop over these digits would read far apart, among those that are read at the loop's own index
 * (own_index.h)? */
bool host_turn_find(HostKernel *kernel, const int64_t *extent, int count, const bool *is_own, HostTurn *turn);
/* The loops over tiles [from, to). */
void host_turn_loops(HostTurn *turn, LLVMValueRef from, LLVMValueRef to, HostStore *store, void *user);

/* ── costs (host_cost.c) ── */
/* Rough nanoseconds for one element of the domain, memory traffic included. */
double host_cost(const HostKernel *kernel);
/* How many work items of this many elements are worth a thread. */
int64_t host_grain(const HostKernel *kernel, int64_t elements_per_item);
bool host_is_expensive(Op op); /* worth keeping rather than computing again */
bool host_has_expensive(const Graph *body);

void host_emit_loop(HostKernel *kernel, Kernel *out);
bool host_emit_row(HostKernel *kernel, Kernel *out);
bool host_emit_column(HostKernel *kernel, Kernel *out);
void host_emit_scatter(HostKernel *kernel, Kernel *out);
void host_emit_put(HostKernel *kernel, Kernel *out);
KernelLaunch *host_add_launch(HostKernel *kernel, Kernel *out, const char *name, int64_t work,
                              int64_t grain);
#endif
