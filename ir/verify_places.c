/* verify_places: does every reader of a planned graph find the value it wants? memplan computes
 * live ranges and keeps them apart; this looks from the other side and shares no code with it. It
 * walks the steps in their order and keeps, for every byte of every arena, which value was written
 * there last. A read of bytes that hold something else is an error, and so is a kernel that writes
 * over one of its own operands in any way but element by element (verify_overwrite.c). */
#include "ir/verify.h"
#include <limits.h>
#include <string.h>

/* Owners are node ids, or: what the byte held before the step; nothing that may be read. */
enum { OWNER_INITIAL = -1, OWNER_NONE = -2 };

typedef struct {
  int64_t begin, end;
  int owner;
} Segment;

/* The written bytes of one place: segments in order, apart from each other. */
typedef struct {
  const char *name;
  VEC(Segment) segments;
} Space;

typedef struct {
  const Graph *graph;
  Arena *arena;
  VEC(Space) spaces;
  int *space_of;  /* by node id: its place; -1: it has no place */
  int *now_under; /* by node id: the pack or assign that took this value in where it lies; or -1 */
  const Node *where;
  const char *why;
} Places;

typedef struct {
  Space *space;
  int64_t begin, end;
} Range;
typedef VEC(Node *) NodeList;

static bool complain(Places *p, const Node *where, const char *why) {
  if (!p->why) {
    p->why = why;
    p->where = where;
  }
  return false;
}

static Range range_of(const Places *p, const Node *node) {
  int64_t at = node_int(node, ATTR_AT, 0);
  return (Range){&p->spaces.at[p->space_of[node->id]], at, at + type_bytes(&node->type)};
}

static bool overlaps(const Range *a, const Range *b) {
  return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

static bool is_same_range(const Range *a, const Range *b) {
  return a->space == b->space && a->begin == b->begin && a->end == b->end;
}

/* ── bytes and their owners ─────────────────────────────────────────────────────────────────── */
/* The first segment that ends behind this byte. */
static int find_segment(const Space *space, int64_t byte) {
  int low = 0, high = space->segments.count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (space->segments.at[middle].end <= byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Puts `fresh` segments in the place of segments [from, to). */
static void splice(Places *p, Space *space, int from, int to, const Segment *fresh, int count) {
  int tail = space->segments.count - to;
  for (int i = space->segments.count; i < from + count + tail; i++)
    VEC_PUSH(p->arena, space->segments, (Segment){0});
  memmove(space->segments.at + from + count, space->segments.at + to,
          sizeof(Segment) * (size_t)tail);
  memcpy(space->segments.at + from, fresh, sizeof(Segment) * (size_t)count);
  space->segments.count = from + count + tail;
}

static void claim_bytes(Places *p, const Range *range, int owner) {
  if (range->begin >= range->end) return;
  Space *space = range->space;
  int from = find_segment(space, range->begin), to = from, count = 0;
  Segment fresh[3];
  while (to < space->segments.count && space->segments.at[to].begin < range->end) to++;
  if (from < to && space->segments.at[from].begin < range->begin) {
    fresh[count] = space->segments.at[from];
    fresh[count++].end = range->begin;
  }
  fresh[count++] = (Segment){range->begin, range->end, owner};
  if (from < to && space->segments.at[to - 1].end > range->end) {
    fresh[count] = space->segments.at[to - 1];
    fresh[count++].begin = range->end;
  }
  splice(p, space, from, to, fresh, count);
}

/* The owner of the first byte of the range that does not hold `base`; INT_MAX: all of them do. */
static int find_stranger(const Places *p, const Range *range, const Node *base) {
  const Space *space = range->space;
  int64_t byte = range->begin;
  for (int i = find_segment(space, byte); byte < range->end; i++) {
    if (i == space->segments.count || space->segments.at[i].begin > byte) return OWNER_NONE;
    int owner = space->segments.at[i].owner;
    bool is_it = node_is_leaf(base) ? owner == OWNER_INITIAL
                               : owner == base->id || owner == p->now_under[base->id];
    if (!is_it || owner == OWNER_NONE) return owner;
    byte = space->segments.at[i].end;
  }
  return INT_MAX;
}

static bool check_read(Places *p, const Node *reader, const Node *value, const char *what) {
  const Node *base = node_base(value);
  if (p->space_of[base->id] < 0 || p->space_of[value->id] < 0)
    return complain(p, reader,
                    arena_printf(p->arena, "%s %%%d, which has no place", what, base->id));
  Range range = range_of(p, base), seen = range_of(p, value);
  if (!is_same_range(&range, &seen))
    return complain(p, value, "is a view with another place than what it views");
  int stranger = find_stranger(p, &range, base);
  if (stranger == INT_MAX) return true;
  const char *holds = stranger >= 0 ? arena_printf(p->arena, "%%%d", stranger)
                      : stranger == OWNER_INITIAL ? "what was there before the step"
                                                  : "nothing";
  return complain(p, reader,
                  arena_printf(p->arena, "%s %%%d, whose place in %s at %lld holds %s by then",
                               what, base->id, range.space->name, (long long)range.begin, holds));
}

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
/* A state may be the flat place that params are slices of. */
static bool may_share(const Node *a, const Node *b) {
  if (a->op == b->op)
    return !strcmp(node_str(a, ATTR_NAME), node_str(b, ATTR_NAME)) &&
           a->role == b->role;
  return (a->op == OP_PARAM && b->op == OP_STATE) || (a->op == OP_STATE && b->op == OP_PARAM);
}

static void verify_place_leaf(Places *p, const Node *leaf) {
  if (p->space_of[leaf->id] < 0) {
    complain(p, leaf, "has no place");
    return;
  }
  Range range = range_of(p, leaf);
  for (int i = find_segment(range.space, range.begin); i < range.space->segments.count; i++) {
    const Segment *segment = &range.space->segments.at[i];
    if (segment->begin >= range.end) break;
    if (!may_share(leaf, p->graph->nodes.at[segment->owner]))
      complain(p, leaf, arena_printf(p->arena, "shares bytes with %%%d", segment->owner));
  }
  claim_bytes(p, &range, leaf->id);
}

/* First by their own ids, to find those that share bytes. */
static void verify_place_leaves(Places *p) {
  for (int i = 0; i < p->graph->nodes.count; i++)
    if (node_is_leaf(p->graph->nodes.at[i])) verify_place_leaf(p, p->graph->nodes.at[i]);
  for (int i = 0; i < p->spaces.count; i++)
    for (int k = 0; k < p->spaces.at[i].segments.count; k++)
      p->spaces.at[i].segments.at[k].owner = OWNER_INITIAL;
}

/* ── steps ──────────────────────────────────────────────────────────────────────────────────── */
static bool verify_places_check_write(Places *p, const Node *step, const Node *value) {
  Range range = range_of(p, value);
  for (int k = 0; k < step->input_count; k++) {
    const Node *base = node_base(step->input[k]);
    Range operand = range_of(p, base);
    if (!overlaps(&range, &operand)) continue;
    int index = value->op == OP_RESULT ? (int)node_int(value, ATTR_INDEX, 0) : 0;
    if (!is_same_range(&range, &operand) || value->type.pitch != base->type.pitch ||
        !verify_overwrite(step, index, base))
      return complain(p, value,
                      arena_printf(p->arena,
                                   "is written over %%%d, which its kernel may still read",
                                   base->id));
  }
  return true;
}

/* All results of a kernel are written in one step, so they must be apart. */
static void run_kernel(Places *p, const Node *step, Node *const *results, int count) {
  for (int k = 0; k < step->input_count; k++)
    if (!check_read(p, step, step->input[k], "reads")) return;
  for (int i = 0; i < count; i++) {
    if (p->space_of[results[i]->id] < 0) {
      complain(p, results[i], "has no place");
      return;
    }
    if (!verify_places_check_write(p, step, results[i])) return;
    Range range = range_of(p, results[i]);
    for (int k = 0; k < i; k++) {
      Range other = range_of(p, results[k]);
      if (overlaps(&range, &other)) complain(p, results[i], "shares bytes with another result");
    }
  }
  for (int i = 0; i < count; i++) {
    Range range = range_of(p, results[i]);
    claim_bytes(p, &range, results[i]->id);
  }
}

/* Takes `value` into `range`, which belongs to `owner` from now on: where the value lies there
 * already it stays readable under its own name, else it is copied. */
static bool take_in(Places *p, const Node *owner, const Node *value, const Range *range) {
  if (!check_read(p, owner, value, "takes in")) return false;
  const Node *base = node_base(value);
  Range from = range_of(p, base);
  bool is_there = is_same_range(&from, range);
  if (!is_there && overlaps(&from, range))
    return complain(p, owner,
                    arena_printf(p->arena, "copies %%%d onto a part of itself", base->id));
  if (is_there && !node_is_leaf(base)) p->now_under[base->id] = owner->id;
  claim_bytes(p, range, owner->id);
  return true;
}

static void run_pack(Places *p, const Node *pack) {
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  int bytes = dtype_bytes(pack->type.dtype);
  Range whole = range_of(p, pack);
  for (int k = 0; k < pack->input_count; k++) {
    Range part = whole;
    part.begin += offsets->ints[k] * bytes;
    part.end = part.begin + type_bytes(&pack->input[k]->type);
    if (!take_in(p, pack, pack->input[k], &part)) return;
  }
  claim_bytes(p, &whole, pack->id); /* the gaps too */
}

static void run_step(Places *p, Node *node, NodeList *results) {
  if (node_is_leaf(node) || node->op == OP_RESHAPE || node->op == OP_RESULT) return;
  if (node_has_results(node)) {
    run_kernel(p, node, results[node->id].at, results[node->id].count);
  } else if (p->space_of[node->id] < 0) {
    complain(p, node, "has no place");
  } else if (node->op == OP_PACK) {
    run_pack(p, node);
  } else if (node->op == OP_ASSIGN) {
    Range state = range_of(p, node);
    take_in(p, node, node->input[0], &state);
  } else {
    run_kernel(p, node, &node, 1);
  }
}

/* ── the whole ──────────────────────────────────────────────────────────────────────────────── */
static int find_space(Places *p, const char *name) {
  for (int i = 0; i < p->spaces.count; i++)
    if (!strcmp(p->spaces.at[i].name, name)) return i;
  VEC_PUSH(p->arena, p->spaces, (Space){.name = name});
  return p->spaces.count - 1;
}

static bool follow_places(Places *p) {
  for (int i = 0; i < p->graph->nodes.count; i++) {
    const Node *node = p->graph->nodes.at[i];
    const char *arena = node_str(node, ATTR_PLACE);
    int64_t at = node_int(node, ATTR_AT, -1), end;
    p->now_under[i] = OWNER_NONE;
    p->space_of[i] = -1;
    if (!arena) continue;
    if (at < 0 || __builtin_add_overflow(at, type_bytes(&node->type), &end))
      return complain(p, node, "lies outside of its place");
    p->space_of[i] = find_space(p, arena);
  }
  return true;
}

/* Caches are written in place, and sums of gradients cleared when the step is over. */
static bool is_lasting(const Node *leaf) {
  return node_is_leaf(leaf) && leaf->role != ROLE_CACHE && leaf->role != ROLE_GRADIENT_SUM;
}

/* What is shown must still be there, and what was there before must be, unless it was assigned. */
static void check_final(Places *p) {
  for (int i = 0; i < p->graph->roots.count; i++) {
    const Root *root = &p->graph->roots.at[i];
    if (root->kind != ROOT_ASSIGN) check_read(p, root->node, root->node, "the step shows");
  }
  for (int i = 0; i < p->graph->nodes.count; i++) {
    const Node *leaf = p->graph->nodes.at[i];
    if (!is_lasting(leaf)) continue;
    Range range = range_of(p, leaf);
    for (int k = find_segment(range.space, range.begin); k < range.space->segments.count; k++) {
      const Segment *segment = &range.space->segments.at[k];
      if (segment->begin >= range.end) break;
      if (segment->owner >= 0 && p->graph->nodes.at[segment->owner]->op != OP_ASSIGN)
        complain(p, leaf,
                 arena_printf(p->arena, "is overwritten by %%%d, which nothing assigns to it",
                              segment->owner));
    }
  }
}

const char *verify_places(const Graph *graph, Arena *arena, const Node **where) {
  int count = graph->nodes.count;
  Places p = {.graph = graph,
              .arena = arena,
              .space_of = ARENA_ARRAY(arena, int, count),
              .now_under = ARENA_ARRAY(arena, int, count)};
  NodeList *results = ARENA_ARRAY(arena, NodeList, count);
  for (int i = 0; i < count; i++) {
    Node *node = graph->nodes.at[i];
    if (node->op == OP_RESULT) VEC_PUSH(arena, results[node->input[0]->id], node);
  }
  if (follow_places(&p)) verify_place_leaves(&p);
  for (int i = 0; i < count && !p.why; i++) run_step(&p, graph->nodes.at[i], results);
  if (!p.why) check_final(&p);
  *where = p.where;
  return p.why;
}
