/* codegen_nvptx: makes every kernel of a fused graph, runs it (on the host thread by thread, see
 * codegen_gpu.h, or in the simulator) and compares what it gives with the interpreter. */
#ifndef FT_TEST_CODEGEN_NVPTX_H
#define FT_TEST_CODEGEN_NVPTX_H
#include "codegen/nvptx.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "elements_help.h"
#include "sim_seeds.h"
#include "passes/fuse.h"
#include "plan/plan_map.h"
#include "runtime/device/sim/sim_plan.h"
#include "passes_help.h"

typedef struct {
  const Node *node;
  Kernel kernel;
} Made;
typedef struct {
  Arena *arena;
  Diag *diag;
  const Graph *graph;
  Tensor **values, **rounded; /* exact, and with f32 arithmetic: how much rounding matters */
  Tensor **actual;            /* what the kernels gave: the operands of later kernels */
  VEC(Made) made;
  bool allows_tf32; /* operands have 11 bits */
  bool is_exact;
} Case;

enum { GUARD = 256 };

static void store_row(const Tensor *tensor, int64_t from, int64_t count, char *to) {
  Tensor row = *tensor;
  if (row.f) row.f += from;
  if (row.i) row.i += from;
  for (int64_t i = 0; i < count; i++) help_store(to, tensor->type.dtype, i, &row);
}

/* What lies between rows is NaN. */
static void write_memory(const Tensor *tensor, char *to) {
  const Type *type = &tensor->type;
  int64_t count = shape_elements(&type->shape), length = count;
  if (type->pitch) {
    length = type->shape.dim[type->shape.rank - 1];
    memset(to, 0xff, (size_t)type_bytes(type));
  }
  for (int64_t i = 0; i < count; i += length)
    store_row(tensor, i, length, to + type_place(type, i) * dtype_bytes(type->dtype));
}

/* bytes with guards on both sides, aligned as the plan promises; contents are poison. */
static char *guarded(int64_t bytes) {
  size_t size = ((size_t)bytes + 2 * GUARD + 63) / 64 * 64;
  char *base = aligned_alloc(64, size);
  memset(base, 0x7f, size);
  return base + GUARD;
}
static void check_guards(const char *memory, int64_t bytes, const char *what) {
  for (int i = 1; i <= GUARD; i++) {
    if (memory[-i] != 0x7f) fail_msg("%s: a write %d bytes before its buffer", what, i);
    if (i < GUARD && memory[bytes + i - 1] != 0x7f)
      fail_msg("%s: a write %d bytes behind its buffer", what, i);
  }
}

static Tensor *read_tensor(const Case *one, Type type, const char *from) {
  Tensor *tensor = tensor_new(one->arena, type);
  for (int64_t i = 0; i < shape_elements(&type.shape); i++) {
    double value = help_load(from, type.dtype, type_place(&type, i));
    if (tensor->f)
      tensor->f[i] = value;
    else
      tensor->i[i] = (int64_t)value;
  }
  return tensor;
}

/* Nodes that are no kernels: leaves, views, and what gathers or assigns results. */
static Tensor *plain_value(const Case *one, const Node *node) {
  if (node->op == OP_PACK) {
    Tensor *all = tensor_new(one->arena, node->type);
    for (int i = 0; i < node->input_count; i++)
      for (int64_t k = 0; k < shape_elements(&node->input[i]->type.shape); k++)
        all->f[node_attr(node, ATTR_OFFSETS)->ints[i] + k] = one->actual[node->input[i]->id]->f[k];
    return all;
  }
  if (node->op != OP_RESHAPE && node->op != OP_ASSIGN) return one->values[node->id];
  Tensor *view = ARENA_NEW(one->arena, Tensor);
  *view = *one->actual[node->input[0]->id];
  view->type = node->type;
  return view;
}

static int result_id(const Case *one, const Node *node, int result) {
  if (!node_has_results(node)) return node->id;
  for (int i = 0; i < one->graph->nodes.count; i++) {
    const Node *user = one->graph->nodes.at[i];
    if (user->op == OP_RESULT && user->input[0] == node && node_int(user, ATTR_INDEX, 0) == result)
      return user->id;
  }
  return -1; /* nobody wants it */
}

static void compare(const Case *one, const char *name, int id, const char *got) {
  const Tensor *wanted = one->values[id], *rounded = one->rounded[id];
  DType dtype = wanted->type.dtype;
  double scale = 0, noise = 0, limit = dtype == DT_F64 ? 1e-11 : dtype == DT_F32 ? 3e-5 : 0.02;
  if (one->allows_tf32 && dtype == DT_F32) limit = 3e-3;
  int64_t count = shape_elements(&wanted->type.shape);
  for (int64_t i = 0; wanted->f && i < count; i++) {
    if (!isfinite(wanted->f[i]) || !isfinite(rounded->f[i])) continue;
    scale = fmax(scale, fabs(wanted->f[i]));
    noise = fmax(noise, fabs(wanted->f[i] - rounded->f[i]));
  }
  for (int64_t i = 0; i < count; i++) {
    double value = help_load(got, dtype, type_place(&one->graph->nodes.at[id]->type, i)),
           truth = wanted->f ? wanted->f[i] : (double)wanted->i[i];
    if (value == truth || (isnan(value) && isnan(truth))) continue;
    double allowed = wanted->f && !one->is_exact ? limit * (fabs(truth) + 0.1 * scale + 0.3) + 20 * noise : 0;
    if (fabs(value - truth) <= allowed) continue;
    char type[TYPE_TEXT];
    FILE *file = fopen("codegen_nvptx.failed.ftir", "w");
    if (file) graph_print(one->graph, file), fclose(file);
    fail_msg("%s: element %lld of %s is %.9g, not %.9g (allowed: %.3g)", name, (long long)i,
             type_text(&wanted->type, type), value, truth, allowed);
  }
}

/* What runs kernels: fibers of the host, or (module not NULL) the simulator. */
typedef struct {
  LLVMOrcLLJITRef jit;
  SimMachine *machine;
  SimModule *module;
} Runner;

/* Which of all arguments the launch's own number i is. */
static int launch_argument(const KernelLaunch *launch, int i) { return launch->args ? launch->args[i] : i; }

/* The arguments move to memory of the simulator and back. */
static void simulate(const Runner *runner, const Kernel *kernel, void **args, const int64_t *bytes,
                     int count, int inputs) {
  char *at[GPU_MAX_ARGS];
  for (int i = 0; i < count; i++) {
    if (sim_alloc(runner->machine, bytes[i], &at[i]) != STATUS_OK) fail_msg("%s", status_message());
    memcpy(at[i], args[i], (size_t)bytes[i]);
    if (i < inputs) sim_mark(runner->machine, at[i], bytes[i], true);
  }
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *from = &kernel->launch[i];
    _Alignas(128) uint64_t params[GPU_MAX_ARGS + STEP_MAPS * 16 + 16];
    PlanStep step = {.arg_count = from->args ? from->arg_count : count, .maps = from->maps, .map_count = from->map_count};
    for (int k = 0; k < step.arg_count; k++) params[k] = (uint64_t)(uintptr_t)at[launch_argument(from, k)];
    SimLaunch launch = {.params = params,
                        .param_bytes = map_parameter(&step, step.map_count),
                        .shared = from->shared};
    sim_plan_maps(&step, params);
    memcpy(launch.grid, from->grid, sizeof launch.grid);
    memcpy(launch.block, from->block, sizeof launch.block);
    const SimKernel *entry = sim_module_kernel(runner->module, from->name);
    assert_non_null(entry);
    sim_seeds_launch(runner->machine, entry, &launch, at, bytes, inputs, count, 2);
  }
  for (int i = 0; i < count; i++) {
    memcpy(args[i], at[i], (size_t)bytes[i]);
    sim_free(runner->machine, at[i]);
  }
}

/* As it lies in memory: nobody's has no pitch. */
static Type result_in_memory(const Case *one, const Node *node, int result) {
  int id = result_id(one, node, result);
  return id < 0 ? node_result_type(node, result) : one->graph->nodes.at[id]->type;
}

static void run_kernel(Case *one, const Runner *runner, const Made *made) {
  const Node *node = made->node;
  void *args[GPU_MAX_ARGS] = {0};
  int count = 0, results = node_result_count(node), has_base = node->op == OP_PUT;
  int64_t bytes[GPU_MAX_ARGS] = {0};
  assert_true(node->input_count + results < GPU_MAX_ARGS);
  for (int i = 0; i < node->input_count + results; i++) {
    int r = i - node->input_count;
    Type type = r < 0 ? node->input[i]->type : result_in_memory(one, node, r);
    bytes[count] = type_bytes(&type);
    args[count] = guarded(bytes[count]);
    count++;
    if (r < 0) {
      Tensor operand = *one->actual[node->input[i]->id];
      operand.type = type;
      write_memory(&operand, args[i]);
    }
    if (r == 0 && has_base) write_memory(one->actual[node->input[0]->id], args[i]);
  }
  bool has_packed = made->kernel.packed[1] > 0; /* operands: behind a workspace, if any */
  int64_t more[3] = {made->kernel.workspace, made->kernel.packed[0], made->kernel.packed[1]};
  for (int i = 0; i < (has_packed ? 3 : more[0] > 0); i++) {
    bytes[count] = more[i] ? more[i] : 16;
    args[count] = guarded(bytes[count]);
    count++;
  }
  if (runner->module)
    simulate(runner, &made->kernel, args, bytes, count, node->input_count + has_base);
  for (int i = 0; i < made->kernel.launch_count && runner->jit; i++) {
    const KernelLaunch *launch = &made->kernel.launch[i];
    void *own[GPU_MAX_ARGS] = {0};
    for (int k = 0; k < (launch->args ? launch->arg_count : count); k++) own[k] = args[launch_argument(launch, k)];
    const char *wrong = gpu_launch(gpu_kernel(runner->jit, launch->name), launch, own);
    if (wrong) fail_msg("%s: %s", launch->name, wrong);
  }
  const char *name = made->kernel.launch_count ? made->kernel.launch[0].name : "(no launch)";
  for (int i = 0; i < count; i++) check_guards(args[i], bytes[i], name);
  for (int r = 0; r < results; r++) {
    int id = result_id(one, node, r);
    if (id < 0) continue;
    compare(one, name, id, args[node->input_count + r]);
    one->actual[id] = read_tensor(one, result_in_memory(one, node, r), args[node->input_count + r]);
  }
  for (int i = 0; i < count; i++) free((char *)args[i] - GUARD);
}

static bool is_kernel_node(const Node *node) {
  return node->op == OP_FUSED || op_has(node->op, TRAIT_SCATTERS) ||
         op_info[node->op].op_class == CLASS_CONTRACT;
}

/* How products are made: Module's fields of these names. */
typedef struct {
  bool allows_tf32;
  int only_tile, only_splits;
  const char *gpu; /* NULL: sm_80, on fibers */
  bool is_exact;   /* results have the interpreter's bits */
  bool keeps_orders; /* of operands of 8-bit floats, as for Hopper */
} How;

static void open_sim(Runner *runner, Module *module) {
  Text ptx = {0};
  assert_true(target_emit(module, LLVMAssemblyFile, &ptx));
  if (getenv("FT_PTX")) text_write_file(getenv("FT_PTX"), ptx.at, ptx.count);
  if (sim_machine_new(2, &runner->machine) != STATUS_OK ||
      sim_module_load("test.ptx", text_cstr(&ptx), ptx.count, &runner->module) != STATUS_OK)
    fail_msg("%s", status_message());
  text_free(&ptx);
}

static bool has_float8(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (dtype_is_float8(graph->nodes.at[i]->type.dtype)) return true;
  return false;
}

/* Makes, loads and runs every kernel of a fused graph. Returns how many there were. */
static int run_graph(Arena *arena, Diag *diag, const Graph *graph, SettingValue *settings,
                     How how) {
  Probe probe = {arena, graph, settings, 1, NULL};
  Case one = {.arena = arena, .diag = diag, .graph = graph, .values = probe_run(&probe, diag)};
  one.rounded = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  one.actual = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_non_null(one.values);
  assert_true(graph_interpret(graph, arena, probe_leaf, &probe, true, one.rounded, diag));
  CodegenOptions options = {.target = TARGET_PTX, .gpu = how.gpu,
                            .has_float8 = has_float8(graph)};
  Module module;
  assert_true(target_open(&module, arena, diag, &options));
  module.allows_tf32 = one.allows_tf32 = how.allows_tf32;
  one.is_exact = how.is_exact;
  module.only_tile = how.only_tile;
  module.only_splits = how.only_splits;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!is_kernel_node(node)) continue;
    Made made = {.node = node};
    int alias[GPU_MAX_ARGS];
    memset(alias, 0xff, sizeof alias);
    const char *name = arena_printf(arena, "k%d", one.made.count);
    Type types[GPU_MAX_ARGS];
    for (int r = 0; r < node_result_count(node); r++) types[r] = result_in_memory(&one, node, r);
    if (!nvptx_emit(&module, node, name, types, alias, 0, &made.kernel))
      fail_msg("no kernel for:\n%s", graph_to_text(graph, arena));
    VEC_PUSH(arena, one.made, made);
  }
  assert_true(module_link(&module));
  assert_true(target_optimize(&module));
  Runner runner = {0};
  if (how.gpu)
    open_sim(&runner, &module);
  else
    runner.jit = gpu_load(module.llvm);
  for (int i = 0, next = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (is_kernel_node(node))
      run_kernel(&one, &runner, &one.made.at[next++]);
    else if (node->op != OP_RESULT)
      one.actual[i] = plain_value(&one, node);
  }
  if (runner.jit) LLVMOrcDisposeLLJIT(runner.jit);
  sim_module_free(runner.module);
  sim_machine_free(runner.machine);
  target_close(&module);
  return one.made.count;
}

/* Graphs in the language of .ftir, before fuse; through these passes. */
static int run_text_after(const char *text, const char *passes, How how) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  diag.out = stderr;
  context.for_gpu = true;
  context.multiplies_float8 = how.keeps_orders ? FLOAT8_ALONG_K : FLOAT8_NONE;
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  graph = help_pass(&context, graph, passes);
  int kernels = run_graph(arena, &diag, graph, context.settings, how);
  arena_free(arena);
  return kernels;
}

static inline int run_text(const char *text, How how) { return run_text_after(text, "fuse", how); }

#endif
