/* optimizer_accumulate: the gradients of a batch in parts. There are two graphs of a step then:
 * "micro" runs for all parts but the last and only adds to sums; "train" runs for the last one and
 * makes the update of all. Pass totals has arranged that gradients are only added, so that a
 * library's product does it; what their sum must be multiplied with is the root "factor". The sums
 * are zero when a batch begins: "train" ends with that (codegen/lower.c). */
#include "passes/loss_scale.h"
#include "passes/messages.h"
#include "passes/optimizer.h"
#include <string.h>

/* Where nothing counts in the whole batch the factor is one over 0, and the sums are 0: so are the
 * gradients, as they are of a batch that does not come in parts. */
static Node *times_factor(Update *u, Node *sums, Node *factor) {
  Node *is_none = update_op(u, OP_EQ, sums, make_like(u->graph, sums, 0));
  return make_select(u->graph, is_none, sums, update_scaled(u, sums, factor));
}

/* The sums are where the gradients themselves would be: a state with an offset has its place in
 * their arena (memplan), and each gradient is added there by the kernel that makes it. */
static Node *sum_grads(Update *u, bool is_micro, Node *grads, Node *factor) {
  Arena *arena = u->graph->arena;
  Node **totals = ARENA_ARRAY(arena, Node *, grads->input_count);
  const Attr *offsets = node_attr(grads, ATTR_OFFSETS);
  for (int i = 0; i < grads->input_count; i++) {
    const char *name = arena_printf(arena, OWN_ACCUMULATE "grads.%d", i);
    Node *before = make_state(u->graph, ROLE_GRADIENT_SUM, name, grads->input[i]->type, 0);
    node_set_attr(u->graph, before, attr_int(ATTR_OFFSET, offsets->ints[i]));
    totals[i] = update_add(u, before, grads->input[i]);
    if (is_micro) update_assign(u, name, totals[i]);
  }
  if (is_micro) return grads;
  Node *sum = graph_node(u->graph, OP_PACK, totals, grads->input_count, offsets, 1, &grads->type);
  return factor ? times_factor(u, sum, factor) : sum;
}

Node *update_accumulate(Update *u, double parts, bool is_micro, Node *grads) {
  Node *factor = u->factor = graph_take_root(u->graph, ROOT_FACTOR);
  if (parts > 1) return sum_grads(u, is_micro, grads, factor);
  return factor ? times_factor(u, grads, factor) : grads; /* of several ranks, one part each */
}

void update_count_part(Update *u, bool is_micro) {
  Node *part = update_counter(u, ROLE_PART, PARTS_DONE);
  Node *next = update_add(u, part, make_like(u->graph, part, 1));
  update_assign(u, PARTS_DONE, is_micro ? next : make_like(u->graph, part, 0));
}

/* ── other stages of a pipeline ─────────────────────────────────────────────────────────────── */
/* The gradient of a param that another stage has goes there once a step: the sum over the parts. */
static Node *once_a_step(Graph *fresh, const Node *old, Node **inputs, bool is_micro) {
  if (!op_is_message(old->op) || !message_is_once(old) || !message_is(old, MESSAGE_GRADIENT))
    return NULL;
  if (old->op == OP_RECEIVE)
    return is_micro ? make_const(fresh, old->type.dtype, old->type.shape, 0) : NULL;
  Message message = message_of(old);
  const char *name = arena_printf(fresh->arena, OWN_ACCUMULATE "sent.%lld.%lld",
                                  (long long)message.from, (long long)message.number);
  Node *before = make_state(fresh, ROLE_PART_TOTAL, name, inputs[0]->type, 0);
  Node *sum = make_binary(fresh, OP_ADD, before, inputs[0]);
  if (!is_micro) return graph_copy_node(fresh, old, &sum);
  make_assign(fresh, name, sum);
  return sum;
}

/* ── random numbers ─────────────────────────────────────────────────────────────────────────── */
/* Each part draws its own: step becomes step x parts + part. What is drawn for the whole batch is not. */
static Node *draw_apart(Graph *fresh, const Node *old, Node **inputs, const double *parts) {
  int at = node_step_operand(old);
  if (at < 0 || old->input[at]->op != OP_STATE) return NULL;
  Update u = {.graph = fresh};
  Node *step = inputs[at], **changed = ARENA_ARRAY(fresh->arena, Node *, old->input_count);
  Node *part = update_counter(&u, ROLE_PART, PARTS_DONE);
  Node *scaled = update_mul(&u, step, make_like(fresh, step, *parts));
  for (int k = 0; k < old->input_count; k++) changed[k] = inputs[k];
  changed[at] = update_add(&u, scaled, part);
  return graph_copy_node(fresh, old, changed);
}

typedef struct {
  double parts;
  bool is_micro;
} Parting;

static Node *part_apart(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const Parting *of = context;
  if (node_step_operand(old) >= 0 && !node_int(old, ATTR_WHOLE, 0)) return draw_apart(fresh, old, inputs, &of->parts);
  return once_a_step(fresh, old, inputs, of->is_micro);
}

Graph *update_part(Graph *graph, double parts, bool is_micro) {
  return graph_rewrite(graph, part_apart, &(Parting){parts, is_micro});
}
