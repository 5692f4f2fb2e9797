/* bound: which elements of the model's inputs a lookup reads, so that the loader can check just
 * these. A value is followed down through views to the inputs as a box of steps in each dimension;
 * where that is not exact (a part of a reshape that mixes dimensions, arithmetic), nothing is
 * noted, and unless the values cannot be outside anyway (positions, argmax) the lookup guards
 * itself: what it makes of an index outside is NaN (docs/language.md). */
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
/* What an element may be: 0 to below - 1, or what is ignored. */
typedef struct {
  int64_t below, has_ignore, ignore;
} Allowed;

static bool allows(const Allowed *a, int64_t value) {
  return (value >= 0 && value < a->below) || (a->has_ignore && a->ignore == value);
}

/* What both allow: several lookups of an element must all be able to take it. */
static Allowed allowed_both(const Allowed *a, const Allowed *b) {
  const Allowed *less = a->below < b->below ? a : b, *more = less == a ? b : a;
  Allowed out = *less;
  out.has_ignore = out.has_ignore && allows(more, out.ignore);
  if (!out.has_ignore && more->has_ignore && allows(less, more->ignore))
    out.has_ignore = 1, out.ignore = more->ignore;
  return out;
}

static Allowed asked_by(const Bound *bound) {
  return (Allowed){bound->below, bound->ignore != NULL, bound->ignore ? *bound->ignore : 0};
}

static void note_whole(const Bound *bound, Node *input) {
  Graph *graph = bound->b->graph;
  Allowed next = asked_by(bound);
  if (node_attr(input, ATTR_BELOW)) {
    Allowed known = {node_int(input, ATTR_BELOW, 0), node_attr(input, ATTR_IGNORE) != NULL,
                     node_int(input, ATTR_IGNORE, 0)};
    next = allowed_both(&known, &next);
  }
  node_set_attr(graph, input, attr_int(ATTR_BELOW, next.below));
  if (next.has_ignore)
    node_set_attr(graph, input, attr_int(ATTR_IGNORE, next.ignore));
  else
    node_drop_attr(input, ATTR_IGNORE);
}

/* The attribute `parts`: for each box below, 1 if a value is ignored, which one, and then start,
 * step and count of each dimension. The same rules as above for the same box. */
static bool note_part(const Bound *bound, Node *input, const Box *box) {
  enum { MOST = 4096 };
  int rank = input->type.shape.rank, width = PARTS_HEAD + 3 * rank, at = 0;
  const Attr *old = node_attr(input, ATTR_PARTS);
  int count = old ? old->count : 0;
  Allowed allowed = asked_by(bound);
  int64_t next[PARTS_HEAD + 3 * MAX_RANK] = {0};
  for (int i = 0; i < rank; i++) {
    int64_t *to = &next[PARTS_HEAD + 3 * i];
    to[0] = box->start[i], to[1] = box->step[i], to[2] = box->count[i];
  }
  int64_t *all = ARENA_ARRAY(bound->b->arena, int64_t, count + width);
  if (count) memcpy(all, old->ints, sizeof *all * (size_t)count);
  size_t place = sizeof *all * 3 * (size_t)rank;
  while (at < count && memcmp(&all[at + PARTS_HEAD], &next[PARTS_HEAD], place) != 0) at += width;
  if (at == count && count / width >= MOST) return false;
  if (at < count) allowed = allowed_both(&(Allowed){all[at], all[at + 1], all[at + 2]}, &allowed);
  next[0] = allowed.below, next[1] = allowed.has_ignore;
  next[2] = allowed.has_ignore ? allowed.ignore : 0;
  memcpy(&all[at], next, sizeof *all * (size_t)width);
  if (at == count) count += width;
  node_set_attr(bound->b->graph, input, attr_ints(ATTR_PARTS, all, count));
  return true;
}

/* ── what cannot be outside ───────────────────────────────────────────────────────────────── */
/* Integers of 0 to below - 1 by the way they are computed: positions, argmax, constants, flags, and
 * what is chosen or moved among these. An input is not asked: the loader looks at it. */
static bool bound_is_inside(const Node *x, int64_t below, int depth) {
  enum { DEEPEST = 20 };
  const Shape *from = x->input_count ? &x->input[0]->type.shape : NULL;
  int axis = (int)node_int(x, ATTR_AXIS, 0);
  if (depth > DEEPEST || dtype_is_float(x->type.dtype) || below < 1) return false;
  if (x->type.dtype == DT_BOOL) return below >= 2;
  switch (x->op) {
  case OP_CONST:
    return node_float(x, ATTR_VALUE, -1) >= 0 && node_float(x, ATTR_VALUE, -1) < (double)below;
  case OP_IOTA:
    return x->type.shape.dim[axis] <= below;
  case OP_ARGMAX:
  case OP_ARGMIN:
    return from->dim[(int)node_attr(x, ATTR_AXES)->ints[0]] <= below;
  case OP_SELECT:
    return bound_is_inside(x->input[1], below, depth + 1) &&
           bound_is_inside(x->input[2], below, depth + 1);
  default:
    return op_passes_on(x->op) && bound_is_inside(x->input[0], below, depth + 1);
  }
}

/* ── down through views ───────────────────────────────────────────────────────────────────── */
/* Notes at the inputs. False: some elements come from elsewhere. */
static bool bound_follow(const Bound *bound, Node *x, Box box);

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

static bool through_concat(const Bound *bound, const Node *x, Box box) {
  int axis = (int)node_int(x, ATTR_AXIS, 0);
  bool is_known = true;
  if (box.start[axis] || box.step[axis] != 1 || box.count[axis] != x->type.shape.dim[axis])
    return false;
  for (int i = 0; i < x->input_count; i++) {
    box.count[axis] = x->input[i]->type.shape.dim[axis];
    is_known &= bound_follow(bound, x->input[i], box);
  }
  return is_known;
}

static bool bound_follow(const Bound *bound, Node *x, Box box) {
  Box next = box;
  const Attr *perm = node_attr(x, ATTR_PERM);
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++)
    if (!box.count[i]) return true; /* nothing is read */
  if (bound_is_inside(x, bound->below, 0)) return true;
  switch (x->op) {
  case OP_INPUT:
    if (!is_whole(&box, &x->type.shape)) return note_part(bound, x, &box);
    note_whole(bound, x);
    return true;
  case OP_CAST:
    if (dtype_is_float(x->input[0]->type.dtype)) return false;
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
    if (!through_reshape(&x->type.shape, &x->input[0]->type.shape, &box, &next))
      return false;
    break;
  case OP_CONCAT:
    return through_concat(bound, x, box);
  default:
    return false;
  }
  for (int i = 0; i < x->input[0]->type.shape.rank; i++)
    if (next.count[i] == 1) next.step[i] = 1; /* the same box is written in one way */
  return bound_follow(bound, x->input[0], next);
}

bool tensor_within(Builder *b, Node *x, int64_t below, const int64_t *ignore) {
  Bound bound = {b, below, ignore};
  if (dtype_is_float(x->type.dtype) || below < 1) return false;
  return bound_follow(&bound, x, whole_of(&x->type.shape));
}

Node *tensor_is_within(Builder *b, Node *x, int64_t below, const int64_t *ignore, Loc loc) {
  bool is_long = x->type.dtype == DT_I64 || x->type.dtype == DT_U32 || below > INT32_MAX ||
                 (ignore && (*ignore > INT32_MAX || *ignore < INT32_MIN));
  DType dtype = is_long ? DT_I64 : DT_I32;
  x = tensor_cast(b, weight_drop(b, x, loc), dtype, loc);
  Node *least = tensor_const(b, dtype, 0, loc);
  Node *end = tensor_const(b, dtype, (double)below, loc);
  Node *fits = tensor_binary(b, OP_AND, "and", tensor_binary(b, OP_GE, ">=", x, least, loc),
                             tensor_binary(b, OP_LT, "<", x, end, loc), loc);
  if (!ignore) return fits;
  Node *value = tensor_const(b, dtype, (double)*ignore, loc);
  return tensor_binary(b, OP_OR, "or", fits, tensor_binary(b, OP_EQ, "==", x, value, loc), loc);
}
