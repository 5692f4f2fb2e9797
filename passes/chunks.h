/* chunks: the parts of a model that the stages of a pipeline have, one after the other. Which chunk
 * a param belongs to is chosen once, in the train graph, and noted on the params of all graphs
 * (attribute `chunks`); where every other value is made follows from that, graph by graph. */
#ifndef FT_PASSES_CHUNKS_H
#define FT_PASSES_CHUNKS_H
#include "passes/pass.h"

typedef enum {
  VALUE_FREE,   /* of no param: every stage that needs it makes it, of the data that all read */
  VALUE_WEIGHT, /* of params alone, and as large: made where it is read, by every stage that does */
  VALUE_DATA    /* made by one stage, and sent to others that read it */
} ValueKind;

typedef VEC(const Node *) ChunkLeaves;

typedef struct {
  const Graph *graph;
  Arena *arena;
  int count;
  ValueKind *kind;     /* by node */
  int *chunk;          /* by node, of DATA */
  ChunkLeaves *leaves; /* by node: those that it is made of by way of WEIGHT alone */
} Chunks;

/* Where the values of a graph are made whose params have their chunks: as late as their params and
 * readers allow where fewest bytes go from one chunk to the next. */
Chunks chunks_assign(const Graph *graph, int count, Arena *arena);
/* The least of the leaf's chunks that is not before `least`; `least` if there is none. */
int chunks_pick(const Node *leaf, int least);
/* The chunk that has the leaf, the first of them; others that read it get it from there. */
int chunks_home(const Node *leaf);
#endif
