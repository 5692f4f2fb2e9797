/* fuse_order: see fuse_order.h. An online topological order (Bender, Fineman, Gilbert and Tarjan,
 * "A new approach to incremental cycle detection", 2016, give the bounds of searching from both
 * ends). Groups are in a list, each with a label that grows along it. A path from the later group
 * of a pair to the earlier one, over what groups read, stays between their labels. It is looked for
 * from both ends in turns, one edge each, until one end has seen all that it can reach. If there is
 * none, that end's groups move past the other group and the two may stand in one place. */
#include "passes/fuse_order.h"
#include <stdlib.h>

enum { NONE = -1, LABEL_BITS = 62 };

/* One side of the search: groups seen, and how far the edges of the last unfinished one are
 * seen. */
typedef struct {
  VEC(int) seen;
  int at, member, edge; /* the next edge: of seen[at], its member, that one's read or reader */
} Side;

struct FuseOrder {
  FusePlan *plan;
  uint64_t *label;
  int *next, *previous;  /* by group; behind the last group: count, which is the list's ends */
  int *stamp[2], now;    /* by side and group: seen in the search with this number */
  int early, late, done; /* of the last search: the pair by its order; the side that has seen all */
  Side side[2];          /* what the late one reads; what reads the early one */
};

FuseOrder *fuse_order_new(FusePlan *plan) {
  int count = plan->groups.count;
  FuseOrder *order = ARENA_NEW(plan->arena, FuseOrder);
  *order = (FuseOrder){.plan = plan,
                       .label = ARENA_ARRAY(plan->arena, uint64_t, count + 1),
                       .next = ARENA_ARRAY(plan->arena, int, count + 1),
                       .previous = ARENA_ARRAY(plan->arena, int, count + 1)};
  for (int i = 0; i < 2; i++) order->stamp[i] = ARENA_ARRAY(plan->arena, int, count);
  uint64_t step = (UINT64_C(1) << LABEL_BITS) / (uint64_t)(count + 1);
  for (int i = 0; i <= count; i++) {
    order->label[i] = i == count ? 0 : step * (uint64_t)(i + 1);
    order->next[i] = i == count ? 0 : i + 1;
    order->previous[i] = i == 0 ? count : i - 1;
  }
  return order;
}

/* ── the list ───────────────────────────────────────────────────────────────────────────────── */
static uint64_t label_behind(const FuseOrder *order, int group) {
  int next = order->next[group];
  return next == order->plan->groups.count ? UINT64_C(1) << LABEL_BITS : order->label[next];
}

static void take_out(FuseOrder *order, int group) {
  order->next[order->previous[group]] = order->next[group];
  order->previous[order->next[group]] = order->previous[group];
}

/* Makes room behind `group`: the smallest range of labels around it that is not crowded, fewer
 * than (3/2)^i groups among 2^i labels, is spread evenly. */
static void spread_labels(FuseOrder *order, int group) {
  int end = order->plan->groups.count, first = group, last = group, count = 1;
  uint64_t from = 0, width = 1;
  double most = 1;
  for (int bits = 0; bits <= LABEL_BITS; bits++, width *= 2, most *= 1.5) {
    from = order->label[group] / width * width;
    for (int k; (k = order->previous[first]) != end && order->label[k] >= from; count++) first = k;
    for (int k; (k = order->next[last]) != end && order->label[k] - from < width; count++) last = k;
    if (bits > 1 && count < most && width / (uint64_t)(count + 1) > 1) break;
  }
  uint64_t step = width / (uint64_t)(count + 1);
  for (int i = 0, at = first; i < count; i++, at = order->next[at])
    order->label[at] = from + step * (uint64_t)(i + 1);
}

static void put_behind(FuseOrder *order, int group, int before) {
  int end = order->plan->groups.count;
  if (label_behind(order, before) - order->label[before] < 2)
    spread_labels(order, before == end ? order->next[end] : before);
  uint64_t from = order->label[before];
  order->label[group] = from + (label_behind(order, before) - from) / 2;
  order->previous[group] = before;
  order->next[group] = order->next[before];
  order->previous[order->next[before]] = group;
  order->next[before] = group;
}

/* ── the search ─────────────────────────────────────────────────────────────────────────────── */
static void see(FuseOrder *order, int side, int group) {
  if (order->stamp[side][group] == order->now) return;
  order->stamp[side][group] = order->now;
  VEC_PUSH(order->plan->arena, order->side[side].seen, group);
}

/* The next group that an edge leads to; NONE: there are no more edges. An edge to no other group
 * leads to its own. */
static int next_edge(FuseOrder *order, int number, int *from) {
  FusePlan *plan = order->plan;
  Side *side = &order->side[number];
  for (; side->at < side->seen.count; side->at++, side->member = side->edge = 0) {
    const FuseGroup *group = &plan->groups.at[ *from = side->seen.at[side->at]];
    for (; side->member < group->members.count; side->member++, side->edge = 0) {
      int unit = group->members.at[side->member];
      int edges = number ? plan->readers[unit].count : plan->unit[unit].reads.count;
      if (side->edge >= edges) continue;
      int other =
          number ? plan->readers[unit].at[side->edge] : plan->unit[unit].reads.at[side->edge].node;
      side->edge++;
      return plan->group[other] < 0 ? *from : plan->group[other];
    }
  }
  return NONE;
}

/* Follows one edge of a side. True if that ends the search: *found tells with what. */
static bool order_follow(FuseOrder *order, int side, bool *found) {
  int from = NONE, to = next_edge(order, side, &from);
  int start = side ? order->early : order->late, end = side ? order->late : order->early;
  order->done = side;
  *found = to == end && from != start;
  if (to == NONE || *found) return true;
  if (order->label[to] > order->label[order->early] && order->label[to] < order->label[order->late])
    see(order, side, to);
  return false;
}

bool fuse_order_makes_cycle(FuseOrder *order, int a, int b) {
  bool is_first = order->label[a] < order->label[b], found = false;
  order->early = is_first ? a : b;
  order->late = is_first ? b : a;
  order->now++;
  for (int i = 0; i < 2; i++) {
    order->side[i].seen.count = order->side[i].at = order->side[i].member = order->side[i].edge = 0;
    see(order, i, i ? order->early : order->late);
  }
  while (!order_follow(order, 0, &found) && !order_follow(order, 1, &found)) {
  }
  return found;
}

typedef struct {
  uint64_t label;
  int group;
} Labelled;

static int compare_group_labels(const void *left, const void *right) {
  const Labelled *a = left, *b = right;
  return (a->label > b->label) - (a->label < b->label);
}

void fuse_order_merge(FuseOrder *order, int kept, int gone) {
  Side *side = &order->side[order->done]; /* seen[0] is one of the two */
  int place = order->done ? order->late : order->early, count = side->seen.count - 1;
  Labelled *moved = ARENA_ARRAY(order->plan->arena, Labelled, count);
  for (int i = 0; i < count; i++)
    moved[i] = (Labelled){order->label[side->seen.at[i + 1]], side->seen.at[i + 1]};
  if (count) qsort(moved, (size_t)count, sizeof *moved, compare_group_labels);
  for (int i = 0; i < count; i++) take_out(order, moved[i].group);
  for (int i = 0, before = order->done ? place : order->previous[place]; i < count; i++) {
    put_behind(order, moved[i].group, before);
    before = moved[i].group;
  }
  if (kept != place) {
    take_out(order, kept);
    put_behind(order, kept, place);
  }
  take_out(order, gone);
}
