/* shard_private: what the files of pass shard share (shard.c, shard_join.c). */
#ifndef FT_PASSES_SHARD_PRIVATE_H
#define FT_PASSES_SHARD_PRIVATE_H
#include "passes/forms.h"

/* PLAIN: as the program means it. BACK: the same, of a param gathered for backward. LEAF: the part
 * of a param. SUMMED: of a gradient, the part of its sum over the ranks that share the batch;
 * JOINED: over those that share each layer's work, too, of which each has made a share (tensor.c).
 * FLAT: of a value over all parameters, what belongs to the parts. */
typedef enum { PLAIN, BACK, LEAF, SUMMED, JOINED, FLAT } Form;

/* Of a param, or its rounding, or a gradient. */
typedef struct {
  const Node *what;
  Form form;
} Wanted;

/* Where a small value stands in what is gathered, or shared out, together. */
typedef struct {
  Node *all;
  int64_t begin, part;
} Joined;

/* Gathered before this node is made. */
typedef struct {
  Wanted wanted;
  int before;
} Need;

typedef struct {
  PassContext *context;
  const Graph *old;
  Graph *fresh;
  int64_t ranks, elements;  /* of the whole arena */
  int level;                /* distributed.zero */
  bool *is_shared;          /* by node: exists in parts only */
  unsigned *asked;          /* by node: forms of it that the new graph needs, as bits */
  Lookup param_at;          /* by offset in the arena */
  const Node **gradient_of; /* by node: the param, of what is scattered */
  bool *is_read_plain;      /* by param: something that is no rounding reads it */
  DType *rounded;           /* by param: to what it is rounded; F32: to nothing, or to two types */
  Forms forms;
  VEC(Need) needs;
  Lookup joined_at; /* by node and form: an index to */
  VEC(Joined) joined;
  VEC(Wanted) waiting; /* small gradients that exist, to be shared out with others */
  int64_t since;       /* bytes of gradients since some were shared out together */
} Shard;

Node *shard_get(Shard *s, const Node *old, Form form);
/* Elements of a rank's part of a value. */
int64_t shard_part(const Shard *s, const Node *node);
/* A collective is of the ranks that share a batch; returns it. */
Node *shard_over(Shard *s, Node *collective);
/* The rank's part of a param, rounded as what is gathered: the param, or a rounding of it. */
Node *shard_part_to_gather(Shard *s, const Node *gathered);
/* A sum over the ranks that share each layer's work too, of parts. */
Node *shard_sum_of_all(Shard *s, Node *part, Attr why);

/* ── shard_join.c ───────────────────────────────────────────────────────────────────────────── */
/* So small that it is joined with others. */
bool shard_is_small(const Type *type);
/* Begins gathers from this need on; returns the first one that is not among them. */
int shard_begin_group(Shard *s, int first);
/* The gradient is shared out now, or waits for others. */
void shard_share_out(Shard *s, const Node *gradient, Form form);
/* Of a value that was gathered, or shared out, with others: all of it, or the rank's part; NULL: it was
 * not. */
Node *shard_joined_whole(Shard *s, const Node *node, Form form);
Node *shard_joined_part(Shard *s, const Node *gradient, Form form);
#endif
