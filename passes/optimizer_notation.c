/* optimizer_notation: short hands for the arithmetic of updates. See optimizer.h. */
#include "passes/loss_scale.h"
#include "passes/prune.h"
#include <string.h>

Node *update_op(Update *u, Op op, Node *a, Node *b) { return make_binary(u->graph, op, a, b); }
Node *update_add(Update *u, Node *a, Node *b) { return update_op(u, OP_ADD, a, b); }
Node *update_sub(Update *u, Node *a, Node *b) { return update_op(u, OP_SUB, a, b); }
Node *update_mul(Update *u, Node *a, Node *b) { return update_op(u, OP_MUL, a, b); }
Node *update_div(Update *u, Node *a, Node *b) { return update_op(u, OP_DIV, a, b); }

Node *update_quotient(Update *u, Node *a, Node *b) {
  if (!u->has_padding) return update_div(u, a, b);
  Node *is_nothing = update_op(u, OP_EQ, a, make_like(u->graph, a, 0));
  Node *is_zero = update_op(u, OP_EQ, b, make_like(u->graph, b, 0));
  Node *not_zero = make_select(u->graph, is_zero, make_like(u->graph, b, 1), b);
  return update_div(u, a, make_select(u->graph, is_nothing, not_zero, b));
}

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

void update_at(Update *u, const char *key) {
  Loc loc = setting_loc(u->settings, key);
  u->graph->origin.loc = loc.line ? loc : setting_loc(u->settings, "train.optimizer");
}

Node *update_setting(Update *u, const char *key) { return make_setting(u->graph, key); }
Node *update_state(Update *u, LeafRole role, const char *name, double initial) {
  return make_state(u->graph, role, name, u->flat, initial);
}
Node *update_moment(Update *u, const char *name) {
  return prune_masked(u, update_state(u, ROLE_MOMENT, name, 0));
}
Node *update_counter(Update *u, LeafRole role, const char *name) {
  return make_state(u->graph, role, name, (Type){DT_I64, shape_scalar()}, 0);
}
void update_assign(Update *u, const char *target, Node *value) {
  make_assign(u->graph, target, update_unless_skipped(u, target, value));
}
