/* samples: where the samples of a batch are in each value of a forward graph, and which values are
 * made of all of them. What evaluation and micro-batches must know (passes/totals.c). */
#ifndef FT_PASSES_SAMPLES_H
#define FT_PASSES_SAMPLES_H
#include "ir/graph.h"

typedef enum {
  SAMPLES_NONE, /* of no sample: parameters, constants */
  SAMPLES_EACH, /* every element is of one sample, (coordinate along axis / inner) % batch, or (mixup, in graphs
                   that train only) of it and its neighbour, which is in every part of a batch that it is in */
  SAMPLES_ALL,  /* of the batch by way of totals only */
  SAMPLES_MIXED /* relates samples to each other in another way */
} SamplesKind;

/* A total is a reduction over the samples (sum, prod, rmax, rmin, or a product's sum). level: how
 * many times the samples must be gone through before this can be computed; a total is known once
 * they were gone through level + 1 times. */
typedef struct {
  SamplesKind kind;
  bool is_total;
  int axis, level;
  int64_t inner;
} Samples;

enum { SAMPLES_LEVELS = 3 }; /* what needs more passes is taken as MIXED */

/* The size of the inputs' leading dimension, 0 without inputs. */
int64_t samples_of_inputs(const Graph *graph);
/* By node. batch: samples_of_inputs. excused (NULL:
 * none): totals that are taken as if they were parameters. */
Samples *samples_find(const Graph *graph, Arena *arena, const bool *excused, int64_t *batch);
/* Totals that single samples are computed with and that a state follows: the statistics of a batch
 * norm. */
bool *samples_of_states(const Graph *graph, Arena *arena);
#endif
