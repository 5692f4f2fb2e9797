/* codegen_flash: attention and its gradient by the GPU's kernels (kernels/attention_ptx.h), as PTX
 * in the simulator with all its checks, against the interpreter: lengths around the tiles', heads
 * that share keys, masks, the causal order, heads of 1 to 128 features, in f32, tf32, f16 and bf16.
 */
#include "codegen/nvptx.h"
#include "codegen/target.h"
#include "ir/interp.h"
#include "passes/attention.h"
#include "passes_help.h"
#include "runtime/sim.h"

typedef struct {
  const char *type;                               /* f32, tf32, f16, bf16 */
  int batch, heads, groups, rows, keys, features; /* no keys: beside_text */
  bool causal;
  const char *mask; /* its type, or NULL */
  bool is_hopper;   /* by wgmma, where that may be */
} Form;

/* Heads beside one another: q, k and v are parts of the rows of one tensor, 8 features from its
 * start, and so are their gradients, joined. */
static char *beside_text(Arena *arena, const Form *f, const char *type) {
  int q = f->heads * f->features, k = f->groups * f->features;
  char out[64],
      *attrs = arena_printf(arena, "heads=[%d,%d,%d], start=[8,%d,%d], causal=true, scale=0.5",
                            f->heads, f->groups, f->features, 8 + q, 8 + q + k);
  snprintf(out, sizeof out, "%s[%d,%d,%d]", type, f->batch, f->rows, q);
  return arena_printf(
      arena,
      "graph \"attention\" {\n%%q = input {name=\"q\"} : %s[%d,%d,%d]\n"
      "%%dy = input {name=\"dy\"} : %s\n%%a = attention %%q, %%q, %%q {%s} : %s\n"
      "%%o = result %%a {index=0} : %s\n%%l = result %%a {index=1} : f32[%d,%d,%d,1]\n"
      "%%g = attention_grad %%dy, %%q, %%q, %%q, %%o, %%l {%s, joined=true} : "
      "%s[%d,%d,%d]\n%%dq = result %%g {index=0} : %s[%d,%d,%d]\n"
      "output \"o\" %%o\noutput \"l\" %%l\noutput \"dq\" %%dq\n}\n",
      type, f->batch, f->rows, 16 + q + 2 * k, out, attrs, out, out, f->batch, f->heads, f->rows,
      attrs, type, f->batch, f->rows, q + 2 * k, type, f->batch, f->rows, q + 2 * k);
}

/* Operands are inputs of their own, so that both nodes can be tried alone. */
static char *graph_text(Arena *arena, const Form *f, const char *type) {
  char q[64], k[64], mask[128] = "", *m = f->mask ? ", %m" : "";
  if (!f->keys) return beside_text(arena, f, type);
  snprintf(q, sizeof q, "%s[%d,%d,%d,%d]", type, f->batch, f->heads, f->rows, f->features);
  snprintf(k, sizeof k, "%s[%d,%d,%d,%d]", type, f->batch, f->groups, f->keys, f->features);
  if (f->mask) snprintf(mask, sizeof mask, "%%m = input {name=\"m\"} : %s\n", f->mask);
  const char *attrs =
      arena_printf(arena, "%sscale=%g%s", f->causal ? "causal=true, " : "",
                   f->features > 32 ? 0.3 : 0.6, f->type[0] == 't' ? ", tf32=true" : "");
  return arena_printf(
      arena,
      "graph \"attention\" {\n%%q = input {name=\"q\"} : %s\n%%k = input {name=\"k\"} : %s\n"
      "%%v = input {name=\"v\"} : %s\n%%dy = input {name=\"dy\"} : %s\n%s"
      "%%a = attention %%q, %%k, %%v%s {%s} : %s\n%%o = result %%a {index=0} : %s\n"
      "%%l = result %%a {index=1} : f32[%d,%d,%d,1]\n"
      "%%g = attention_grad %%dy, %%q, %%k, %%v, %%o, %%l%s {%s} : %s\n"
      "%%dq = result %%g {index=0} : %s\n%%dk = result %%g {index=1} : %s\n"
      "%%dv = result %%g {index=2} : %s\noutput \"o\" %%o\noutput \"l\" %%l\n"
      "output \"dq\" %%dq\noutput \"dk\" %%dk\noutput \"dv\" %%dv\n}\n",
      q, k, k, q, mask, m, attrs, q, q, f->batch, f->heads, f->rows, m, attrs, q, q, k, k);
}

/* Between -1 and 1, as the type holds them. */
static const Tensor *leaf_value(const Node *leaf, void *context) {
  Tensor *value = tensor_new(context, leaf->type);
  uint64_t state = (uint64_t)node_str(leaf, ATTR_NAME)[0] * 7919 + 17;
  for (int64_t i = 0; i < shape_elements(&leaf->type.shape); i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double x = (double)(state >> 40) / (1 << 23) - 1;
    if (value->f) value->f[i] = interp_round(leaf->type.dtype, x);
    if (value->i) value->i[i] = x > -0.4;
  }
  return value;
}

static void write_value(DType dtype, const Tensor *from, char *to) {
  for (int64_t i = 0; i < shape_elements(&from->type.shape); i++) {
    float wide = from->f ? (float)from->f[i] : 0;
    _Float16 half = (_Float16)wide;
    if (dtype == DT_F32) memcpy(to + 4 * i, &wide, 4);
    if (dtype == DT_F16) memcpy(to + 2 * i, &half, 2);
    if (dtype == DT_BF16) memcpy(to + 2 * i, (char *)&wide + 2, 2);
    if (dtype == DT_BOOL) to[i] = (char)from->i[i];
  }
}

static double read_value(DType dtype, const char *from, int64_t i) {
  float wide = 0;
  _Float16 half;
  if (dtype == DT_F32) memcpy(&wide, from + 4 * i, 4);
  if (dtype == DT_BF16) memcpy((char *)&wide + 2, from + 2 * i, 2);
  if (dtype == DT_F16) memcpy(&half, from + 2 * i, 2), wide = (float)half;
  return (double)wide;
}

/* Of operands of products, which are around 1; f32: what the sums lose, too. */
static double rounding(const Form *form) {
  return form->type[0] == 'b' ? 0x1p-9 : !strcmp(form->type, "f32") ? 0x1p-21 : 0x1p-12;
}

/* A result is a sum of products of rounded factors, rounded; the largest ones say how large the
 * terms are. */
static void compare(const Form *form, const char *have, const Tensor *want, const char *what,
                    const char *text) {
  DType dtype = want->type.dtype;
  double most = 1, worst = 0;
  for (int64_t i = 0; i < shape_elements(&want->type.shape); i++)
    if (isfinite(want->f[i])) most = fmax(most, fabs(want->f[i]));
  for (int64_t i = 0; i < shape_elements(&want->type.shape); i++) {
    double x = read_value(dtype, have, i), y = want->f[i];
    if (x == y) continue;
    double error = fabs(x - y) / (rounding(form) * (most + fabs(y)));
    worst = fmax(worst, error);
    if (!(error <= 3))
      fail_msg("%s %s[%lld] is %g, not %g:\n%s", form->type, what, (long long)i, x, y, text);
  }
  if (getenv("FT_SHOW")) printf("%s %s %g\n", form->type, what, worst);
}

static void run_node(SimMachine *machine, const SimModule *module, const Form *form,
                     const Graph *graph, const Node *node, const Kernel *kernel,
                     Tensor *const *values, const char *text) {
  static const char *const names[2][3] = {{"o", "l"}, {"dq", "dk", "dv"}};
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  int operands = node->input_count, results = node_result_count(node), count = operands + results;
  SimRegion regions[16];
  uint64_t params[16];
  for (int i = 0; i < count + (kernel->workspace > 0); i++) {
    Type type = i < operands ? node->input[i]->type : node_result_type(node, i - operands);
    regions[i] = (SimRegion){"argument", NULL, i < count ? type_bytes(&type) : kernel->workspace,
                             i >= operands};
    assert_int_equal(sim_alloc(machine, regions[i].bytes, &regions[i].at), STATUS_OK);
    params[i] = (uint64_t)(uintptr_t)regions[i].at;
    if (i >= operands) continue;
    write_value(type.dtype, values[node->input[i]->id], regions[i].at);
    sim_mark(machine, regions[i].at, regions[i].bytes, true);
  }
  int all = count + (kernel->workspace > 0);
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *from = &kernel->launch[i];
    SimLaunch launch = {.shared = from->shared,
                        .params = params,
                        .param_bytes = 8 * all,
                        .regions = regions,
                        .region_count = all,
                        .label = from->name};
    memcpy(launch.grid, from->grid, sizeof launch.grid);
    memcpy(launch.block, from->block, sizeof launch.block);
    const SimKernel *entry = sim_module_kernel(module, from->name);
    assert_non_null(entry);
    if (sim_launch(machine, entry, &launch) != STATUS_OK)
      fail_msg("%s\n%s", status_message(), text);
  }
  for (int i = 0; i < results; i++) {
    const Node *root = graph_find_root(graph, ROOT_OUTPUT, names[is_grad][i]);
    compare(form, regions[operands + i].at, values[root->id], names[is_grad][i], text);
  }
  for (int i = 0; i < all; i++) sim_free(machine, regions[i].at);
}

static void check_form(SimMachine *machine, const Form *form) {
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  char *text = graph_text(arena, form, form->type[0] == 't' ? "f32" : form->type);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, leaf_value, arena, true, values, &diag));
  CodegenOptions options = {.target = TARGET_PTX, .gpu = form->is_hopper ? "sm_90a" : NULL};
  Module module;
  Kernel kernel[2] = {{.launch_count = 0}, {.launch_count = 0}};
  const Node *node[2] = {NULL};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  module.only_tile = form->is_hopper;
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *at = graph->nodes.at[i];
    if (at->op == OP_ATTENTION) node[0] = at;
    if (at->op == OP_ATTENTION_GRAD) node[1] = at;
  }
  for (int i = 0; i < 2; i++) {
    assert_true(attention_is_whole(node[i], true));
    assert_true(nvptx_emit(&module, node[i], i ? "backward" : "forward", alias, &kernel[i]));
  }
  assert_true(module_link(&module));
  assert_true(target_optimize(&module));
  Text assembly = {0};
  assert_true(target_emit(&module, LLVMAssemblyFile, &assembly));
  assert_true(form->is_hopper == (strstr(text_cstr(&assembly), "wgmma.mma_async") != NULL));
  SimModule *loaded;
  if (sim_module_load("flash.ptx", text_cstr(&assembly), assembly.count, &loaded) != STATUS_OK)
    fail_msg("%s", status_message());
  for (int i = 0; i < 2; i++)
    run_node(machine, loaded, form, graph, node[i], &kernel[i], values, text);
  sim_module_free(loaded);
  text_free(&assembly);
  target_close(&module);
  arena_free(arena);
}

static void check_all(const Form *forms, size_t count) {
  SimMachine *machine;
  assert_int_equal(sim_machine_new(1, &machine), STATUS_OK);
  for (size_t i = 0; i < count; i++) check_form(machine, &forms[i]);
  sim_machine_free(machine);
}

/* Every unit, every size of tiles, all kinds of masks. */
static void forms(void **state) {
  (void)state;
  static const Form list[] = {
      {"f32", 2, 3, 3, 70, 70, 64, true, NULL},
      {"tf32", 2, 3, 3, 70, 70, 64, true, NULL},
      {"f16", 2, 3, 3, 70, 70, 64, true, NULL},
      {"bf16", 2, 3, 3, 70, 70, 64, true, NULL},
      {"f32", 1, 2, 2, 20, 90, 128, true, NULL},  /* the last rows of a longer text */
      {"tf32", 1, 2, 2, 90, 20, 128, true, NULL}, /* the first 70 rows see nothing */
      {"f16", 1, 2, 2, 20, 190, 128, true, NULL},
      {"bf16", 1, 2, 2, 290, 20, 128, true, NULL},
      {"f32", 2, 4, 2, 33, 65, 80, false, NULL},
      {"f16", 2, 4, 2, 33, 65, 80, false, NULL},
      {"f32", 1, 4, 1, 66, 67, 20, true, NULL},
      {"f16", 1, 4, 1, 66, 67, 20, true, NULL},
      {"bf16", 1, 6, 2, 10, 10, 1, true, NULL},
      {"f16", 2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]"},
      {"f32", 2, 2, 1, 70, 66, 32, true, "bool[1,1,70,66]"},
      {"bf16", 2, 2, 2, 10, 130, 24, false, "bool[2,1,1,130]"},
      {"f16", 2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]"},
      {"tf32", 2, 2, 1, 65, 90, 40, false, "f32[2,1,1,90]"},
      {"f16", 1, 1, 1, 1, 1, 16, true, "bool[1,1,1,1]"},
      {"bf16", 2, 4, 2, 70, 0, 24, true, NULL},
      {"f32", 2, 3, 3, 33, 0, 20, true, NULL},
  };
  check_all(list, sizeof list / sizeof *list);
}

/* Lengths up to 300, next to multiples of the tiles; the rest of the form changes along. */
static void lengths(void **state) {
  (void)state;
  static const int length[] = {1, 2, 15, 17, 31, 33, 63, 65, 127, 129, 193, 255, 300};
  static const char *const types[] = {"f16", "f32", "tf32", "f16", "bf16", "f32"};
  enum { LENGTHS = sizeof length / sizeof *length };
  Form list[LENGTHS];
  for (int i = 0; i < LENGTHS; i++)
    list[i] = (Form){types[i % 6],   1,         2,   1 + i % 2, length[i], length[i],
                     16 + i % 3 * 8, i % 3 < 2, NULL};
  check_all(list, LENGTHS);
}

/* Hopper's tensor cores: lengths around its tiles and blocks, and the same kinds of forms. */
static void hopper(void **state) {
  (void)state;
  static const Form list[] = {
      {"bf16", 1, 1, 1, 20, 1100, 64, false, NULL, true}, /* the ring goes round twice */
      {"f16", 1, 2, 2, 130, 130, 64, true, NULL, true},
      {"bf16", 2, 2, 1, 129, 260, 128, true, NULL, true},
      {"f16", 1, 2, 1, 300, 60, 128, true, NULL, true}, /* some rows see nothing */
      {"f16", 1, 1, 1, 200, 600, 64, true, NULL, true},
      {"bf16", 1, 2, 2, 17, 300, 80, false, NULL, true},
      {"f16", 2, 2, 1, 70, 136, 56, false, "bool[2,2,70,136]", true},
      {"bf16", 2, 2, 2, 70, 136, 24, true, "f32[1,2,70,136]", true},
      {"f16", 1, 4, 2, 150, 0, 64, true, NULL, true},
      {"bf16", 1, 1, 1, 1, 1, 8, true, NULL, true},
  };
  check_all(list, sizeof list / sizeof *list);
}

/* Forms drawn by chance: FT_ALL_TILES says how many. */
static void hopper_random(void **state) {
  (void)state;
  static const int features[] = {64, 128, 64, 128, 8, 48, 80, 96, 120};
  uint32_t seed = 12345;
  int count = getenv("FT_ALL_TILES") ? atoi(getenv("FT_ALL_TILES")) : 0;
  for (int i = 0; i < count; i++) {
    uint32_t draw[8];
    for (int k = 0; k < 8; k++) draw[k] = (seed = seed * 1664525 + 1013904223) >> 16;
    Form form = {draw[0] % 2 ? "f16" : "bf16",
                 1 + (int)(draw[1] % 2),
                 2,
                 1 + (int)(draw[2] % 2),
                 1 + (int)(draw[3] % 300),
                 1 + (int)(draw[4] % 300),
                 features[draw[5] % 9],
                 draw[6] % 2,
                 NULL,
                 true};
    char mask[64];
    snprintf(mask, sizeof mask, "%s[1,2,%d,%d]", draw[7] % 8 ? "f32" : "bool", form.rows,
             form.keys);
    if (draw[7] % 4 == 0) form.mask = mask;
    if (draw[7] % 5 == 0) form.keys = 0;
    if (!form.keys) form.mask = NULL;
    printf("%s %dx%d groups %d, %d x %d x %d, causal %d, mask %s\n", form.type, form.batch,
           form.heads, form.groups, form.rows, form.keys, form.features, form.causal,
           form.mask ? form.mask : "none");
    check_all(&form, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(lengths),
                                     cmocka_unit_test(hopper), cmocka_unit_test(hopper_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
