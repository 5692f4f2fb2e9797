/* prune_structure: what is pruned together, the text of the setting train.prune.structure. */
#ifndef FT_PLAN_PRUNE_STRUCTURE_H
#define FT_PLAN_PRUNE_STRUCTURE_H
#include <stdbool.h>
#include <stdint.h>

typedef enum {
  PRUNE_ELEMENT, /* "element": each for itself */
  PRUNE_N_OF_M,  /* "2:4": of each 4 inputs of an output 2 are kept */
  PRUNE_BLOCK,   /* "4x8": rows and columns of the matrix [outputs, all else] */
  PRUNE_CHANNEL, /* "channel": all of an output */
  PRUNE_HEAD,    /* "head": what reads a head of attention */
  PRUNE_LAYER    /* "layer": what a residual sum adds */
} PruneStructureKind;

typedef struct {
  PruneStructureKind kind;
  int64_t first, second; /* n and m, rows and columns; else 0 */
} PruneStructure;

enum { PRUNE_MOST_M = 64 };
extern const char prune_structure_usage[];
/* False: it is none; `out` is untouched. */
bool prune_structure_read(const char *text, PruneStructure *out);
#endif
