/* sim_module: loading, and what can be asked of a module and its kernels. */
#include "runtime/device/sim/sim_private.h"
#include <stdlib.h>
#include <string.h>

/* The handlers for this processor; FT_SIM_LANES=base or v3 takes lesser ones, for tests. */
static const SimLanes *choose_lanes(void) {
#if defined(SIM_LEVELS)
  const char *chosen = getenv("FT_SIM_LANES");
  __builtin_cpu_init();
  bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2");
  bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
  if (has_v4 && !(chosen && (!strcmp(chosen, "v3") || !strcmp(chosen, "base"))))
    return &sim_lanes_v4;
  if (has_v3 && !(chosen && !strcmp(chosen, "base"))) return &sim_lanes_v3;
#endif
  return &sim_lanes_base;
}

Status sim_module_load(const char *path, const char *text, size_t length, SimModule **out) {
  Arena *arena = arena_new();
  SimModule *module = ARENA_NEW(arena, SimModule);
  module->arena = arena;
  module->path = arena_strdup(arena, path);
  Status status = sim_parse(module, text, length);
  if (status != STATUS_OK) {
    arena_free(arena);
    return status;
  }
  sim_fit(module, choose_lanes());
  *out = module;
  return STATUS_OK;
}

void sim_module_free(SimModule *module) {
  if (module) arena_free(module->arena);
}

const SimKernel *sim_module_kernel(const SimModule *module, const char *name) {
  for (int i = 0; i < module->kernels.count; i++)
    if (!strcmp(module->kernels.at[i]->name, name)) return module->kernels.at[i];
  return NULL;
}

char *sim_module_variable(const SimModule *module, const char *name, int64_t *bytes) {
  for (int i = 0; i < module->variables.count; i++) {
    const SimVariable *variable = &module->variables.at[i];
    if (!variable->is_writable || strcmp(variable->name, name) != 0) continue;
    *bytes = variable->bytes;
    return variable->at;
  }
  return NULL;
}

int sim_module_kernel_count(const SimModule *module) { return module->kernels.count; }

const SimKernel *sim_module_kernel_at(const SimModule *module, int index) {
  return module->kernels.at[index];
}

static int launch_registers(const SimKernel *kernel) {
  bool is_limited = kernel->max_registers || kernel->has_thread_limit;
  int most = is_limited ? sim_kernel_registers(kernel) : 256, wanted = kernel->live_registers + 8;
  wanted = kernel->sets_registers || wanted > most ? most : wanted;
  return (wanted + 7) / 8 * 8;
}

SimKernelInfo sim_kernel_info(const SimKernel *kernel) {
  return (SimKernelInfo){.name = kernel->name,
                         .line = kernel->line,
                         .params = kernel->params.count,
                         .param_bytes = kernel->param_bytes,
                         .shared_bytes = kernel->shared_bytes,
                         .local_bytes = kernel->local_bytes,
                         .max_threads = kernel->max_threads,
                         .cluster = kernel->cluster,
                         .instructions = kernel->text_instructions,
                         .registers = kernel->live_registers,
                         .launch_registers = launch_registers(kernel)};
}

void sim_kernel_param(const SimKernel *kernel, int index, int64_t *offset, int64_t *bytes) {
  *offset = kernel->params.at[index].offset;
  *bytes = kernel->params.at[index].bytes;
}
