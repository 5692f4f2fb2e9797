/* messages: what the stages of a pipeline say to each other, in the attribute `message` of a send,
 * of its receive, and of collectives that all stages take part in. */
#ifndef FT_PASSES_MESSAGES_H
#define FT_PASSES_MESSAGES_H
#include "ir/graph.h"

typedef enum {
  MESSAGE_VALUE,      /* forward; no gradient comes back */
  MESSAGE_ACTIVATION, /* forward; its gradient comes back */
  MESSAGE_GRADIENT,   /* back */
  MESSAGE_STATE,      /* as it was before the micro-batch; before everything else of the first one */
  MESSAGE_JOINED      /* once a step, behind all others: a loss, or parameters' gradients */
} MessageKind;

/* The numbers of the attribute, in this order. JOINED: only kind and number. */
typedef struct {
  int64_t micro;    /* micro-batch; ONCE: a param, and its gradient, once a step */
  int64_t from, to; /* chunks of the model */
  int64_t kind;     /* MessageKind */
  int64_t number; /* tells those apart that agree in all of this; JOINED: their order, in which the
                       optimizer's TOTALS come last */
} Message;
enum { MESSAGE_NUMBERS = 5, MESSAGE_ONCE = -1, MESSAGE_TOTALS = 1 << 20 };

/* Of a node that has one. */
static inline Message message_of(const Node *node) {
  const int64_t *n = node_attr(node, ATTR_MESSAGE)->ints;
  return (Message){n[0], n[1], n[2], n[3], n[4]};
}
static inline bool message_is(const Node *node, MessageKind kind) {
  const Attr *attr = node_attr(node, ATTR_MESSAGE);
  return attr && attr->count == MESSAGE_NUMBERS && attr->ints[3] == kind;
}
static inline bool message_is_once(const Node *node) {
  return message_of(node).micro == MESSAGE_ONCE;
}
/* Sends x from this rank of the pipeline to that one, or receives it. */
Node *message_send(Graph *graph, Node *x, int to, const Message *message);
Node *message_receive(Graph *graph, Type type, int from, const Message *message);
/* Of a collective between the stages. */
void message_join(Graph *graph, Node *node, int64_t number);
#endif
