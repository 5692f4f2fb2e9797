/* codegen_attention: attention and its gradient by the kernel on the CPU against the interpreter:
 * lengths around the tile's, few queries, heads that share keys, masks, the causal order, features that are no
 * multiple of a vector, f32, bf16 and f16, few heads and many; at each x86-64 level that this
 * machine has; the same bits for every split of the work, one after another and at the same time;
 * and no two work items write the same place, so that it does not hang on luck. */
#include "attention_help.h"
#include "codegen/host.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "passes/attention.h"
#include <pthread.h>

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

/* ── at the same time ───────────────────────────────────────────────────────────────────────── */
typedef struct {
  HostEntry *entry;
  void *const *args;
  int64_t begin, end;
  pthread_barrier_t *start;
} Piece;

static void *run_piece(void *piece) {
  const Piece *p = piece;
  pthread_barrier_wait(p->start);
  p->entry(p->args, p->begin, p->end);
  return NULL;
}

/* All launches, each by several threads. */
static void run_threads(LLVMOrcLLJITRef jit, const Kernel *kernel, void *const *args) {
  enum { THREADS = 4 };
  for (int i = 0; i < kernel->launch_count; i++) {
    pthread_barrier_t start;
    pthread_t thread[THREADS];
    Piece piece[THREADS];
    HostEntry *entry = (HostEntry *)gpu_kernel(jit, kernel->launch[i].name);
    int64_t work = kernel->launch[i].work;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) {
      piece[t] = (Piece){entry, args, work * t / THREADS, work * (t + 1) / THREADS, &start};
      assert_int_equal(pthread_create(&thread[t], NULL, run_piece, &piece[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    pthread_barrier_destroy(&start);
  }
}

/* ── each alone ─────────────────────────────────────────────────────────────────────────────── */
/* What may be written, results and workspace, and which item wrote each half word; -1: none. */
typedef struct {
  uint16_t *memory;
  size_t count, room; /* half words; room: with those behind the end */
  bool is_short;      /* f16 or bf16 */
  int64_t *owner;
} Written;

/* -0 everywhere: whatever is added to it, be it 0, shows. */
static void fill(const Written *w) {
  for (size_t i = 0; i < w->room; i++) w->memory[i] = w->is_short || i % 2 ? 0x8000 : 0;
}

static void check_written(Written *w, int64_t item, const char *text) {
  for (size_t i = 0; i < w->room; i++) {
    if (w->memory[i] == (w->is_short || i % 2 ? 0x8000 : 0)) continue;
    if (i >= w->count) fail_msg("item %lld writes beyond the end:\n%s", (long long)item, text);
    if (w->owner[i] >= 0 && w->owner[i] != item)
      fail_msg("items %lld and %lld write the same place:\n%s", (long long)w->owner[i],
               (long long)item, text);
    w->owner[i] = item;
  }
}

/* No two items of a launch, of which threads run any at the same time, write the same place, nor
 * write back what they find there. */
static void check_apart(LLVMOrcLLJITRef jit, const Kernel *kernel, void *const *args,
                        Written *written, int count, const char *text) {
  for (int i = 0; i < kernel->launch_count; i++) {
    HostEntry *entry = (HostEntry *)gpu_kernel(jit, kernel->launch[i].name);
    for (int k = 0; k < count; k++) {
      written[k].owner = malloc(sizeof(int64_t) * (written[k].count + 1));
      for (size_t at = 0; at < written[k].count; at++) written[k].owner[at] = -1;
    }
    for (int64_t item = 0; item < kernel->launch[i].work; item++) {
      for (int k = 0; k < count; k++) fill(&written[k]);
      entry(args, item, item + 1);
      for (int k = 0; k < count; k++) check_written(&written[k], item, text);
    }
    for (int k = 0; k < count; k++) free(written[k].owner);
  }
}

static Written written_at(void *memory, size_t bytes, DType dtype) {
  return (Written){memory, bytes / 2, (bytes + 127) / 64 * 32, dtype_bytes(dtype) == 2, NULL};
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
  /* one after another; 0: at the same time */
  static const int64_t splits[] = {1, 4, 7, 0, 0, 0};
  for (size_t split = 0; split < sizeof splits / sizeof *splits; split++) {
    int64_t pieces = splits[split];
    for (int i = 0; i < results; i++)
      memset(args[operands + i], 0x7f, (bytes[operands + i] + 127) / 64 * 64);
    memset(args[count], 0x7f, ((size_t)kernel->workspace + 127) / 64 * 64);
    if (pieces)
      run_pieces(jit, kernel, args, pieces);
    else
      run_threads(jit, kernel, args);
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
  Written written[4] = {written_at(args[count], (size_t)kernel->workspace, DT_F32)};
  for (int i = 0; i < results; i++)
    written[i + 1] = written_at(args[operands + i], bytes[operands + i],
                                node_result_type(node, i).dtype);
  check_apart(jit, kernel, args, written, results + 1, text);
  for (int i = 0; i <= count; i++) free(args[i]);
  for (int i = 0; i < results; i++) free(first[i]);
}

static void check_form(const char *cpu, const char *without, const AttentionCase *form) {
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  char *text = attention_text(arena, form);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, attention_leaf, arena, true, values, &diag));
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu, .disable = without};
  Module module;
  Kernel kernel[2] = {{.launch_count = 0}, {.launch_count = 0}};
  const Node *node[2] = {NULL};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  attention_nodes(graph, node);
  for (int i = 0; i < 2; i++) {
    assert_true(form->layout != APART || attention_is_whole(node[i], ATTENTION_MOST));
    assert_true(host_emit(&module, node[i], i ? "backward" : "forward", alias, &kernel[i]));
  }
  assert_true(target_verify(&module) && module_link(&module));
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
    check_form(cpu, NULL, &(AttentionCase){type, 1, 2, 1, n, n, 32, true, NULL, false, APART});
    check_form(cpu, NULL, &(AttentionCase){type, 1, 1, 1, n, n, 16, false, NULL, false, APART});
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
      {"f32", 1, 4, 4, 9, 9, 4, true, NULL, false, BESIDE}, /* the heads of a row fill a vector */
      {"f32", 2, 2, 2, 70, 130, 8, false, NULL, false, BESIDE},
      {"f32", 1, 2, 1, 20, 20, 4, false, NULL, false, JOINED},
      {"bf16", 1, 4, 4, 20, 20, 4, true, NULL, false, BESIDE},
      {"f32", 2, 2, 2, 66, 66, 32, true, NULL, false, PARTS},
      {"f32", 2, 4, 1, 20, 20, 24, false, "f32[2,1,1,20]", false, PARTS},
      {"f32", 2, 3, 3, 70, 70, 32, true, NULL, false, JOINED},
      {"f32", 2, 4, 2, 65, 65, 9, true, NULL, false, JOINED},
      {"bf16", 2, 4, 2, 165, 165, 9, true, NULL, false, JOINED},
      {"f16", 2, 4, 2, 65, 65, 32, true, NULL, false, JOINED},
      {"bf16", 2, 2, 2, 66, 66, 32, true, NULL, false, PARTS},
      {"bf16", 2, 4, 2, 133, 165, 20, false, NULL, false, BESIDE},
      {"f32", 1, 2, 1, 30, 30, 64, false, "bool[1,1,30,30]", false, JOINED},
      {"f32", 1, 2, 1, 70, 90, 20, true, NULL, false, APART, 0.9},
      {"f32", 2, 2, 2, 33, 65, 32, false, "f32[1,2,33,65]", false, APART, 0.5},
      {"f16", 2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]", false, APART, 2},
      {"bf16", 2, 4, 2, 65, 65, 9, true, NULL, false, JOINED, 0.9},
      {"f32", 2, 3, 3, 70, 70, 64, true, NULL, false, APART, 0, 0.1},
      {"f32", 1, 4, 2, 67, 129, 20, false, NULL, false, BESIDE, 0, 0.5}, /* numbers of all remainders by 4 */
      {"f32", 1, 2, 1, 5, 200, 256, true, NULL, false, APART, 0, 0.99},
      {"f32", 1, 1, 1, 130, 131, 8, true, "bool[1,1,130,131]", false, APART, 0, 0.3},
      {"f32", 2, 2, 1, 65, 90, 40, false, "f32[2,1,1,90]", false, APART, 0.9, 0.2},
      {"f32", 17, 2, 2, 20, 140, 16, true, NULL, false, APART, 0, 1e-7},
      {"f16", 2, 4, 2, 65, 65, 32, true, NULL, false, JOINED, 0, 0.4},
      {"bf16", 2, 2, 2, 66, 66, 33, true, NULL, false, PARTS, 0, 0.25}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(cpu, NULL, &forms[i]);
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
/* By AMX and by vdpbf16ps, where the processor has them, and widened. */
static void pairs(void **state) {
  (void)state;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) skip();
  static const AttentionCase forms[] = {
      {"bf16", 1, 2, 2, 64, 64, 64, true, NULL, false, APART},
      {"bf16", 1, 2, 1, 130, 70, 96, false, NULL, false, APART},
      {"bf16", 1, 1, 1, 33, 100, 256, true, NULL, false, APART},
      {"bf16", 1, 2, 2, 17, 49, 31, true, NULL, false, APART},
      {"bf16", 1, 2, 2, 95, 15, 48, true, NULL, false, APART}, /* the first 80 rows see nothing */
      {"bf16", 2, 4, 1, 114, 70, 20, true, NULL, false, APART}, /* nor do the first 44, and of a part nobody a block */
      {"bf16", 1, 2, 2, 1, 1, 1, false, NULL, false, APART},
      {"bf16", 2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]", false, APART},
      {"bf16", 2, 2, 2, 10, 130, 24, false, "bool[2,1,1,130]", false, APART},
      {"bf16", 2, 3, 3, 100, 100, 64, true, NULL, false, JOINED},
      {"bf16", 2, 2, 1, 70, 130, 24, true, "f32[2,1,1,130]", false, APART, 0.9},
      {"bf16", 17, 2, 2, 70, 66, 80, false, NULL, false, BESIDE},
      {"bf16", 1, 3, 3, 100, 101, 64, true, NULL, false, BESIDE, 0, 0.1},
      {"bf16", 2, 2, 1, 33, 130, 24, false, "bool[2,2,33,130]", false, APART, 0.9, 0.6}};
  static const char *const without[] = {NULL, "amx,widened", "amx,dpbf16"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    for (int k = 0; k < 3; k++) check_form("x86-64-v4", without[k], &forms[i]);
}

/* So few queries that keys are read where they lie. */
static void few(void **state) {
  (void)state;
  static const AttentionCase forms[] = {
      {"f32", 2, 4, 2, 1, 150, 64, false, "bool[1,1,1,150]", false, APART}, /* a token of a text: what is not there yet is hidden */
      {"f32", 1, 2, 2, 1, 300, 128, true, NULL, false, APART},
      {"f32", 1, 2, 1, 2, 90, 80, true, NULL, false, APART},
      {"f32", 1, 2, 1, 3, 131, 20, true, NULL, false, APART, 0.9},
      {"f32", 1, 2, 2, 3, 2, 64, true, NULL, false, APART}, /* the first row sees nothing */
      {"f32", 1, 1, 1, 1, 65, 256, false, NULL, false, APART},
      {"f32", 1, 2, 2, 3, 129, 128, true, "f32[1,2,3,129]", false, APART},
      {"f32", 1, 2, 1, 2, 190, 16, true, NULL, false, APART, 0, 0.3},
      {"f32", 2, 4, 2, 1, 130, 64, false, NULL, false, BESIDE},
      {"f32", 2, 3, 3, 3, 3, 48, true, NULL, false, JOINED},
      {"bf16", 1, 4, 1, 1, 200, 64, false, "bool[1,1,1,200]", false, APART},
      {"bf16", 1, 2, 2, 3, 129, 128, true, "bool[1,2,3,129]", false, APART},
      {"bf16", 2, 4, 2, 2, 67, 32, true, NULL, false, BESIDE, 0.9},
      {"bf16", 1, 2, 2, 1, 66, 33, false, NULL, false, APART},
      {"f16", 2, 2, 2, 1, 77, 64, false, "f32[2,1,1,77]", false, APART},
      {"f16", 1, 2, 1, 3, 70, 128, true, NULL, false, APART, 0, 0.2},
      {"f16", 2, 2, 2, 3, 3, 20, true, NULL, false, PARTS}};
  static const char *const level[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  int levels = !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")                  ? 1
               : !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ? 2
                                                                                            : 3;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    for (int k = 0; k < levels; k++) check_form(level[k], NULL, &forms[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(baseline), cmocka_unit_test(avx2),
                                     cmocka_unit_test(avx512), cmocka_unit_test(pairs),
                                     cmocka_unit_test(few)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
