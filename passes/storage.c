/* storage: the order of a parameter's elements in memory. Files have them in the order of the
 * program; consumers may read another, such as convolutions in NHWC, whose weights are [O,KH,KW,I].
 * Where more consumers read the param transposed than plain (storage_choose.c), it is stored
 * transposed: its type is that of the stored tensor, and attributes tell the order (ir/type.h,
 * Storage). The consumers' transposes vanish; its gradient is packed in the same order, so that the
 * kernel that computes it stores it in place; the update, which goes over flat places, is the same.
 * The runtime permutes as it loads, saves and initialises.
 *
 * An order permutes the row-major sequence of a value's elements, so reshapes keep it. These values
 * have such an order beside the plain one: stored params and the sums of their gradients,
 * transposes from there back to plain, and what is computed from those element by element. They are
 * made in the order that a consumer asks for, plain or stored. */
#include "passes/forms.h"
#include "passes/storage.h"
#include <string.h>

typedef struct {
  Graph *fresh;
  const Graph *old;
  const Node *gradients;
  Lookup params;  /* storage_params */
  Storages forms; /* those that params have */
  int *form;      /* by node: its form, or PLAIN if it has no other */
  Forms values;   /* plain, or in that order and its shape */
} Turn;

enum { PLAIN = -1 };

static Node *plain_of(Turn *t, const Node *node) { return forms_get(&t->values, node, PLAIN); }

/* ── forms ──────────────────────────────────────────────────────────────────────────────────── */
static int form_of_transpose(const Turn *t, const Node *node) {
  Storage storage = storage_of_transpose(node), back = storage_inverse(&storage);
  return storages_find(&t->forms, &back);
}

/* A sum of gradients has its param's order. */
static int form_of_sum(const Turn *t, const Node *state) {
  const Attr *offset = node_attr(state, ATTR_OFFSET);
  int param =
      offset ? storage_param_at(&t->params, offset->i, shape_elements(&state->type.shape)) : -1;
  return param >= 0 ? t->form[param] : -1;
}

static void storage_find_forms(Turn *t, const Storage *chosen, Arena *arena) {
  for (int i = 0; i < t->old->nodes.count; i++) {
    t->form[i] = -1;
    if (!chosen[i].view.rank) continue;
    t->form[i] = storages_find(&t->forms, &chosen[i]);
    if (t->form[i] >= 0) continue;
    t->form[i] = t->forms.count;
    VEC_PUSH(arena, t->forms, chosen[i]);
  }
  for (int i = 0; i < t->old->nodes.count; i++) {
    const Node *node = t->old->nodes.at[i];
    if (node->op == OP_STATE) t->form[i] = form_of_sum(t, node);
    if (node->op == OP_TRANSPOSE && !storage_is_view(node)) t->form[i] = form_of_transpose(t, node);
    for (int k = 0; storage_keeps_places(node) && k < node->input_count && t->form[i] < 0; k++)
      t->form[i] = t->form[node->input[k]->id];
  }
}

/* ── making values ──────────────────────────────────────────────────────────────────────────── */
static Shape shape_as(const Turn *t, int form) { return storage_shape(&t->forms.at[form]); }

/* Made for `old`: values of other nodes are made in between, so the origin is set each time. */
static Node *storage_reshaped(Turn *t, Node *value, Shape shape, const Node *old) {
  t->fresh->origin = old->origin;
  return make_reshape(t->fresh, value, shape);
}

/* A value, reshaped to the view and transposed; only reshaped if no element moves. */
static Node *transposed(Turn *t, Node *value, const Storage *storage, const Node *old) {
  if (!storage_merged(storage).view.rank)
    return storage_reshaped(t, value, storage_shape(storage), old);
  return make_transpose(t->fresh, storage_reshaped(t, value, storage->view, old), storage->perm);
}

/* The leaf that holds a param or a sum in its stored order. */
static Node *stored_leaf(Turn *t, const Node *leaf) {
  const Storage *storage = &t->forms.at[t->form[leaf->id]];
  Type type = {leaf->type.dtype, storage_shape(storage)};
  Node *made = graph_copy_as(t->fresh, leaf, NULL, &type);
  if (leaf->op != OP_PARAM) return made;
  const Shape *shape = &leaf->type.shape;
  node_set_attr(t->fresh, made, attr_ints(ATTR_SHAPE, shape->dim, shape->rank));
  node_set_attr(t->fresh, made, attr_ints(ATTR_VIEW, storage->view.dim, storage->view.rank));
  node_set_attr(t->fresh, made, attr_ints(ATTR_PERM, storage->perm, storage->view.rank));
  return made;
}

/* A broadcast is made from its source in the stored order: of a scalar, or where the view has the
 * broadcast's own dimensions. */
static Node *stored_broadcast(Turn *t, const Node *node, int form) {
  const Storage *storage = &t->forms.at[form];
  const Node *from = node->input[0];
  Storage small = *storage;
  small.view = from->type.shape;
  if (shape_elements(&small.view) == 1)
    small.view = (Shape){storage->view.rank, {1, 1, 1, 1, 1, 1, 1, 1}};
  else if (!shape_equal(&node->type.shape, &storage->view))
    return NULL;
  Node *value =
      transposed(t, storage_reshaped(t, plain_of(t, from), small.view, node), &small, node);
  return make_broadcast(t->fresh, value, shape_as(t, form));
}

static int users_of(const Graph *graph, const Node *node) {
  int users = 0;
  for (int i = 0; i < graph->nodes.count; i++)
    for (int k = 0; k < graph->nodes.at[i]->input_count; k++) users += graph->nodes.at[i]->input[k] == node;
  for (int i = 0; i < graph->roots.count; i++) users += graph->roots.at[i].node == node;
  return users;
}

/* A gradient that nobody else reads is computed in the stored order: transpose(a b) is transpose(b) transpose(a). */
static Node *turned_product(Turn *t, const Node *dot, int form) {
  const Storage *storage = &t->forms.at[form];
  bool is_turn = dot->op == OP_DOT && dot->type.shape.rank == 2 && storage->view.rank == 2 && storage->perm[0] == 1;
  if (!is_turn || !shape_equal(&storage->view, &dot->type.shape) || users_of(t->old, dot) != 1) return NULL;
  t->fresh->origin = dot->origin;
  return make_dot_like(t->fresh, dot, plain_of(t, dot->input[1]), plain_of(t, dot->input[0]),
                       !node_int(dot, ATTR_TRANS_B, 0), !node_int(dot, ATTR_TRANS_A, 0));
}

static Node *made_stored(Turn *t, const Node *node, int form) {
  Type type = {node->type.dtype, shape_as(t, form)};
  bool has_form = t->form[node->id] == form;
  if (node->op == OP_CONST) return graph_copy_as(t->fresh, node, NULL, &type);
  if (node->op == OP_BROADCAST) return stored_broadcast(t, node, form);
  if (!has_form) return turned_product(t, node, form);
  if (node->op == OP_PARAM || node->op == OP_STATE) return stored_leaf(t, node);
  if (storage_is_view(node)) return forms_get(&t->values, node->input[0], form);
  if (node->op == OP_TRANSPOSE)
    return storage_reshaped(t, plain_of(t, node->input[0]), type.shape, node);
  Node **inputs = ARENA_ARRAY(t->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++)
    inputs[k] = forms_get(&t->values, node->input[k], form);
  return graph_copy_as(t->fresh, node, inputs, &type);
}

/* A transpose that leads to the order in which its operand lies anyway; NULL: it does not. */
static Node *as_it_lies(Turn *t, const Node *node) {
  int form = node->op == OP_TRANSPOSE ? t->form[node->input[0]->id] : -1;
  if (form < 0 || storage_is_view(node)) return NULL;
  Storage storage = storage_of_transpose(node);
  if (!storage_equal(&storage, &t->forms.at[form])) return NULL;
  return storage_reshaped(t, forms_get(&t->values, node->input[0], form), node->type.shape, node);
}

/* Is this what a flat place takes, rather than a value of its own? */
static int form_of_operand(const Turn *t, const Node *node, int operand) {
  if (node->op == OP_PACK && node == t->gradients) {
    int param = storage_param_at(&t->params, node_attr(node, ATTR_OFFSETS)->ints[operand],
                                 shape_elements(&node->input[operand]->type.shape));
    return param >= 0 ? t->form[param] : -1;
  }
  const Node *state =
      node->op == OP_ASSIGN ? graph_find_state(t->old, node_str(node, ATTR_TARGET)) : NULL;
  return state ? t->form[state->id] : -1;
}

static Node *made_plain(Turn *t, const Node *node) {
  bool is_leaf = node->op == OP_PARAM || node->op == OP_STATE;
  if (is_leaf && t->form[node->id] >= 0) {
    Storage back = storage_inverse(&t->forms.at[t->form[node->id]]);
    Node *value = transposed(t, forms_get(&t->values, node, t->form[node->id]), &back, node);
    return storage_reshaped(t, value, node->type.shape, node);
  }
  Node *made = as_it_lies(t, node);
  if (made) return made;
  Node **inputs = ARENA_ARRAY(t->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++)
    inputs[k] = forms_get(&t->values, node->input[k], form_of_operand(t, node, k));
  return graph_copy_as(t->fresh, node, inputs, node->op == OP_ASSIGN ? NULL : &node->type);
}

static Node *storage_make(void *turn, const Node *node, int form) {
  Turn *t = turn;
  Node *made = form == PLAIN ? made_plain(t, node) : made_stored(t, node, form);
  return made ? made : transposed(t, plain_of(t, node), &t->forms.at[form], node);
}

/* Leaves stay in their order; a value with a form, or one that can be made in any, is made when it
 * is needed.
 */
static void storage_visit(Turn *t, const Node *node) {
  bool has_form = t->form[node->id] >= 0;
  if (has_form && (node->op == OP_PARAM || node->op == OP_STATE))
    forms_get(&t->values, node, t->form[node->id]);
  else if (!has_form && node->op != OP_CONST && node->op != OP_BROADCAST)
    plain_of(t, node);
}

Graph *pass_storage(PassContext *context, Graph *old) {
  Arena *arena = context->scratch;
  int count = old->nodes.count;
  Graph *fresh = graph_new(old->arena, old->name);
  Turn t = {.fresh = fresh,
            .old = old,
            .gradients = graph_find_gradients(old),
            .params = storage_params(old, arena),
            .form = ARENA_ARRAY(arena, int, count),
            .values = {old, fresh, storage_make, &t, {.arena = arena}}};
  storage_find_forms(&t, storage_choose(context, old), arena);
  if (!t.forms.count) return old;
  for (int i = 0; i < count; i++) storage_visit(&t, old->nodes.at[i]);
  return forms_end(&t.values, PLAIN);
}
