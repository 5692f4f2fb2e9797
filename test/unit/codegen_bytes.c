/* codegen_bytes: a byte divided by constants, which compiled code does by multiplying where all 256
 * quotients stay what a division gives: the very bits, whatever the constants. */
#include "codegen/host.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "passes_help.h"

typedef void HostEntry(void *const *args, int64_t begin, int64_t end);

/* (byte / first + addend) / second, compiled for `cpu`. */
static void check(const char *cpu, float first, float addend, float second) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  const char *text = arena_printf(
      arena,
      "graph \"bytes\" {\n%%a = input {name=\"a\"} : u8[256]\n%%f = cast %%a : f32[256]\n"
      "%%c = const {value=%.9g} : f32[256]\n%%d = div %%f, %%c : f32[256]\n"
      "%%k = const {value=%.9g} : f32[256]\n%%s = add %%d, %%k : f32[256]\n"
      "%%e = const {value=%.9g} : f32[256]\n%%q = div %%s, %%e : f32[256]\n"
      "output \"q\" %%q\n}\n",
      (double)first, (double)addend, (double)second);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  graph = help_pass(&context, graph, "fuse");
  const Node *node = NULL;
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_FUSED) node = graph->nodes.at[i];
  assert_non_null(node);
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu};
  Module module;
  Kernel kernel = {0};
  int alias[1] = {-1};
  assert_true(target_open(&module, arena, &diag, &options));
  assert_true(host_emit(&module, node, "bytes", alias, &kernel));
  assert_true(target_verify(&module) && module_link(&module));
  assert_true(target_optimize(&module));
  LLVMOrcLLJITRef jit = gpu_load(module.llvm);
  HostEntry *entry = (HostEntry *)gpu_kernel(jit, kernel.launch[0].name);
  _Alignas(64) uint8_t bytes[256];
  _Alignas(64) float have[256];
  for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
  void *args[2] = {bytes, have};
  entry(args, 0, kernel.launch[0].work);
  for (int i = 0; i < 256; i++) {
    volatile float quotient = (float)i / first; /* volatile: each step is rounded */
    volatile float sum = quotient + addend;
    float want = sum / second;
    if (memcmp(&want, &have[i], sizeof want) && !(isnan(want) && isnan(have[i])))
      fail_msg("(%d / %g + %g) / %g is %.9g, not %.9g", i, (double)first, (double)addend,
               (double)second, (double)have[i], (double)want);
  }
  LLVMOrcDisposeLLJIT(jit);
  target_close(&module);
  arena_free(arena);
}

static void all_constants(const char *cpu) {
  static const float constants[] = {255,   0.353f, 3,     7,      127.5f, -49,         0.1f,
                                    1e30f, 1e-30f, 3e38f, 1e-38f, 1e-42f, 0.999999940f};
  enum { COUNT = sizeof constants / sizeof *constants };
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j += 3) check(cpu, constants[i], i & 1 ? -0.286f : 0, constants[j]);
}
static void with_fma(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) skip();
  all_constants("x86-64-v3");
}
static void without_fma(void **state) {
  (void)state;
  all_constants("x86-64");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(with_fma), cmocka_unit_test(without_fma)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
