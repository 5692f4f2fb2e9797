/* optimizer_rounding: parameters that are kept as bf16 only, with no f32 copy. The update is made
 * in f32 and rounded: to the nearest, an update below half a place of bf16 would be lost each time;
 * stochastically (Gupta et al., Deep Learning with Limited Numerical Precision, 2015) the parameter
 * goes up or down with the probability that makes the mean right. The random number is Philox's, of
 * seed, step and element, so a resumed run and every device round alike.
 *
 * It is plain arithmetic, so that every reader of the graph knows it: with t = x rounded to the
 * nearest, the other neighbour n is t moved by 5/8 to 5/4 of a place toward x, and rounded again;
 * |t|/256 is half a place to one place. x - t and n - t are exact, and their ratio is a probability
 * of up to 1/2. */
#include "passes/optimizer.h"
#include "passes/shard_random.h"
#include <string.h>

/* As the params of the graph say: they are f32 if precision was left out, whatever the setting. */
static bool is_kept_narrow(const Update *u) {
  for (int i = 0; i < u->graph->nodes.count; i++)
    if (u->graph->nodes.at[i]->op == OP_PARAM)
      return u->graph->nodes.at[i]->type.dtype == DT_BF16;
  return false;
}

Node *update_params(Update *u) {
  Type type = {is_kept_narrow(u) ? DT_BF16 : DT_F32, u->flat.shape};
  type.shape.dim[0] += u->rest_elements;
  Node *params = make_cast(u->graph, make_state(u->graph, ROLE_PARAMS, OWN_PARAMS, type, 0), DT_F32);
  if (!u->rest_elements) return params;
  u->all = params;
  return make_slice(u->graph, params, (int64_t[]){0}, u->flat.shape);
}

static Node *rounding_uniform(Update *u, Node *counter) {
  Node *inputs[] = {make_cast(u->graph, update_setting(u, "train.seed"), DT_I64), counter};
  Attr stream = attr_int(ATTR_STREAM, ROUNDING_STREAM);
  return graph_node(u->graph, OP_RANDOM, inputs, 2, &stream, 1, &u->flat);
}

static Node *nearest(Update *u, Node *x) {
  return make_cast(u->graph, make_cast(u->graph, x, DT_BF16), DT_F32);
}

Node *update_kept(Update *u, Node *params, Node *counter) {
  if (!is_kept_narrow(u)) return params;
  if (strcmp(setting_text(u->settings, "train.rounding"), "stochastic") == 0) {
    Node *near = nearest(u, params), *rest = update_sub(u, params, near);
    Node *size = make_unary(u->graph, OP_ABS, near);
    Node *place = update_mul(u, size, make_like(u->graph, size, 1.25 / 256));
    Node *toward = make_unary(u->graph, OP_SIGN, rest);
    Node *far = nearest(u, update_add(u, near, update_mul(u, toward, place)));
    Node *chance = update_div(u, rest, update_sub(u, far, near));
    Node *is_far = update_op(u, OP_LT, rounding_uniform(u, counter), chance);
    params = make_select(u->graph, is_far, far, near);
  }
  return make_cast(u->graph, params, DT_BF16);
}
