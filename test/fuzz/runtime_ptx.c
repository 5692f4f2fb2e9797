/* Fuzz target: any bytes as PTX; what is taken as a kernel runs for a moment, on memory of its own.
 */
#include "runtime/device/sim/sim.h"
#include <string.h>

enum { BYTES = 4096, PARAMS = 256, STEPS = 20000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static SimMachine *machine;
  static char *memory;
  static uint64_t params[PARAMS];
  if (!machine) {
    if (sim_machine_new(1, &machine) != STATUS_OK ||
        sim_alloc(machine, BYTES, &memory) != STATUS_OK)
      return 0;
    for (int i = 0; i < PARAMS; i++) params[i] = (uint64_t)(uintptr_t)memory;
    SimTensorMap map = {.magic = SIM_TENSOR_MAP,
                        .address = params[0],
                        .dim = {40, 9},
                        .stride = {4, 192},
                        .box = {32, 16},
                        .rank = 2,
                        .swizzle = 128};
    memcpy(&params[8], &map, sizeof map); /* behind two addresses, 64-byte aligned */
  }
  SimModule *module;
  if (sim_module_load("fuzz.ptx", (const char *)data, size, &module) != STATUS_OK) return 0;
  for (int i = 0; i < sim_module_kernel_count(module) && i < 4; i++) {
    const SimKernel *kernel = sim_module_kernel_at(module, i);
    SimCounts counts = {0};
    SimLaunch launch = {.grid = {2, 1, 1},
                        .block = {48, 1, 1},
                        .shared = 64,
                        .params = params,
                        .param_bytes = sizeof params,
                        .step_limit = STEPS,
                        .counts = &counts};
    sim_mark(machine, memory, BYTES, size & 1);
    if (sim_kernel_info(kernel).local_bytes > 1 << 16) continue;
    if (sim_launch(machine, kernel, &launch) != STATUS_OK && !*status_message()) __builtin_trap();
  }
  sim_module_free(module);
  return 0;
}
