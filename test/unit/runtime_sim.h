/* runtime_sim.h: what the tests of the simulator share: a machine, and running a piece of PTX on
 * buffers of 32-bit words; every test with each kind of handlers that this processor can run. */
#ifndef FT_TEST_RUNTIME_SIM_H
#define FT_TEST_RUNTIME_SIM_H
#include "base/text.h"
#include "runtime/device/sim/sim.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

static inline bool sim_test_has(const char *lanes) {
#if defined(__x86_64__) && !defined(FT_SIM_ONE)
  if (!strcmp(lanes, "v4"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && sim_test_has("v3");
  if (!strcmp(lanes, "v3"))
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
#endif
  return !strcmp(lanes, "base");
}

/* The tests once for each; a number of failures. */
#define SIM_TEST_LANES(tests)                                                                      \
  ({                                                                                               \
    static const char *const kinds[] = {"v4", "v3", "base"};                                       \
    int failed = 0;                                                                                \
    for (size_t kind = 0; kind < 3; kind++) {                                                      \
      if (!sim_test_has(kinds[kind])) continue;                                                    \
      print_message("handlers %s\n", kinds[kind]);                                                 \
      setenv("FT_SIM_LANES", kinds[kind], 1);                                                      \
      failed += cmocka_run_group_tests(tests, sim_test_begin, sim_test_end);                       \
    }                                                                                              \
    failed;                                                                                        \
  })
/* The kernel with these registers and instruction is not loaded, and the message says `why`. */
static inline void sim_test_refuses(const char *registers, const char *instruction,
                                    const char *why) {
  Text ptx = {0};
  SimModule *module = NULL;
  text_printf(&ptx,
              ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n%s\n%s\n"
              "ret;\n}\n",
              registers, instruction);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) == STATUS_OK)
    fail_msg("not refused: %s", instruction);
  if (!strstr(status_message(), why)) fail_msg("\"%s\" in place of \"%s\"", status_message(), why);
  text_free(&ptx);
}
#endif
