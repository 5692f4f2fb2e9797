/* memplan: where the values of a step lie. The pass writes the attributes `place` and `at` (bytes)
 * on every leaf, value, view and assign; `fused` nodes have none.
 *
 * What code generation may assume: the pointers of a kernel are equal or do not overlap. Two of its
 * values have the same `place` and `at` only if one is an operand that the other overwrites element
 * by element. So such a pair must not be marked noalias, and a kernel loads an element of the
 * operand once for all results at its index, before it stores the first of them. An assign whose
 * operand lies elsewhere than its state is a copy; otherwise it is nothing. */
#ifndef FT_PASSES_MEMPLAN_H
#define FT_PASSES_MEMPLAN_H
#include "passes/lifetime.h"

enum { MEMPLAN_ALIGN = 64 };

/* A piece of the place work: one value, or several that follow each other in place. */
typedef struct {
  int first, last; /* steps, inclusive */
  int64_t bytes;   /* rounded up to MEMPLAN_ALIGN */
  int64_t at;
} MemSlot;

/* Gives every slot its offset; slots that live at the same time never overlap. Returns the bytes
 * needed. */
int64_t memplan_pack(MemSlot *slots, int count, Arena *arena);
/* The largest sum of live bytes over the steps: no plan can need less. */
int64_t memplan_lower_bound(const MemSlot *slots, int count, Arena *arena);
/* The slots of the place work of a planned graph, and per node id its slot or -1 (NULL: not asked).
 */
MemSlot *memplan_slots(const Graph *planned, Arena *arena, int *count, int **slot_of);
#endif
