/* passes_fuse: the fuse pass keeps the meaning of a step, and its kernels are what passes/fuse.h
 * promises to code generation. Random steps, checked node by node. */
#include "passes/fuse.h"
#include "passes_help.h"
#include "test/random/graph.h"

enum { GRAPHS = 150, MOST_OPERANDS = 80 };

static bool is_reduce(const Node *node) { return op_info[node->op].op_class == CLASS_REDUCE; }

static bool *depends_on_reduce(const Graph *body, Arena *arena) {
  bool *depends = ARENA_ARRAY(arena, bool, body->nodes.count);
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    depends[i] = is_reduce(node);
    for (int k = 0; k < node->input_count; k++) depends[i] |= depends[node->input[k]->id];
  }
  return depends;
}

static void check_ops(const Node *fused, KernelKind kind) {
  int contractions = 0;
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    OpClass class = op_info[node->op].op_class;
    if (class == CLASS_CONTRACT) {
      contractions++;
      for (int k = 0; k < 2; k++) assert_int_equal(node->input[k]->op, OP_ARG);
    }
    bool is_known = class == CLASS_POINTWISE || class == CLASS_REDUCE || class == CLASS_CONTRACT ||
                    class == CLASS_WINDOW || (class == CLASS_MOVE && !op_has(node->op, TRAIT_SCATTERS)) ||
                    node->op == OP_ARG || node->op == OP_CONST || node->op == OP_IOTA ||
                    node->op == OP_RANDOM;
    assert_true(is_known);
    if (kind == KERNEL_DOT || kind == KERNEL_CONV)
      assert_true(class == CLASS_POINTWISE || class == CLASS_CONTRACT || node->op == OP_BROADCAST ||
                  node->op == OP_ARG || node->op == OP_CONST || node->op == OP_RANDOM);
    else
      assert_int_not_equal(class, CLASS_CONTRACT);
    if (is_reduce(node)) assert_true(kind == KERNEL_ROW || kind == KERNEL_COLUMN);
  }
  assert_int_equal(contractions, kind == KERNEL_DOT || kind == KERNEL_CONV);
}

/* Every reduction has the domain and the axes of the kernel; results have one of two shapes. */
static void check_reductions(const Node *fused, KernelKind kind, Arena *arena) {
  const Attr *axes = node_attr(fused, ATTR_AXES);
  Shape domain = kernel_domain(fused), reduced = domain;
  assert_non_null(axes);
  for (int i = 0; i < axes->count; i++) reduced.dim[axes->ints[i]] = 1;
  for (int i = 0; i < axes->count && kind == KERNEL_ROW; i++)
    assert_int_equal(axes->ints[i], domain.rank - axes->count + i);
  if (kind == KERNEL_COLUMN)
    assert_true(axes->ints[axes->count - 1] != domain.rank - 1 || domain.dim[domain.rank - 1] == 1);
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    if (!is_reduce(node)) continue;
    const Attr *own = node_attr(node, ATTR_AXES);
    assert_true(shape_equal(&node->input[0]->type.shape, &domain));
    assert_int_equal(own->count, axes->count);
    for (int k = 0; k < own->count; k++) assert_int_equal(own->ints[k], axes->ints[k]);
  }
  bool *depends = depends_on_reduce(fused->body, arena);
  for (int i = 0; i < fused->body->roots.count; i++) {
    const Node *result = fused->body->roots.at[i].node;
    bool is_full = shape_equal(&result->type.shape, &domain);
    assert_true(is_full || shape_equal(&result->type.shape, &reduced));
    if (is_full && kind == KERNEL_COLUMN) assert_false(depends[result->id]);
  }
  for (int i = 0; kind == KERNEL_COLUMN && i < fused->body->nodes.count; i++)
    if (is_reduce(fused->body->nodes.at[i])) /* nothing that is summed depends on a sum */
      assert_false(depends[fused->body->nodes.at[i]->input[0]->id]);
}

static void check_kernel(const Node *fused, Arena *arena) {
  KernelKind kind = kernel_kind(fused);
  Shape domain = kernel_domain(fused);
  assert_true(fused->input_count + fused->body->roots.count <= MOST_OPERANDS);
  assert_true(kernel_equal(fused, fused));
  check_ops(fused, kind);
  if (kind == KERNEL_ROW || kind == KERNEL_COLUMN)
    check_reductions(fused, kind, arena);
  else
    for (int i = 0; i < fused->body->roots.count; i++)
      assert_true(shape_equal(&fused->body->roots.at[i].node->type.shape, &domain));
  int *uses = graph_use_counts(fused->body, arena);
  for (int i = 0; i < fused->body->nodes.count; i++) assert_true(uses[i] > 0);
}

static void check_kernels(const Graph *graph, Arena *arena) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_FUSED) check_kernel(graph->nodes.at[i], arena);
}

static void random_steps(void **state) {
  (void)state;
  for (int seed = 0; seed < help_random_count(GRAPHS); seed++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = help_context(arena, &diag, seed);
    Graph *forward = graph_random(arena, (uint64_t)seed, 4 + seed % 60);
    Graph *fused = help_pass(&context, forward, "dce,autodiff,optimizer,fuse");
    check_kernels(fused, arena);
    help_same_roots(&context, help_pass(&context, forward, "dce,autodiff,optimizer"), fused,
                    arena_printf(arena, "plain, seed %d", seed));
    Graph *step = help_pass(&context, forward, to_step);
    fused = help_pass(&context, step, "fuse");
    check_kernels(fused, arena);
    help_same_roots(&context, step, fused, arena_printf(arena, "step, seed %d", seed));
    context.of = PASS_OF_EVAL;
    fused = help_pass(&context, forward, "autodiff,optimizer,layout,fuse");
    check_kernels(fused, arena);
    help_same_roots(&context, forward, fused, arena_printf(arena, "eval, seed %d", seed));
    arena_free(arena);
  }
}

/* ── equality ───────────────────────────────────────────────────────────────────────────────── */
/* y = exp(x * scale) of the given shape, in `times` places of one graph. */
static Graph *repeated(Arena *arena, int times, const double *scale, const int64_t *size) {
  Graph *graph = graph_new(arena, "eval");
  for (int i = 0; i < times; i++) {
    Type type = {DT_F32, shape_of(1, &size[i])};
    char *name = arena_printf(arena, "x%d", i);
    Attr attr = attr_str(ATTR_NAME, name);
    graph->origin.loc.line = (uint32_t)i;
    Node *x = graph_node(graph, OP_INPUT, NULL, 0, &attr, 1, &type);
    Node *scaled = make_binary(graph, OP_MUL, x, make_like(graph, x, scale[i]));
    Node *y = make_unary(graph, OP_EXP, scaled);
    graph_add_root(graph, ROOT_OUTPUT, arena_printf(arena, "y%d", i), y);
  }
  return graph;
}

static void equal_kernels(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  Graph *graph = repeated(arena, 4, (double[]){2, 2, 3, 2}, (int64_t[]){50, 50, 50, 60});
  Graph *after = help_pass(&context, graph, "fuse");
  const Node *kernel[4];
  int count = 0;
  for (int i = 0; i < after->nodes.count; i++)
    if (after->nodes.at[i]->op == OP_FUSED) kernel[count++] = after->nodes.at[i];
  assert_int_equal(count, 4);
  assert_true(kernel_equal(kernel[0], kernel[1]));
  assert_true(kernel_hash(kernel[0]) == kernel_hash(kernel[1]));
  for (int other = 2; other < 4; other++) { /* another constant, another size */
    assert_false(kernel_equal(kernel[0], kernel[other]));
    assert_false(kernel_hash(kernel[0]) == kernel_hash(kernel[other]));
  }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps),
                                     cmocka_unit_test(equal_kernels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
