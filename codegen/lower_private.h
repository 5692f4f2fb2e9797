/* lower_private: the state shared by the parts of lowering. */
#ifndef FT_CODEGEN_LOWER_PRIVATE_H
#define FT_CODEGEN_LOWER_PRIVATE_H
#include "base/lookup.h"
#include "codegen/lower.h"

/* Bytes of a place of the plan (plan/plan_place.h). */
typedef struct {
  StandardPlace place;
  int64_t offset;
} Address;

/* A kernel that has been emitted, and what makes another node use the same one. */
typedef struct {
  uint64_t hash;
  const Node *node;
  const Type *result; /* the types of its results, as they lie in memory */
  const int *alias;
  int alias_count;
  int64_t rows; /* that it goes by (codegen/chain.h), or 0 */
  Kernel kernel;
} LoweredKernel;

/* Where a node's launches stand in a plan graph. */
typedef struct {
  const Node *node;
  int first, end;
  int body; /* which of the plan graph's bodies tells what they do; -1: none */
  const int *buffers; /* of its operands and results: a launch may touch only some of them */
} NodeSteps;

/* Those of the program, and those that prepare weights for them. */
enum { LOWER_GRAPHS = 2 * PROGRAM_GRAPHS };

/* A collective of the graph at hand, by number. */
typedef struct {
  const int *args; /* its buffers: input, output; of a send and a receive the one that it has */
  bool reads, writes;
  PlanStep begin;
  bool is_ended;
} Collective;

typedef struct {
  Module *module; /* the first of: */
  Module *const *modules;
  int module_count;
  Arena *arena;
  const Program *program;
  Plan *plan;
  VEC(LoweredKernel) kernels;
  /* of the graph at hand: */
  const Graph *graph;
  PlanGraph *out;
  const int64_t *rows;      /* by node: those that its kernel goes by (codegen/chain.h), or 0; NULL: all 0 */
  PlanGraph *prepare;       /* the one that prepares weights for it, or NULL */
  int64_t prepared;         /* where its part of the place prepared begins */
  VEC(NodeSteps) node_steps[LOWER_GRAPHS]; /* of all of them, by the index in plan->graphs */
  Lookup buffer_index[LOWER_GRAPHS];       /* buffers by place and type */
  VEC(Collective) collectives;
  int64_t workspace;   /* where in the place workspace the next kernel's begins */
  int first_open;      /* collectives before this one are ended */
  int64_t cache_bytes; /* of the place work, from its start: what graphs for generation remember */
} Lowering;

/* lower_tables.c: params, states, scalars, inputs, outputs, places, memory. */
bool lower_tables(Lowering *lowering);
Address lower_address(Lowering *lowering, const Node *node);
void lower_outputs(Lowering *lowering);
/* When all else is known: what the places hold, and windows of them. */
void lower_places(Lowering *lowering);
/* The table of memory. handed_on: bytes in the place work that library calls leave for each
 * other. */
void lower_memory(Lowering *lowering, int64_t handed_on);

/* lower.c */
/* The index of the buffer of this type there; the place has room for it from then on. */
int lower_buffer(Lowering *lowering, Address at, const Type *type);
void lower_copy(Lowering *lowering, Address from, Address to, const Type *type, const Node *cause);

/* lower_programmes.c: which graphs run in which order. */
void lower_programmes(const Program *program, Plan *plan);

/* lower_beside.c */
void lower_all_reduce(Lowering *lowering, const Node *node);
void lower_collective(Lowering *lowering, const Node *node); /* with one operand and one result */
/* Before a step that reads or writes these bytes: ends the collectives that it waits for. */
void lower_wait(Lowering *lowering, Address at, int64_t bytes, bool writes);
void lower_end_all(Lowering *lowering); /* at the end of the graph */
/* When the steps of the graph have their places. */
void lower_partners(Lowering *lowering, PlanGraph *graph);

/* lower_label.c: what people read of a step that is made for this node: label, line, layer, phase
 * and kind of work. */
void lower_label(Lowering *lowering, const Node *node, PlanStep *step);
bool lower_is_told(const Node *node); /* is it worth a word there? */
StepPhase lower_phase(const Node *node); /* of one op */
/* … but for the label and the kind. */
void lower_belonging(const Lowering *lowering, const Node *node, PlanStep *step);

/* lower_body.c: tells in the plan what the steps which were made for this node compute of these
 * buffers: `input_count` operands, and results up to `count`. */
void lower_body(Lowering *lowering, NodeSteps *steps, const int *buffers, int input_count,
                int count);
/* When the steps have their order. */
void lower_body_order(PlanGraph *graph, const NodeSteps *steps, int count);

/* lower_kernel.c */
/* The nodes that stand for a node's results, in order, NULL where a result has none; how many. */
int lower_results(Lowering *lowering, const Node *node, const Node ***out);
bool lower_kernel(Lowering *lowering, const Node *node);
/* Makes room for `bytes` in a place, at its end. */
int64_t lower_extend(Lowering *lowering, StandardPlace place, int64_t bytes);
/* Makes the place as large as a value of this type needs there. */
void lower_grow(Lowering *lowering, Address at, const Type *type);
#endif
