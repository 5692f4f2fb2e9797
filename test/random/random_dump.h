/* random_dump: what the interpreter says of the first step and of the evaluation, and of the states, as text for
 * PyTorch (test/random/oracles.py): a line for each value, "kind name numbers". */
#ifndef FT_TEST_RANDOM_DUMP_H
#define FT_TEST_RANDOM_DUMP_H
#include "test/random/random_case.h"

static double element_of(const Tensor *value, int64_t i) {
  return value->f ? value->f[i] : (double)value->i[i];
}

static void dump_value(FILE *out, const char *kind, const char *name, const Tensor *value,
                       int64_t first, int64_t count) {
  fprintf(out, "%s %s", kind, name);
  for (int64_t i = 0; i < count; i++) fprintf(out, " %.17g", element_of(value, first + i));
  fputc('\n', out);
}

static void dump_roots(FILE *out, const Graph *graph, Tensor **values) {
  static const char *const kinds[] = {"loss", "metric", "output"};
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind > ROOT_OUTPUT) continue;
    char *kind = arena_printf(graph->arena, "%s.%s", graph->name, kinds[root->kind]);
    dump_value(out, kind, root->name, values[root->node->id], 0,
               shape_elements(&root->node->type.shape));
  }
}

/* What delayed scaling keeps (passes/float8_delayed.h), behind each step. */
static void dump_float8(FILE *out, Case *c) {
  const Graph *graph = c->reference.train;
  for (int s = 0; s < STEPS; s++)
    for (int i = 0; i < graph->roots.count; i++) {
      const Root *root = &graph->roots.at[i];
      if (root->kind != ROOT_ASSIGN || strncmp(root->name, OWN_FLOAT8, strlen(OWN_FLOAT8)) != 0) continue;
      const Type *type = &root->node->type;
      char *kind = arena_printf(c->arena, "state.%d.%lld", s, (long long)type->shape.dim[0]);
      dump_value(out, kind, root->name, c->exact.of_step[s][root->node->id], 0, shape_elements(&type->shape));
    }
}

/* The model's own states behind the first step. */
static void dump_states(FILE *out, Case *c) {
  const Graph *graph = c->reference.train;
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind == ROOT_ASSIGN && root->name[0] != OWN_MARK[0])
      dump_value(out, "state", root->name, c->exact.of_step[0][root->node->id], 0, shape_elements(&root->node->type.shape));
  }
}

static void dump(Case *c) {
  FILE *out = fopen(c->request.dump, "w");
  if (!out) reject("cannot write %s", c->request.dump);
  dump_roots(out, c->reference.train, c->exact.of_step[0]);
  dump_roots(out, c->reference.eval, c->exact.eval);
  const Node *pack = find_gradients(c, c->reference.train);
  for (int i = 0; pack && i < c->reference.train->nodes.count; i++) {
    const Node *param = c->reference.train->nodes.at[i];
    if (param->op == OP_PARAM && !node_is_frozen(param))
      dump_value(out, "gradient", node_str(param, ATTR_NAME), c->exact.of_step[0][pack->id],
                 node_int(param, ATTR_OFFSET, 0), shape_elements(&param->type.shape));
  }
  const Node *params = graph_find_root(c->reference.train, ROOT_ASSIGN, OWN_PARAMS);
  for (int i = 0; params && i < c->reference.train->nodes.count; i++) {
    const Node *param = c->reference.train->nodes.at[i];
    if (param->op == OP_PARAM && !node_is_frozen(param))
      dump_value(out, "param", node_str(param, ATTR_NAME), c->exact.of_step[0][params->id],
                 node_int(param, ATTR_OFFSET, 0), shape_elements(&param->type.shape));
  }
  dump_float8(out, c);
  dump_states(out, c);
  fclose(out);
}
#endif
