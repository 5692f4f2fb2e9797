/* rewrite: passes build new graphs; the old one stays as it was. Bodies of fused nodes are shared
 * by pointer between old and new: a pass that changes a body makes its own copy first. */
#include "ir/graph.h"
#include <assert.h>

Node *graph_copy_as(Graph *fresh, const Node *old, Node *const *inputs, const Type *type) {
  Node *node =
      graph_node(fresh, old->op, inputs, old->input_count, old->attr, old->attr_count, type);
  node->type.pitch = type ? type->pitch : 0;
  node->body = old->body;
  node->role = old->role;
  node->origin = old->origin;
  return node;
}

Node *graph_copy_with(Graph *fresh, const Node *old, Node *const *inputs, const Type *type,
                      const Attr *attrs, int count) {
  Node changed = *old;
  changed.attr = ARENA_ARRAY(fresh->arena, Attr, old->attr_count + count);
  changed.attr_count = 0;
  for (int i = 0; i < old->attr_count + count; i++) {
    Attr attr = i < old->attr_count ? old->attr[i] : attrs[i - old->attr_count];
    for (int k = 0; k < count; k++)
      if (attrs[k].id == attr.id) attr = attrs[k];
    changed.attr[changed.attr_count++] = attr;
  }
  return graph_copy_as(fresh, &changed, inputs, type);
}

Node *graph_copy_node(Graph *fresh, const Node *old, Node *const *inputs) {
  return graph_copy_as(fresh, old, inputs, &old->type);
}

void graph_copy_roots(Graph *fresh, const Graph *old, Node *const *map) {
  for (int i = 0; i < old->roots.count; i++) {
    const Root *root = &old->roots.at[i];
    graph_add_root(fresh, root->kind, root->name, map[root->node->id]);
  }
}

Graph *graph_rewrite(const Graph *old, RewriteVisit *visit, void *context) {
  Graph *fresh = graph_new(old->arena, old->name);
  Node **map = ARENA_ARRAY(old->arena, Node *, old->nodes.count);
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *node = old->nodes.at[i];
    Node **inputs = ARENA_ARRAY(old->arena, Node *, node->input_count);
    for (int k = 0; k < node->input_count; k++) inputs[k] = map[node->input[k]->id];
    fresh->origin = node->origin;
    Node *replacement = visit ? visit(fresh, node, inputs, context) : NULL;
    map[i] = replacement ? replacement : graph_copy_node(fresh, node, inputs);
  }
  graph_copy_roots(fresh, old, map);
  fresh->origin = (Origin){0};
  return fresh;
}

int *graph_use_counts(const Graph *graph, Arena *arena) {
  int *uses = ARENA_ARRAY(arena, int, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    for (int k = 0; k < node->input_count; k++) uses[node->input[k]->id]++;
  }
  for (int i = 0; i < graph->roots.count; i++) uses[graph->roots.at[i].node->id]++;
  return uses;
}
