/* unroll: with a pipeline, a step's micro-batches (train.accumulate of them) are one graph, so that
 * they overlap: schedule.c brings them into the order of plan/pipeline_order.h. The graph micro, once for
 * each micro-batch but the last, and train for that one stand behind one another; what a micro-batch
 * leaves in a state is what the next one finds there. Inputs hold the samples of all of them. */
#include "passes/messages.h"
#include "passes/pass.h"
#include <string.h>

typedef struct {
  Graph *fresh;
  Arena *arena;
  int64_t parts;
  int64_t micro;            /* that is under way */
  Lookup leaf, state, once; /* by op and name; by name; by message: indices to: */
  VEC(Node *) leaves;
  VEC(Node *) values; /* of states: now */
  VEC(Node *) messages;
  VEC(bool) is_changed; /* by state: the program keeps the value, and a micro-batch changed it */
} Unroll;

/* States that are nothing between steps. */
static bool is_transient(const Node *state) {
  return state->role == ROLE_PART || state->role == ROLE_PART_TOTAL ||
         state->role == ROLE_GRADIENT_SUM;
}

/* ── inputs ─────────────────────────────────────────────────────────────────────────────────── */
/* What is known of boxes of its elements (attribute parts) is said of the first micro-batch's, and
 * holds of all (plan_parts_at_once). */
static Node *whole_input(Unroll *u, const Node *input) {
  Type type = input->type;
  if (type.shape.rank) type.shape.dim[0] *= u->parts;
  return graph_copy_as(u->fresh, input, NULL, &type);
}

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
static Node *leaf_once(Unroll *u, const Node *leaf) {
  const char *key = arena_printf(u->arena, "%d %s", (int)leaf->op, node_str(leaf, ATTR_NAME));
  int found = lookup_find(&u->leaf, key, strlen(key));
  if (found >= 0) return u->leaves.at[found];
  Node *made = leaf->op == OP_INPUT ? whole_input(u, leaf) : graph_copy_node(u->fresh, leaf, NULL);
  lookup_add(&u->leaf, key, strlen(key), u->leaves.count);
  VEC_PUSH(u->arena, u->leaves, made);
  return made;
}

static Node *part_of_input(Unroll *u, const Node *input) {
  Node *whole = leaf_once(u, input);
  int64_t start[MAX_RANK] = {input->type.shape.dim[0] * u->micro};
  return make_slice(u->fresh, whole, start, input->type.shape);
}

static int state_index(Unroll *u, const Node *state) {
  const char *name = node_str(state, ATTR_NAME);
  int found = lookup_find(&u->state, name, strlen(name));
  if (found >= 0) return found;
  Node *value = is_transient(state) ? make_const(u->fresh, state->type.dtype, state->type.shape, 0)
                                    : leaf_once(u, state);
  lookup_add(&u->state, name, strlen(name), u->values.count);
  VEC_PUSH(u->arena, u->values, value);
  VEC_PUSH(u->arena, u->is_changed, false);
  return u->values.count - 1;
}

/* ── nodes ──────────────────────────────────────────────────────────────────────────────────── */
/* Of this micro-batch; what goes once a step is there once. */
static Node *message_copy(Unroll *u, const Node *node, Node **inputs) {
  Message message = message_of(node);
  bool is_once = message.micro == MESSAGE_ONCE;
  if (!is_once) message.micro = u->micro;
  const int64_t key[] = {node->op,   message.micro, message.from,
                         message.to, message.kind,  message.number};
  int found = lookup_find(&u->once, key, sizeof key);
  if (found >= 0) return u->messages.at[found];
  Node *made =
      node->op == OP_SEND
          ? message_send(u->fresh, inputs[0], (int)node_int(node, ATTR_TO, 0), &message)
          : message_receive(u->fresh, node->type, (int)node_int(node, ATTR_FROM, 0), &message);
  lookup_add(&u->once, key, sizeof key, u->messages.count);
  VEC_PUSH(u->arena, u->messages, made);
  return made;
}

static Node *unroll_copy(Unroll *u, const Node *node, Node **inputs) {
  u->fresh->origin = node->origin;
  if (op_is_message(node->op)) return message_copy(u, node, inputs);
  bool is_last = u->micro + 1 == u->parts;
  if (!is_last && message_is(node, MESSAGE_JOINED)) return inputs[0]; /* what nobody is told */
  if (node->op == OP_INPUT && node->type.shape.rank) return part_of_input(u, node);
  if (node->op == OP_STATE) {
    int index = state_index(u, node);
    return u->values.at[index];
  }
  if (node_is_leaf(node)) return leaf_once(u, node);
  return graph_copy_node(u->fresh, node, inputs);
}

static Node **unroll_graph(Unroll *u, const Graph *graph) {
  Node **map = ARENA_ARRAY(u->arena, Node *, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    Node **inputs = ARENA_ARRAY(u->arena, Node *, node->input_count);
    for (int k = 0; k < node->input_count; k++) inputs[k] = map[node->input[k]->id];
    /* an assign is made at the end, if the state outlives the step */
    map[i] = node->op == OP_ASSIGN ? inputs[0] : unroll_copy(u, node, inputs);
  }
  return map;
}

/* What the graph leaves in its states, all of which it has read by now. */
static void take_updates(Unroll *u, const Graph *graph, Node *const *map) {
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind != ROOT_ASSIGN) continue;
    const Node *state = graph_find_state(graph, root->name);
    int index = state_index(u, state);
    u->values.at[index] = map[root->node->id];
    u->is_changed.at[index] = !is_transient(state);
  }
}

static void add_updates(Unroll *u, const Graph *graph) {
  u->fresh->origin = (Origin){0};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *state = graph->nodes.at[i];
    if (state->op != OP_STATE || is_transient(state)) continue;
    int index = state_index(u, state);
    const char *name = node_str(state, ATTR_NAME);
    if (!u->is_changed.at[index]) continue;
    u->is_changed.at[index] = false;
    make_assign(u->fresh, name, u->values.at[index]);
  }
}

/* What is told of a step is what its last micro-batch knows, and that is all. */
static void unroll_roots(Unroll *u, const Graph *train, Node *const *map) {
  for (int i = 0; i < train->roots.count; i++) {
    const Root *root = &train->roots.at[i];
    if (root->kind != ROOT_ASSIGN)
      graph_add_root(u->fresh, root->kind, root->name, map[root->node->id]);
  }
  add_updates(u, train);
}

Graph *pass_unroll(PassContext *context, Graph *graph) {
  const SettingValue *settings = context->settings;
  bool is_micro = context->of == PASS_OF_MICRO;
  if (!settings || setting_pipeline(settings) == 1) return graph;
  int64_t parts = (int64_t)setting_number(settings, "train.accumulate");
  if (is_micro) context->refused = "its micro-batches are in one graph";
  if (parts == 1 || is_micro) return is_micro ? NULL : graph;
  if (!context->program || !context->program->micro) return graph;
  const Graph *micro = context->program->micro;
  Arena *arena = context->scratch;
  Unroll u = {.fresh = graph_new(graph->arena, graph->name),
              .arena = arena,
              .parts = parts,
              .leaf = {.arena = arena},
              .state = {.arena = arena},
              .once = {.arena = arena}};
  for (; u.micro < parts - 1; u.micro++) take_updates(&u, micro, unroll_graph(&u, micro));
  Node **map = unroll_graph(&u, graph);
  take_updates(&u, graph, map);
  unroll_roots(&u, graph, map);
  return u.fresh;
}
