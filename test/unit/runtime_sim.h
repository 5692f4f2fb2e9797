/* runtime_sim.h: what the tests of the simulator share: a machine, and running a piece of PTX on
 * buffers of 32-bit words. */
#ifndef FT_TEST_RUNTIME_SIM_H
#define FT_TEST_RUNTIME_SIM_H
#include "base/text.h"
#include "runtime/sim.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#define SIM_HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"

static inline int sim_test_begin(void **state) {
  SimMachine *machine;
  if (sim_machine_new(2, &machine) != STATUS_OK) return -1;
  *state = machine;
  return 0;
}

static inline int sim_test_end(void **state) {
  sim_machine_free(*state);
  return 0;
}
#endif
