/* optimizer: turns the gradients into the update. Consumes the root "grads" that autodiff left, and
 * leaves assigns to the states "params", "step" and the optimiser's own, all flat f32 of the
 * arena's size, plus the metric "lr": the rate this step used.
 *
 * The arithmetic is that of torch.optim (SGD, Adam, AdamW) and torch.nn.utils.clip_grad_norm_:
 * everything that does not depend on an element is computed in f64, once, and then cast to f32.
 * Every number a user may change between runs is a `setting` leaf, so that a new learning rate
 * needs no new compilation. */
#include "passes/pass.h"
#include <string.h>

typedef struct {
  Graph *graph;
  SettingValue *settings;
  Loc loc;
  Type flat;    /* f32[N] */
  Node *step;   /* f64[], 0 in the first step */
  Node *rate;   /* f64[], the schedule applied */
  Node *params; /* f32[N] before the update */
  Node *grads;  /* f32[N] */
} Update;

/* ── notation: scalars are f64[]; flat values are f32[N] ────────────────────────────────────── */
static Node *op2(Update *u, Op op, Node *a, Node *b) {
  return make_binary(u->graph, op, a, b, u->loc);
}
static Node *add(Update *u, Node *a, Node *b) { return op2(u, OP_ADD, a, b); }
static Node *sub(Update *u, Node *a, Node *b) { return op2(u, OP_SUB, a, b); }
static Node *mul(Update *u, Node *a, Node *b) { return op2(u, OP_MUL, a, b); }
static Node *divide(Update *u, Node *a, Node *b) { return op2(u, OP_DIV, a, b); }
static Node *number(Update *u, double value) {
  return make_const(u->graph, DT_F64, shape_scalar(), value, u->loc);
}
static Node *one_minus(Update *u, Node *x) { return sub(u, number(u, 1), x); }
static Node *sqrt_of(Update *u, Node *x) { return make_unary(u->graph, OP_SQRT, x, u->loc); }
/* A scalar, in every element. */
static Node *fill(Update *u, Node *scalar) {
  Node *single = make_cast(u->graph, scalar, DT_F32, u->loc);
  return make_broadcast(u->graph, single, u->flat.shape, u->loc);
}
static Node *scaled(Update *u, Node *flat, Node *scalar) { return mul(u, flat, fill(u, scalar)); }

static Node *leaf(Update *u, Op op, const char *name, Type type, bool has_init) {
  for (int i = 0; i < u->graph->nodes.count; i++) {
    Node *node = u->graph->nodes.at[i];
    if (node->op == op && strcmp(node_str(node, ATTR_NAME), name) == 0) return node;
  }
  Attr attrs[] = {attr_str(ATTR_NAME, name), attr_str(ATTR_INIT, "zeros")};
  return graph_node(u->graph, op, NULL, 0, attrs, has_init ? 2 : 1, &type, u->loc);
}
static Node *setting(Update *u, const char *key) {
  return leaf(u, OP_SETTING, key, (Type){DT_F64, shape_scalar()}, false);
}
static Node *state(Update *u, const char *name) { return leaf(u, OP_STATE, name, u->flat, true); }
static void assign(Update *u, const char *target, Node *value) {
  Attr attr = attr_str(ATTR_TARGET, target);
  Node *node = graph_node(u->graph, OP_ASSIGN, &value, 1, &attr, 1, NULL, u->loc);
  graph_add_root(u->graph, ROOT_ASSIGN, target, node);
}

/* ── the schedule ───────────────────────────────────────────────────────────────────────────── */
/* How far the training after the warm-up has come, from 0 to 1. */
static Node *progress(Update *u, Node *after, Node *warmup) {
  Node *whole = op2(u, OP_MAX, sub(u, setting(u, "train.total_steps"), warmup), number(u, 1));
  return op2(u, OP_MIN, divide(u, after, whole), number(u, 1));
}

/* The factor on the learning rate after the warm-up; NULL: 1. */
static Node *decay(Update *u, const char *kind, Node *after, Node *warmup) {
  if (strcmp(kind, "step") == 0) {
    Node *every = op2(u, OP_MAX, setting(u, "train.schedule.every"), number(u, 1));
    Node *times = make_unary(u->graph, OP_FLOOR, divide(u, after, every), u->loc);
    return op2(u, OP_POW, setting(u, "train.schedule.gamma"), times);
  }
  Node *remaining = NULL;
  if (strcmp(kind, "linear") == 0) {
    remaining = one_minus(u, progress(u, after, warmup));
  } else if (strcmp(kind, "cosine") == 0) {
    Node *angle = mul(u, number(u, 3.141592653589793), progress(u, after, warmup));
    Node *cosine = make_unary(u->graph, OP_COS, angle, u->loc);
    remaining = mul(u, number(u, 0.5), add(u, number(u, 1), cosine));
  } else {
    return NULL;
  }
  Node *last = setting(u, "train.schedule.final");
  return add(u, last, mul(u, one_minus(u, last), remaining));
}

/* lr (t+1)/warmup for the first `warmup` steps, then lr times the schedule's decay. */
static Node *learning_rate(Update *u, const char *kind) {
  Node *lr = setting(u, "train.lr"), *warmup = setting(u, "train.schedule.warmup");
  Node *after = op2(u, OP_MAX, sub(u, u->step, warmup), number(u, 0));
  Node *factor = decay(u, kind, after, warmup);
  Node *rise = divide(u, add(u, u->step, number(u, 1)), op2(u, OP_MAX, warmup, number(u, 1)));
  Node *is_warm = op2(u, OP_GE, u->step, warmup);
  factor = make_select(u->graph, is_warm, factor ? factor : number(u, 1), rise, u->loc);
  return mul(u, lr, factor);
}

/* ── clipping ───────────────────────────────────────────────────────────────────────────────── */
static Node *clipped(Update *u, Node *grads, double limit) {
  int64_t axis = 0;
  Node *sum = make_reduce(u->graph, OP_SUM, mul(u, grads, grads), &axis, 1, u->loc);
  Node *norm = sqrt_of(u, make_reshape(u->graph, sum, shape_scalar(), u->loc));
  Node *ratio = divide(u, make_like(u->graph, norm, limit, u->loc),
                       add(u, norm, make_like(u->graph, norm, 1e-6, u->loc)));
  Node *scale = op2(u, OP_MIN, ratio, make_like(u->graph, ratio, 1, u->loc));
  return mul(u, grads, make_broadcast(u->graph, scale, u->flat.shape, u->loc));
}

/* ── the update rules: each returns the new parameters ──────────────────────────────────────── */
static Node *sgd(Update *u) {
  Node *direction = add(u, u->grads, scaled(u, u->params, setting(u, "train.weight_decay")));
  if (setting_number(u->settings, "train.momentum") != 0) {
    /* The first step takes the gradient whole: buf = g, with no dampening. */
    Node *momentum = setting(u, "train.momentum");
    Node *is_first = op2(u, OP_EQ, u->step, number(u, 0));
    Node *kept = make_select(u->graph, is_first, number(u, 0), momentum, u->loc);
    Node *fresh = make_select(u->graph, is_first, number(u, 1),
                              one_minus(u, setting(u, "train.dampening")), u->loc);
    Node *buffer = add(u, scaled(u, state(u, "sgd.momentum"), kept), scaled(u, direction, fresh));
    assign(u, "sgd.momentum", buffer);
    direction = setting_number(u->settings, "train.nesterov") != 0
                    ? add(u, direction, scaled(u, buffer, momentum))
                    : buffer;
  }
  return sub(u, u->params, scaled(u, direction, u->rate));
}

/* name is the prefix of the states: "adam" or "adamw". The two differ in how weights decay. */
static Node *adam(Update *u, const char *name, bool is_decoupled) {
  Arena *arena = u->graph->arena;
  const char *m_name = arena_printf(arena, "%s.m", name),
             *v_name = arena_printf(arena, "%s.v", name);
  Node *beta1 = setting(u, "train.beta1"), *beta2 = setting(u, "train.beta2");
  Node *weight_decay = setting(u, "train.weight_decay");
  Node *params = u->params, *grads = u->grads;
  if (is_decoupled)
    params = scaled(u, params, one_minus(u, mul(u, u->rate, weight_decay)));
  else
    grads = add(u, grads, scaled(u, params, weight_decay));
  Node *m = state(u, m_name), *v = state(u, v_name);
  m = add(u, m, scaled(u, sub(u, grads, m), one_minus(u, beta1)));
  v = add(u, scaled(u, v, beta2), scaled(u, mul(u, grads, grads), one_minus(u, beta2)));
  assign(u, m_name, m);
  assign(u, v_name, v);
  Node *count = add(u, u->step, number(u, 1));
  Node *correction1 = one_minus(u, op2(u, OP_POW, beta1, count));
  Node *correction2 = one_minus(u, op2(u, OP_POW, beta2, count));
  Node *root = divide(u, sqrt_of(u, v), fill(u, sqrt_of(u, correction2)));
  Node *size = divide(u, u->rate, correction1);
  Node *quotient = divide(u, m, add(u, root, fill(u, setting(u, "train.eps"))));
  return sub(u, params, scaled(u, quotient, size));
}

/* Takes the root "grads" off the graph; NULL if there is none. */
static Node *take_grads(Graph *graph) {
  for (int i = 0; i < graph->roots.count; i++) {
    Root root = graph->roots.at[i];
    if (root.kind != ROOT_OUTPUT || strcmp(root.name, "grads") != 0 || root.node->op != OP_PACK)
      continue;
    memmove(&graph->roots.at[i], &graph->roots.at[i + 1],
            sizeof(Root) * (size_t)(graph->roots.count - i - 1));
    graph->roots.count--;
    return root.node;
  }
  return NULL;
}

Graph *pass_optimizer(PassContext *context, Graph *old) {
  if (!context->is_train) return old;
  Graph *graph = graph_rewrite(old, NULL, NULL);
  Node *grads = take_grads(graph);
  if (!grads) return old;
  const char *kind = setting_text(context->settings, "train.optimizer");
  const char *schedule = setting_text(context->settings, "train.schedule");
  Update u = {.graph = graph, .settings = context->settings, .flat = grads->type, .grads = grads};
  Type counter_type = {DT_I64, shape_scalar()};
  Node *counter = leaf(&u, OP_STATE, "step", counter_type, true);
  u.step = make_cast(graph, counter, DT_F64, u.loc);
  u.rate = learning_rate(&u, schedule);
  u.params = leaf(&u, OP_STATE, "params", u.flat, false);
  double clip = setting_number(context->settings, "train.clip");
  if (clip > 0) u.grads = clipped(&u, grads, clip);
  Node *params = NULL;
  if (strcmp(kind, "sgd") == 0) {
    params = sgd(&u);
  } else if (strcmp(kind, "adam") == 0 || strcmp(kind, "adamw") == 0) {
    params = adam(&u, kind, strcmp(kind, "adamw") == 0);
  } else {
    diag_error(context->diag, (Loc){0}, "unknown optimizer '%s': sgd, adam or adamw", kind);
    return NULL;
  }
  assign(&u, "params", params);
  assign(&u, "step", add(&u, counter, make_like(graph, counter, 1, u.loc)));
  graph_add_root(graph, ROOT_METRIC, "lr", u.rate);
  return graph;
}
