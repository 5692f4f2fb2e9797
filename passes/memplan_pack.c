/* memplan_pack: offsets for pieces of memory with known lifetimes (the dynamic storage allocation
 * problem: NP-hard, and greedy placement is close). Slots are placed one after the other at the
 * lowest gap that fits among those already placed that live at the same time; several orders are
 * tried, and the best is kept.
 *
 * Placed slots stand in a tree ordered by offset (a treap). The search skips a subtree as a whole
 * if none of its slots is live at the same time as the new one, or if all of them are and no gap
 * between them is wide enough; the values that forward keeps for backward are such subtrees. There
 * are live ranges for which few subtrees can be skipped. So the search may look at a number of
 * subtrees that grows with the number of slots only; the slots that it has not placed by then share
 * blocks of their own (place_apart). Packing takes O(n log n) whatever the live ranges. */
#include "passes/memplan.h"
#include <stdlib.h>

/* How many subtrees may be looked at, some 50 ms, and how many more for each slot. After that no
 * further order is tried, and the first order's remaining slots are placed without a search. */
enum { MOST_EFFORT = 4 * 1000 * 1000, EFFORT_PER_SLOT = 256 };

typedef struct Item {
  MemSlot slot;
  int index;
  struct Item *lower, *upper; /* subtrees: at lower offsets, at the same or higher ones */
  uint32_t priority;
  /* of the subtree with this root: */
  int64_t begin, end;    /* the lowest offset, the highest end */
  int64_t gap;           /* no gap between its slots is wider */
  int first[2], last[2]; /* the least and the greatest of each */
} Item;

static int64_t span(const MemSlot *slot) { return slot->last - slot->first + 1; }

static int by_index(const Item *a, const Item *b) {
  return (a->index > b->index) - (a->index < b->index);
}

static int by_bytes(const void *left, const void *right) {
  const Item *a = left, *b = right;
  if (a->slot.bytes != b->slot.bytes) return a->slot.bytes < b->slot.bytes ? 1 : -1;
  if (span(&a->slot) != span(&b->slot)) return span(&a->slot) < span(&b->slot) ? 1 : -1;
  return by_index(a, b);
}

static int by_span(const void *left, const void *right) {
  const Item *a = left, *b = right;
  if (span(&a->slot) != span(&b->slot)) return span(&a->slot) < span(&b->slot) ? 1 : -1;
  return by_bytes(left, right);
}

static int by_area(const void *left, const void *right) {
  const Item *a = left, *b = right;
  double x = (double)a->slot.bytes * (double)span(&a->slot),
         y = (double)b->slot.bytes * (double)span(&b->slot);
  if (x != y) return x < y ? 1 : -1;
  return by_index(a, b);
}

static int by_birth(const void *left, const void *right) {
  const Item *a = left, *b = right;
  if (a->slot.first != b->slot.first) return a->slot.first < b->slot.first ? -1 : 1;
  return by_bytes(left, right);
}

static bool live_together(const MemSlot *a, const MemSlot *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* ── the tree ───────────────────────────────────────────────────────────────────────────────── */
static int64_t end_of(const MemSlot *slot) { return slot->at + slot->bytes; }
static void at_least(int64_t *most, int64_t value) { *most = value > *most ? value : *most; }

static void add_subtree(Item *item, const Item *sub) {
  if (sub->begin < item->begin) item->begin = sub->begin;
  at_least(&item->end, sub->end);
  at_least(&item->gap, sub->gap);
  if (sub->first[0] < item->first[0]) item->first[0] = sub->first[0];
  if (sub->first[1] > item->first[1]) item->first[1] = sub->first[1];
  if (sub->last[0] < item->last[0]) item->last[0] = sub->last[0];
  if (sub->last[1] > item->last[1]) item->last[1] = sub->last[1];
}

static void sum_up(Item *item) {
  const MemSlot *slot = &item->slot;
  item->begin = slot->at;
  item->end = end_of(slot);
  item->gap = 0;
  item->first[0] = item->first[1] = slot->first;
  item->last[0] = item->last[1] = slot->last;
  if (item->lower) {
    at_least(&item->gap, slot->at - item->lower->end);
    add_subtree(item, item->lower);
  }
  if (item->upper) {
    at_least(&item->gap, item->upper->begin - item->end);
    add_subtree(item, item->upper);
  }
}

/* The tree with the item, behind those of its offset. */
static Item *insert(Item *tree, Item *item) {
  if (!tree) {
    sum_up(item);
    return item;
  }
  bool is_upper = tree->slot.at <= item->slot.at;
  Item **side = is_upper ? &tree->upper : &tree->lower, *top = insert(*side, item);
  *side = top;
  if (top->priority <= tree->priority) {
    sum_up(tree);
    return tree;
  }
  Item **inner = is_upper ? &top->lower : &top->upper; /* what lies between the two */
  *side = *inner;
  *inner = tree;
  sum_up(tree);
  sum_up(top);
  return top;
}

/* Moves the slot up until it meets nothing of this subtree; false as soon as it is known to fit
 * below all that comes. Each subtree that is looked at costs one of *effort. */
static bool move_past(MemSlot *slot, const Item *tree, int64_t *effort) {
  if (!tree || tree->end <= slot->at) return true;
  if (tree->first[0] > slot->last || tree->last[1] < slot->first) return true; /* none lives */
  --*effort;
  if (tree->first[1] <= slot->last && tree->last[0] >= slot->first) { /* all live */
    if (tree->begin >= end_of(slot)) return false;
    if (tree->gap < slot->bytes) {
      slot->at = tree->end;
      return true;
    }
  }
  if (!move_past(slot, tree->lower, effort)) return false;
  if (live_together(slot, &tree->slot)) {
    if (tree->slot.at >= end_of(slot)) return false;
    at_least(&slot->at, end_of(&tree->slot));
  }
  return move_past(slot, tree->upper, effort);
}

/* ── without a search ───────────────────────────────────────────────────────────────────────── */
/* Bytes rounded up to one of eight sizes between powers of two: at most an eighth more. */
static int64_t size_class(int64_t bytes) {
  int64_t unit = MEMPLAN_ALIGN;
  while (unit * 16 < bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

static int by_class(const void *left, const void *right) {
  const Item *a = left, *b = right;
  int64_t x = size_class(a->slot.bytes), y = size_class(b->slot.bytes);
  return x != y ? (x < y ? 1 : -1) : by_birth(left, right);
}

/* A block of a class, and the last step of the slot that has it. */
typedef struct {
  int last;
  int64_t at;
} Block;

/* blocks[0] may be later than those below it: puts it where it belongs in the heap. */
static void sift_down(Block *blocks, int count) {
  for (int i = 0;;) {
    int least = i;
    for (int child = 2 * i + 1; child <= 2 * i + 2; child++)
      if (child < count && blocks[child].last < blocks[least].last) least = child;
    if (least == i) return;
    Block block = blocks[i];
    blocks[i] = blocks[least];
    blocks[least] = block;
    i = least;
  }
}

static void sift_up(Block *blocks, int i) {
  for (; i > 0 && blocks[i].last < blocks[(i - 1) / 2].last; i = (i - 1) / 2) {
    Block block = blocks[i];
    blocks[i] = blocks[(i - 1) / 2];
    blocks[(i - 1) / 2] = block;
  }
}

/* Places the items from offset `at` on, each in a block of its size class that is free by then, or
 * else in a new one: as few blocks of a class as there can be. Returns where they end. */
static int64_t place_apart(Item *items, int count, int64_t at, Arena *arena) {
  Block *blocks = ARENA_ARRAY(arena, Block, count + 1); /* of the class at hand: a heap by `last` */
  int block_count = 0;
  if (count) qsort(items, (size_t)count, sizeof *items, by_class);
  for (int i = 0; i < count; i++) {
    MemSlot *slot = &items[i].slot;
    int64_t bytes = size_class(slot->bytes);
    if (i && size_class(items[i - 1].slot.bytes) != bytes) block_count = 0;
    if (block_count && blocks[0].last < slot->first) {
      slot->at = blocks[0].at;
      blocks[0].last = slot->last;
      sift_down(blocks, block_count);
    } else {
      slot->at = at;
      at += bytes;
      blocks[block_count] = (Block){slot->last, slot->at};
      sift_up(blocks, block_count++);
    }
  }
  return at;
}

/* ── all slots ──────────────────────────────────────────────────────────────────────────────── */
/* Places the items in their order; returns the bytes needed. The items that are left when the
 * effort is spent are placed apart, behind the others. */
static int64_t place_all(Item *items, int count, int64_t *effort, Arena *arena) {
  Item *tree = NULL;
  uint32_t chance = 1;
  for (int i = 0; i < count; i++) {
    if (*effort <= 0) return place_apart(items + i, count - i, tree ? tree->end : 0, arena);
    items[i].priority = chance = chance * 1664525 + 1013904223;
    move_past(&items[i].slot, tree, effort);
    tree = insert(tree, &items[i]);
  }
  return tree ? tree->end : 0;
}

int64_t memplan_pack(MemSlot *slots, int count, Arena *arena) {
  typedef int Compare(const void *, const void *);
  Compare *const compare[] = {by_bytes, by_area, by_span, by_birth};
  Item *items = ARENA_ARRAY(arena, Item, count);
  int64_t best = INT64_MAX, least = memplan_lower_bound(slots, count, arena);
  int64_t effort = MOST_EFFORT + (int64_t)EFFORT_PER_SLOT * count;
  for (int k = 0; k < 4 && effort > 0 && best > least; k++) {
    for (int i = 0; i < count; i++) {
      items[i] = (Item){.slot = slots[i], .index = i};
      items[i].slot.at = 0;
    }
    if (count) qsort(items, (size_t)count, sizeof *items, compare[k]);
    int64_t peak = place_all(items, count, &effort, arena);
    if (peak >= best) continue;
    best = peak;
    for (int i = 0; i < count; i++) slots[items[i].index].at = items[i].slot.at;
  }
  return best;
}

int64_t memplan_lower_bound(const MemSlot *slots, int count, Arena *arena) {
  int steps = 0;
  for (int i = 0; i < count; i++)
    if (slots[i].last >= steps) steps = slots[i].last + 1;
  int64_t *change = ARENA_ARRAY(arena, int64_t, steps + 1), live = 0, most = 0;
  for (int i = 0; i < count; i++) {
    change[slots[i].first] += slots[i].bytes;
    change[slots[i].last + 1] -= slots[i].bytes;
  }
  for (int i = 0; i < steps; i++) at_least(&most, live += change[i]);
  return most;
}
