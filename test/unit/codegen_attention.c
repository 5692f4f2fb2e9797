/* codegen_attention: attention and its gradient by the kernel on the CPU against the interpreter:
 * lengths around the tile's, heads that share keys, masks, the causal order, features that are no
 * multiple of a vector; at each x86-64 level that this machine has; the same bits for every split
 * of the work. */
#include "codegen/host.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "passes/attention.h"
#include "passes_help.h"

typedef void HostEntry(void *const *args, int64_t begin, int64_t end);
typedef struct {
  int batch, heads, groups, rows, keys, features;
  bool causal;
  const char *mask;                             /* its type, or NULL */
  enum { APART, BESIDE, PARTS, JOINED } layout; /* see beside_text */
} Form;

/* Heads beside one another: in three tensors, or as parts of one, after 3 features that nobody
 * reads, with gradients apart or joined. */
static char *beside_text(Arena *arena, const Form *f) {
  int rows = f->heads * f->features, keys = f->groups * f->features,
      gap = f->layout == PARTS ? 3 : 0;
  const char *m = f->mask ? ", %m" : "";
  char attrs[128], q[64], k[64], y[64], *text;
  snprintf(y, sizeof y, "f32[%d,%d,%d]", f->batch, f->rows, rows);
  snprintf(k, sizeof k, "f32[%d,%d,%d]", f->batch, f->keys, keys);
  snprintf(q, sizeof q, "f32[%d,%d,%d]", f->batch, f->rows, gap + rows + 2 * keys);
  snprintf(attrs, sizeof attrs, "%sscale=0.6, heads=[%d,%d,%d], start=[%d,%d,%d]",
           f->causal ? "causal=true, " : "", f->heads, f->groups, f->features,
           f->layout == BESIDE ? 0 : gap, f->layout == BESIDE ? 0 : gap + rows,
           f->layout == BESIDE ? 0 : gap + rows + keys);
  text = arena_printf(arena, "graph \"attention\" {\n%%dy = input {name=\"dy\"} : %s\n", y);
  if (f->mask) text = arena_printf(arena, "%s%%m = input {name=\"m\"} : %s\n", text, f->mask);
  if (f->layout == BESIDE)
    text = arena_printf(arena,
                        "%s%%q = input {name=\"q\"} : %s\n%%k = input {name=\"k\"} : %s\n"
                        "%%v = input {name=\"v\"} : %s\n",
                        text, y, k, k);
  else
    text = arena_printf(arena, "%s%%q = input {name=\"q\"} : %s\n", text, q);
  const char *operands = f->layout == BESIDE ? "%q, %k, %v" : "%q, %q, %q";
  text = arena_printf(arena,
                      "%s%%a = attention %s%s {%s} : %s\n%%o = result %%a {index=0} : %s\n"
                      "%%l = result %%a {index=1} : f32[%d,%d,%d,1]\n"
                      "%%g = attention_grad %%dy, %s, %%o, %%l%s {%s%s} : %s\n"
                      "output \"o\" %%o\noutput \"l\" %%l\n%%dq = result %%g {index=0} : %s\n"
                      "output \"dq\" %%dq\n",
                      text, operands, m, attrs, y, y, f->batch, f->heads, f->rows, operands, m,
                      attrs, f->layout == JOINED ? ", joined=true" : "",
                      f->layout == JOINED ? q : y, f->layout == JOINED ? q : y);
  if (f->layout == JOINED) return arena_printf(arena, "%s}\n", text);
  return arena_printf(arena,
                      "%s%%dk = result %%g {index=1} : %s\n%%dv = result %%g {index=2} : %s\n"
                      "output \"dk\" %%dk\noutput \"dv\" %%dv\n}\n",
                      text, k, k);
}

/* The inputs are params of their own, so that both nodes can be tried alone. */
static char *graph_text(Arena *arena, const Form *f) {
  if (f->layout != APART) return beside_text(arena, f);
  char q[64], k[64], mask[128] = "", *m = f->mask ? ", %m" : "";
  snprintf(q, sizeof q, "[%d,%d,%d,%d]", f->batch, f->heads, f->rows, f->features);
  snprintf(k, sizeof k, "[%d,%d,%d,%d]", f->batch, f->groups, f->keys, f->features);
  if (f->mask) snprintf(mask, sizeof mask, "%%m = input {name=\"m\"} : %s\n", f->mask);
  const char *attrs = f->causal ? "causal=true, scale=0.6" : "scale=0.6";
  return arena_printf(
      arena,
      "graph \"attention\" {\n%%q = input {name=\"q\"} : f32%s\n%%k = input {name=\"k\"} : f32%s\n"
      "%%v = input {name=\"v\"} : f32%s\n%%dy = input {name=\"dy\"} : f32%s\n%s"
      "%%a = attention %%q, %%k, %%v%s {%s} : f32%s\n%%o = result %%a {index=0} : f32%s\n"
      "%%l = result %%a {index=1} : f32[%d,%d,%d,1]\n"
      "%%g = attention_grad %%dy, %%q, %%k, %%v, %%o, %%l%s {%s} : f32%s\n"
      "%%dq = result %%g {index=0} : f32%s\n%%dk = result %%g {index=1} : f32%s\n"
      "%%dv = result %%g {index=2} : f32%s\noutput \"o\" %%o\noutput \"l\" %%l\n"
      "output \"dq\" %%dq\noutput \"dk\" %%dk\noutput \"dv\" %%dv\n}\n",
      q, k, k, q, mask, m, attrs, q, q, f->batch, f->heads, f->rows, m, attrs, q, q, k, k);
}

static void *bytes_of(const Tensor *tensor, size_t *bytes) {
  int64_t count = shape_elements(&tensor->type.shape);
  *bytes = (size_t)count * (tensor->f ? 4 : 1);
  char *out = aligned_alloc(64, (*bytes + 127) / 64 * 64);
  for (int64_t i = 0; i < count; i++) {
    if (tensor->f)
      ((float *)(void *)out)[i] = (float)tensor->f[i];
    else
      out[i] = (char)tensor->i[i];
  }
  return out;
}

/* Sums of at most a few hundred terms around 1: a missing or doubled one would be 1e-3 and more. */
static void compare(const float *have, const Tensor *want, const char *what, const char *text) {
  for (int64_t i = 0; i < shape_elements(&want->type.shape); i++) {
    double x = (double)have[i], y = want->f[i];
    if (x != y && !(fabs(x - y) <= 2e-5 * fmax(1, fabs(y))))
      fail_msg("%s[%lld] is %g, not %g:\n%s", what, (long long)i, x, y, text);
  }
}

static void run_node(LLVMOrcLLJITRef jit, const Graph *graph, const Node *node,
                     const Kernel *kernel, Tensor *const *values, const char *text) {
  static const char *const names[2][3] = {{"o", "l"}, {"dq", "dk", "dv"}};
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  int operands = node->input_count, results = node_result_count(node);
  HostEntry *entry = (HostEntry *)gpu_kernel(jit, kernel->launch[0].name);
  void *args[16], *first[3] = {NULL};
  size_t bytes[16];
  const Tensor *want[3];
  for (int i = 0; i < operands; i++) args[i] = bytes_of(values[node->input[i]->id], &bytes[i]);
  for (int i = 0; i < results; i++) {
    want[i] = values[graph_find_root(graph, ROOT_OUTPUT, names[is_grad][i])->id];
    args[operands + i] = bytes_of(want[i], &bytes[operands + i]);
    first[i] = malloc(bytes[operands + i] + 1);
  }
  int64_t work = kernel->launch[0].work;
  for (int64_t pieces = 1; pieces <= 7; pieces += 3) {
    for (int i = 0; i < results; i++)
      memset(args[operands + i], 0x7f, (bytes[operands + i] + 127) / 64 * 64);
    for (int64_t p = pieces - 1; p >= 0; p--)
      entry(args, work * p / pieces, work * (p + 1) / pieces);
    for (int i = 0; i < results; i++) {
      char *result = args[operands + i];
      if (pieces == 1) compare(args[operands + i], want[i], names[is_grad][i], text);
      if (pieces == 1) memcpy(first[i], result, bytes[operands + i]);
      if (memcmp(first[i], result, bytes[operands + i]))
        fail_msg("%lld pieces give other bits of %s:\n%s", (long long)pieces, names[is_grad][i],
                 text);
      assert_int_equal(result[bytes[operands + i]], 0x7f); /* no more than that is written */
    }
  }
  for (int i = 0; i < operands + results; i++) free(args[i]);
  for (int i = 0; i < results; i++) free(first[i]);
}

static void check_form(const char *cpu, const Form *form) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag);
  diag.out = stderr;
  char *text = graph_text(arena, form);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Probe probe = {arena, graph, context.settings, 1, NULL};
  Tensor **values = probe_run(&probe, &diag);
  assert_non_null(values);
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu};
  Module module;
  Kernel kernel[2] = {{.launch_count = 0}, {.launch_count = 0}};
  const Node *node[2] = {NULL};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *at = graph->nodes.at[i];
    if (at->op == OP_ATTENTION) node[0] = at;
    if (at->op == OP_ATTENTION_GRAD) node[1] = at;
  }
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
  for (int i = 0; i < 2; i++) run_node(jit, graph, node[i], &kernel[i], values, text);
  LLVMOrcDisposeLLJIT(jit);
  target_close(&module);
  arena_free(arena);
}

static void all_forms(const char *cpu, int more) {
  static const int lengths[] = {1,  2,  3,   7,   15,  16,  17,  31,  33,  48,  63,
                                64, 65, 100, 127, 128, 129, 191, 192, 193, 255, 300};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += (size_t)more) {
    int n = lengths[i];
    check_form(cpu, &(Form){1, 2, 1, n, n, 32, true, NULL, APART});
    check_form(cpu, &(Form){1, 1, 1, n, n, 16, false, NULL, APART});
  }
  static const Form forms[] = {
      {2, 3, 3, 70, 70, 64, true, NULL, APART},
      {1, 2, 2, 20, 90, 128, true, NULL, APART}, /* the last rows of a longer text */
      {1, 2, 2, 90, 20, 48, true, NULL, APART},  /* the first 70 rows see nothing */
      {2, 4, 2, 33, 65, 80, false, NULL, APART},
      {1, 6, 2, 10, 10, 1, true, NULL, APART},
      {1, 4, 1, 66, 67, 20, true, NULL, APART},
      {1, 4, 1, 2, 1, 1, true, NULL, APART},
      {1, 4, 4, 2, 9, 1, true, NULL, APART},
      {1, 1, 1, 5, 5, 256, false, NULL, APART},
      {2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]", APART},
      {2, 2, 1, 70, 66, 32, true, "bool[1,1,70,66]", APART},
      {2, 2, 2, 10, 130, 24, false, "bool[2,1,1,130]", APART},
      {2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]", APART},
      {2, 2, 1, 65, 90, 40, false, "f32[2,1,1,90]", APART},
      {1, 1, 1, 1, 1, 16, true, "bool[1,1,1,1]", APART},
      {2, 3, 3, 70, 70, 16, true, NULL, BESIDE},
      {2, 4, 2, 33, 65, 20, false, NULL, BESIDE},
      {1, 6, 2, 130, 66, 7, true, "bool[1,1,130,66]", BESIDE},
      {2, 2, 2, 66, 66, 32, true, NULL, PARTS},
      {2, 4, 1, 20, 20, 24, false, "f32[2,1,1,20]", PARTS},
      {2, 3, 3, 70, 70, 32, true, NULL, JOINED},
      {2, 4, 2, 65, 65, 9, true, NULL, JOINED},
      {1, 2, 1, 30, 30, 64, false, "bool[1,1,30,30]", JOINED}};
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
