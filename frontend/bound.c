/* bound: which elements of the model's inputs a lookup reads, so that the loader can check just
 * these. A value is followed down through views to the inputs as a box of steps in each dimension;
 * where that is not exact (a part of a reshape that mixes dimensions, arithmetic), nothing is
 * noted: the lookup's own rule for what is outside holds (zeros, docs/language.md). */
#include "frontend/builder.h"
#include <string.h>

/* In each dimension: start, start + step, ... `count` of them. */
typedef struct {
  int64_t start[MAX_RANK], step[MAX_RANK], count[MAX_RANK];
} Box;

typedef struct {
  Builder *b;
  int64_t below;
  const int64_t *ignore; /* NULL: none */
} Bound;

static Box whole_of(const Shape *shape) {
  Box box = {0};
  for (int i = 0; i < shape->rank; i++) {
    box.step[i] = 1;
    box.count[i] = shape->dim[i];
  }
  return box;
}

static bool is_whole(const Box *box, const Shape *shape) {
  for (int i = 0; i < shape->rank; i++)
    if (box->start[i] || box->step[i] != 1 || box->count[i] != shape->dim[i]) return false;
  return true;
}

/* ── notes at an input ────────────────────────────────────────────────────────────────────── */
/* Of several lookups of the same elements the narrowest counts; what one may ignore, all may. Where
 * they ignore different values anything goes (below = 0). */
static void note_whole(const Bound *bound, Node *input) {
  Graph *graph = bound->b->graph;
  int64_t below = bound->below, known = node_int(input, ATTR_BELOW, INT64_MAX);
  const int64_t *ignore = bound->ignore;
  if (ignore && node_int(input, ATTR_IGNORE, *ignore) != *ignore) below = 0;
  if (below < known) node_set_attr(graph, input, attr_int(ATTR_BELOW, below));
  if (ignore) node_set_attr(graph, input, attr_int(ATTR_IGNORE, *ignore));
}

/* The attribute `parts`: for each box below, 1 if a value is ignored, which one, and then start,
 * step and count of each dimension. The same rules as above for the same box. */
static void note_part(const Bound *bound, Node *input, const Box *box) {
  enum { MOST = 4096 };
  int rank = input->type.shape.rank, width = PARTS_HEAD + 3 * rank, at = 0;
  const Attr *old = node_attr(input, ATTR_PARTS);
  int count = old ? old->count : 0;
  int64_t next[PARTS_HEAD + 3 * MAX_RANK] = {bound->below, bound->ignore != NULL,
                                             bound->ignore ? *bound->ignore : 0};
  for (int i = 0; i < rank; i++) {
    int64_t *to = &next[PARTS_HEAD + 3 * i];
    to[0] = box->start[i], to[1] = box->step[i], to[2] = box->count[i];
  }
  int64_t *all = ARENA_ARRAY(bound->b->arena, int64_t, count + width);
  if (count) memcpy(all, old->ints, sizeof *all * (size_t)count);
  size_t place = sizeof *all * 3 * (size_t)rank;
  while (at < count && memcmp(&all[at + PARTS_HEAD], &next[PARTS_HEAD], place) != 0) at += width;
  if (at == count && count / width >= MOST) return;
  if (at < count) {
    int64_t *known = &all[at];
    if (known[0] < next[0]) next[0] = known[0];
    if (known[1] && next[1] && known[2] != next[2]) next[0] = 0;
    if (known[1]) next[1] = 1, next[2] = known[2];
  }
  memcpy(&all[at], next, sizeof *all * (size_t)width);
  if (at == count) count += width;
  node_set_attr(bound->b->graph, input, attr_ints(ATTR_PARTS, all, count));
}

/* ── down through views ───────────────────────────────────────────────────────────────────── */
static void follow(const Bound *bound, Node *x, Box box);

/* A part only if nothing but dimensions of 1 comes or goes. */
static bool through_reshape(const Shape *to, const Shape *from, const Box *box, Box *out) {
  *out = whole_of(from);
  if (is_whole(box, to)) return true;
  int k = 0;
  for (int i = 0; i < to->rank; i++) {
    if (to->dim[i] == 1) continue;
    while (k < from->rank && from->dim[k] == 1) k++;
    if (k == from->rank || from->dim[k] != to->dim[i]) return false;
    out->start[k] = box->start[i], out->step[k] = box->step[i], out->count[k] = box->count[i];
    k++;
  }
  while (k < from->rank && from->dim[k] == 1) k++;
  return k == from->rank;
}

static Box through_slice(const Node *x, const Box *box) {
  const Attr *start = node_attr(x, ATTR_START), *step = node_attr(x, ATTR_STEP);
  Box out = *box;
  for (int i = 0; i < x->type.shape.rank; i++) {
    int64_t by = step ? step->ints[i] : 1;
    out.start[i] = start->ints[i] + by * box->start[i];
    out.step[i] = by * box->step[i];
  }
  return out;
}

static void through_concat(const Bound *bound, const Node *x, Box box) {
  int axis = (int)node_int(x, ATTR_AXIS, 0);
  if (box.start[axis] || box.step[axis] != 1 || box.count[axis] != x->type.shape.dim[axis]) return;
  for (int i = 0; i < x->input_count; i++) {
    box.count[axis] = x->input[i]->type.shape.dim[axis];
    follow(bound, x->input[i], box);
  }
}

static void follow(const Bound *bound, Node *x, Box box) {
  Box next = box;
  const Attr *perm = node_attr(x, ATTR_PERM);
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++)
    if (!box.count[i]) return; /* nothing is read */
  switch (x->op) {
  case OP_INPUT:
    if (is_whole(&box, &x->type.shape))
      note_whole(bound, x);
    else
      note_part(bound, x, &box);
    return;
  case OP_CAST:
    if (dtype_is_float(x->input[0]->type.dtype)) return;
    break;
  case OP_TRANSPOSE:
    for (int i = 0; i < rank; i++) {
      int to = (int)perm->ints[i];
      next.start[to] = box.start[i], next.step[to] = box.step[i], next.count[to] = box.count[i];
    }
    break;
  case OP_SLICE:
    next = through_slice(x, &box);
    break;
  case OP_BROADCAST:
    for (int i = 0; i < rank; i++)
      if (x->input[0]->type.shape.dim[i] == 1) next.start[i] = 0, next.step[i] = next.count[i] = 1;
    break;
  case OP_RESHAPE:
    if (!through_reshape(&x->type.shape, &x->input[0]->type.shape, &box, &next)) return;
    break;
  case OP_CONCAT:
    through_concat(bound, x, box);
    return;
  default:
    return;
  }
  for (int i = 0; i < x->input[0]->type.shape.rank; i++)
    if (next.count[i] == 1) next.step[i] = 1; /* the same box is written in one way */
  follow(bound, x->input[0], next);
}

Node *tensor_within(Builder *b, Node *x, int64_t below, const int64_t *ignore) {
  Bound bound = {b, below, ignore};
  if (!dtype_is_float(x->type.dtype) && below >= 1) follow(&bound, x, whole_of(&x->type.shape));
  return x;
}
