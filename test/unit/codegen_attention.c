/* codegen_attention: attention and its gradient by the kernel on the CPU against the interpreter:
 * lengths around the tile's, heads that share keys, masks, the causal order, features that are no
 * multiple of a vector, f32, bf16 and f16, few heads and many; at each x86-64 level that this
 * machine has; the same bits for every split of the work. */
#include "attention_help.h"
#include "codegen/host.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "passes/attention.h"

typedef void HostEntry(void *const *args, int64_t begin, int64_t end);

static char *memory_for(size_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }

/* All launches, each in `pieces`, the last one first. */
static void run_pieces(LLVMOrcLLJITRef jit, const Kernel *kernel, void *const *args,
                       int64_t pieces) {
  for (int i = 0; i < kernel->launch_count; i++) {
    HostEntry *entry = (HostEntry *)gpu_kernel(jit, kernel->launch[i].name);
    int64_t work = kernel->launch[i].work;
    for (int64_t p = pieces - 1; p >= 0; p--)
      entry(args, work * p / pieces, work * (p + 1) / pieces);
  }
}

static void run_node(LLVMOrcLLJITRef jit, const AttentionCase *form, const Graph *graph,
                     const Node *node, const Kernel *kernel, Tensor *const *values,
                     const char *text) {
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  int operands = node->input_count, results = node_result_count(node), count = operands + results;
  void *args[17], *first[3] = {NULL};
  size_t bytes[16];
  const Tensor *want[3];
  for (int i = 0; i < count; i++) {
    Type type = i < operands ? node->input[i]->type : node_result_type(node, i - operands);
    bytes[i] = (size_t)type_bytes(&type);
    args[i] = memory_for(bytes[i]);
    if (i < operands) attention_write(values[node->input[i]->id], args[i]);
  }
  args[count] = memory_for((size_t)kernel->workspace);
  for (int i = 0; i < results; i++) {
    const char *name = attention_results[is_grad][i];
    want[i] = values[graph_find_root(graph, ROOT_OUTPUT, name)->id];
    first[i] = malloc(bytes[operands + i] + 1);
  }
  for (int64_t pieces = 1; pieces <= 7; pieces += 3) {
    for (int i = 0; i < results; i++)
      memset(args[operands + i], 0x7f, (bytes[operands + i] + 127) / 64 * 64);
    memset(args[count], 0x7f, ((size_t)kernel->workspace + 127) / 64 * 64);
    run_pieces(jit, kernel, args, pieces);
    for (int i = 0; i < results; i++) {
      const char *result = args[operands + i], *name = attention_results[is_grad][i];
      if (pieces == 1) attention_compare(form, result, want[i], name, text);
      if (pieces == 1) memcpy(first[i], result, bytes[operands + i]);
      if (memcmp(first[i], result, bytes[operands + i]))
        fail_msg("%lld pieces give other bits of %s:\n%s", (long long)pieces, name, text);
      assert_int_equal(result[bytes[operands + i]], 0x7f); /* no more than that is written */
    }
    assert_int_equal(((char *)args[count])[kernel->workspace], 0x7f);
  }
  for (int i = 0; i <= count; i++) free(args[i]);
  for (int i = 0; i < results; i++) free(first[i]);
}

static void check_form(const char *cpu, const AttentionCase *form) {
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  char *text = attention_text(arena, form);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, attention_leaf, arena, true, values, &diag));
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu};
  Module module;
  Kernel kernel[2] = {{.launch_count = 0}, {.launch_count = 0}};
  const Node *node[2] = {NULL};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  attention_nodes(graph, node);
  for (int i = 0; i < 2; i++) {
    assert_true(form->layout != APART || attention_is_whole(node[i], false));
    assert_true(host_emit(&module, node[i], i ? "backward" : "forward", alias, &kernel[i]));
  }
  assert_true(module_link(&module));
  assert_true(target_optimize(&module));
  LLVMOrcLLJITRef jit = gpu_load(module.llvm);
  size_t bytes;
  const char *object = module_library_object(&module, &bytes);
  assert_non_null(object);
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(
      jit, LLVMOrcLLJITGetMainJITDylib(jit),
      LLVMCreateMemoryBufferWithMemoryRangeCopy(object, bytes, "library"));
  if (error) fail_msg("%s", LLVMGetErrorMessage(error));
  for (int i = 0; i < 2; i++) run_node(jit, form, graph, node[i], &kernel[i], values, text);
  LLVMOrcDisposeLLJIT(jit);
  target_close(&module);
  arena_free(arena);
}

static void all_forms(const char *cpu, int more) {
  static const char *const types[] = {"f32", "bf16", "f16"};
  static const int lengths[] = {1,  2,  3,   7,   15,  16,  17,  31,  33,  48,  63,
                                64, 65, 100, 127, 128, 129, 191, 192, 193, 255, 300};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += (size_t)more) {
    int n = lengths[i];
    const char *type = types[i % 3];
    check_form(cpu, &(AttentionCase){type, 1, 2, 1, n, n, 32, true, NULL, false, APART});
    check_form(cpu, &(AttentionCase){type, 1, 1, 1, n, n, 16, false, NULL, false, APART});
  }
  static const AttentionCase forms[] = {
      {"f32", 2, 3, 3, 70, 70, 64, true, NULL, false, APART},
      {"f32", 1, 2, 2, 20, 90, 128, true, NULL, false, APART}, /* the last rows of a longer text */
      {"f32", 1, 2, 2, 90, 20, 48, true, NULL, false, APART},  /* the first 70 rows see nothing */
      {"f32", 2, 4, 2, 33, 65, 80, false, NULL, false, APART},
      {"f32", 1, 6, 2, 10, 10, 1, true, NULL, false, APART},
      {"f32", 1, 4, 1, 66, 67, 20, true, NULL, false, APART},
      {"f32", 1, 4, 1, 2, 1, 1, true, NULL, false, APART},
      {"f32", 1, 4, 4, 2, 9, 1, true, NULL, false, APART},
      {"f32", 1, 1, 1, 5, 5, 256, false, NULL, false, APART},
      {"f32", 2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]", false, APART},
      {"f32", 2, 2, 1, 70, 66, 32, true, "bool[1,1,70,66]", false, APART},
      {"f32", 2, 2, 2, 10, 130, 24, false, "bool[2,1,1,130]", false, APART},
      {"f32", 2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]", false, APART},
      {"f32", 2, 2, 1, 65, 90, 40, false, "f32[2,1,1,90]", false, APART},
      {"f32", 1, 1, 1, 1, 1, 16, true, "bool[1,1,1,1]", false, APART},
      {"bf16", 2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]", false, APART},
      {"f16", 2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]", false, APART},
      {"bf16", 17, 2, 2, 20, 20, 16, true, NULL, false, APART}, /* enough heads for no shares */
      {"f32", 17, 2, 2, 20, 140, 16, true, NULL, false, APART},
      {"f32", 2, 3, 3, 70, 70, 16, true, NULL, false, BESIDE},
      {"f32", 2, 4, 2, 33, 65, 20, false, NULL, false, BESIDE},
      {"f32", 1, 6, 2, 130, 66, 7, true, "bool[1,1,130,66]", false, BESIDE},
      {"f32", 2, 2, 2, 66, 66, 32, true, NULL, false, PARTS},
      {"f32", 2, 4, 1, 20, 20, 24, false, "f32[2,1,1,20]", false, PARTS},
      {"f32", 2, 3, 3, 70, 70, 32, true, NULL, false, JOINED},
      {"f32", 2, 4, 2, 65, 65, 9, true, NULL, false, JOINED},
      {"bf16", 2, 4, 2, 165, 165, 9, true, NULL, false, JOINED},
      {"f16", 2, 4, 2, 65, 65, 32, true, NULL, false, JOINED},
      {"bf16", 2, 2, 2, 66, 66, 32, true, NULL, false, PARTS},
      {"bf16", 2, 4, 2, 133, 165, 20, false, NULL, false, BESIDE},
      {"f32", 1, 2, 1, 30, 30, 64, false, "bool[1,1,30,30]", false, JOINED}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(cpu, &forms[i]);
}

static void baseline(void **state) {
  (void)state;
  all_forms("x86-64", 5);
}
static void avx2(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) skip();
  all_forms("x86-64-v3", 3);
}
static void avx512(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) skip();
  all_forms("x86-64-v4", 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(baseline), cmocka_unit_test(avx2),
                                     cmocka_unit_test(avx512)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
