/* codegen_sim.h: compiles a program to PTX and runs its plan in the simulator, checker and all. */
#ifndef FT_TEST_CODEGEN_SIM_H
#define FT_TEST_CODEGEN_SIM_H
#include "codegen_help.h"
#include "plan/plan_map.h"
#include "runtime/device/cpu/calls_cpu.h"
#include "runtime/device/sim/sim_plan.h"

typedef struct {
  SimMachine *machine;
  SimModule *module;
} SimHelp;

static inline void sim_help_compile(SimHelp *sim, HelpRun *run, Arena *arena, Diag *diag,
                                    Program *program, const CodegenOptions *options) {
  if (!codegen_run(arena, diag, program, options, &run->code)) fail_msg("codegen failed");
  if (sim_machine_new(2, &sim->machine) != STATUS_OK ||
      sim_module_load("random.ptx", text_cstr(&run->code.assembly), run->code.assembly.count,
                      &sim->module) != STATUS_OK)
    fail_msg("%s", status_message());
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
    if (sim_alloc(sim->machine, run->code.plan->places.at[a].bytes, &run->memory[a]) != STATUS_OK)
      fail_msg("%s", status_message());
  help_place_windows(run);
}

static inline void sim_help_free(SimHelp *sim, HelpRun *run) {
  sim_module_free(sim->module);
  sim_machine_free(sim->machine);
  code_free(&run->code);
}

static inline void sim_help_launch(SimHelp *sim, HelpRun *run, const PlanGraph *graph,
                                   const PlanStep *step) {
  SimRegion regions[128];
  _Alignas(128) uint64_t params[128 + STEP_MAPS * 16 + 16];
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
    char *at = run->memory[buffer->place] + buffer->offset;
    regions[i] = (SimRegion){run->code.plan->places.at[buffer->place].name, at,
                             type_bytes(&buffer->type), i >= step->input_count};
    params[i] = (uint64_t)(uintptr_t)at;
  }
  sim_plan_maps(step, params);
  SimLaunch launch = {.params = params,
                      .param_bytes = map_parameter(step, step->map_count),
                      .regions = regions,
                      .region_count = step->arg_count,
                      .shared = step->shared,
                      .label = step->label};
  memcpy(launch.grid, step->grid, sizeof step->grid);
  memcpy(launch.block, step->block, sizeof step->block);
  const SimKernel *kernel = sim_module_kernel(sim->module, step->name);
  assert_non_null(kernel);
  if (sim_launch(sim->machine, kernel, &launch) != STATUS_OK) fail_msg("%s", status_message());
}

static inline void sim_help_mark(SimHelp *sim, HelpRun *run, const PlanGraph *graph,
                                 const PlanStep *step) {
  for (int k = step->input_count; k < step->arg_count; k++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[k]];
    sim_mark(sim->machine, run->memory[buffer->place] + buffer->offset, type_bytes(&buffer->type),
             true);
  }
}

/* What stands in place of launches, on the host. */
static inline void sim_help_library(SimHelp *sim, HelpRun *run, const PlanGraph *graph,
                                    const PlanStep *step) {
  char *args[128];
  CpuLibrary *library;
  CpuCall *call = NULL;
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
    args[i] = run->memory[buffer->place] + buffer->offset;
  }
  if (cpu_library_new(1, 0, &library) != STATUS_OK ||
      cpu_matmul_new(library, step, graph->buffers.at, args, &call) != STATUS_OK)
    fail_msg("%s", status_message());
  assert_true(cpu_call_run(call, 0, 0, 0));
  cpu_call_free(call);
  cpu_library_free(library);
  sim_help_mark(sim, run, graph, step);
}

/* The largest offer that begins with this step; NULL: none. */
static inline const PlanInstead *sim_help_instead(const PlanGraph *graph, int step) {
  for (int i = 0; i < graph->insteads.count; i++)
    if (graph->insteads.at[i].first == step) return &graph->insteads.at[i];
  return NULL;
}

static inline void sim_help_execute(SimHelp *sim, HelpRun *run, int which, bool by_library) {
  const PlanGraph *graph = &run->code.plan->graphs.at[which];
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
    sim_mark(sim->machine, run->memory[a], run->code.plan->places.at[a].bytes,
             a != PLACE_WORK && a != PLACE_WORKSPACE);
  Arena *arena = arena_new();
  int *order = run->order && !by_library ? help_order(arena, graph, run->order) : NULL;
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[order ? order[i] : i];
    const PlanInstead *instead = by_library ? sim_help_instead(graph, i) : NULL;
    if (instead) {
      for (int k = 0; k < instead->call_count; k++)
        sim_help_library(sim, run, graph, &instead->call[k]);
      i = instead->end - 1;
    } else if (step->kind == STEP_LAUNCH) {
      sim_help_launch(sim, run, graph, step);
    } else {
      help_step(run, graph, step, 1);
      sim_help_mark(sim, run, graph, step);
    }
  }
  arena_free(arena);
}
#endif
