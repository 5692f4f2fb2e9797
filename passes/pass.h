/* pass: the pass runner. It verifies the stage before and after each pass, times it, dumps it, and
 * on a failure writes a reproducer (the graph before the pass, as .ftir, with the command to run).
 */
#ifndef FT_PASSES_PASS_H
#define FT_PASSES_PASS_H
#include "base/own.h"
#include "frontend/program.h"
#include "ir/graph.h"

/* The graphs of a program. MICRO: of a part of a batch that is not the last one. */
typedef enum {
  PASS_OF_TRAIN = 1 << 0,
  PASS_OF_MICRO = 1 << 1,
  PASS_OF_EVAL = 1 << 2,
  PASS_OF_DECODE = 1 << 3,
  PASS_OF_PREFILL = 1 << 4
} PassGraphs;

typedef struct {
  Arena *arena; /* the program's: for what outlives the graphs, such as `refused` */
  Diag *diag;
  SettingValue *settings; /* static ones may be read */
  PassGraphs of;          /* which graph this is */
  bool for_gpu;           /* the target: cpu or ptx */
  Float8Unit multiplies_float8; /* PassOptions.multiplies_float8 */
  bool is_plain;          /* do no more than the next stage needs: see PassOptions.disable */
  const Program *program; /* the whole, as far as the pipeline has come; NULL in ftopt */
  const bool *disabled;   /* by pass: PassOptions.disable; NULL: none */
  const char *refused;    /* decode: why this model has no such graph */
  const char *left_out;   /* PassOptions.disable */
  const char *sparse;     /* PassOptions.sparse */
  Arena *scratch;         /* ends with the pass, but a graph it makes has the old graph's arena */
  int stage;              /* Program.stage */
  bool is_variant;        /* of another form than the whole step, which decides what graphs share */
  int64_t resting;        /* in it, so many groups of params train no more (ATTR_REST) */
} PassContext;

/* The state that counts the parts of a batch: passes/totals_parts.c, optimizer_accumulate.c. */
#define PARTS_DONE OWN_ACCUMULATE "part"

static inline bool pass_trains(const PassContext *context) {
  return (context->of & (PASS_OF_TRAIN | PASS_OF_MICRO)) != 0;
}
/* Does the param train no more in this form of the step? */
static inline bool pass_rests(const PassContext *context, const Node *param) {
  int64_t rest = node_int(param, ATTR_REST, 0);
  return rest && rest <= context->resting;
}
/* The graph that a program calls by this name; `otherwise`: none has it. */
PassGraphs pass_graph_named(const char *name, PassGraphs otherwise);

/* Does the pipeline run this pass? Sets is_plain for it. */
bool pass_is_run(PassContext *context, int pass);

typedef Graph *PassRun(PassContext *context, Graph *graph);
/* The columns of passes.def. */
typedef enum { PASS_ON_ANY, PASS_ON_CPU, PASS_ON_GPU } PassTarget;
typedef enum { PASS_OPTIONAL, PASS_PLAIN, PASS_REQUIRED } PassNeed;
typedef struct {
  const char *name, *contract;
  Stage before, after;
  PassTarget target;
  unsigned graphs; /* PassGraphs */
  PassNeed need;
  PassRun *run;
} PassInfo;
extern const PassInfo pass_info[];
extern const int pass_count;
/* The names in the pipeline's order; NULL behind the last. */
const char *pass_name(int index);

typedef struct {
  const char *dump;       /* pass name, "all", or NULL */
  const char *dump_dir;   /* default "." */
  const char *stop_after; /* pass name or NULL */
  /* Comma-separated pass names to leave out, to find the pass behind a fault. fuse, schedule and
   * memplan run in their plain form instead: a kernel for each node, nodes in the order they come,
   * a place of its own for each value. autodiff and optimizer cannot be left out. Choices of code
   * generation may stand in the list too: pass_choices. */
  const char *disable;
  const char *sparse; /* comma-separated parameters that have at most two of each four neighbours of a row not 0: passes/sparse.h; NULL: none.
                         Behind a '?' names of others do not matter, as a file of weights has them */
  bool time_passes; /* a table on stderr */
  bool verify;      /* default true in ftc as well: it is cheap */
  Float8Unit multiplies_float8; /* the GPU has products of 8-bit floats (codegen_multiplies_float8) */
  /* called after each pass (NULL: none): --emit=html collects the graphs with it */
  void (*observe)(void *user, const char *pass, const Graph *graph);
  void *observe_user;
} PassOptions;

/* What code generation may do without (CodegenOptions.disable); NULL at the end. */
extern const char *const pass_choices[];
/* All that PassOptions.disable takes, by number from 0: passes in their order, then pass_choices;
 * NULL behind the last one. */
const char *pass_optional(int index);

/* Runs the pipeline over both graphs of the program, in place. False if a pass failed (diag). */
bool passes_run(Program *program, Diag *diag, const PassOptions *options, bool for_gpu);
/* The pass itself, where its columns say that it is for this graph and target; or `graph`. */
Graph *pass_apply(PassContext *context, const PassInfo *info, Graph *graph);
/* Runs one pass over one graph, verifying the stage before and after if `verify`. NULL with errors
 * in diag if it failed; a fault of the pass leaves a reproducer in `folder` (NULL: "."). */
Graph *passes_run_one(PassContext *context, const PassInfo *info, Graph *graph, bool verify,
                      const char *folder);
/* Runs the named passes over one graph (ftopt): names separated by commas. NULL if one failed. */
Graph *passes_run_named(PassContext *context, Graph *graph, const char *names);
#define PASS(name, function, ...) Graph *pass_##function(PassContext *, Graph *);
#include "passes/passes.def"
#undef PASS
#endif
