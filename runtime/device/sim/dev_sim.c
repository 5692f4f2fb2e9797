/* dev_sim: the simulator as a device: a bound graph is a list of launches with their parameters and
 * places in memory, and of library calls, which the host does. What a kernel reads must have been
 * written in this step (or live between steps): before a step the place work counts as never
 * written, and before a launch its results do. With FT_CUBLASLT=library the host also makes the
 * calls that the plan offers in place of launches. What a plan BEGINs goes to the ranks, from and to
 * the simulator's memory, which is the host's, and goes on while the host simulates what follows. */
#include "runtime/device/cpu/calls_cpu.h"
#include "base/clock.h"
#include "plan/plan_calls.h"
#include "plan/plan_map.h"
#include "plan/plan_order.h"
#include "plan/waits.h"
#include "runtime/common/element.h"
#include "runtime/device/beside.h"
#include "runtime/device/sim/sim_gpu.h"
#include "runtime/device/sim/sim_plan.h"
#include "runtime/device/sim/sim_ptxas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Device {
  SimMachine *machine;
  SimModule *module;
  CpuLibrary *library;
  Comm *comm; /* NULL: alone */
  SimPtxas ptxas;
  char *waits; /* what kernels say of endless waits (plan/waits.h); NULL: these say nothing */
  char text[64];
};

typedef struct {
  CpuCall *call;
  const PlanStep *step;
  char **args;
} HostCall;

typedef struct {
  const SimKernel *kernel; /* NULL: its calls, in place of a launch or as the plan has it */
  HostCall calls[INSTEAD_CALLS];
  int call_count; /* 0, and no kernel: a step before does this one too */
  SimLaunch launch;
  SimRegion *regions;
  uint64_t *params;
  bool *is_fresh; /* argument: a result that holds nothing yet */
  CommWork work;  /* of a BEGIN, */
  int64_t number; /* under way as this one, */
  bool is_under_way;
} Task;

struct DeviceGraph {
  Device *device;
  const Artifact *artifact;
  const Plan *plan;
  const PlanGraph *graph;
  Arena *arena;
  Task *tasks;
  char **base; /* by place; that of batches: NULL */
};

/* ── opening and memory ───────────────────────────────────────────────────────────────────── */
static void close_sim(Device *device) {
  if (!device) return;
  sim_module_free(device->module);
  sim_machine_free(device->machine);
  cpu_library_free(device->library);
  sim_ptxas_free(&device->ptxas);
  free(device);
}

static Status open_waits(Device *device) {
  int64_t bytes;
  char *variable = sim_module_variable(device->module, WAITS_VARIABLE, &bytes);
  if (!variable || bytes != sizeof device->waits) return STATUS_OK;
  STATUS_TRY(sim_alloc(device->machine, WAITS_BYTES, &device->waits));
  sim_mark(device->machine, device->waits, WAITS_BYTES, true);
  memcpy(variable, &device->waits, sizeof device->waits);
  return STATUS_OK;
}

static Status open_sim(const Artifact *artifact, const DeviceOptions *options, Device **out) {
  Device *device = calloc(1, sizeof *device);
  if (!device) return status_fail(STATUS_FAULT, "out of memory");
  device->comm = options->comm;
  Status status = sim_machine_new(options->threads, &device->machine);
  if (status == STATUS_OK && options->is_unchecked) sim_machine_unchecked(device->machine);
  if (status == STATUS_OK)
    status = sim_module_load(artifact->path, artifact->ptx, strlen(artifact->ptx), &device->module);
  if (status == STATUS_OK) status = open_waits(device);
  if (status == STATUS_OK) status = cpu_library_new(1, 0, &device->library);
  if (status != STATUS_OK) {
    close_sim(device);
    return status;
  }
  int threads = sim_machine_threads(device->machine);
  snprintf(device->text, sizeof device->text, "sim of %s, %d thread%s", artifact->plan->target_cpu,
           threads, threads == 1 ? "" : "s");
  *out = device;
  return STATUS_OK;
}

static const char *describe_sim(const Device *device) { return device->text; }

/* Places begin as zeros that count as written; a step forgets that for what is temporary. */
static Status alloc_sim(Device *device, int64_t bytes, char **out) {
  STATUS_TRY(sim_alloc(device->machine, bytes, out));
  sim_mark(device->machine, *out, bytes, true);
  return STATUS_OK;
}

static void free_sim(Device *device, char *memory, int64_t bytes) {
  (void)bytes;
  sim_free(device->machine, memory);
}

static Status write_sim(Device *device, char *to, const void *from, int64_t bytes) {
  if (bytes) memcpy(to, from, (size_t)bytes);
  sim_mark(device->machine, to, bytes, true);
  return STATUS_OK;
}

static Status read_sim(Device *device, void *to, const char *from, int64_t bytes) {
  (void)device;
  if (bytes) memcpy(to, from, (size_t)bytes);
  return STATUS_OK;
}

static Status round_sim(Device *device, char *to, const char *from, int64_t count, DType dtype) {
  element_round((const float *)(const void *)from, count, dtype, (uint16_t *)(void *)to);
  sim_mark(device->machine, to, 2 * count, true);
  return STATUS_OK;
}

static Status sync_sim(Device *device) {
  (void)device;
  return STATUS_OK;
}

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
/* A temporary result that lies on no operand. The second launch of a kernel in two parts
 * has the arguments of the first, whose results it reads. */
static bool is_fresh(const Plan *plan, const PlanGraph *graph, const PlanStep *step, int arg) {
  const PlanBuffer *buffer = &graph->buffers.at[step->args[arg]];
  const PlanStep *before = step > graph->steps.at ? step - 1 : NULL;
  if (arg < step->input_count || !plan_is_temporary(plan, buffer)) return false;
  if (before && before->arg_count == step->arg_count &&
      !memcmp(before->args, step->args, sizeof *step->args * (size_t)step->arg_count))
    return false;
  for (int i = 0; i < step->input_count; i++)
    if (plan_buffers_overlap(buffer, &graph->buffers.at[step->args[i]])) return false;
  return true;
}

static char *address_of(const DeviceGraph *graph, int buffer) {
  const PlanBuffer *at = &graph->graph->buffers.at[buffer];
  return graph->base[at->place] ? graph->base[at->place] + at->offset : NULL;
}

void sim_plan_maps(const PlanStep *step, uint64_t *params) {
  for (int i = 0; i < step->map_count; i++) {
    const PlanMap *from = &step->maps[i];
    SimTensorMap *to = (SimTensorMap *)(void *)((char *)params + map_parameter(step, i));
    *to = (SimTensorMap){.magic = SIM_TENSOR_MAP,
                         .address = params[from->arg] + (uint64_t)from->offset,
                         .rank = (uint16_t)from->rank,
                         .swizzle = (uint16_t)from->swizzle};
    for (int d = 0; d < from->rank; d++) {
      to->dim[d] = (uint64_t)from->dim[d];
      to->stride[d] = (uint64_t)from->stride[d];
      to->box[d] = (uint32_t)from->box[d];
    }
  }
}

static Status bind_launch(DeviceGraph *graph, const Artifact *artifact, const PlanStep *step,
                          Task *task) {
  Arena *arena = graph->arena;
  task->kernel = sim_module_kernel(graph->device->module, step->name);
  if (!task->kernel)
    return status_fail(STATUS_USER, "%s: the plan calls kernel %s, which the file lacks",
                       artifact->path, step->name);
  SimKernelInfo info = sim_kernel_info(task->kernel);
  int64_t param_bytes = map_parameter(step, step->map_count);
  if (info.params != step->arg_count + step->map_count || info.param_bytes != param_bytes)
    return status_fail(
        STATUS_USER, "%s:%d: kernel %s takes %d parameters (%lld bytes), its plan has %d (%lld)",
        artifact->path, info.line, step->name, info.params, (long long)info.param_bytes,
        step->arg_count + step->map_count, (long long)param_bytes);
  task->params = ARENA_ARRAY(arena, uint64_t, param_bytes / 8 + 1);
  task->regions = ARENA_ARRAY(arena, SimRegion, step->arg_count + 2);
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->graph->buffers.at[step->args[i]];
    char type[TYPE_TEXT];
    task->regions[i] = (SimRegion){
        .name = arena_printf(arena, "%s+%lld %s", graph->plan->places.at[buffer->place].name,
                             (long long)buffer->offset, type_text(&buffer->type, type)),
        .at = address_of(graph, step->args[i]),
        .bytes = type_bytes(&buffer->type),
        .is_writable = i >= step->input_count};
    task->params[i] = (uint64_t)(uintptr_t)task->regions[i].at;
    task->is_fresh[i] = is_fresh(graph->plan, graph->graph, step, i);
  }
  sim_plan_maps(step, task->params);
  bool has_waits = graph->device->waits != NULL;
  if (has_waits)
    task->regions[step->arg_count] =
        (SimRegion){WAITS_VARIABLE, graph->device->waits, WAITS_BYTES, true};
  task->launch = (SimLaunch){.shared = step->shared,
                             .params = task->params,
                             .param_bytes = param_bytes,
                             .regions = task->regions,
                             .region_count = step->arg_count + has_waits,
                             .source = graph->plan->source,
                             .label = step->label,
                             .line = step->line};
  memcpy(task->launch.grid, step->grid, sizeof step->grid);
  memcpy(task->launch.block, step->block, sizeof step->block);
  return STATUS_OK;
}

static Status bind_call(DeviceGraph *graph, const PlanStep *step, Task *task) {
  HostCall *made = &task->calls[task->call_count++];
  CpuLibrary *library = graph->device->library;
  bool is_matmul = step->kind == STEP_CALL && !strcmp(step->name, call_info[CALL_MATMUL].name);
  made->step = step;
  made->args = ARENA_ARRAY(graph->arena, char *, step->arg_count + 1);
  for (int i = 0; i < step->arg_count; i++) {
    made->args[i] = address_of(graph, step->args[i]);
    if (!made->args[i]) made->args[i] = (char *)graph; /* of the batch: moved before the call */
  }
  return is_matmul
             ? cpu_matmul_new(library, step, graph->graph->buffers.at, made->args, &made->call)
             : cpu_call_new(library, step, made->args, &made->call);
}

static Status bind_begin(DeviceGraph *graph, const PlanStep *step, Task *task) {
  STATUS_TRY(beside_work(graph->device->comm, graph->artifact, graph->graph, step, &task->work));
  if (step->input_count) task->work.x = address_of(graph, step->args[0]);
  if (step->arg_count > step->input_count)
    task->work.out = address_of(graph, step->args[step->input_count]);
  for (int i = step->input_count; i < step->arg_count; i++)
    task->is_fresh[i] = is_fresh(graph->plan, graph->graph, step, i);
  return STATUS_OK;
}

static Status bind_step(DeviceGraph *graph, const PlanStep *step, Task *task) {
  switch (step->kind) {
  case STEP_LAUNCH: return bind_launch(graph, graph->artifact, step, task);
  case STEP_BEGIN: return bind_begin(graph, step, task);
  case STEP_END: return STATUS_OK;
  default: return bind_call(graph, step, task);
  }
}

/* What the plan offers in place of launches, the most at a time. */
static Status bind_insteads(DeviceGraph *graph) {
  const char *chosen = getenv("FT_CUBLASLT");
  if (!chosen || strcmp(chosen, "library") != 0) return STATUS_OK;
  for (int i = 0, end = 0; i < graph->graph->insteads.count; i++) {
    const PlanInstead *instead = &graph->graph->insteads.at[i];
    if (instead->first < end) continue; /* within the one before */
    end = instead->end;
    for (int k = instead->first; k < end; k++) graph->tasks[k].kernel = NULL;
    for (int k = 0; k < instead->call_count; k++)
      STATUS_TRY(bind_call(graph, &instead->call[k], &graph->tasks[instead->first]));
  }
  return STATUS_OK;
}

static void unbind_sim(DeviceGraph *graph) {
  if (!graph) return;
  for (int i = 0; i < graph->graph->steps.count; i++)
    for (int k = 0; k < graph->tasks[i].call_count; k++)
      cpu_call_free(graph->tasks[i].calls[k].call);
  arena_free(graph->arena);
  free(graph);
}

static Status bind_sim(Device *device, const Artifact *artifact, int which, char *const *base,
                       DeviceGraph **out) {
  DeviceGraph *graph = calloc(1, sizeof *graph);
  if (!graph) return status_fail(STATUS_FAULT, "out of memory");
  graph->device = device;
  graph->artifact = artifact;
  graph->plan = artifact->plan;
  graph->graph = &artifact->plan->graphs.at[which];
  graph->arena = arena_new();
  graph->base = ARENA_ARRAY(graph->arena, char *, graph->plan->places.count + 1);
  for (int i = 0; i < graph->plan->places.count; i++) graph->base[i] = base[i];
  graph->tasks = ARENA_ARRAY(graph->arena, Task, graph->graph->steps.count + 1);
  Status status = STATUS_OK;
  for (int i = 0; i < graph->graph->steps.count && status == STATUS_OK; i++) {
    const PlanStep *step = &graph->graph->steps.at[i];
    graph->tasks[i].is_fresh = ARENA_ARRAY(graph->arena, bool, step->arg_count + 1);
    status = bind_step(graph, step, &graph->tasks[i]);
  }
  if (status == STATUS_OK) status = bind_insteads(graph);
  if (status != STATUS_OK) {
    unbind_sim(graph);
    return status;
  }
  *out = graph;
  return STATUS_OK;
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
/* As plan_begins_early says of the step that this one waits for, or of no step where the host makes a call in
 * its place. */
static bool sim_begins_early(const DeviceGraph *graph, const PlanStep *step) {
  bool is_one = step->after_count == 1 && !graph->tasks[step->after[0]].call_count;
  return plan_begins_early(step, is_one ? &graph->graph->steps.at[step->after[0]] : NULL);
}

static Status run_launch(DeviceGraph *graph, const PlanStep *step, Task *task, const char *batch,
                         SimCounts *counts, const SimTiming *timing) {
  SimMachine *machine = graph->device->machine;
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->graph->buffers.at[step->args[i]];
    if (!graph->base[buffer->place]) {
      task->regions[i].at = (char *)(uintptr_t)batch + buffer->offset;
      task->params[i] = (uint64_t)(uintptr_t)task->regions[i].at;
    }
    if (task->is_fresh[i]) sim_mark(machine, task->regions[i].at, task->regions[i].bytes, false);
  }
  task->launch.is_early = sim_begins_early(graph, step);
  task->launch.counts = counts;
  task->launch.timing = timing;
  char said[512];
  Status status = sim_launch(machine, task->kernel, &task->launch);
  if (status == STATUS_OK || !graph->device->waits ||
      !waits_tell(graph->device->waits, graph->plan, NULL, said, sizeof said))
    return status;
  return status_fail(STATUS_FAULT, "%s: %s", graph->artifact->path, said);
}

static Status run_call(DeviceGraph *graph, const HostCall *made, const char *batch) {
  const PlanStep *step = made->step;
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->graph->buffers.at[step->args[i]];
    if (!graph->base[buffer->place])
      cpu_call_move(made->call, i, (char *)(uintptr_t)batch + buffer->offset);
    else if (i >= step->input_count)
      sim_mark(graph->device->machine, made->args[i], type_bytes(&buffer->type), true);
  }
  for (int phase = 0; phase < cpu_call_phases(made->call); phase++)
    for (int part = 0; part < cpu_call_parts(made->call, phase); part++)
      if (!cpu_call_run(made->call, phase, part, 0))
        return status_fail(STATUS_FAULT, "oneDNN failed in a step (out of memory?)");
  return STATUS_OK;
}

static Status run_calls(DeviceGraph *graph, const Task *task, const char *batch) {
  for (int i = 0; i < task->call_count; i++) STATUS_TRY(run_call(graph, &task->calls[i], batch));
  return STATUS_OK;
}

/* What it writes counts as never written until it has ended. */
static Status run_begin(DeviceGraph *graph, const PlanStep *step, Task *task) {
  for (int i = step->input_count; i < step->arg_count; i++)
    if (task->is_fresh[i])
      sim_mark(graph->device->machine, address_of(graph, step->args[i]),
               type_bytes(&graph->graph->buffers.at[step->args[i]].type), false);
  STATUS_TRY(comm_begin(graph->device->comm, &task->work, &task->number));
  task->is_under_way = true;
  return STATUS_OK;
}

static Status run_end(DeviceGraph *graph, const PlanStep *begun, Task *task) {
  task->is_under_way = false;
  STATUS_TRY(comm_end(graph->device->comm, task->number));
  for (int i = begun->input_count; i < begun->arg_count; i++)
    sim_mark(graph->device->machine, address_of(graph, begun->args[i]),
             type_bytes(&graph->graph->buffers.at[begun->args[i]].type), true);
  return STATUS_OK;
}

/* After a failure: the memory of what is under way may be freed when it has ended. */
static void settle(DeviceGraph *graph) {
  char why[1024];
  snprintf(why, sizeof why, "%s", status_message());
  for (int i = 0; i < graph->graph->steps.count; i++) {
    Task *task = &graph->tasks[i];
    if (task->is_under_way) (void)!comm_end(graph->device->comm, task->number);
    task->is_under_way = false;
  }
  (void)!status_fail(STATUS_FAULT, "%s", why);
}

static Status sim_run_step(DeviceGraph *graph, const char *batch, int index) {
  const PlanStep *step = &graph->graph->steps.at[index];
  Task *task = &graph->tasks[index];
  if (step->kind == STEP_BEGIN) return run_begin(graph, step, task);
  if (step->kind == STEP_END)
    return run_end(graph, &graph->graph->steps.at[step->partner], &graph->tasks[step->partner]);
  return task->kernel ? run_launch(graph, step, task, batch, NULL, NULL) : run_calls(graph, task, batch);
}

static Status run_steps(DeviceGraph *graph, const char *batch, int first, int end) {
  for (int i = first; i < end; i++) {
    Status status = sim_run_step(graph, batch, i);
    if (status == STATUS_OK) continue;
    settle(graph);
    return status;
  }
  return STATUS_OK;
}

static Status run_sim(DeviceGraph *graph, const char *batch) {
  for (int i = 0; i < graph->graph->buffers.count; i++) {
    const PlanBuffer *buffer = &graph->graph->buffers.at[i];
    if (plan_is_temporary(graph->plan, buffer))
      sim_mark(graph->device->machine, graph->base[buffer->place] + buffer->offset,
               type_bytes(&buffer->type), false);
  }
  return run_steps(graph, batch, 0, graph->graph->steps.count);
}

static Status run_part_sim(DeviceGraph *graph, const char *batch, int first, int end,
                           int64_t *time) {
  int64_t start = clock_nanoseconds();
  Status status = run_steps(graph, batch, first, end);
  *time += clock_nanoseconds() - start;
  return status;
}

/* ── counting ─────────────────────────────────────────────────────────────────────────────── */
/* What a multiprocessor of sm_80 or sm_90 has; the smaller ones (sm_86, sm_89) have 48 warps. */
enum { SM_WARPS = 64, SM_REGISTERS = 65536, SM_BLOCKS = 32, REGISTER_UNIT = 256 };
/* Instructions of a warp before one block of a sample counts as waiting for others for ever. */
enum { SAMPLE_STEPS = 1 << 28 };

static double occupancy(const char *target, const SimLaunch *launch, int registers,
                        int64_t shared_bytes) {
  bool is_small = !strncmp(target, "sm_86", 5) || !strncmp(target, "sm_89", 5);
  bool is_new = !strncmp(target, "sm_9", 4) || !strncmp(target, "sm_1", 4);
  int64_t most = is_small ? 48 : SM_WARPS;
  int64_t shared = (is_small ? 100 : is_new ? 228 : 164) * INT64_C(1024);
  int64_t warps = (launch->block[0] * launch->block[1] * launch->block[2] + 31) / 32;
  int64_t by_warp = (registers * INT64_C(32) + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
  int64_t blocks = SM_BLOCKS;
  if (blocks > most / warps) blocks = most / warps;
  if (by_warp && blocks > SM_REGISTERS / (by_warp * warps))
    blocks = SM_REGISTERS / (by_warp * warps);
  if (blocks > shared / (shared_bytes + 1024)) blocks = shared / (shared_bytes + 1024);
  return (double)(blocks * warps) / (double)most;
}

/* Registers alive at once, and a few for addresses and the like that PTX does not show. */
static int estimate_registers(const SimKernelInfo *info) {
  int registers = (info->registers + 8 + 7) / 8 * 8;
  return registers > 255 ? 255 : registers;
}

static Status count_sim(DeviceGraph *graph, const char *batch, int index, const DeviceCounting *how,
                        DeviceCounts *out) {
  const PlanStep *step = &graph->graph->steps.at[index];
  Task *task = &graph->tasks[index];
  SimCounts counts = {0};
  SimTiming timing = {0};
  *out = (DeviceCounts){.is_kernel = task->kernel != NULL};
  if (!task->kernel) return sim_run_step(graph, batch, index);
  if (how->gpu) timing = sim_gpu_timing(how->gpu, (double)step->bytes);
  task->launch.sample = step->part_count ? 0 : how->sample; /* joined kernels are small, and their blocks unlike */
  task->launch.step_limit = how->sample ? SAMPLE_STEPS : 0;
  STATUS_TRY(run_launch(graph, step, task, batch, &counts, how->gpu ? &timing : NULL));
  sim_gpu_scale(&counts, step->grid[0] * step->grid[1] * step->grid[2]);
  SimPtxas *ptxas = &graph->device->ptxas;
  SimKernelInfo info = sim_kernel_info(task->kernel);
  sim_ptxas_run(ptxas, graph->artifact->path, graph->plan->target_cpu);
  int registers = sim_ptxas_registers(ptxas, step->name);
  *out = (DeviceCounts){.is_kernel = true,
                        .instructions = counts.instructions,
                        .load_sectors = counts.load_sectors,
                        .store_sectors = counts.store_sectors,
                        .shared_accesses = counts.shared_accesses,
                        .bank_conflicts = counts.bank_conflicts,
                        .branches = counts.branches,
                        .wide_loads = counts.wide_loads,
                        .narrow_loads = counts.narrow_loads,
                        .divergent_branches = counts.divergent_branches,
                        .registers = registers ? registers : estimate_registers(&info),
                        .registers_are_exact = registers > 0,
                        .shared_bytes = info.shared_bytes + step->shared};
  out->occupancy =
      occupancy(graph->plan->target_cpu, &task->launch, out->registers, out->shared_bytes);
  out->work = sim_gpu_work(&counts, step->block[0] * step->block[1] * step->block[2],
                           out->registers, out->shared_bytes, (double)step->flops,
                           (double)step->bytes, plan_result_bytes(graph->graph, step));
  return STATUS_OK;
}

const DeviceType dev_sim = {
    .name = "sim",
    .is_host_memory = true,
    .open = open_sim,
    .close = close_sim,
    .describe = describe_sim,
    .alloc = alloc_sim,
    .free = free_sim,
    .alloc_host = alloc_sim,
    .free_host = free_sim,
    .write = write_sim,
    .read = read_sim,
    .round = round_sim,
    .bind = bind_sim,
    .unbind = unbind_sim,
    .run = run_sim,
    .run_part = run_part_sim,
    .sync = sync_sim,
    .count_step = count_sim,
};
