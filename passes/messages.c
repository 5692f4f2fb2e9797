/* messages: see there. */
#include "passes/messages.h"

static Attr message_attr(Graph *graph, const Message *m) {
  int64_t *numbers = ARENA_ARRAY(graph->arena, int64_t, MESSAGE_NUMBERS);
  numbers[0] = m->micro, numbers[1] = m->from, numbers[2] = m->to;
  numbers[3] = m->kind, numbers[4] = m->number;
  return attr_ints(ATTR_MESSAGE, numbers, MESSAGE_NUMBERS);
}

static const char *message_why(Graph *graph, const Message *m) {
  if (m->micro == MESSAGE_ONCE)
    return arena_printf(graph->arena, "a parameter%s, part %lld to %lld of the model",
                        m->kind == MESSAGE_GRADIENT ? "'s gradient" : "", (long long)m->from,
                        (long long)m->to);
  const char *what = m->kind == MESSAGE_GRADIENT ? "gradients of"
                     : m->kind == MESSAGE_STATE  ? "a state before"
                                                 : "activations of";
  return arena_printf(graph->arena, "%s micro-batch %lld, part %lld to %lld of the model", what,
                      (long long)m->micro, (long long)m->from, (long long)m->to);
}

Node *message_send(Graph *graph, Node *x, int to, const Message *message) {
  Attr attrs[] = {attr_int(ATTR_TO, to), message_attr(graph, message),
                  attr_str(ATTR_OVER, mesh_axis_text(MESH_PIPELINE)),
                  attr_str(ATTR_WHY, message_why(graph, message))};
  return graph_node(graph, OP_SEND, &x, 1, attrs, 4, NULL);
}

Node *message_receive(Graph *graph, Type type, int from, const Message *message) {
  Attr attrs[] = {attr_int(ATTR_FROM, from), message_attr(graph, message),
                  attr_str(ATTR_OVER, mesh_axis_text(MESH_PIPELINE)),
                  attr_str(ATTR_WHY, message_why(graph, message))};
  return graph_node(graph, OP_RECEIVE, NULL, 0, attrs, 4, &type);
}

void message_join(Graph *graph, Node *node, int64_t number) {
  const Message message = {.kind = MESSAGE_JOINED, .number = number};
  node_set_attr(graph, node, message_attr(graph, &message));
  node_set_attr(graph, node, attr_str(ATTR_OVER, mesh_axis_text(MESH_PIPELINE)));
}
