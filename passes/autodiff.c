/* autodiff: adds the backward graph. The rules are in gradients.c; this driver finds what lies
 * between the parameters and the loss, visits it backwards, and sums what meets at a value with
 * several users.
 *
 * The result is the root GRADIENTS: a `pack` of the gradients of all params that are trained, at the
 * offsets that this pass writes on the params (of both graphs, so that they agree on the arena).
 * Those that are frozen come behind them, and have no gradient and no part in the update. The
 * optimizer pass consumes that root; there is none where nothing is trained. Where totals left the root
 * ASCENT its gradients are the root DIRECTION, for pass sharpness. */
#include "passes/autodiff.h"
#include "passes/gradients.h"
#include "passes/loss_scale.h"
#include "passes/messages.h"
#include "passes/pass.h"
#include <stdlib.h>
#include <string.h>

/* Which nodes carry a gradient: float nodes that depend on a target by a path of differentiable
 * ops. */
static bool *find_active(const Graph *graph, Node *const *targets, int count) {
  bool *active = ARENA_ARRAY(graph->arena, bool, graph->nodes.count);
  for (int i = 0; i < count; i++) active[targets[i]->id] = true;
  for (int i = 0; i < graph->nodes.count; i++) active[i] |= graph->nodes.at[i]->op == OP_RECEIVE;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!dtype_is_float(node->type.dtype) || node->op == OP_STOP_GRADIENT) continue;
    for (int j = 0; j < node->input_count; j++)
      if (active[node->input[j]->id]) active[i] = true;
  }
  return active;
}

/* What is made from now on belongs to the gradient of `node`. */
static void go_back_to(Graph *graph, const Node *node) {
  graph->origin = node->origin;
  graph->origin.is_backward = true;
}

static void add_to_gradient(Graph *graph, const Node *of, Node **sum, Node *term) {
  go_back_to(graph, of);
  *sum = *sum ? make_binary(graph, OP_ADD, *sum, term) : term;
}

/* Contractions from `first` on are of the type that the layer wants, and have the histories of the product. */
static void follow_layer(Graph *graph, const Node *node, int first) {
  const char *precision = node_str(node, ATTR_PRECISION);
  const Attr *stream = node->op == OP_DOT ? node_attr(node, ATTR_STREAM) : NULL;
  for (int i = first; i < graph->nodes.count; i++) {
    Node *made = graph->nodes.at[i];
    if (op_info[made->op].op_class != CLASS_CONTRACT) continue;
    if (precision) node_set_attr(graph, made, attr_str(ATTR_PRECISION, precision));
    if (stream) node_set_attr(graph, made, *stream);
  }
}

/* Runs the rule of one node; false if there is none or it failed. */
static bool autodiff_step_back(Graph *graph, Diag *diag, Node *node, const bool *active,
                               Node **gradient) {
  if (!gradient_rule[node->op]) {
    diag_error(diag, node->origin.loc,
               "'%s' has no gradient, and the loss depends on a parameter through it",
               node_called(node));
    return false;
  }
  bool *needed = ARENA_ARRAY(graph->arena, bool, node->input_count);
  for (int i = 0; i < node->input_count; i++) needed[i] = active[node->input[i]->id];
  Gradient rule = {.graph = graph,
                   .diag = diag,
                   .node = node,
                   .dy = gradient[node->id],
                   .needed = needed,
                   .dx = ARENA_ARRAY(graph->arena, Node *, node->input_count)};
  int errors = diag->errors, first = graph->nodes.count;
  go_back_to(graph, node);
  gradient_rule[node->op](&rule);
  follow_layer(graph, node, first);
  for (int i = 0; i < node->input_count; i++)
    if (needed[i] && rule.dx[i])
      add_to_gradient(graph, node->input[i], &gradient[node->input[i]->id], rule.dx[i]);
  return diag->errors == errors;
}

/* ── other stages of a pipeline ─────────────────────────────────────────────────────────────── */
/* The gradient of what was sent comes from the stage that got it. */
static void receive_gradients(Graph *graph, int count, Node **gradient) {
  for (int i = 0; i < count; i++) {
    Node *send = graph->nodes.at[i];
    if (send->op != OP_SEND || !message_is(send, MESSAGE_ACTIVATION)) continue;
    Message message = message_of(send), back = message;
    back.from = message.to, back.to = message.from, back.kind = MESSAGE_GRADIENT;
    Node *sent = send->input[0];
    go_back_to(graph, sent);
    Node *got = message_receive(graph, sent->type, (int)node_int(send, ATTR_TO, 0), &back);
    add_to_gradient(graph, sent, &gradient[sent->id], got);
  }
}

/* What was received sends its gradient, and zeros where nothing that counts reads it here. */
static void send_gradients(Graph *graph, int count, Node *const *gradient) {
  for (int i = 0; i < count; i++) {
    Node *receive = graph->nodes.at[i];
    if (receive->op != OP_RECEIVE || !message_is(receive, MESSAGE_ACTIVATION)) continue;
    Message message = message_of(receive), back = message;
    back.from = message.to, back.to = message.from, back.kind = MESSAGE_GRADIENT;
    go_back_to(graph, receive);
    Node *slope = gradient[i] ? gradient[i] : make_like(graph, receive, 0);
    message_send(graph, slope, (int)node_int(receive, ATTR_FROM, 0), &back);
  }
}

Node **autodiff_gradients(Graph *graph, Diag *diag, Node *loss, Node *const *targets, int count) {
  int forward = graph->nodes.count;
  bool *active = find_active(graph, targets, count);
  bool *is_target = ARENA_ARRAY(graph->arena, bool, forward);
  for (int i = 0; i < count; i++) is_target[targets[i]->id] = true;
  Node **gradient = ARENA_ARRAY(graph->arena, Node *, forward);
  bool ok = true;
  const Origin before = graph->origin;
  go_back_to(graph, loss);
  if (active[loss->id]) gradient[loss->id] = make_like(graph, loss, 1);
  receive_gradients(graph, forward, gradient);
  for (int i = forward - 1; i >= 0; i--) {
    Node *node = graph->nodes.at[i];
    if (gradient[i] && active[i] && op_info[node->op].max_inputs != 0 &&
        !(is_target[i] && node->input_count == 0))
      ok &= autodiff_step_back(graph, diag, node, active, gradient);
  }
  send_gradients(graph, forward, gradient);
  graph->origin = before;
  Node **result = ARENA_ARRAY(graph->arena, Node *, count);
  for (int i = 0; i < count; i++) result[i] = gradient[targets[i]->id];
  return ok ? result : NULL;
}

/* ── places in the arena ────────────────────────────────────────────────────────────────────── */
static int compare_doubles(double a, double b) { return (a > b) - (a < b); }

/* Those that train to the end, and behind them the first that come to rest last: what trains is one run from the
 * beginning, whatever rests. */
static int compare_rests(int64_t a, int64_t b) {
  int64_t left = a ? PLAN_MOST_RESTS + 1 - a : 0, right = b ? PLAN_MOST_RESTS + 1 - b : 0;
  return (left > right) - (left < right);
}

static int compare_groups(const Node *a, const Node *b) {
  int order = node_is_frozen(a) - node_is_frozen(b);
  if (!order) order = compare_rests(node_int(a, ATTR_REST, 0), node_int(b, ATTR_REST, 0));
  if (!order) order = (int)(node_int(a, ATTR_AS_MATRIX, 0) - node_int(b, ATTR_AS_MATRIX, 0));
  if (!order)
    order = compare_doubles(node_float(a, ATTR_LR_FACTOR, 1), node_float(b, ATTR_LR_FACTOR, 1));
  if (!order)
    order =
        compare_doubles(node_float(a, ATTR_DECAY_FACTOR, 1), node_float(b, ATTR_DECAY_FACTOR, 1));
  return order;
}

/* As the rank has them, or whole. */
static double matrix_size(const Node *param, int dim, bool is_whole) {
  Shape shape = node_file_shape(param);
  const Attr *cut = node_attr(param, ATTR_CUT);
  bool is_part = is_whole && cut && cut->ints[0] == dim;
  return (double)(shape.dim[dim] * (is_part ? node_int(param, ATTR_TENSOR, 1) : 1));
}

static int compare_matrices(const Node *a, const Node *b, bool is_whole) {
  int order = 0;
  for (int i = 0; !order && node_int(a, ATTR_AS_MATRIX, 0) && i < 2; i++)
    order = compare_doubles(matrix_size(a, i, is_whole), matrix_size(b, i, is_whole));
  return order ? order : a->id - b->id;
}

int autodiff_compare_alone(const Node *a, const Node *b) {
  int order = compare_groups(a, b);
  return order ? order : compare_matrices(a, b, true);
}

/* Params that are updated alike stand side by side, so that the update's coefficients are constant
 * over long runs; those trained as matrices stand last of these, matrices of one shape together; then
 * those that are frozen. Otherwise the order is that of the graph. */
static int compare_sources(const void *left, const void *right) {
  const Node *a = *(Node *const *)left, *b = *(Node *const *)right;
  int order = compare_groups(a, b);
  if (!order) order = (node_attr(a, ATTR_CUT) != NULL) - (node_attr(b, ATTR_CUT) != NULL);
  return order ? order : compare_matrices(a, b, false);
}

typedef VEC(Node *) Params;

/* 64 bytes, of the rounded parameters too (narrow.c). */
static int64_t param_align(const SettingValue *settings) {
  if (!settings) return 16;
  const char *precision = setting_text(settings, "train.precision");
  bool is_narrow = !strcmp(precision, "bf16") || !strcmp(precision, "fp16") ||
                   !strcmp(precision, "fp8") ||
                   !strcmp(setting_text(settings, "train.parameters"), "bf16");
  return is_narrow ? 32 : 16;
}

int64_t autodiff_param_alone(const SettingValue *settings, int64_t elements) {
  int64_t align = param_align(settings);
  return (elements + align - 1) / align * align;
}

int64_t autodiff_param_room(const SettingValue *settings, int64_t elements) {
  int64_t parts = settings ? setting_parts(settings) : 1;
  return parts > 1 ? parts * part_elements(elements, parts)
                   : autodiff_param_alone(settings, elements);
}

/* Writes every param's offset. Returns the size, in elements, of what those have that are trained,
 * which alone are in `params`, in the order of their offsets. */
static int64_t place_params(const PassContext *context, Graph *graph, Params *params) {
  const SettingValue *settings = context->settings;
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM) VEC_PUSH(graph->arena, *params, graph->nodes.at[i]);
  if (params->count) qsort(params->at, (size_t)params->count, sizeof *params->at, compare_sources);
  int64_t at = 0, trained = 0;
  int trained_count = 0;
  for (int i = 0; i < params->count; i++) {
    node_set_attr(graph, params->at[i], attr_int(ATTR_OFFSET, at));
    at += autodiff_param_room(settings, shape_elements(&params->at[i]->type.shape));
    if (node_is_frozen(params->at[i]) || pass_rests(context, params->at[i])) continue;
    trained = at;
    trained_count = i + 1;
  }
  params->count = trained_count;
  return trained;
}

/* The gradients of the objective side by side, or NULL with an error in diag. */
static Node *autodiff_pack(PassContext *context, Graph *graph, Node *objective, Params params,
                           int64_t elements) {
  Node *scaled = loss_scale_apply(context->settings, graph, objective);
  Node **gradient = autodiff_gradients(graph, context->diag, scaled, params.at, params.count);
  if (!gradient) return NULL;
  int64_t *offsets = ARENA_ARRAY(context->scratch, int64_t, params.count + 1);
  for (int i = 0; i < params.count; i++) {
    Node *param = params.at[i];
    offsets[i] = node_int(param, ATTR_OFFSET, 0);
    if (gradient[i]) continue;
    go_back_to(graph, param);
    gradient[i] = make_like(graph, param, 0);
  }
  Type type = {DT_F32, shape_of(1, &elements)};
  go_back_to(graph, objective);
  int count = params.count;
  /* A stage of which all is frozen takes part in what the update adds up over the stages. */
  Node *nothing = count ? NULL : make_const(graph, DT_F32, type.shape, 0);
  if (!count) gradient = &nothing, count = 1;
  Attr attr = attr_ints(ATTR_OFFSETS, offsets, count);
  Node *pack = graph_node(graph, OP_PACK, gradient, count, &attr, 1, &type);
  graph->origin = (Origin){0};
  return pack;
}

/* False with an error in diag. */
static bool add_backward(PassContext *context, Graph *graph, Node *loss, Params params,
                         int64_t elements) {
  Node *objective = graph_take_root(graph, ROOT_OBJECTIVE), *ascent = graph_take_root(graph, ROOT_ASCENT);
  bool has_others = context->settings && setting_pipeline(context->settings) > 1;
  if (params.count == 0 && !has_others) return true; /* the front end has warned of it */
  int errors = context->diag->errors;
  for (int i = 0; i < params.count; i++)
    if (params.at[i]->type.dtype != DT_F32)
      diag_error(context->diag, params.at[i]->origin.loc,
                 "parameter '%s' is %s: parameters must be f32", node_str(params.at[i], ATTR_NAME),
                 dtype_text(params.at[i]->type.dtype));
  if (context->diag->errors > errors) return false;
  if (params.count == 0) elements = autodiff_param_room(context->settings, 1);
  Node *grads = autodiff_pack(context, graph, objective ? objective : loss, params, elements);
  if (!grads) return false;
  graph_add_root(graph, ROOT_GRADIENTS, OWN_GRADS, grads);
  Node *direction = ascent ? autodiff_pack(context, graph, ascent, params, elements) : NULL;
  if (direction) graph_add_root(graph, ROOT_DIRECTION, OWN_DIRECTION, direction);
  return direction || !ascent;
}

/* Its work done, stop_gradient is a copy. */
static Node *drop_stops(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)fresh, (void)context;
  return old->op == OP_STOP_GRADIENT ? inputs[0] : NULL;
}

/* Without a loss (a model that only predicts) the params get their places and that is all. */
Graph *pass_autodiff(PassContext *context, Graph *old) {
  Graph *graph = graph_rewrite(old, NULL, NULL);
  Params params = {0};
  int64_t elements = place_params(context, graph, &params);
  Node *loss = graph_find_root(graph, ROOT_LOSS, NULL);
  if (pass_trains(context) && loss && !add_backward(context, graph, loss, params, elements))
    return NULL;
  return graph_rewrite(graph, drop_stops, NULL);
}
