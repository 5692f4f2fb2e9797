/* optimizer_notation: short hands for the arithmetic of updates. See optimizer.h. */
#include "passes/loss_scale.h"
#include <string.h>

Node *update_op(Update *u, Op op, Node *a, Node *b) { return make_binary(u->graph, op, a, b); }
Node *update_add(Update *u, Node *a, Node *b) { return update_op(u, OP_ADD, a, b); }
Node *update_sub(Update *u, Node *a, Node *b) { return update_op(u, OP_SUB, a, b); }
Node *update_mul(Update *u, Node *a, Node *b) { return update_op(u, OP_MUL, a, b); }
Node *update_div(Update *u, Node *a, Node *b) { return update_op(u, OP_DIV, a, b); }

Node *update_number(Update *u, double value) {
  return make_const(u->graph, DT_F64, shape_scalar(), value);
}
Node *update_one_minus(Update *u, Node *x) { return update_sub(u, update_number(u, 1), x); }
Node *update_sqrt(Update *u, Node *x) { return make_unary(u->graph, OP_SQRT, x); }

Node *update_fill(Update *u, Node *scalar) {
  Node *single = make_cast(u->graph, scalar, DT_F32);
  return make_broadcast(u->graph, single, u->flat.shape);
}
Node *update_scaled(Update *u, Node *flat, Node *scalar) {
  return update_mul(u, flat, update_fill(u, scalar));
}

Node *update_leaf(Update *u, Op op, const char *name, Type type, bool has_init, double initial) {
  for (int i = 0; i < u->graph->nodes.count; i++) {
    Node *node = u->graph->nodes.at[i];
    if (node->op == op && strcmp(node_str(node, ATTR_NAME), name) == 0) return node;
  }
  Attr attrs[] = {attr_str(ATTR_NAME, name), attr_str(ATTR_INIT, initial ? "const" : "zeros"),
                  attr_floats(ATTR_INIT_ARGS, &initial, 1)};
  return graph_node(u->graph, op, NULL, 0, attrs, !has_init ? 1 : initial ? 3 : 2, &type);
}
Node *update_setting(Update *u, const char *key) {
  return update_leaf(u, OP_SETTING, key, (Type){DT_F64, shape_scalar()}, false, 0);
}
Node *update_state(Update *u, const char *name, double initial) {
  return update_leaf(u, OP_STATE, name, u->flat, true, initial);
}
bool update_is_moment(const SettingValue *settings, const char *name) {
  if (!settings || !own_is(name)) return false;
  const char *optimizer = setting_text(settings, "train.optimizer");
  size_t length = strlen(optimizer);
  return strncmp(own_shown(name), optimizer, length) == 0 && own_shown(name)[length] == '.';
}
void update_assign(Update *u, const char *target, Node *value) {
  Attr attr = attr_str(ATTR_TARGET, target);
  value = update_unless_skipped(u, target, value);
  Node *node = graph_node(u->graph, OP_ASSIGN, &value, 1, &attr, 1, NULL);
  graph_add_root(u->graph, ROOT_ASSIGN, target, node);
}
