/* step_time: estimates how long a step and a collective take, for choices that compare such times:
 * kernels by operations and bytes as simulate/kernel_time.h does, collectives by plan/comm_cost.h.
 * The machine is not known when ftc runs, and all ranks must choose alike. So the estimates are
 * always of an H100 in nodes of eight, or of CPU processes on one machine. */
#ifndef FT_PASSES_STEP_TIME_H
#define FT_PASSES_STEP_TIME_H
#include "passes/pass.h"
#include "plan/comm_cost.h"

/* Of kernels: the shares of the peaks that they reach, and the seconds of a launch. */
#define STEP_PRODUCTS 0.8
#define STEP_COPIES 0.9
#define STEP_LAUNCH 2e-6

typedef struct {
  const Machine *machine;
  double products, bytes;         /* operations and bytes a second, reached */
  int narrow;                     /* bytes of an element that a product reads */
  Fabric fabric[MESH_AXIS_COUNT]; /* of a group of each axis */
} StepTimes;

StepTimes step_times(const PassContext *context);
/* Operations of the products in a node, which may be a kernel. */
int64_t step_flops(const Node *node);
double step_seconds(const StepTimes *times, const Node *node);
double step_collective_seconds(const StepTimes *times, const Node *node);
#endif
