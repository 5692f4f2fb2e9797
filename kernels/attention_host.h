/* attention_host: what ftc writes into an artifact about one attention, and the two functions of
 * kernels/attention_x86.c that read it. f32; batch, heads, rows (queries) and keys as in
 * ir/ops.def; groups is the number of key and value heads. */
#ifndef FT_KERNELS_ATTENTION_HOST_H
#define FT_KERNELS_ATTENTION_HOST_H
#include <stdint.h>

enum { ATTENTION_TILE = 64, ATTENTION_MOST_FEATURES = 256 };
enum { ATTENTION_NO_MASK, ATTENTION_BOOL_MASK, ATTENTION_ADDED_MASK };

/* Where an operand or result is: which of args, its first element there, and how many elements lead
 * to the next sample, head and row. Features are neighbours. */
typedef struct {
  int64_t arg, start, batch, head, row;
} AttentionPlace;

/* codegen/host_attention.c writes it number by number in this order. */
typedef struct {
  int64_t batch, heads, groups, rows, keys, features;
  int64_t is_causal, mask;                 /* mask: an ATTENTION_..._MASK */
  int64_t mask_batch, mask_head, mask_row; /* from one to the next, elements; 0: the same for all */
  int64_t arg_mask, arg_lse;               /* where in args; lse is [batch, heads, rows] */
  AttentionPlace q, k, v, out;             /* with heads of q or out, groups of k and v */
  AttentionPlace dy, dq, dk, dv;           /* of the gradient */
  double scale;
} AttentionProblem;

/* A work item is a block of ATTENTION_TILE queries of one head. */
static inline int64_t attention_items(const AttentionProblem *p) {
  return p->batch * p->heads * ((p->rows + ATTENTION_TILE - 1) / ATTENTION_TILE);
}
void attention_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end);

/* A work item is one key and value head with all
 * heads that share it: what is summed over queries is summed in one place, in one order. */
static inline int64_t attention_grad_items(const AttentionProblem *p) {
  return p->batch * p->groups;
}
void attention_grad_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end);
#endif
