/* gradients_help: a gradient rule against central differences of the interpreter, in double. A case
 * is a few lines of graph text: params are differentiated, %y is the result; the loss is the sum of
 * %y times fixed weights, of all ranks where there are several. */
#ifndef FT_TEST_GRADIENTS_HELP_H
#define FT_TEST_GRADIENTS_HELP_H
#include "passes/autodiff.h"
#include "passes/gradients.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_LEAVES = 16, MOST_RANKS = 4 };

typedef struct {
  Arena *arena;
  Diag diag;
  Graph *graph;
  Node *loss;
  int leaf_count;
  const char *name[MAX_LEAVES];
  Tensor *value[MAX_LEAVES];              /* of rank 0, */
  Tensor *others[MOST_RANKS][MAX_LEAVES]; /* … and of the others, which stay as they are */
} Case;
static int ranks = 1;         /* whose losses are added */
static Mesh mesh = {1, 1, 1}; /* of them */

typedef struct {
  Case *c;
  int rank;
} Leaves;

static bool seen[OP_COUNT];

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
static uint64_t random_state;
static inline double random_between(double low, double high) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * ((double)(random_state >> 11) * 0x1p-53);
}

static inline const Tensor *find_leaf(const Node *leaf, void *context) {
  const Leaves *of = context;
  const Case *c = of->c;
  if (leaf->op == OP_SETTING) { /* which of its group the rank is */
    const char *name = node_str(leaf, ATTR_NAME) + strlen("distributed.");
    char axis[16] = "all";
    if (strchr(name, '_')) snprintf(axis, sizeof axis, "%.*s", (int)strcspn(name, "_"), name);
    MeshAxis along;
    assert_true(mesh_axis_parse(axis, &along));
    Tensor *index = tensor_new(c->arena, leaf->type);
    index->f[0] = mesh_index(&mesh, along, of->rank);
    return index;
  }
  for (int i = 0; i < c->leaf_count; i++)
    if (strcmp(c->name[i], node_str(leaf, ATTR_NAME)) == 0)
      return of->rank ? c->others[of->rank][i] : c->value[i];
  return NULL;
}

static inline Tensor *made_up(Case *c, const Type *type, double low, double high) {
  Tensor *tensor = tensor_new(c->arena, *type);
  for (int64_t k = 0; k < shape_elements(&type->shape); k++)
    if (tensor->f)
      tensor->f[k] = random_between(low, high);
    else
      tensor->i[k] = (int64_t)random_between(-1, 4); /* an index, sometimes outside */
  return tensor;
}

static inline void fill_leaves(Case *c, double low, double high) {
  for (int i = 0; i < c->graph->nodes.count; i++) {
    Node *node = c->graph->nodes.at[i];
    if (node->op != OP_PARAM && node->op != OP_INPUT) continue;
    assert_true(c->leaf_count < MAX_LEAVES);
    int leaf = c->leaf_count++;
    c->name[leaf] = node_str(node, ATTR_NAME);
    c->value[leaf] = made_up(c, &node->type, low, high);
    for (int r = 1; r < ranks; r++) c->others[r][leaf] = made_up(c, &node->type, low, high);
  }
}

/* ── a case: parse, add the loss, differentiate ─────────────────────────────────────────────── */
static inline void case_begin(Case *c, const char *body, double low, double high) {
  *c = (Case){.arena = arena_new()};
  diag_init(&c->diag, c->arena, stderr);
  random_state = 20240607;
  char *text = arena_printf(c->arena, "graph \"case\" {\n%s\n  output \"y\" %%y\n}\n", body);
  if (graph_parse(c->arena, &c->diag, "case", text, &c->graph, 1) != 1) fail_msg("%s", text);
  for (int i = 0; i < c->graph->nodes.count; i++) seen[c->graph->nodes.at[i]->op] = true;
  Node *y = graph_find_root(c->graph, ROOT_OUTPUT, "y");
  Attr name = attr_str(ATTR_NAME, "weights of y");
  Node *weight = graph_node(c->graph, OP_INPUT, NULL, 0, &name, 1, &y->type);
  Node *product = make_binary(c->graph, OP_MUL, y, weight);
  int64_t axes[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++) axes[i] = i;
  Node *sum = make_reduce(c->graph, OP_SUM, product, axes, y->type.shape.rank);
  c->loss = make_reshape(c->graph, sum, shape_scalar());
  fill_leaves(c, low, high);
}

/* Values of rank 0, and the sum of the ranks' losses. */
static inline Tensor **evaluate(Case *c, double *loss) {
  Tensor **values[MOST_RANKS];
  Leaves leaves[MOST_RANKS];
  void *context[MOST_RANKS];
  for (int r = 0; r < ranks; r++) {
    values[r] = ARENA_ARRAY(c->arena, Tensor *, c->graph->nodes.count);
    leaves[r] = (Leaves){c, r};
    context[r] = &leaves[r];
  }
  if (!graph_interpret_mesh(c->graph, c->arena, find_leaf, context, &mesh, values, &c->diag))
    fail_msg("the interpreter failed");
  *loss = 0;
  for (int r = 0; r < ranks; r++) *loss += values[r][c->loss->id]->f[0];
  return values[0];
}

static inline double loss_at(Case *c) {
  double loss;
  evaluate(c, &loss);
  return loss;
}

/* The gradient of the loss for the leaf named `name`. */
static inline const Tensor *gradient_of(Case *c, const char *name) {
  for (int i = 0; i < c->graph->nodes.count; i++) {
    Node *leaf = c->graph->nodes.at[i];
    if (leaf->op != OP_PARAM || strcmp(node_str(leaf, ATTR_NAME), name) != 0) continue;
    Node **gradient = autodiff_gradients(c->graph, &c->diag, c->loss, &leaf, 1);
    assert_non_null(gradient);
    if (!gradient[0]) return tensor_new(c->arena, leaf->type);
    assert_true(type_equal(&gradient[0]->type, &leaf->type));
    assert_true(gradient[0]->origin.is_backward);
    assert_true(graph_verify(c->graph, STAGE_FORWARD, &c->diag));
    double loss;
    return evaluate(c, &loss)[gradient[0]->id];
  }
  fail_msg("no param '%s'", name);
  return NULL;
}

static inline void check_leaf(Case *c, int leaf, const char *body) {
  Tensor *x = c->value[leaf];
  int64_t count = shape_elements(&x->type.shape);
  double *differences = ARENA_ARRAY(c->arena, double, count);
  for (int64_t k = 0; k < count; k++) {
    double at = x->f[k], h = 1e-5 * fmax(1, fabs(at));
    x->f[k] = at + h;
    double above = loss_at(c);
    x->f[k] = at - h;
    differences[k] = (above - loss_at(c)) / (2 * h);
    x->f[k] = at;
  }
  const Tensor *exact = gradient_of(c, c->name[leaf]);
  for (int64_t k = 0; k < count; k++) {
    double tolerance = 2e-8 * fmax(1, fabs(differences[k]));
    if (!(fabs(exact->f[k] - differences[k]) <= tolerance))
      fail_msg("d/d%s[%lld]: rule %.12g, differences %.12g in\n%s", c->name[leaf], (long long)k,
               exact->f[k], differences[k], body);
  }
}

static inline void check_between(const char *body, double low, double high) {
  Case probe, c;
  case_begin(&probe, body, low, high);
  int count = probe.leaf_count;
  arena_free(probe.arena);
  for (int leaf = 0; leaf < count; leaf++) { /* a fresh graph each: gradients are added to it */
    case_begin(&c, body, low, high);
    bool is_param = false;
    for (int i = 0; i < c.graph->nodes.count; i++)
      is_param |= c.graph->nodes.at[i]->op == OP_PARAM &&
                  strcmp(node_str(c.graph->nodes.at[i], ATTR_NAME), c.name[leaf]) == 0;
    if (is_param) check_leaf(&c, leaf, body);
    arena_free(c.arena);
  }
}

static inline void check(const char *body) { check_between(body, -1, 1); }
#endif
