/* reckon: a launch of somebody else's kernel in the simulator, and how long it would take by the model that ft's own
 * kernels are reckoned with. Errors end the program with one line. */
#ifndef FT_BENCH_RECKON_H
#define FT_BENCH_RECKON_H
#include "runtime/device/sim/sim.h"

_Noreturn void reckon_fail(const char *what, const char *of);
void reckon_must(Status status);
SimModule *reckon_module(const char *path);

typedef struct {
  const char *gpu;     /* a row of plan/gpus.def */
  int registers;       /* of a thread, as ptxas says */
  double bytes, flops; /* the least that the launch must move and do */
  const char *label;   /* at the end of the line; NULL: none */
} Reckoning;

/* Runs it, launch->sample blocks of it (0: all), and prints a line: microseconds, floor, bound, the parts as in ftrun
 * bench, blocks that fit on a multiprocessor, rounds, instructions, sectors. */
void reckon_launch(SimMachine *machine, const SimKernel *kernel, SimLaunch *launch, const Reckoning *about);
#endif
