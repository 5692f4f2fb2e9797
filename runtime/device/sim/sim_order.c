/* sim_order: in which order the blocks of a kernel's code come, for warps whose lanes have parted:
 * the group that is least far goes on. An order in which every block comes before those it leads to
 * (reverse postorder, but for jumps back), and a loop's blocks before what follows the loop, so
 * that lanes meet again where their ways do, whatever the order in the text. */
#include "runtime/device/sim/sim_private.h"
#include <stdlib.h>

enum { MOST_BLOCKS = 1 << 14 }; /* beyond, loops are not looked for: that takes blocks × loops */

typedef struct {
  int count;
  const int (*next)[2];
  int *order, made; /* blocks as they are left, last first left */
  int *depth;       /* loops around a block */
  uint8_t *state;   /* 0 not seen, 1 on the way, 2 left */
  int (*back)[2];   /* jumps back: from, to */
  int back_count;
  int *stack;
} Order;

/* From block 0; of two ways on, the one in fewer loops first: it is left first, and comes last. */
static void order_walk(Order *o, int first) {
  int top = 0;
  o->stack[top++] = first;
  while (top) {
    int b = o->stack[top - 1];
    if (o->state[b] == 2) {
      top--;
      continue;
    }
    if (o->state[b] == 1) {
      o->state[b] = 2;
      o->order[o->made++] = b;
      top--;
      continue;
    }
    o->state[b] = 1;
    const int *next = o->next[b];
    int early = next[0] >= 0 && next[1] >= 0 && o->depth[next[1]] < o->depth[next[0]];
    for (int k = 1; k >= 0; k--) { /* the last one pushed is visited first */
      int to = next[early ? 1 - k : k];
      if (to < 0) continue;
      if (o->state[to] == 1) {
        o->back[o->back_count][0] = b;
        o->back[o->back_count++][1] = to;
      } else if (!o->state[to]) {
        o->stack[top++] = to;
      }
    }
  }
}

/* The blocks from which a jump back can be reached without the loop's beginning. */
static void find_depths(Order *o, const int *pred_begin, const int *pred, int *mark) {
  for (int i = 0; i < o->back_count; i++) {
    int head = o->back[i][1], top = 0;
    bool is_first = true;
    for (int k = 0; k < i; k++) is_first &= o->back[k][1] != head;
    if (!is_first) continue;
    mark[head] = i + 1;
    o->depth[head]++;
    for (int k = i; k < o->back_count; k++)
      if (o->back[k][1] == head && mark[o->back[k][0]] != i + 1) {
        mark[o->back[k][0]] = i + 1;
        o->stack[top++] = o->back[k][0];
      }
    while (top) {
      int b = o->stack[--top];
      o->depth[b]++;
      for (int p = pred_begin[b]; p < pred_begin[b + 1]; p++)
        if (mark[pred[p]] != i + 1) {
          mark[pred[p]] = i + 1;
          o->stack[top++] = pred[p];
        }
    }
  }
}

void sim_order(Arena *arena, const int (*next)[2], int count, int *rank) {
  Order o = {.count = count, .next = next};
  for (int b = 0; b < count; b++) rank[b] = b;
  if (!count || count > MOST_BLOCKS) return;
  o.order = ARENA_ARRAY(arena, int, count);
  o.depth = ARENA_ARRAY(arena, int, count);
  o.state = ARENA_ARRAY(arena, uint8_t, count);
  o.back = arena_alloc(arena, sizeof(int[2]) * 2 * (size_t)count);
  o.stack = ARENA_ARRAY(arena, int, 2 * count + 1);
  order_walk(&o, 0);
  if (o.back_count) {
    int *pred_begin = ARENA_ARRAY(arena, int, count + 2),
        *pred = ARENA_ARRAY(arena, int, 2 * count);
    for (int b = 0; b < count; b++)
      for (int k = 0; k < 2; k++)
        if (next[b][k] >= 0 && o.state[b]) pred_begin[next[b][k] + 2]++;
    for (int b = 0; b < count; b++) pred_begin[b + 2] += pred_begin[b + 1];
    for (int b = 0; b < count; b++)
      for (int k = 0; k < 2; k++)
        if (next[b][k] >= 0 && o.state[b]) pred[pred_begin[next[b][k] + 1]++] = b;
    find_depths(&o, pred_begin, pred, ARENA_ARRAY(arena, int, count));
    for (int b = 0; b < count; b++) o.state[b] = 0;
    o.made = o.back_count = 0;
    order_walk(&o, 0);
  }
  for (int b = 0; b < count; b++) rank[b] = count + b; /* that nothing leads to */
  for (int i = 0; i < o.made; i++) rank[o.order[i]] = o.made - 1 - i;
}
