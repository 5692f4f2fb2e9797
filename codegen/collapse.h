/* collapse: the fewest loops that a kernel needs. Neighbouring dimensions of the domain are merged
 * into one where every access of the body steps through both as through one. */
#ifndef FT_CODEGEN_COLLAPSE_H
#define FT_CODEGEN_COLLAPSE_H
#include "ir/graph.h"

typedef struct {
  int count; /* digits, outermost first, none of extent 1; 0: one element */
  int64_t extent[MAX_RANK];
  bool is_reduced[MAX_RANK]; /* made of dimensions in the fused node's axes */
  int tile[MAX_RANK];        /* 0, or the digit is two in an index: extent (tiles), and one of so many */
  int in_tile[MAX_RANK];     /* places of a tile: this one (codegen/nvptx_places.h) */
} Domain;

/* `node` is a fused node; a border between a reduced and a kept dimension always stays. result: the types of its results, whose
 * rows may have a pitch, as those of operands; NULL: none has. */
Domain collapse_domain(Arena *scratch, const Node *node, const Type *result);
/* For loops over a kernel without reductions: a dimension of the domain that accesses divide, such
 * as the rows that images were flattened to, is several digits, so that the innermost loop goes
 * over neighbours, of which there are 16 at least, and no index is divided in it. */
Domain collapse_divided(Arena *scratch, const Node *node);
/* The attribute axes as a bit mask. */
uint32_t collapse_axes(const Node *node);
#endif
