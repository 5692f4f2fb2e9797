/* sim_seeds.h: a launch in the simulator under several orders of its warps (docs/sim.md, "Seeds"):
 * whatever the order, the results have the same bits. FT_SIM_SEEDS says how many orders. */
#ifndef FT_TEST_SIM_SEEDS_H
#define FT_TEST_SIM_SEEDS_H
#include "runtime/device/sim/sim.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the first two */
#include <cmocka.h>

/* Launches once in turn and then by each seed; at[first] to at[count - 1] are what it may write. */
static inline void sim_seeds_launch(SimMachine *machine, const SimKernel *kernel,
                                    const SimLaunch *launch, char *const *at, const int64_t *bytes,
                                    int first, int count, int otherwise) {
  int seeds = getenv("FT_SIM_SEEDS") ? atoi(getenv("FT_SIM_SEEDS")) : otherwise;
  char *before[128], *once[128];
  for (int i = first; i < count && seeds; i++) {
    before[i] = malloc((size_t)bytes[i] + 1);
    once[i] = malloc((size_t)bytes[i] + 1);
    memcpy(before[i], at[i], (size_t)bytes[i]);
  }
  for (int seed = 0; seed <= seeds; seed++) {
    for (int i = first; i < count && seed; i++) memcpy(at[i], before[i], (size_t)bytes[i]);
    if (seeds) sim_machine_seed(machine, (uint64_t)seed);
    if (sim_launch(machine, kernel, launch) != STATUS_OK)
      fail_msg("seed %d: %s", seed, status_message());
    for (int i = first; i < count && seeds; i++) {
      if (!seed) memcpy(once[i], at[i], (size_t)bytes[i]);
      if (memcmp(once[i], at[i], (size_t)bytes[i]) != 0)
        fail_msg("%s: argument %d has other bits with seed %d", sim_kernel_info(kernel).name, i,
                 seed);
    }
  }
  if (seeds) sim_machine_seed(machine, 0);
  for (int i = first; i < count && seeds; i++) {
    free(before[i]);
    free(once[i]);
  }
}
#endif
