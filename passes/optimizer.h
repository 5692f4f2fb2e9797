/* optimizer: what the files of the optimizer pass share. The pass is optimizer.c; the rules of the
 * single optimisers stand in optimizer_rules.c and optimizer_muon.c, the learning rate in
 * optimizer_schedule.c, parameter groups in optimizer_groups.c, micro-batches in
 * optimizer_accumulate.c.
 *
 * Scalars are f64[] and computed once a step; flat values are f32[N] over the parameters that are trained,
 * and everything flat ends up in one kernel. */
#ifndef FT_PASSES_OPTIMIZER_H
#define FT_PASSES_OPTIMIZER_H
#include "passes/pass.h"

/* A run of the flat place in which every coefficient is one number: [begin, end) in elements. */
typedef struct {
  int64_t begin, end;
  double lr_factor, decay_factor;
  int rest;       /* the group of freeze = after(...), whose rate falls by itself; 0: the schedule's rate */
  bool is_matrix; /* its params are trained as matrices */
  bool is_cut;    /* ranks have a part of each of its params (distributed.tensor) */
} Segment;

typedef struct {
  Graph *graph;
  SettingValue *settings;
  bool for_gpu;
  Type flat;              /* f32[N] */
  Node *step;             /* f64[], 0 in the first step */
  Node *rate;             /* f64[], the schedule applied */
  Node *params;           /* f32[N] before the update */
  Node *all;              /* f32[M]: and behind them those that rest, where their average goes on; NULL: no need */
  int64_t rest_elements;  /* M - N; 0 where `all` is NULL */
  Node *grads;            /* f32[N] */
  Node *factor;           /* what the sum of the parts' gradients is multiplied with; NULL: nothing */
  Node *is_finite;        /* bool[]; fp16: false if the step is skipped; NULL: it never is */
  bool has_padding;       /* zeros lie behind the end of a param that ranks have uneven parts of */
  Node *mask, *alive;      /* f32[N], bool[N]: what is not pruned (prune.h); NULL: nothing ever is */
  int totals;             /* collectives between stages of a pipeline, so far */
  VEC(Segment) segments;  /* in order, covering the arena; at least one */
  Node **rates, **decays; /* f64[] by segment: the learning rate, the weight decay */
} Update;

/* ── notation (optimizer_notation.c) ── */
Node *update_add(Update *u, Node *a, Node *b);
Node *update_sub(Update *u, Node *a, Node *b);
Node *update_mul(Update *u, Node *a, Node *b);
Node *update_div(Update *u, Node *a, Node *b);
Node *update_op(Update *u, Op op, Node *a, Node *b);
/* What an optimizer divides by the root of its squares, with eps = 0 too: 0 / 0 is 0 where params
 * have padding, which must stay zero. A NaN in either stays one. */
Node *update_quotient(Update *u, Node *a, Node *b);
Node *update_number(Update *u, double value); /* f64[] */
Node *update_one_minus(Update *u, Node *x);
Node *update_sqrt(Update *u, Node *x);
/* A scalar, in every element; times a flat value. */
Node *update_fill(Update *u, Node *scalar);
Node *update_scaled(Update *u, Node *flat, Node *scalar);
/* What is made from here on is the doing of this setting: its line in the recipe, or where the file does
 * not set it that of the optimizer. */
void update_at(Update *u, const char *key);
Node *update_setting(Update *u, const char *key);
/* A flat state that starts with this value in every element; a moment that starts with 0; i64[]. */
Node *update_state(Update *u, LeafRole role, const char *name, double initial);
Node *update_moment(Update *u, const char *name);
Node *update_counter(Update *u, LeafRole role, const char *name);
void update_assign(Update *u, const char *target, Node *value);

/* ── the learning rate (optimizer_schedule.c) ── */
Node *update_rate(Update *u);
/* That of the group `rest` of freeze = after(...), from 1, with a rate that falls until it rests. */
Node *update_rest_rate(Update *u, int rest);

/* ── parameter groups (optimizer_groups.c) ── */
/* Fills segments from the params of the graph, rates and decays from the settings. */
void update_find_groups(Update *u);
/* A flat value that is scalars[s] in segment s; a plain fill where they are all one node. */
Node *update_piecewise(Update *u, Node *const *scalars);
Node *update_piecewise_scaled(Update *u, Node *flat, Node *const *scalars);
/* A total over all elements, f64[] or the type of flat: a rank's own, and of all ranks that have
 * parts of the parameters (distributed.tensor). What all have whole counts once. */
Node *update_total(Update *u, Node *flat);
/* true in the segments of matrices, as bool[N]; NULL if there are none. */
Node *update_is_matrix(Update *u);

/* ── parameters of bf16 (optimizer_rounding.c) ── */
/* The parameters before the update, as f32[N]; the new ones as they are kept. counter: the state
 * OWN_STEP. */
Node *update_params(Update *u);
Node *update_kept(Update *u, Node *params, Node *counter);

/* ── micro-batches (optimizer_accumulate.c) ── */
/* Sums gradients over the parts of a batch. In the last part's graph: returns those of the whole
 * batch. */
Node *update_accumulate(Update *u, double parts, bool is_micro, Node *grads);
/* One part more is done; with the last one, none of the next batch. Also where there are no
 * gradients: totals and random numbers go by it. */
void update_count_part(Update *u, bool is_micro);
/* The graph with random numbers of its own for each part; what goes to other stages of a pipeline once
 * a step is the last part's. */
Graph *update_part(Graph *graph, double parts, bool is_micro);

/* ── the rules: each returns the new parameters, or NULL for an unknown optimiser ── */
Node *update_by_rule(Update *u, const char *kind);
/* `rest` (f32[begin]; NULL if begin is 0) and behind it the direction's matrices from element
 * `begin` on, orthogonalised and scaled. */
Node *update_muon(Update *u, Node *rest, Node *direction, int64_t begin);
#endif
