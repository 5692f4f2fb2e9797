/* simulate: a training step of a plan on a cluster, reckoned: every rank runs the same plan, so one
 * of them stands for all. */
#ifndef FT_SIMULATE_SIMULATE_H
#define FT_SIMULATE_SIMULATE_H
#include "simulate/kernel_time.h"
#include "simulate/timeline.h"
#include <stdio.h>

typedef struct {
  Arena *arena;
  const Plan *plan;
  const Cluster *cluster;
  const MeasuredTimes *measured; /* NULL: none */
} Simulation;

/* A run of one graph, which the step makes `times` times. */
typedef struct {
  const PlanGraph *graph;
  int64_t times;
  Timeline timeline; /* of one rank */
} SimulatedRun;

typedef struct {
  VEC(SimulatedRun) runs;
  int ranks;
  double seconds, compute, exposed, bubble; /* of a step */
  double communicate;                       /* the communicate queue at work */
  double bytes;                             /* of all tensors that the ranks join in a step */
  int collectives;
  double samples; /* of all ranks in a step */
} Simulated;

/* On so many ranks of the cluster. NULL, or the sentence that says why that cannot be reckoned. */
const char *simulate_step(const Simulation *simulation, int ranks, Simulated *out);
/* Step time, what it consists of, memory, and the efficiency by number of ranks. NULL, or why not. */
const char *simulate_print(const Simulation *simulation, FILE *out);
/* The trace of a step for chrome://tracing and ui.perfetto.dev, as ftrun --trace writes it: one
 * process, a line for each queue. NULL, or why not. */
const char *simulate_trace(const Simulation *simulation, Text *out);
#endif
