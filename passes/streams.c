/* streams: what distinguishes the draws of one layer's dropout from another's becomes an operand. A number in a kernel's body would
 * make a kernel of its own of each layer's; so the step that `random` is given has the stream above its 32 bits (ir/ops.def), and is
 * computed by itself, eight bytes for each layer (passes/fuse_unit.c). A program of few streams stays as it is. */
#include "passes/pass.h"

enum { FEW = 2, STREAM_SHIFT = 32 };

typedef struct {
  const Node *step; /* of the fresh graph */
  int64_t stream;
  Node *with;
} SteppedStream;
typedef struct {
  Arena *arena;
  VEC(SteppedStream) made;
} Streams;

static int count_streams(const Graph *graph, Arena *arena) {
  VEC(int64_t) seen = {0};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    int64_t stream = node_int(node, ATTR_STREAM, 0);
    bool is_known = node->op != OP_RANDOM;
    for (int k = 0; k < seen.count && !is_known; k++) is_known = seen.at[k] == stream;
    if (!is_known) VEC_PUSH(arena, seen, stream);
  }
  return seen.count;
}

static Node *step_with_stream(Graph *fresh, Streams *streams, Node *step, int64_t stream) {
  for (int i = 0; i < streams->made.count; i++) {
    const SteppedStream *made = &streams->made.at[i];
    if (made->step == step && made->stream == stream) return made->with;
  }
  Node *above = make_const(fresh, DT_I64, shape_scalar(), (double)(stream << STREAM_SHIFT));
  Node *with = make_binary(fresh, OP_ADD, step, above);
  VEC_PUSH(streams->arena, streams->made, ((SteppedStream){step, stream, with}));
  return with;
}

static Node *streams_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  if (old->op != OP_RANDOM) return NULL;
  Node *operands[3] = {inputs[0], step_with_stream(fresh, context, inputs[1], node_int(old, ATTR_STREAM, 0))};
  if (old->input_count > 2) operands[2] = inputs[2];
  Attr stream = attr_int(ATTR_STREAM, 0);
  return graph_copy_with(fresh, old, operands, &old->type, &stream, 1);
}

Graph *pass_streams(PassContext *context, Graph *graph) {
  if (count_streams(graph, context->scratch) <= FEW) return graph;
  Streams streams = {.arena = context->scratch};
  return graph_rewrite(graph, streams_visit, &streams);
}
