/* lower_private: the state shared by the parts of lowering. */
#ifndef FT_CODEGEN_LOWER_PRIVATE_H
#define FT_CODEGEN_LOWER_PRIVATE_H
#include "base/lookup.h"
#include "codegen/lower.h"

typedef struct {
  ArenaId arena;
  int64_t offset;
} Place;

/* A kernel that has been emitted, and what makes another node use the same one. */
typedef struct {
  uint64_t hash;
  const Node *node;
  const int *alias;
  int alias_count;
  Kernel kernel;
} LoweredKernel;

/* Where a node's launches stand in a plan graph. */
typedef struct {
  const Node *node;
  int first, end;
} NodeSteps;

typedef struct {
  Module *module; /* the first of: */
  Module *const *modules;
  int module_count;
  int64_t load[CODEGEN_PIECES]; /* what LLVM has to do for each */
  Arena *arena;
  const Program *program;
  Plan *plan;
  VEC(LoweredKernel) kernels;
  /* of the graph at hand: */
  const Graph *graph;
  PlanGraph *out;
  int64_t work_bytes, workspace_bytes; /* memplan's part of the work arena; ours behind it: results
                                          that nobody wants, workspaces */
  VEC(int) workspace_buffers;          /* their offset is known at the end of the graph */
  VEC(NodeSteps) node_steps[PROGRAM_GRAPHS]; /* of all of them, by the index in plan->graphs */
  Lookup buffer_index[PROGRAM_GRAPHS];       /* buffers by place and type */
} Lowering;

/* lower_tables.c: params, states, scalars, inputs, outputs, memory. */
bool lower_tables(Lowering *lowering);
Place lower_place(Lowering *lowering, const Node *node);
void lower_outputs(Lowering *lowering);
void lower_memory(Lowering *lowering, int64_t workspace);

/* lower.c */
int lower_buffer(Lowering *lowering, Place place, const Type *type);
void lower_copy(Lowering *lowering, Place from, Place to, const Type *type, const Node *cause);

/* lower_programmes.c: which graphs run in which order. */
void lower_programmes(const Program *program, Plan *plan);

/* lower_kernel.c */
bool lower_kernel(Lowering *lowering, const Node *node);
/* Makes room for `bytes` in an arena, at its end. */
int64_t lower_extend(Lowering *lowering, ArenaId arena, int64_t bytes);
#endif
