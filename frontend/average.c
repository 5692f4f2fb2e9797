/* average: states that begin as copies of parameters. `state s: [D] = w` is one that `update` changes;
 * average(layer, decay=d) applied reads, in place of each parameter w of the layer, such a state:
 *
 *   k = w + d (s - w), and after the step s = k
 *
 * which is the momentum encoder of He et al., Momentum Contrast (2020). As the k of a step is made of
 * the parameters at its beginning, it is also what Grill et al., Bootstrap Your Own Latent (2020), and
 * Tarvainen and Valpola, Mean teachers (2017), make after the update of the step before.
 *
 * Whether a copy has begun is a state beside it, of 0 or 1: so it begins with what --init has put into
 * the parameter, and a file of weights, which has both, goes on with it. */
#include "frontend/builder.h"
#include <string.h>

static Node *average_state(Builder *b, const char *name, Type type, Loc loc) {
  Attr attrs[] = {attr_str(ATTR_NAME, name), attr_str(ATTR_INIT, "zeros")};
  Node *state = tensor_node(b, OP_STATE, NULL, 0, attrs, 2, &type, loc);
  if (state) VEC_PUSH(b->arena, b->declared, ((Declared){name, state, builder_site(b, loc)}));
  return state;
}

static void average_assign(Builder *b, const Node *state, Node *value) {
  const char *name = node_str(state, ATTR_NAME);
  Attr attr = attr_str(ATTR_TARGET, name);
  Node *assign = tensor_node(b, OP_ASSIGN, &value, 1, &attr, 1, NULL, state->origin.loc);
  if (assign) graph_add_root(b->graph, ROOT_ASSIGN, name, assign);
}

static const Copied *begin_copy(Builder *b, Node *state, Node *param, Loc loc) {
  const char *name = arena_printf(b->arena, "%s.begun", node_str(state, ATTR_NAME));
  Node *begun = average_state(b, name, (Type){DT_F32, shape_scalar()}, loc);
  Node *from = tensor_unary(b, OP_STOP_GRADIENT, param, loc);
  Node *zero = tensor_const(b, DT_F32, 0, loc), *one = tensor_const(b, DT_F32, 1, loc);
  if (!begun || !from || !zero || !one) return NULL;
  Node *has_begun = tensor_binary(b, OP_GT, ">", begun, zero, loc);
  if (has_begun) has_begun = tensor_broadcast(b, has_begun, state->type.shape, loc);
  Node *value = has_begun ? tensor_select(b, has_begun, state, from, loc) : NULL;
  if (!value) return NULL;
  if (b->training && !statistics_only(b)) average_assign(b, begun, one);
  VEC_PUSH(b->arena, b->copies, ((Copied){.state = state, .param = param, .value = value}));
  return &b->copies.at[b->copies.count - 1];
}

bool copy_declare(Builder *b, Node *state, Node *from, Loc loc) {
  char is[TYPE_TEXT], was[TYPE_TEXT];
  while (from->op == OP_STOP_GRADIENT) from = from->input[0];
  if (from->op != OP_PARAM)
    return builder_fail(
        b, loc,
        "a state begins with an initialiser or as a parameter of its block, not as a "
        "tensor that is computed");
  if (!type_equal(&state->type, &from->type))
    return builder_fail(b, loc, "the state is %s and cannot begin as the parameter, which is %s",
                        type_text(&state->type, was), type_text(&from->type, is));
  return begin_copy(b, state, from, loc) != NULL;
}

Node *copy_value(const Builder *b, Node *state) {
  for (int i = 0; i < b->copies.count; i++)
    if (b->copies.at[i].state == state) return b->copies.at[i].value;
  return state;
}

void copies_end(Builder *b) {
  for (int i = 0; i < b->copies.count && b->training && !statistics_only(b); i++) {
    const Copied *copy = &b->copies.at[i];
    if (!graph_find_root(b->graph, ROOT_ASSIGN, node_str(copy->state, ATTR_NAME)))
      average_assign(b, copy->state, copy->value);
  }
  bool moves = b->training && !statistics_only(b) && strcmp(setting_text(b->program->settings, "train.sharpness"), "none");
  for (int i = 0; i < b->copies.count && moves; i++)
    graph_add_root(b->graph, ROOT_STAYS, node_str(b->copies.at[i].state, ATTR_NAME), b->copies.at[i].value);
}

Node *average_of(Builder *b, Node *param, Loc loc) {
  const char *of = node_str(param, ATTR_NAME);
  for (int i = 0; i < b->copies.count; i++) {
    const Copied *known = &b->copies.at[i];
    if (known->param != param || !known->is_average) continue;
    if (known->decay == b->average.decay) return known->value;
    builder_fail(b, loc,
                 "the layer of parameter '%s' is averaged with decay=%g and with decay=%g: it "
                 "has one average",
                 of, known->decay, b->average.decay);
    return NULL;
  }
  Node *state = average_state(b, arena_printf(b->arena, "%s.average", of), param->type, loc);
  const Copied *copy = state ? begin_copy(b, state, param, loc) : NULL;
  if (!copy) return NULL;
  Node *now = copy->value->input[2];
  Node *decay = tensor_fill(b, DT_F32, param->type.shape, b->average.decay, loc);
  Node *apart = tensor_binary(b, OP_SUB, "-", copy->value, now, loc);
  Node *kept = decay && apart ? tensor_binary(b, OP_MUL, "*", apart, decay, loc) : NULL;
  Node *value = kept ? tensor_binary(b, OP_ADD, "+", now, kept, loc) : NULL;
  if (!value) return NULL;
  Copied *made = &b->copies.at[b->copies.count - 1];
  made->value = value;
  made->is_average = true;
  made->decay = b->average.decay;
  return value;
}

const char *average_local(Builder *b, const char *local) {
  return b->average.is_on ? arena_printf(b->arena, "%s.average", local) : local;
}

Value average_layer(Call *call) {
  Value layer = call->arg[0];
  double decay;
  if (layer.kind != VALUE_LAYER) {
    builder_fail(
        call->b, call->at[0],
        "average() takes a layer and gives one with averages in place of its parameters, not "
        "%s: target = average(encoder, decay=0.99)",
        value_describe(call->b->arena, &layer));
    return value_error();
  }
  if (!builtin_number(call, 1, 0, &decay)) return value_error();
  if (!(decay >= 0 && decay <= 1)) {
    builder_fail(call->b, call->at[1],
                 "decay=%g: it is from 0 (the parameters as they are) to 1 (as they "
                 "were at first)",
                 decay);
    return value_error();
  }
  if (layer.is_average || layer.file) {
    builder_fail(call->b, call->loc, "this layer has %s in place of its parameters already",
                 layer.file ? "the weights of a file" : "averages");
    return value_error();
  }
  layer.is_average = true;
  layer.decay = decay;
  return layer;
}
