/* totals: what the files of the pass share. A loss or metric is split at its totals, the reductions
 * over the samples. Each total is a state that is summed over the batches of an evaluation
 * (totals.c) or over micro-batches (totals_parts.c), and the rest of the loss is computed from these
 * states. So it is what one batch of all those samples would give, to rounding. */
#ifndef FT_PASSES_TOTALS_H
#define FT_PASSES_TOTALS_H
#include "passes/pass.h"
#include "passes/samples.h"

typedef struct Totals Totals;
struct Totals {
  PassContext *context;
  Graph *graph; /* old nodes keep their ids; new ones come behind */
  int count;    /* of old nodes */
  Samples *samples;
  bool *on_batch; /* by old node: does it depend on an input or on random numbers? */
  int64_t batch;
  Node **value; /* by old node: its value over all samples; NULL: not needed so far */
  int levels;   /* how many passes over the samples the values so far need */
  /* Constants are not known to follow the number of samples: totals are an average batch's. */
  bool is_scaled;
  Node *number; /* of samples, f64[] */
  Node *ranks;  /* that share each batch, f64[]; NULL: there is one */
  /* The total of all samples from `part`, that of these ones. */
  Node *(*total)(Totals *t, Op op, Node *part, int level);
  /* x, an operand of a total by `op`, without samples that do not count. */
  Node *(*operand)(Totals *t, Node *x, const Samples *s, Op op);
};

/* ── what both use (totals_value.c) ── */
void totals_begin(Totals *t, PassContext *context, Graph *graph, const bool *excused);
Node *totals_value(Totals *t, Node *old);
/* What changes nothing under `op`; two totals together. */
Node *totals_neutral(Totals *t, Op op, Type type);
Node *totals_joined(Totals *t, Op op, Node *a, Node *b);
/* Can the value of all samples not be had by way of totals? */
bool totals_is_mixed(const Totals *t, const Node *old);
/* Where samples are first related to each other, behind `old`. */
Loc totals_cause(const Totals *t, const Node *old);

/* The constant as it is for t->number samples; form: ATTR_SAMPLES, four numbers. */
Node *totals_constant(Totals *t, const Node *old, const double *form);

/* ── over ranks (totals_ranks.c) ── */
void totals_ranks_begin(Totals *t); /* totals_begin calls it */
/* The total of all ranks from this one's; part itself where there is one rank. */
Node *totals_over_ranks(Totals *t, Op op, Node *part);
/* value / ranks: of what each rank would count by itself. */
Node *totals_share(Totals *t, Node *value);
/* States that follow the batch become the mean over the ranks: false after an error. */
bool totals_average_states(Totals *t);
Graph *totals_random_of_rows(PassContext *context, Graph *graph);
/* distributed.sync_batch_norm: the statistics that states follow are those of all ranks' samples. */
Graph *totals_synchronised(PassContext *context, Graph *graph);

/* The parts of a batch (totals_parts.c): false after an error. */
bool totals_of_parts(PassContext *context, Graph *graph);
#endif
