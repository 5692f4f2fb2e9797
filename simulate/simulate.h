/* simulate: estimates a training step of a plan on a cluster. Every rank runs the same plan, so one
 * rank stands for all; with a pipeline there is one for each stage, with the plan of that stage. */
#ifndef FT_SIMULATE_SIMULATE_H
#define FT_SIMULATE_SIMULATE_H
#include "simulate/kernel_time.h"
#include "simulate/timeline.h"
#include <stdio.h>

typedef struct {
  Arena *arena;
  const Plan *const *plan; /* by stage */
  int stages;              /* distributed.pipeline */
  const Cluster *cluster;
  const MeasuredTimes *measured; /* NULL: none; of one stage only */
} Simulation;

/* A run of one graph, which the step makes `times` times. */
typedef struct {
  const PlanGraph **graph; /* by stage */
  int64_t times;
  Timeline timeline; /* of one rank of each stage */
} SimulatedRun;

/* Of a step, in seconds. */
typedef struct {
  double compute, exposed, bubble;
} SimulatedParts;

typedef struct {
  VEC(SimulatedRun) runs;
  int ranks;
  double seconds;
  SimulatedParts parts, *stage; /* of the mean rank; of each stage's */
  double communicate;           /* how long collectives and messages of the mean rank take */
  double bytes;                 /* of all tensors that the mean rank joins or sends in a step */
  double collectives;           /* how many of them */
  double samples; /* of all ranks in a step */
} Simulated;

/* On so many ranks of the cluster. NULL, or the sentence that says why that cannot be reckoned. */
const char *simulate_step(const Simulation *simulation, int ranks, Simulated *out);
/* What a rank that runs the plan needs: bytes. */
double simulate_memory(const Plan *plan);
/* Step time, what it consists of, memory, and the efficiency by number of ranks. NULL, or why not. */
const char *simulate_print(const Simulation *simulation, FILE *out);
/* The trace of a step for chrome://tracing and ui.perfetto.dev, as ftrun --trace writes it: one
 * process, a line for each queue. NULL, or why not. */
const char *simulate_trace(const Simulation *simulation, Text *out);
#endif
