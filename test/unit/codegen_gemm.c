/* codegen_gemm: products by our own kernel with a generated epilogue, at every register width this
 * machine has: shapes with remainders in each direction, all transpositions, batches; against the
 * interpreter, the same bits for every split of the work. */
#include "codegen/host.h"
#include "codegen/host_gemm.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "kernels/gemm_host.h"
#include "passes_help.h"

typedef void HostEntry(void *const *args, int64_t begin, int64_t end);
typedef struct {
  int64_t batch, m, n, k;
} Size;
static const Size sizes[] = {
    {1, 64, 128, 784}, {1, 64, 10, 64},   {1, 10, 64, 64}, {1, 64, 64, 10},   {3, 13, 33, 17},
    {1, 8, 16, 16},    {1, 29, 100, 48},  {2, 15, 47, 31}, {1, 128, 784, 64}, {1, 1, 50, 20},
    {1, 9, 1, 40},     {1, 27, 256, 300}, {1, 57, 65, 1},  {1, 200, 31, 130}, {2, 40, 300, 260},
    {1, 300, 70, 700}, {1, 33, 33, 4200}, {1, 290, 300, 1100}};

static char *graph_text(Arena *arena, Size s, bool ta, bool tb) {
  const char *batch = s.batch > 1 ? arena_printf(arena, "%d,", (int)s.batch) : "";
  int m = (int)s.m, n = (int)s.n, k = (int)s.k;
  const char *one = s.batch > 1 ? "1," : "";
  return arena_printf(
      arena,
      "graph \"product\" {\n%%a = param {name=\"a\"} : f32[%s%d,%d]\n"
      "%%b = param {name=\"b\"} : f32[%s%d,%d]\n%%v = param {name=\"v\"} : f32[%s1,%d]\n"
      "%%vb = broadcast %%v : f32[%s%d,%d]\n%%p = dot %%a, %%b {ta=%s, tb=%s} : f32[%s%d,%d]\n"
      "%%r = add %%p, %%vb : f32[%s%d,%d]\n%%z = const {value=0} : f32[%s%d,%d]\n"
      "%%s = max %%r, %%z : f32[%s%d,%d]\n%%g = gt %%r, %%z : bool[%s%d,%d]\n"
      "output \"s\" %%s\noutput \"g\" %%g\n}\n",
      batch, ta ? k : m, ta ? m : k, batch, tb ? n : k, tb ? k : n, one, n, batch, m, n,
      ta ? "true" : "false", tb ? "true" : "false", batch, m, n, batch, m, n, batch, m, n, batch, m,
      n, batch, m, n);
}

static const Node *find_kernel(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_FUSED) return graph->nodes.at[i];
  fail_msg("nothing was fused:\n%s", graph_to_text(graph, graph->arena));
  return NULL;
}

/* What a bf16 or f16 tensor is in memory; its values are rounded already. */
static void *narrow_of(const Tensor *tensor) {
  int64_t count = shape_elements(&tensor->type.shape);
  uint16_t *out = malloc((size_t)count * 2);
  for (int64_t i = 0; i < count; i++) {
    float value = (float)tensor->f[i];
    _Float16 half = (_Float16)value;
    uint32_t word;
    memcpy(&word, &value, 4);
    out[i] = (uint16_t)(word >> 16);
    if (tensor->type.dtype == DT_F16) memcpy(&out[i], &half, 2);
  }
  return out;
}

static void *floats_of(const Tensor *tensor) {
  int64_t count = shape_elements(&tensor->type.shape);
  if (dtype_bytes(tensor->type.dtype) == 2) return narrow_of(tensor);
  float *out = aligned_alloc(64, ((size_t)count * 4 + 127) / 64 * 64);
  for (int64_t i = 0; i < count; i++) out[i] = (float)tensor->f[i];
  return out;
}

/* Each launch in `pieces`, last first. args: of the node, behind them the workspace, and packed operands, of which the CPU has the second. */
static void run_launches(LLVMOrcLLJITRef jit, const Kernel *kernel, void **args, int64_t pieces) {
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *launch = &kernel->launch[i];
    void *own[8];
    assert_true(launch->arg_count <= 8);
    for (int k = 0; k < launch->arg_count; k++) own[k] = args[launch->args[k]];
    HostEntry *entry = (HostEntry *)gpu_kernel(jit, launch->name);
    for (int64_t p = pieces - 1; p >= 0; p--)
      entry(launch->args ? own : args, launch->work * p / pieces, launch->work * (p + 1) / pieces);
  }
}

enum { PACKED_BEHIND = 2 };
static void *workspace_of(int64_t size) {
  size_t bytes = (size_t)(size + 127) / 64 * 64;
  void *workspace = aligned_alloc(64, bytes);
  memset(workspace, 0x7f, bytes);
  return workspace;
}

/* Runs it in `pieces`, last first, and checks both results. */
static void run_pieces(LLVMOrcLLJITRef jit, const Kernel *kernel, void **args, int operands,
                       const Tensor *const wanted[2], int64_t pieces, double limit,
                       const char *text) {
  int64_t count = shape_elements(&wanted[0]->type.shape);
  float *sum = args[operands];
  bool *positive = args[operands + 1];
  memset(sum, 0x7f, (size_t)count * 4 + 4);
  memset(positive, 0x7f, (size_t)count + 1);
  run_launches(jit, kernel, args, pieces);
  for (int64_t i = 0; i < count; i++) {
    if (!(fabs((double)sum[i] - wanted[0]->f[i]) <= limit))
      fail_msg("element %lld is %g, not %g:\n%s", (long long)i, (double)sum[i], wanted[0]->f[i],
               text);
    if (positive[i] != (sum[i] > 0)) fail_msg("element %lld of the mask:\n%s", (long long)i, text);
  }
  assert_int_equal(((char *)positive)[count], 0x7f);
  assert_int_equal(((char *)(sum + count))[0], 0x7f);
}

/* Machine code of the module and of what it needs from kernels/gemm_x86.c. */
static LLVMOrcLLJITRef load_kernel(Module *module) {
  assert_true(target_verify(module) && module_link(module));
  assert_true(target_optimize(module));
  LLVMOrcLLJITRef jit = gpu_load(module->llvm);
  size_t bytes;
  const char *object = module_library_object(module, &bytes);
  assert_non_null(object);
  LLVMErrorRef error =
      LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit),
                                LLVMCreateMemoryBufferWithMemoryRangeCopy(object, bytes, "gemm"));
  if (error) fail_msg("%s", LLVMGetErrorMessage(error));
  return jit;
}

static void check_size(const char *cpu, Size size, bool ta, bool tb, int *ours, int *packed) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  const char *text = graph_text(arena, size, ta, tb);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  graph = help_pass(&context, graph, "fuse");
  Probe probe = {arena, graph, context.settings, 1, NULL};
  Tensor **values = probe_run(&probe, &diag);
  const Node *node = find_kernel(graph);
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu};
  Module module;
  Kernel kernel = {0};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  assert_true(host_emit(&module, node, "product", alias, &kernel));
  if (!kernel.launch[0].is_call) {
    ++*ours;
    *packed += kernel.launch_count > 1;
    LLVMOrcLLJITRef jit = load_kernel(&module);
    void *args[12];
    int operands = node->input_count;
    for (int i = 0; i < operands; i++) args[i] = floats_of(values[node->input[i]->id]);
    const Tensor *wanted[2] = {values[graph_find_root(graph, ROOT_OUTPUT, "s")->id],
                               values[graph_find_root(graph, ROOT_OUTPUT, "g")->id]};
    int64_t count = shape_elements(&wanted[0]->type.shape);
    for (int i = 0; i < 2; i++) {
      const Type *type = &node->body->roots.at[i].node->type;
      args[operands + (type->dtype == DT_BOOL)] = malloc((size_t)count * 4 + 64);
      assert_int_equal(type->dtype == DT_BOOL, i); /* the order of the outputs */
    }
    args[operands + 2] = workspace_of(kernel.workspace);
    args[operands + 3] = NULL;
    args[operands + 2 + PACKED_BEHIND] = workspace_of(kernel.packed[1]);
    /* Rounding k partial sums, which grow as the square root of their number: eps / sqrt(12) *
     * k / sqrt(2), five times that. A missing term would be a thousand times as much. */
    double limit = 1.2e-7 * (double)size.k + 2e-6;
    float *first = malloc((size_t)count * 4);
    run_pieces(jit, &kernel, args, operands, wanted, 1, limit, text);
    memcpy(first, args[operands], (size_t)count * 4);
    run_pieces(jit, &kernel, args, operands, wanted, 3, limit, text);
    assert_memory_equal(first, args[operands], (size_t)count * 4);
    run_pieces(jit, &kernel, args, operands, wanted, kernel.launch[kernel.launch_count - 1].work, limit, text);
    assert_memory_equal(first, args[operands], (size_t)count * 4);
    free(first);
    for (int i = 0; i < operands + 5; i++) free(args[i]);
    LLVMOrcDisposeLLJIT(jit);
  }
  target_close(&module);
  arena_free(arena);
}

/* Without an epilogue tiles are stored where they belong. */
static void check_plain(const char *cpu, const char *disable, Size size, bool ta, bool tb,
                        const char *type, int *ours) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  int m = (int)size.m, n = (int)size.n, k = (int)size.k, b = (int)size.batch;
  const char *text = arena_printf(arena,
                                  "graph \"plain\" {\n%%a0 = param {name=\"a\"} : f32[%d,%d,%d]\n"
                                  "%%b0 = param {name=\"b\"} : f32[%d,%d,%d]\n"
                                  "%%a = cast %%a0 : %s[%d,%d,%d]\n%%b = cast %%b0 : %s[%d,%d,%d]\n"
                                  "%%p = dot %%a, %%b {ta=%s, tb=%s%s} : f32[%d,%d,%d]\n"
                                  "output \"p\" %%p\n}\n",
                                  b, ta ? k : m, ta ? m : k, b, tb ? n : k, tb ? k : n, type, b,
                                  ta ? k : m, ta ? m : k, type, b, tb ? n : k, tb ? k : n,
                                  ta ? "true" : "false", tb ? "true" : "false",
                                  type[0] == 'f' && type[1] == '3' ? "" : ", result=f32", b, m, n);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Probe probe = {arena, graph, context.settings, 1, NULL};
  Tensor **values = probe_run(&probe, &diag);
  const Node *node = graph_find_root(graph, ROOT_OUTPUT, "p");
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu, .disable = disable};
  Module module;
  Kernel kernel = {0};
  int alias[1] = {-1};
  assert_true(target_open(&module, arena, &diag, &options));
  assert_true(host_emit(&module, node, "plain", alias, &kernel));
  if (!kernel.launch[0].is_call) {
    ++*ours;
    LLVMOrcLLJITRef jit = load_kernel(&module);
    void *args[6] = {floats_of(values[node->input[0]->id]), floats_of(values[node->input[1]->id])};
    int64_t count = shape_elements(&node->type.shape), work = kernel.launch[kernel.launch_count - 1].work;
    float *sum = args[2] = malloc((size_t)count * 4 + 4);
    args[3] = workspace_of(kernel.workspace);
    args[3 + PACKED_BEHIND] = workspace_of(kernel.packed[1]);
    for (int64_t pieces = 1; pieces <= work; pieces = pieces < 4 ? pieces + 1 : pieces * 3) {
      memset(sum, 0x7f, (size_t)count * 4 + 4);
      run_launches(jit, &kernel, args, pieces);
      for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)sum[i] - values[node->id]->f[i]) <= 1.2e-7 * (double)k + 2e-6))
          fail_msg("element %lld is %g, not %g:\n%s", (long long)i, (double)sum[i],
                   values[node->id]->f[i], text);
      assert_int_equal(((char *)(sum + count))[0], 0x7f);
    }
    for (int i = 0; i < 6; i++) free(args[i]);
    LLVMOrcDisposeLLJIT(jit);
  }
  target_close(&module);
  arena_free(arena);
}

/* Of bf16 and f16 all products are ours, on every machine; bf16 by each of the ways that it has. */
static void narrow_sizes(const char *cpu) {
  static const char *const without[] = {NULL, "amx,widened", "amx,dpbf16"};
  int ours = 0, count = 0;
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    if (!help_has_its_turn(i)) continue;
    count++;
    for (int t = 0; t < 4; t++) {
      for (int w = 0; w < 3; w++)
        check_plain(cpu, without[w], sizes[i], t & 1, t & 2, "bf16", &ours);
      check_plain(cpu, NULL, sizes[i], t & 1, t & 2, "f16", &ours);
    }
  }
  assert_int_equal(ours, 16 * count);
}

static void all_sizes(const char *cpu) {
  int ours = 0, packed = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int t = 0; t < 4; t++) check_plain(cpu, NULL, sizes[i], t & 1, t & 2, "f32", &ours);
  assert_true(ours >= 50);
  narrow_sizes(cpu);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int t = 0; t < 4; t++) check_size(cpu, sizes[i], t & 1, t & 2, &ours, &packed);
  assert_true(ours >= 100 && packed >= 4);
}
static void baseline(void **state) {
  (void)state;
  narrow_sizes("x86-64");
}
static void avx2(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) skip();
  all_sizes("x86-64-v3");
}
static void avx512(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) skip();
  all_sizes("x86-64-v4");
}

/* The tile is a pure function of the shape, covers it, and knows when to leave it to a library. */
static void choice(void **state) {
  (void)state;
  for (int bytes = 32; bytes <= 64; bytes *= 2)
    for (int64_t m = 1; m < 70; m += 3)
      for (int64_t n = 1; n < 200; n += 7) {
        GemmTile tile = gemm_choose(2, m, n, 100, false, OPERAND_F32, bytes);
        assert_in_range(tile.rows, 1, GEMM_MAX_ROWS);
        assert_in_range(tile.vectors, 1, GEMM_MAX_VECTORS);
        int64_t width = tile.vectors * GEMM_LANES;
        assert_int_equal(tile.work,
                         2 * ((m + tile.rows - 1) / tile.rows) * ((n + width - 1) / width));
      }
  GemmTile deep = gemm_choose(1, 64, 64, GEMM_MAX_PANEL, false, OPERAND_F32, 64);
  assert_true(deep.depth > 0 && deep.depth <= GEMM_PACKED_DEPTH && !deep.is_packed);
  assert_in_range(deep.work, 2, 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(choice),
      cmocka_unit_test(baseline),
      cmocka_unit_test(avx2),
      cmocka_unit_test(avx512),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
