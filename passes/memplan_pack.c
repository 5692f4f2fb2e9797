/* memplan_pack: offsets for pieces of memory with known lifetimes (the dynamic storage allocation
 * problem: NP-hard, and greedy placement is close). Slots are placed one after the other at the
 * lowest gap that fits among those already placed that live at the same time; several orders are
 * tried, and the best is kept. */
#include "passes/memplan.h"
#include <stdlib.h>
#include <string.h>

/* Places looked at before no other order is tried: half a second. About 10,000 slots, all alive
 * together, take this in four orders. */
enum { MOST_EFFORT = 200 * 1000 * 1000 };

typedef struct {
  MemSlot slot;
  int index;
} Item;

static int64_t span(const MemSlot *slot) { return slot->last - slot->first + 1; }

static int by_index(const Item *a, const Item *b) {
  return (a->index > b->index) - (a->index < b->index);
}

static int by_size(const void *left, const void *right) {
  const Item *a = left, *b = right;
  if (a->slot.bytes != b->slot.bytes) return a->slot.bytes < b->slot.bytes ? 1 : -1;
  if (span(&a->slot) != span(&b->slot)) return span(&a->slot) < span(&b->slot) ? 1 : -1;
  return by_index(a, b);
}

static int by_span(const void *left, const void *right) {
  const Item *a = left, *b = right;
  if (span(&a->slot) != span(&b->slot)) return span(&a->slot) < span(&b->slot) ? 1 : -1;
  return by_size(left, right);
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
  return by_size(left, right);
}

static bool live_together(const MemSlot *a, const MemSlot *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* Places items[index] among the first `index` ones, which `order` lists by offset; each that is
 * looked at costs one of *effort. */
static int64_t place(Item *items, int index, Item **order, int64_t *effort) {
  MemSlot *slot = &items[index].slot;
  int64_t at = 0;
  for (int i = 0; i < index; i++) {
    const MemSlot *other = &order[i]->slot;
    --*effort;
    if (!live_together(slot, other)) continue;
    if (other->at >= at + slot->bytes) break;
    if (other->at + other->bytes > at) at = other->at + other->bytes;
  }
  slot->at = at;
  int rank = index;
  while (rank > 0 && order[rank - 1]->slot.at > at) rank--;
  memmove(&order[rank + 1], &order[rank], sizeof *order * (size_t)(index - rank));
  order[rank] = &items[index];
  return at + slot->bytes;
}

int64_t memplan_pack(MemSlot *slots, int count, Arena *arena) {
  typedef int Compare(const void *, const void *);
  Compare *const compare[] = {by_size, by_area, by_span, by_birth};
  Item *items = ARENA_ARRAY(arena, Item, count), **order = ARENA_ARRAY(arena, Item *, count);
  int64_t best = -1, effort = MOST_EFFORT;
  for (size_t k = 0; k < sizeof compare / sizeof compare[0] && effort > 0; k++) {
    int64_t peak = 0;
    for (int i = 0; i < count; i++) items[i] = (Item){slots[i], i};
    if (count) qsort(items, (size_t)count, sizeof *items, compare[k]);
    for (int i = 0; i < count; i++) {
      int64_t end = place(items, i, order, &effort);
      if (end > peak) peak = end;
    }
    if (best >= 0 && peak >= best) continue;
    best = peak;
    for (int i = 0; i < count; i++) slots[items[i].index].at = items[i].slot.at;
  }
  return best < 0 ? 0 : best;
}

int64_t memplan_lower_bound(const MemSlot *slots, int count) {
  int64_t most = 0;
  for (int i = 0; i < count; i++) { /* the sum is largest where some slot begins */
    int64_t live = 0;
    for (int k = 0; k < count; k++)
      if (slots[k].first <= slots[i].first && slots[k].last >= slots[i].first)
        live += slots[k].bytes;
    if (live > most) most = live;
  }
  return most;
}
