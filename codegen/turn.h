/* turn: which dimensions a transpose exchanges: for kernels that go through both orders in tiles (host_transpose.c,
 * nvptx_transpose.c, nvptx_bytes.c). */
#ifndef FT_CODEGEN_TURN_H
#define FT_CODEGEN_TURN_H
#include "ir/graph.h"

/* A transpose in as few dimensions as possible, of the result: what stays side by side is one, and none is 1. */
typedef struct {
  int rank, row, column;    /* the fastest dimension of the input, of the result */
  int64_t extent[MAX_RANK]; /* of the result */
  int source[MAX_RANK];     /* the input's dimension that is dimension i */
} TurnShape;

/* False if the fastest dimension stays. */
bool turn_describe(const Node *transpose, TurnShape *shape);
#endif
