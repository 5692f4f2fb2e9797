/* plan_inference: what of a plan prediction needs: the steps of the evaluation that outputs depend on, and
 * the bytes that these touch. ftc --inference and ftrun deploy both go by it. */
#ifndef FT_PLAN_INFERENCE_H
#define FT_PLAN_INFERENCE_H
#include "plan/plan.h"

/* Bytes [from, from + bytes) of a place lie at byte `at` of the weights, if they are kept for ever, or else of
 * the workspace. A place that is kept has a range for each part that steps touch, others have one. Where a step writes what is kept (totals of an evaluation, in a kernel that an output
 * shares), each run has a copy, at byte `copy` of the workspace. */
typedef struct {
  int place;
  bool is_kept, is_written;
  int64_t from, bytes, at, copy;
} InferenceRange;

typedef struct {
  const PlanGraph *graph;
  VEC(int) steps; /* indices in graph->steps, in an order in which they may run */
  VEC(InferenceRange) ranges;
  int64_t weights, workspace; /* bytes */
  uint64_t layout;            /* a sum over the ranges: who has the same has each byte in the same place */
  char *prefix;               /* of the names in C: the model's name in small letters */
} Inference;

/* NULL, or why there is no such thing, a sentence in the arena. */
const char *inference_find(Arena *arena, const Plan *plan, Inference *out);
/* Where a step finds byte `offset` of a place; -1: no step touches the place. *is_kept: in the weights. */
int64_t inference_at(const Inference *inference, int place, int64_t offset, bool *is_kept);

/* The range behind `last`, NULL: the first, of those of which each run copies `bytes` from byte `at` of the weights to byte `copy` of the
 * workspace; NULL: that was the last one. */
const InferenceRange *inference_next_copy(const Inference *inference, const InferenceRange *last);

/* An input or output, as the deployed forms have it in their tables (kernels/deploy_x86.c): its byte in the
 * workspace, -1: no step reads it; bytes of a sample; bytes of an element, negative: of a signed type; below,
 * ignore and has_ignore of PlanTensor; is it needed?; bytes of the whole. */
enum { INFERENCE_PORT = 8 };
typedef struct {
  int64_t number[INFERENCE_PORT];
} InferencePort;
void inference_inputs(const Plan *plan, const Inference *inference, InferencePort *out);
/* The count. */
int inference_outputs(const Inference *inference, InferencePort *out);
#endif
