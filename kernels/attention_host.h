/* attention_host: what ftc writes into an artifact about one attention, and the functions of
 * kernels/attention_x86.c that read it. Sums are f32, tensors may be narrower; batch, heads, rows
 * (queries) and keys as in ir/ops.def; groups is the number of key and value heads. */
#ifndef FT_KERNELS_ATTENTION_HOST_H
#define FT_KERNELS_ATTENTION_HOST_H
#include "kernels/gemm_host.h"
#include "kernels/operand_host.h"

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
  int64_t type;                            /* of all tensors but mask and lse: OPERAND_... */
  int64_t may_use;                         /* of bf16: as GemmProduct has it */
  int64_t is_causal, mask;                 /* mask: an ATTENTION_..._MASK */
  int64_t mask_batch, mask_head, mask_row; /* from one to the next, elements; 0: the same for all */
  int64_t arg_mask, arg_lse;               /* where in args; lse is [batch, heads, rows] */
  AttentionPlace q, k, v, out;             /* with heads of q or out, groups of k and v */
  AttentionPlace dy, dq, dk, dv;           /* of the gradient */
  int64_t shares, arg_partial;             /* of the gradient: see below */
  /* Dropout (kernels/attention_drop.h): a weight is dropped if its draw, a number of 24 bits, is below drop_below, 0 where there is no dropout. In
   * args from arg_draws on: seed, step, the number of each head's first element, [batch, heads], and stream; all i64. */
  int64_t arg_draws, drop_below;
  double scale, cap; /* a scaled score s becomes cap * tanh(s / cap); 0: it stays */
  double gain;       /* what dropout multiplies the other weights by */
} AttentionProblem;

/* A work item is a block of ATTENTION_TILE queries of one head. */
static inline int64_t attention_items(const AttentionProblem *p) {
  return p->batch * p->heads * ((p->rows + ATTENTION_TILE - 1) / ATTENTION_TILE);
}
void attention_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end);

/* A work item of the gradient is one key and value head, with all heads that share it, and every
 * `shares`-th block of ATTENTION_TILE keys. So dk and dv, which are sums over queries, are each
 * summed by one item, in one order. dq is a sum over keys, so each share has sums of its own for
 * it: the first share's are in dq itself, if that is f32, and all others in args[arg_partial], f32
 * [copies][batch, heads, rows, width]; attention_grad_add_run adds them. There is more than one
 * share where heads are too few to keep a processor busy. Their number depends on shapes only, and
 * so do the bits. */
enum { ATTENTION_FEW_ITEMS = 32, ATTENTION_MOST_SHARES = 8 };
static inline int64_t attention_grad_shares(const AttentionProblem *p) {
  int64_t heads = p->batch * p->groups, blocks = (p->keys + ATTENTION_TILE - 1) / ATTENTION_TILE;
  int64_t shares = (ATTENTION_FEW_ITEMS + heads - 1) / (heads ? heads : 1);
  shares = shares < blocks ? shares : blocks;
  return shares < 1 ? 1 : shares < ATTENTION_MOST_SHARES ? shares : ATTENTION_MOST_SHARES;
}
static inline int64_t attention_grad_items(const AttentionProblem *p) {
  return p->batch * p->groups * p->shares;
}
static inline int64_t attention_partials(const AttentionProblem *p) {
  return p->type == OPERAND_F32 ? p->shares - 1 : p->shares;
}
static inline int64_t attention_partial_width(const AttentionProblem *p) { /* features and zeros */
  return (p->features + 15) / 16 * 16;
}
void attention_grad_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end);
/* A work item is a block of ATTENTION_TILE queries of one head, as forward. */
void attention_grad_add_run(const AttentionProblem *p, void *const *args, int64_t begin,
                            int64_t end);
#endif
