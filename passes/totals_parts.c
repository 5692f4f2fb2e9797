/* totals_parts: a batch in parts, as if it were whole: those that one device goes through one after
 * the other (accumulate), and those of several ranks (totals_ranks.c). The loss and metrics that are shown are made
 * of totals over the parts. The gradients of the parts can only be added, so the loss L is brought
 * into the form
 *
 *   L = factor * (sum of `part` over the parts) + rest
 *
 * where each part knows its own `part`, factor is a function of totals that no parameter influences
 * (1 over the number of targets that count), and rest is of parameters alone. What is
 * differentiated is `part`, and in the last one, where the totals and so the factor are known, part
 * + rest/factor (each of several ranks its share of it); the optimizer multiplies the sums by the
 * factor. A loss of another form is
 * refused.
 *
 * What parts have of their own, as in any other framework: the statistics of a batch norm, random
 * numbers, and updates of states whose value depends on the batch. Other updates of states are the
 * last part's, once a step. */
#include "passes/totals.h"
#include <string.h>

typedef struct {
  Totals t; /* first: what t.total and t.operand get */
  Node *is_first; /* NULL: a rank has one part */
  bool is_micro;
  int states;
  double parts; /* of a rank */
} Parts;

/* ── totals over the parts ──────────────────────────────────────────────────────────────────── */
static Node *parts_operand(Totals *t, Node *x, const Samples *s, Op op) {
  (void)t, (void)s, (void)op;
  return x;
}

static Node *parts_total(Totals *t, Op op, Node *part, int level) {
  Parts *p = (Parts *)t;
  (void)level;
  if (!p->is_first) return totals_over_ranks(t, op, part);
  const char *name = arena_printf(t->graph->arena, OWN_ACCUMULATE "total.%d", p->states++);
  Node *state = make_state(t->graph, ROLE_PART_TOTAL, name, part->type, 0), *before = state;
  if (p->is_micro)
    before = make_select(t->graph, p->is_first, totals_neutral(t, op, part->type), state);
  Node *now = totals_joined(t, op, before, part);
  if (p->is_micro) make_assign(t->graph, name, now);
  return p->is_micro ? now : totals_over_ranks(t, op, now);
}

/* Is this a function of totals, of which each is known when the last part has been gone through?
 * by_itself: of no total that needs another one first, for which parts had to be gone through
 * again. */
static bool is_known(const Totals *t, const Node *root, bool by_itself) {
  bool *wanted = ARENA_ARRAY(t->graph->arena, bool, t->count);
  wanted[root->id] = true;
  for (int i = root->id; i >= 0; i--) {
    if (!wanted[i]) continue;
    const Node *node = t->graph->nodes.at[i];
    const Samples *s = &t->samples[i];
    bool is_of_part = s->kind == SAMPLES_NONE && t->on_batch[i];
    bool is_later = by_itself && s->level > 0;
    if (totals_is_mixed(t, node) || is_later || is_of_part) return false;
    for (int k = 0; !s->is_total && k < node->input_count; k++) wanted[node->input[k]->id] = true;
  }
  return true;
}

static const char *parts_cause(const Parts *p) {
  return p->is_first ? "accumulate" : "several ranks";
}

static Node *mean_of_parts(Parts *p, const Root *root) {
  Totals *t = &p->t;
  t->graph->origin = root->node->origin;
  if (!p->is_micro)
    diag_warning(t->context->diag, root->node->origin.loc,
                 "with %s metric '%s' of a training step is the mean of the parts' values: "
                 "it is no function of sums over the samples of one part",
                 parts_cause(p), root->name);
  Node *wide = make_cast(t->graph, root->node, DT_F64);
  Node *sum = parts_total(t, OP_SUM, wide, 0);
  Node *parts = make_const(t->graph, DT_F64, shape_scalar(), p->parts);
  Node *mean = totals_share(t, make_binary(t->graph, OP_DIV, sum, parts));
  return make_cast(t->graph, mean, root->node->type.dtype);
}

/* ── factor, part and rest ──────────────────────────────────────────────────────────────────── */
typedef enum { FORM_CONSTANT, FORM_TERM, FORM_MIXES, FORM_OTHER } FormKind;
typedef struct {
  FormKind kind;              /* CONSTANT: no parameter influences it */
  Node *part, *factor, *rest; /* TERM; NULL: 0, 1, 0 */
  const Node *culprit;        /* MIXES, OTHER */
} Form;

typedef struct {
  Totals *t;
  double parts;
  Form *form;      /* by old node */
  bool *on_params; /* by old node */
} Forms;

static Form other(const Node *node) { return (Form){.kind = FORM_OTHER, .culprit = node}; }

/* Factors are few nodes over totals, each of which is made once. */
static bool parts_is_same(const Node *a, const Node *b, int depth) {
  if (a == b) return true;
  if (!a || !b || !depth || a->op != b->op || !type_equal(&a->type, &b->type)) return false;
  if (a->op == OP_CONST) return node_float(a, ATTR_VALUE, 0) == node_float(b, ATTR_VALUE, 1);
  if (!a->input_count || a->input_count != b->input_count || a->attr_count || b->attr_count)
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (!parts_is_same(a->input[i], b->input[i], depth - 1)) return false;
  return true;
}

static Node *form_both(const Forms *f, Op op, Node *a, Node *b) {
  if (!a || !b) return b && op == OP_SUB ? make_unary(f->t->graph, OP_NEG, b) : a ? a : b;
  return make_binary(f->t->graph, op, a, b);
}

static Form parts_sum(const Forms *f, const Node *node) {
  const Form *a = &f->form[node->input[0]->id], *b = &f->form[node->input[1]->id];
  Form sum = {.kind = FORM_TERM};
  if (a->part && b->part && !parts_is_same(a->factor, b->factor, 6))
    return (Form){.kind = FORM_MIXES, .culprit = node};
  sum.factor = a->part ? a->factor : b->factor;
  sum.part = form_both(f, node->op, a->part, b->part);
  sum.rest = form_both(f, node->op, a->rest, b->rest);
  return sum;
}

static Node *parts_scalar(const Forms *f, Node *x) {
  return make_reshape(f->t->graph, x, shape_scalar());
}

/* x times or over c, which no parameter influences. */
static Form parts_scaled(const Forms *f, const Node *node, const Form *x, Node *c) {
  Graph *graph = f->t->graph;
  Node *value = totals_value(f->t, c);
  Form form = *x;
  if (x->rest) form.rest = make_binary(graph, node->op, x->rest, value);
  if (!x->part) return form;
  if (f->t->samples[c->id].kind != SAMPLES_ALL) {
    form.part = make_binary(graph, node->op, x->part, value);
    return form;
  }
  if (shape_elements(&c->type.shape) != 1) return other(node);
  value = parts_scalar(f, value);
  Node *one = make_like(graph, value, 1);
  form.factor = make_binary(graph, node->op, x->factor ? x->factor : one, value);
  return form;
}

/* where(enough, x, 0): x or a constant, by what no parameter influences. */
static Form chosen(const Forms *f, const Node *node) {
  Graph *graph = f->t->graph;
  Node *cond = node->input[0];
  const Form *x = &f->form[node->input[1]->id], *y = &f->form[node->input[2]->id];
  bool is_first = x->kind == FORM_TERM;
  if (f->on_params[cond->id] || x->kind == y->kind || shape_elements(&cond->type.shape) != 1)
    return other(node);
  Form form = is_first ? *x : *y;
  Node *value = totals_value(f->t, cond);
  Node *zero = make_const(graph, node->type.dtype, shape_scalar(), 0);
  Node *one = make_like(graph, zero, 1), *factor = form.factor ? form.factor : one;
  value = parts_scalar(f, value);
  form.factor = make_select(graph, value, is_first ? factor : zero, is_first ? zero : factor);
  if (form.rest)
    form.rest = make_select(graph, value, is_first ? form.rest : zero, is_first ? zero : form.rest);
  return form;
}

static Form same_op(const Forms *f, const Node *node, const Form *x) {
  Form form = *x;
  if (x->part) form.part = graph_copy_node(f->t->graph, node, &form.part);
  if (x->rest) form.rest = graph_copy_node(f->t->graph, node, &form.rest);
  return form;
}

static Form total_form(const Forms *f, Node *node) {
  Form form = {.kind = FORM_TERM, .part = node};
  if (node->op != OP_SUM && node->op != OP_DOT) return other(node);
  if (!f->t->is_scaled) return form;
  Node *share = make_like(f->t->graph, node, 1 / f->parts);
  form.part = totals_share(f->t, make_binary(f->t->graph, OP_MUL, node, share));
  return form;
}

static Form parts_form(const Forms *f, Node *node) {
  const Samples *s = &f->t->samples[node->id];
  if (!f->on_params[node->id]) return (Form){.kind = FORM_CONSTANT};
  if (s->is_total) return total_form(f, node);
  if (s->kind == SAMPLES_NONE) return (Form){.kind = FORM_TERM, .rest = totals_value(f->t, node)};
  const Form *x = &f->form[node->input[0]->id];
  const Form *y = node->input_count > 1 ? &f->form[node->input[1]->id] : NULL;
  for (int i = 0; i < node->input_count; i++)
    if (f->form[node->input[i]->id].kind > FORM_TERM) return f->form[node->input[i]->id];
  switch (node->op) {
  case OP_ADD:
  case OP_SUB:
    return parts_sum(f, node);
  case OP_MUL:
    if (x->kind == FORM_CONSTANT) return parts_scaled(f, node, y, node->input[0]);
    return y->kind == FORM_CONSTANT ? parts_scaled(f, node, x, node->input[1]) : other(node);
  case OP_DIV:
    return y->kind == FORM_CONSTANT ? parts_scaled(f, node, x, node->input[1]) : other(node);
  case OP_SELECT:
    return chosen(f, node);
  case OP_NEG:
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_TRANSPOSE:
  case OP_SLICE:
  case OP_SUM:
    return same_op(f, node, x);
  case OP_CAST:
    return dtype_is_float(node->type.dtype) ? same_op(f, node, x) : other(node);
  default:
    return other(node);
  }
}

/* Only nodes between the totals and the loss are asked; it is_known. */
static Form find_form(Parts *p, const Node *loss) {
  Totals *t = &p->t;
  Arena *arena = t->graph->arena;
  Forms f = {t, p->parts, ARENA_ARRAY(arena, Form, t->count), ARENA_ARRAY(arena, bool, t->count)};
  bool *wanted = ARENA_ARRAY(arena, bool, t->count);
  wanted[loss->id] = true;
  for (int i = loss->id; i >= 0; i--)
    for (int k = 0; wanted[i] && t->samples[i].kind == SAMPLES_ALL && !t->samples[i].is_total &&
                    k < t->graph->nodes.at[i]->input_count;
         k++)
      wanted[t->graph->nodes.at[i]->input[k]->id] = true;
  for (int i = 0; i <= loss->id; i++) {
    Node *node = t->graph->nodes.at[i];
    bool has_gradient = node->op != OP_STOP_GRADIENT && dtype_is_float(node->type.dtype);
    f.on_params[i] = node->op == OP_PARAM;
    for (int k = 0; has_gradient && k < node->input_count; k++)
      f.on_params[i] |= f.on_params[node->input[k]->id];
    t->graph->origin = node->origin;
    if (wanted[i]) f.form[i] = parts_form(&f, node);
  }
  return f.form[loss->id];
}

/* ── the loss ───────────────────────────────────────────────────────────────────────────────── */
static bool parts_refuse(const Parts *p, const Node *loss, const Form *form) {
  const Totals *t = &p->t;
  Diag *diag = t->context->diag;
  const char *cause = parts_cause(p);
  const char *instead = p->is_first ? "accumulate = 1" : "one rank";
  if (!form) {
    diag_error(diag, loss->origin.loc,
               "with %s the loss must be a mean or sum over the samples of a batch, but "
               "this one relates samples to each other, and a part of the batch holds only some of "
               "them; train with %s, or leave that term out",
               cause, instead);
    diag_note(diag, totals_cause(t, loss), "samples are related to each other here");
  } else if (form->kind == FORM_MIXES) {
    diag_error(diag, loss->origin.loc,
               "with %s the loss must be a mean over one set of elements: this one mixes "
               "means that count different elements, and parts of a batch cannot be weighed",
               cause);
  } else {
    diag_error(diag, loss->origin.loc,
               "with %s the loss must be a mean or sum over the samples of a batch: the "
               "gradients of its parts are added, which does not give that of anything else; move "
               "the function into the mean, or train with %s",
               cause, instead);
    diag_note(diag, form->culprit->origin.loc, "this is computed of a mean or sum");
  }
  return false;
}

/* Factors as small as one over the elements keep what is differentiated in the range of a mean. */
static void add_objective(Parts *p, const Node *loss, Form form) {
  Graph *graph = p->t.graph;
  graph->origin = loss->origin;
  Node *part = form.part ? form.part : make_const(graph, loss->type.dtype, shape_scalar(), 0);
  Node *count = make_const(graph, part->type.dtype, shape_scalar(), p->parts * (double)p->t.batch);
  if (form.factor) {
    part = make_binary(graph, OP_DIV, part, count);
    form.factor = make_binary(graph, OP_MUL, form.factor, count);
  }
  if (form.rest && !p->is_micro) {
    Node *rest = form.rest;
    if (form.factor) rest = make_binary(graph, OP_DIV, rest, form.factor);
    rest = totals_share(&p->t, rest);
    part = make_binary(graph, OP_ADD, part, rest);
  }
  graph_add_root(graph, ROOT_OBJECTIVE, "loss", part);
  if (form.factor && !p->is_micro) graph_add_root(graph, ROOT_FACTOR, "grads", form.factor);
}

static bool take_loss(Parts *p, int root) {
  Totals *t = &p->t;
  Node *loss = t->graph->roots.at[root].node;
  if (!is_known(t, loss, true)) return parts_refuse(p, loss, NULL);
  Form form = find_form(p, loss);
  if (form.kind > FORM_TERM) return parts_refuse(p, loss, &form);
  bool climbs = strcmp(setting_text(t->context->settings, "train.sharpness"), "none") != 0;
  if (climbs) graph_add_root(t->graph, ROOT_ASCENT, "loss", loss);
  Node *value = totals_value(t, loss); /* adds roots */
  t->graph->roots.at[root].node = value;
  add_objective(p, loss, form);
  return true;
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
/* Updates that depend on no data of the batch are made once a step, by its last part. */
static void drop_updates(Totals *t) {
  int kept = 0;
  for (int i = 0; i < t->graph->roots.count; i++) {
    Root root = t->graph->roots.at[i];
    if (root.kind != ROOT_ASSIGN || t->on_batch[root.node->id]) t->graph->roots.at[kept++] = root;
  }
  t->graph->roots.count = kept;
}

bool totals_of_parts(PassContext *context, Graph *graph) {
  double count = context->settings ? setting_number(context->settings, "train.accumulate") : 1;
  bool has_ranks = context->settings && setting_ranks(context->settings) != 1;
  if ((count <= 1 && !has_ranks) || !graph_find_root(graph, ROOT_LOSS, NULL)) return true;
  Parts p = {.t = {.total = parts_total, .operand = parts_operand},
             .is_micro = context->of == PASS_OF_MICRO,
             .parts = count};
  Totals *t = &p.t;
  totals_begin(t, context, graph, samples_of_states(graph, graph->arena));
  if (!t->batch) return true;
  if (p.is_micro) drop_updates(t);
  if (!totals_average_states(t)) return false;
  graph->origin = (Origin){0};
  if (count > 1) {
    Node *part = make_state(graph, ROLE_PART, PARTS_DONE, (Type){DT_I64, shape_scalar()}, 0);
    p.is_first = make_binary(graph, OP_EQ, part, make_like(graph, part, 0));
  }
  t->number = make_const(graph, DT_F64, shape_scalar(), count * (double)t->batch);
  if (t->ranks) t->number = make_binary(graph, OP_MUL, t->number, t->ranks);
  for (int i = 0, roots = graph->roots.count; i < roots; i++) {
    Root root = graph->roots.at[i];
    if (root.kind == ROOT_LOSS && !take_loss(&p, i)) return false;
    if (root.kind != ROOT_METRIC) continue;
    bool can_wait = !p.is_first; /* what ranks have in one piece is still there */
    Node *value =
        is_known(t, root.node, !can_wait) ? totals_value(t, root.node) : mean_of_parts(&p, &root);
    graph->roots.at[i].node = value;
  }
  return true;
}
