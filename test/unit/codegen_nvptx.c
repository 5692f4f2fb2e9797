/* codegen_nvptx: GPU kernels compute what the interpreter does: every kernel of random steps, and
 * graphs written to reach each path of each skeleton, run on the host thread by thread (see
 * codegen_gpu.h); kernels for sm_90a, whose instructions LLVM knows as text only, run in the
 * simulator. Results and workspace lie between guards, so that a stray write is seen. */
#include "codegen/nvptx.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "sim_seeds.h"
#include "passes/fuse.h"
#include "plan/plan_map.h"
#include "runtime/device/sim/sim_plan.h"
#include "passes_help.h"
#include "test/random/graph.h"

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
} Case;

enum { GUARD = 256 };

static void write_memory(const Tensor *tensor, char *to) {
  DType dtype = tensor->type.dtype;
  for (int64_t i = 0; i < shape_elements(&tensor->type.shape); i++) {
    double f = tensor->f ? tensor->f[i] : 0;
    int64_t n = tensor->i ? tensor->i[i] : 0;
    switch (dtype) {
    case DT_F32:
      ((float *)to)[i] = (float)f;
      break;
    case DT_F64:
      ((double *)to)[i] = f;
      break;
    case DT_F16:
      ((_Float16 *)to)[i] = (_Float16)f;
      break;
    case DT_BF16: {
      float wide = (float)f;
      memcpy(to + 2 * i, (char *)&wide + 2, 2);
      break;
    }
    case DT_I64:
      ((int64_t *)to)[i] = n;
      break;
    case DT_I32:
    case DT_U32:
      ((int32_t *)to)[i] = (int32_t)n;
      break;
    default:
      to[i] = (char)n;
      break;
    }
  }
}

static double read_memory(DType dtype, const char *from, int64_t i) {
  switch (dtype) {
  case DT_F32:
    return (double)((const float *)from)[i];
  case DT_F64:
    return ((const double *)from)[i];
  case DT_F16:
    return (double)((const _Float16 *)from)[i];
  case DT_BF16: {
    uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return (double)wide;
  }
  case DT_I64:
    return (double)((const int64_t *)from)[i];
  case DT_I32:
    return ((const int32_t *)from)[i];
  case DT_U32:
    return ((const uint32_t *)from)[i];
  default:
    return (double)((const uint8_t *)from)[i];
  }
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
    double value = read_memory(type.dtype, from, i);
    if (tensor->f)
      tensor->f[i] = value;
    else
      tensor->i[i] = (int64_t)value;
  }
  return tensor;
}

/* Nodes that are no kernels: leaves, views, and the furniture of the step. */
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
    double value = read_memory(dtype, got, i),
           truth = wanted->f ? wanted->f[i] : (double)wanted->i[i];
    if (value == truth || (isnan(value) && isnan(truth))) continue;
    double allowed = wanted->f ? limit * (fabs(truth) + 0.1 * scale + 0.3) + 20 * noise : 0;
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

/* The arguments move to memory of the simulator and back. */
static void simulate(const Runner *runner, const Kernel *kernel, void **args, const int64_t *bytes,
                     int count, int inputs) {
  _Alignas(128) uint64_t params[GPU_MAX_ARGS + STEP_MAPS * 16 + 16];
  char *at[GPU_MAX_ARGS];
  for (int i = 0; i < count; i++) {
    if (sim_alloc(runner->machine, bytes[i], &at[i]) != STATUS_OK) fail_msg("%s", status_message());
    memcpy(at[i], args[i], (size_t)bytes[i]);
    params[i] = (uint64_t)(uintptr_t)at[i];
    if (i < inputs) sim_mark(runner->machine, at[i], bytes[i], true);
  }
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *from = &kernel->launch[i];
    PlanStep step = {.arg_count = count, .maps = from->maps, .map_count = from->map_count};
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

static void run_kernel(Case *one, const Runner *runner, const Made *made) {
  const Node *node = made->node;
  void *args[GPU_MAX_ARGS] = {0};
  int count = 0, results = node_result_count(node), has_base = node->op == OP_PUT;
  int64_t bytes[GPU_MAX_ARGS] = {0};
  assert_true(node->input_count + results < GPU_MAX_ARGS);
  for (int i = 0; i < node->input_count + results; i++) {
    int r = i - node->input_count;
    Type type = r < 0 ? node->input[i]->type : node_result_type(node, r);
    bytes[count] = type_bytes(&type);
    args[count] = guarded(bytes[count]);
    count++;
    if (r < 0) write_memory(one->actual[node->input[i]->id], args[i]);
    if (r == 0 && has_base) write_memory(one->actual[node->input[0]->id], args[i]);
  }
  if (made->kernel.workspace) {
    bytes[count] = made->kernel.workspace;
    args[count++] = guarded(made->kernel.workspace);
  }
  if (runner->module)
    simulate(runner, &made->kernel, args, bytes, count, node->input_count + has_base);
  for (int i = 0; i < made->kernel.launch_count && runner->jit; i++) {
    const KernelLaunch *launch = &made->kernel.launch[i];
    const char *wrong = gpu_launch(gpu_kernel(runner->jit, launch->name), launch, args);
    if (wrong) fail_msg("%s: %s", launch->name, wrong);
  }
  const char *name = made->kernel.launch_count ? made->kernel.launch[0].name : "(no launch)";
  for (int i = 0; i < count; i++) check_guards(args[i], bytes[i], name);
  for (int r = 0; r < results; r++) {
    int id = result_id(one, node, r);
    if (id < 0) continue;
    compare(one, name, id, args[node->input_count + r]);
    one->actual[id] = read_tensor(one, one->values[id]->type, args[node->input_count + r]);
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

/* Makes, loads and runs every kernel of a fused graph. Returns how many there were. */
static int run_graph(Arena *arena, Diag *diag, const Graph *graph, SettingValue *settings,
                     How how) {
  Probe probe = {arena, graph, settings, 1, NULL};
  Case one = {.arena = arena, .diag = diag, .graph = graph, .values = probe_run(&probe, diag)};
  one.rounded = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  one.actual = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_non_null(one.values);
  assert_true(graph_interpret(graph, arena, probe_leaf, &probe, true, one.rounded, diag));
  CodegenOptions options = {.target = TARGET_PTX, .gpu = how.gpu};
  Module module;
  assert_true(target_open(&module, arena, diag, &options));
  module.allows_tf32 = one.allows_tf32 = how.allows_tf32;
  module.only_tile = how.only_tile;
  module.only_splits = how.only_splits;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!is_kernel_node(node)) continue;
    Made made = {.node = node};
    int alias[GPU_MAX_ARGS];
    memset(alias, 0xff, sizeof alias);
    const char *name = arena_printf(arena, "k%d", one.made.count);
    if (!nvptx_emit(&module, node, name, alias, &made.kernel))
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

/* The gradient of a maximum asks which element equals it: where another kernel computes the element
 * again, the last bit decides, and a comparison with exact values is moot. */
static bool has_extreme(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_RMAX || graph->nodes.at[i]->op == OP_RMIN) return true;
  return false;
}

static void random_steps(void **state) {
  (void)state;
  int kernels = 0;
  const char *only = getenv("FT_SEED");
  for (int seed = only ? atoi(only) : 0, steps = 0; steps < help_random_count(10); seed++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = help_context(arena, &diag, seed);
    context.for_gpu = true;
    Graph *graph = graph_random(arena, (uint64_t)seed, 40);
    if (!has_extreme(graph)) {
      graph = help_pass(&context, graph,
                        "shapes,simplify,cse,dce,autodiff,attention,precision,widen,optimizer,"
                        "simplify2,cse2,dce2,layout,moments,fuse");
      kernels += run_graph(arena, &diag, graph, context.settings, (How){0});
      steps++;
    }
    arena_free(arena);
  }
  printf("%d kernels\n", kernels);
  assert_true(kernels > 200);
}

static const char *const graphs[] = {
#include "codegen_nvptx.inc"
};

/* Graphs in the language of .ftir, before fuse. */
static int run_text(const char *text, How how) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  diag.out = stderr;
  context.for_gpu = true;
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  graph = help_pass(&context, graph, "fuse");
  int kernels = run_graph(arena, &diag, graph, context.settings, how);
  arena_free(arena);
  return kernels;
}

static void written_graphs(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    assert_true(run_text(graphs[i], (How){0}) > 0);
}

/* On tensor cores; graphs without products of f32 are the same as before, and pass quickly. */
static void written_graphs_tf32(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    if (strstr(graphs[i], "dot") || strstr(graphs[i], "conv"))
      assert_true(run_text(graphs[i], (How){.allows_tf32 = true}) > 0);
}

/* All four ways the operands of a product may lie, with an epilogue on two of them. */
static const char *product_text(Arena *arena, const char *type, int m, int n, int k) {
  Text text = {0};
  text_printf(&text, "graph \"tile\" {\n%%v = param {name=\"v\"} : %s[1,%d]\n", type, n);
  text_printf(&text, "%%w = broadcast %%v : %s[%d,%d]\n", type, m, n);
  for (int way = 0; way < 4; way++) {
    bool ta = way & 1, tb = way & 2;
    text_printf(&text, "%%a%d = param {name=\"a%d\"} : %s[%d,%d]\n", way, way, type, ta ? k : m,
                ta ? m : k);
    text_printf(&text, "%%b%d = param {name=\"b%d\"} : %s[%d,%d]\n", way, way, type, tb ? n : k,
                tb ? k : n);
    text_printf(&text, "%%p%d = dot %%a%d, %%b%d {ta=%s, tb=%s} : %s[%d,%d]\n", way, way, way,
                ta ? "true" : "false", tb ? "true" : "false", type, m, n);
    if (way < 2) text_printf(&text, "%%s%d = add %%p%d, %%w : %s[%d,%d]\n", way, way, type, m, n);
    text_printf(&text, "output \"o%d\" %%%c%d\n", way, way < 2 ? 's' : 'p', way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* Every tile of every unit, over shapes that it fits and that stick out, with and without splits.
 */
static void every_tile(void **state) {
  (void)state;
  static const struct {
    const char *type;
    bool allows_tf32;
    int tiles;
  } units[] = {{"f32", false, 20},
               {"f64", false, 3},
               {"f32", true, 10},
               {"f16", false, 10},
               {"bf16", false, 2}};
  static const int shapes[][3] = {{72, 48, 80}, {137, 131, 75}, {66, 34, 70}};
  Arena *arena = arena_new();
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (int tile = 1; tile <= units[u].tiles; tile++)
      for (int shape = 0; shape < 3; shape++) {
        const int *size = shapes[shape];
        How how = {units[u].allows_tf32, tile, (tile + shape) % 2 + 1};
        if (!getenv("FT_ALL_TILES") && shape != tile % 3) continue;
        int less = tile > 5 ? 3 : 1; /* tiles are listed from the largest */
        const char *text =
            product_text(arena, units[u].type, size[0] / less, size[1] / less, size[2]);
        assert_int_equal(run_text(text, how), 4);
      }
  arena_free(arena);
}

/* Convolutions of 16-bit types in NHWC: forward with an epilogue, and both gradients. */
static const char *conv_text(Arena *arena, const char *type, int stride, int in, int out) {
  int height = 9, width = 7, images = 3;
  int high = (height + 2 - 3) / stride + 1, wide = (width + 2 - 3) / stride + 1;
  const char *how = arena_printf(
      arena, "{stride=[%d,%d], padding=[1,1,1,1], dilation=[1,1], groups=1, layout=\"nhwc\"}",
      stride, stride);
  const char *x = arena_printf(arena, "%s[%d,%d,%d,%d]", type, images, height, width, in);
  const char *y = arena_printf(arena, "%s[%d,%d,%d,%d]", type, images, high, wide, out);
  const char *w = arena_printf(arena, "%s[%d,3,3,%d]", type, out, in);
  return arena_printf(arena,
                      "graph \"convolutions\" {\n%%x = param {name=\"x\"} : %s\n"
                      "%%w = param {name=\"w\"} : %s\n%%dy = param {name=\"dy\"} : %s\n"
                      "%%y = conv %%x, %%w %s : %s\n%%s = mul %%y, %%y : %s\n"
                      "%%dx = conv_grad_input %%dy, %%w %s : %s\n"
                      "%%dw = conv_grad_weight %%dy, %%x %s : %s\n"
                      "output \"y\" %%s\noutput \"dx\" %%dx\noutput \"dw\" %%dw\n}\n",
                      x, w, y, how, y, y, how, x, how, w);
}

/* Hopper's tensor cores: every tile, both types, all orders of operands, shapes that stick out;
 * each once more by tensor maps, which only products have. */
static void every_wgmma(void **state) {
  (void)state;
  enum { FIRST = 11, TILES = 8 }; /* after those of mma.sync */
  static const int shapes[][3] = {{128, 256, 64}, {136, 72, 200}, {72, 264, 136}};
  Arena *arena = arena_new();
  for (int tile = 0; tile < 2 * TILES; tile++) {
    for (int shape = 0; shape < 3; shape++) {
      if (!getenv("FT_ALL_TILES") && shape != tile % 3) continue;
      const int *size = shapes[shape];
      How how = {false, FIRST + tile, (tile + shape) % 2 + 1, "sm_90a"};
      const char *type = (tile + shape) % 3 ? "bf16" : "f16";
      assert_int_equal(run_text(product_text(arena, type, size[0], size[1], size[2]), how), 4);
    }
    if (tile >= TILES || (!getenv("FT_ALL_TILES") && tile % 2)) continue;
    How how = {false, FIRST + tile, tile % 4 / 2 + 1, "sm_90a"};
    const char *convolutions = conv_text(arena, tile % 4 ? "bf16" : "f16", tile % 3 ? 1 : 2,
                                         tile % 4 ? 16 : 24, tile % 3 ? 32 : 72);
    assert_int_equal(run_text(convolutions, how), 3);
  }
  arena_free(arena);
}

/* Of images, or of weights. */
static const char *image_type(Arena *arena, const char *type, bool nhwc, int count, int channels,
                              const int size[2]) {
  return nhwc ? arena_printf(arena, "%s[%d,%d,%d,%d]", type, count, size[0], size[1], channels)
              : arena_printf(arena, "%s[%d,%d,%d,%d]", type, count, channels, size[0], size[1]);
}

/* The gradient of a strided convolution's input, class by class: strides that share a factor with
 * the dilation or not, windows smaller than the stride, images that the stride does not divide,
 * output places that no window begins at; with splits and without. */
static void strided_inputs(void **state) {
  (void)state;
  static const struct {
    int stride[2], pad[4], dilation[2], kernel[2], size[2];
  } cases[] = {
      {{2, 2}, {1, 1, 1, 1}, {1, 1}, {3, 3}, {9, 8}},
      {{2, 2}, {0, 0, 0, 0}, {1, 1}, {1, 1}, {7, 6}},
      {{2, 3}, {3, 3, 2, 2}, {1, 2}, {7, 3}, {11, 9}},
      {{4, 2}, {2, 5, 0, 1}, {2, 2}, {3, 2}, {13, 10}},
      {{3, 1}, {0, 2, 1, 1}, {1, 1}, {2, 3}, {8, 5}},
      {{6, 5}, {4, 4, 3, 7}, {4, 3}, {5, 4}, {23, 16}},
  };
  static const char *const types[] = {"f32", "bf16", "f16"};
  Arena *arena = arena_new();
  for (int i = 0; i < 18; i++) {
    int one = i % 6, type = i / 6, nhwc = (one + type) % 4 != 0, groups = i % 5 == 3 ? 2 : 1;
    int y[2], in = type ? 16 : 4, out = 8;
    for (int d = 0; d < 2; d++)
      y[d] = (cases[one].size[d] + cases[one].pad[d] + cases[one].pad[d + 2] -
              (cases[one].kernel[d] - 1) * cases[one].dilation[d] - 1) /
                 cases[one].stride[d] +
             1;
    const int *pad = cases[one].pad, *size = cases[one].size;
    const char *dx = image_type(arena, types[type], nhwc, 2, groups * in, size);
    const char *dy = image_type(arena, types[type], nhwc, 2, groups * out, y);
    const char *w = image_type(arena, types[type], nhwc, groups * out, in, cases[one].kernel);
    const char *text = arena_printf(
        arena,
        "graph \"strided\" {\n%%dy = param {name=\"dy\"} : %s\n%%w = param {name=\"w\"} : "
        "%s\n%%dx = conv_grad_input %%dy, %%w {stride=[%d,%d], padding=[%d,%d,%d,%d], "
        "dilation=[%d,%d], groups=%d, layout=\"%s\"} : %s\noutput \"dx\" %%dx\n}\n",
        dy, w, cases[one].stride[0], cases[one].stride[1], pad[0], pad[1], pad[2], pad[3],
        cases[one].dilation[0], cases[one].dilation[1], groups, nhwc ? "nhwc" : "nchw", dx);
    How how = {.only_tile = type && i % 2 ? 11 + i % 8 : i % 4 * 3,
               .only_splits = i % 3 + 1,
               .gpu = type && i % 2 ? "sm_90a" : NULL};
    assert_int_equal(run_text(text, how), 1);
  }
  arena_free(arena);
}

/* A convolution's columns in one kernel with it: mean and spread of a biased result far from zero,
 * the sum of an epilogue, and what is made of them. */
static const char *columns_text(Arena *arena, const char *type, int stride, int groups, int in,
                                int out) {
  int height = 11, width = 9, images = 3;
  int high = (height + 2 - 3) / stride + 1, wide = (width + 2 - 3) / stride + 1;
  const char *y = arena_printf(arena, "[%d,%d,%d,%d]", images, high, wide, groups * out);
  Text text = {0};
  text_printf(
      &text,
      "graph \"columns\" {\n%%x = param {name=\"x\"} : %s[%d,%d,%d,%d]\n"
      "%%w = param {name=\"w\"} : %s[%d,3,3,%d]\n%%b = param {name=\"b\"} : f32[1,1,1,%d]\n",
      type, images, height, width, groups * in, type, groups * out, in, groups * out);
  text_printf(&text,
              "%%y = conv %%x, %%w {stride=[%d,%d], padding=[1,1,1,1], dilation=[1,1], groups=%d, "
              "layout=\"nhwc\"} : %s%s\n",
              stride, stride, groups, type, y);
  const char *wide_y = strcmp(type, "f32") ? "%f" : "%y";
  if (*(wide_y + 1) == 'f') text_printf(&text, "%%f = cast %%y : f32%s\n", y);
  text_printf(&text,
              "%%k = const {value=10000} : f32[1,1,1,%d]\n%%far = mul %%b, %%k : f32[1,1,1,%d]\n"
              "%%bb = broadcast %%far : f32%s\n%%z = add %s, %%bb : f32%s\n"
              "%%m = mean %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%v = spread %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%r = rsqrt %%v : f32[1,1,1,%d]\n%%q = mul %s, %s : f32%s\n"
              "%%s = sum %%q {axes=[0,1,2]} : f32[1,1,1,%d]\n",
              groups * out, groups * out, y, wide_y, y, groups * out, groups * out, groups * out,
              wide_y, wide_y, y, groups * out);
  text_printf(&text, "output \"y\" %%y\noutput \"m\" %%m\noutput \"v\" %%v\n"
                     "output \"r\" %%r\noutput \"s\" %%s\n}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* The gradient of a convolution's input, masked, and its sums, as a batch norm's gradient has them.
 */
static const char *slopes_text(Arena *arena, const char *type, int stride, int groups, int in,
                               int out) {
  int height = 11, width = 9, images = 3, channels = groups * in;
  int high = (height + 2 - 3) / stride + 1, wide = (width + 2 - 3) / stride + 1;
  const char *x = arena_printf(arena, "[%d,%d,%d,%d]", images, height, width, channels);
  Text text = {0};
  text_printf(&text,
              "graph \"slopes\" {\n%%x = param {name=\"x\"} : f32%s\n"
              "%%w = param {name=\"w\"} : %s[%d,3,3,%d]\n"
              "%%dy = param {name=\"dy\"} : %s[%d,%d,%d,%d]\n"
              "%%m = param {name=\"m\"} : f32[1,1,1,%d]\n",
              x, type, groups * out, in, type, images, high, wide, groups * out, channels);
  text_printf(&text,
              "%%dx = conv_grad_input %%dy, %%w {stride=[%d,%d], padding=[1,1,1,1], "
              "dilation=[1,1], groups=%d, layout=\"nhwc\", result=f32} : f32%s\n"
              "%%k = const {value=0} : f32%s\n%%l = le %%x, %%k : bool%s\n"
              "%%z = select %%l, %%k, %%dx : f32%s\n%%mm = broadcast %%m : f32%s\n"
              "%%d = sub %%x, %%mm : f32%s\n%%p = mul %%z, %%d : f32%s\n"
              "%%s = sum %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%t = sum %%p {axes=[0,1,2]} : f32[1,1,1,%d]\n%%u = add %%s, %%m : f32[1,1,1,%d]\n"
              "output \"z\" %%z\noutput \"s\" %%u\noutput \"t\" %%t\n}\n",
              stride, stride, groups, x, x, x, x, x, x, x, channels, channels, channels);
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* With every tile of every unit, tiles cut off at both ends, groups, strides. */
static void column_sums(void **state) {
  (void)state;
  static const struct {
    const char *type;
    bool allows_tf32;
    int tiles;
    const char *gpu;
  } units[] = {{"f32", false, 20, NULL},
               {"f32", true, 10, NULL},
               {"bf16", false, 10, NULL},
               {"f16", false, 18, "sm_90a"}};
  Arena *arena = arena_new();
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (int tile = units[u].gpu ? 11 : 1; tile <= units[u].tiles; tile++) {
      if (!getenv("FT_ALL_TILES") && tile % 3 != (int)u % 3) continue;
      int groups = tile % 4 == 3 ? 2 : 1, stride = tile % 5 == 4 ? 2 : 1;
      How how = {units[u].allows_tf32, tile, tile % 2 + 1, units[u].gpu};
      const char *text = columns_text(arena, units[u].type, stride, groups, tile % 2 ? 8 : 16,
                                      tile % 3 ? 40 : 136);
      assert_int_equal(run_text(text, how), 1);
      if (!getenv("FT_ALL_TILES") && tile % 2) continue;
      text = slopes_text(arena, units[u].type, 2 - tile % 3 / 2, groups, tile % 3 ? 40 : 136,
                         tile % 2 ? 8 : 16);
      assert_int_equal(run_text(text, how), 1);
    }
  arena_free(arena);
}

/* Loop kernels that turn tiles: every element size, tiles cut off at both ends, few rows or
 * columns, dimensions in between, two operands turned alike. */
static void transposes(void **state) {
  (void)state;
  static const struct {
    int rank, size[4], perm[4];
  } cases[] = {
      {2, {65, 130}, {1, 0}},
      {2, {64, 64}, {1, 0}},
      {3, {5, 33, 7}, {2, 1, 0}},
      {3, {3, 3, 70}, {0, 2, 1}},
      {4, {2, 9, 11, 16}, {0, 3, 1, 2}},
      {4, {2, 3, 24, 26}, {0, 2, 3, 1}},
      {4, {3, 4, 5, 40}, {3, 0, 2, 1}},
      {3, {1, 40, 72}, {2, 0, 1}},
  };
  static const char *const types[] = {"f32", "bf16", "u8", "f64", "bool", "f16"};
  Arena *arena = arena_new();
  for (int i = 0; i < 24; i++) {
    int one = i % 8, rank = cases[one].rank;
    const int *size = cases[one].size, *perm = cases[one].perm;
    const char *type = types[(i + i / 8) % 6], *in = "", *out = "", *order = "";
    for (int d = 0; d < rank; d++) {
      const char *comma = d ? "," : "";
      in = arena_printf(arena, "%s%s%d", in, comma, size[d]);
      out = arena_printf(arena, "%s%s%d", out, comma, size[perm[d]]);
      order = arena_printf(arena, "%s%s%d", order, comma, perm[d]);
    }
    const char *text = arena_printf(
        arena,
        "graph \"turned\" {\n%%x = input {name=\"x\"} : %s[%s]\n%%y = param {name=\"y\"} : "
        "f32[%s]\n"
        "%%z = param {name=\"z\"} : f32[%s]\n%%a = cast %%x : f32[%s]\n%%b = neg %%a : f32[%s]\n"
        "%%t = transpose %%%s {perm=[%s]} : %s[%s]\n%%u = transpose %%y {perm=[%s]} : f32[%s]\n"
        "%%v = cast %%t : f32[%s]\n%%w = add %%u, %%v : f32[%s]\n%%r = mul %%w, %%z : f32[%s]\n"
        "output \"r\" %%r\noutput \"t\" %%t\n}\n",
        type, in, in, out, in, in, i % 3 ? "b" : "x", order, i % 3 ? "f32" : type, out, order, out,
        out, out, out);
    assert_int_equal(run_text(text, (How){0}), 1);
  }
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_graphs), cmocka_unit_test(written_graphs_tf32),
      cmocka_unit_test(every_tile),     cmocka_unit_test(every_wgmma),
      cmocka_unit_test(random_steps),   cmocka_unit_test(strided_inputs),
      cmocka_unit_test(column_sums),    cmocka_unit_test(transposes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
