/* interp: the walk over the graph: leaves, structure, fused bodies, rounding. The arithmetic is in
 * interp_point.c, interp_move.c and interp_window.c, collectives in interp_ranks.c. Naive on
 * purpose: it is the oracle. */
#include "ir/interp.h"
#include "ir/scalar.h"
#include <math.h>
#include <string.h>

/* More than this is a mistake or an attack, not a test. */
static const int64_t most_elements = (int64_t)1 << 28;

typedef struct {
  Arena *arena;
  InterpLeaf *leaf;
  InterpAfter *after; /* NULL: none */
  bool round;
  Diag *diag;
  int64_t elements;
} Interp;

/* A graph, or the body of a fused node. */
typedef struct Frame {
  Interp *interp;
  void *context;            /* of the leaves */
  Tensor **values;          /* by id */
  const struct Frame *rank; /* those of all ranks, this one's too; NULL: it is alone */
  const Mesh *mesh;
  const Graph *const *stage;    /* by pipeline index: what its ranks run; NULL: all run the same */
  int next;                     /* of the graph's nodes, those before it are done */
  const Node *fused;            /* whose body this is; NULL: a graph */
  const Tensor *const *operand; /* of the fused node */
  Tensor ***results;            /* of nodes with several, by id */
} Frame;

Tensor *tensor_new(Arena *arena, Type type) {
  Tensor *tensor = ARENA_NEW(arena, Tensor);
  int64_t count = shape_elements(&type.shape);
  tensor->type = type;
  if (dtype_is_float(type.dtype))
    tensor->f = ARENA_ARRAY(arena, double, count);
  else
    tensor->i = ARENA_ARRAY(arena, int64_t, count);
  return tensor;
}

void interp_unravel(const Shape *shape, int64_t linear, int64_t index[MAX_RANK]) {
  for (int i = shape->rank - 1; i >= 0; i--) {
    index[i] = linear % shape->dim[i];
    linear /= shape->dim[i];
  }
}

int64_t interp_ravel(const Shape *shape, const int64_t index[MAX_RANK]) {
  int64_t linear = 0;
  for (int i = 0; i < shape->rank; i++) linear = linear * shape->dim[i] + index[i];
  return linear;
}

static bool interp_fail(Interp *in, const Node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool interp_fail(Interp *in, const Node *node, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(in->arena, format, args);
  va_end(args);
  diag_error(in->diag, node->origin.loc, "cannot interpret %%%d = %s: %s", node->id,
             op_info[node->op].text, text);
  return false;
}

static bool take_elements(Interp *in, const Node *node, int64_t count) {
  if (count > most_elements - in->elements)
    return interp_fail(in, node, "this graph is too large for the interpreter");
  in->elements += count;
  return true;
}

static void copy_elements(const Tensor *from, Tensor *to) {
  size_t count = (size_t)shape_elements(&to->type.shape);
  if (!count) return;
  if (to->f)
    memcpy(to->f, from->f, count * sizeof *to->f);
  else
    memcpy(to->i, from->i, count * sizeof *to->i);
}

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
bool interp_named(const Eval *eval) {
  Interp *in = eval->frame->interp;
  const Node *node = eval->node;
  char need[TYPE_TEXT], have[TYPE_TEXT];
  const char *name = node_str(node, ATTR_NAME);
  const Tensor *given = in->leaf ? in->leaf(node, eval->frame->context) : NULL;
  if (!given) return interp_fail(in, node, "no value was given for '%s'", name);
  if (!type_equal(&given->type, &node->type))
    return interp_fail(in, node, "'%s' was given as %s, but is %s", name,
                       type_text(&given->type, have), type_text(&node->type, need));
  copy_elements(given, eval->out);
  return true;
}

bool interp_const(const Eval *eval) {
  Tensor *out = eval->out;
  double value = node_float(eval->node, ATTR_VALUE, 0);
  int64_t count = shape_elements(&out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    if (out->f)
      out->f[k] = value;
    else
      out->i[k] = (int64_t)value;
  }
  return true;
}

bool interp_iota(const Eval *eval) {
  Tensor *out = eval->out;
  int64_t axis = node_int(eval->node, ATTR_AXIS, 0), count = shape_elements(&out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    int64_t index[MAX_RANK] = {0};
    interp_unravel(&out->type.shape, k, index);
    out->i[k] = index[axis];
  }
  return true;
}

/* ── structure ──────────────────────────────────────────────────────────────────────────────── */
bool interp_copy(const Eval *eval) {
  copy_elements(eval->in[0], eval->out);
  return true;
}

bool interp_arg(const Eval *eval) {
  const Frame *frame = eval->frame;
  int64_t index = node_int(eval->node, ATTR_INDEX, 0);
  if (!frame->fused) return interp_fail(frame->interp, eval->node, "it stands outside of a body");
  if (index >= frame->fused->input_count ||
      !type_equal(&frame->fused->input[index]->type, &eval->node->type))
    return interp_fail(frame->interp, eval->node, "%%%d has no such operand", frame->fused->id);
  copy_elements(frame->operand[index], eval->out);
  return true;
}

static bool eval_graph(Frame *frame, int ranks, const Graph *graph);

bool interp_fused(const Eval *eval) {
  const Node *node = eval->node;
  Interp *in = eval->frame->interp;
  const Graph *body = node->body;
  if (!body || !body->roots.count) return interp_fail(in, node, "it has no body");
  if (!type_equal(&body->roots.at[0].node->type, &node->type))
    return interp_fail(in, node, "its type is not that of its first result");
  Tensor **values = ARENA_ARRAY(in->arena, Tensor *, body->nodes.count);
  Frame inner = {.interp = in,
                 .context = eval->frame->context,
                 .values = values,
                 .fused = node,
                 .operand = eval->in};
  if (!eval_graph(&inner, 1, body)) return false;
  Tensor **results = ARENA_ARRAY(in->arena, Tensor *, body->roots.count);
  for (int i = 0; i < body->roots.count; i++) results[i] = values[body->roots.at[i].node->id];
  eval->frame->results[node->id] = results;
  copy_elements(results[0], eval->out);
  return true;
}

Tensor **interp_results(const Eval *eval) {
  Interp *in = eval->frame->interp;
  const Node *node = eval->node;
  int count = node_result_count(node);
  Tensor **results = ARENA_ARRAY(in->arena, Tensor *, count);
  results[0] = eval->out;
  for (int i = 1; i < count; i++) {
    Type type = node_result_type(node, i);
    if (!take_elements(in, node, shape_elements(&type.shape))) return NULL;
    results[i] = tensor_new(in->arena, type);
  }
  return eval->frame->results[node->id] = results;
}

/* ── for what ranks do together ─────────────────────────────────────────────────────────────── */
static int interp_rank_of(const Frame *frame) { return (int)(frame - frame->rank); }

/* All ranks that run this graph, where nothing else is said. */
static MeshAxis interp_axis(const Frame *frame, const Node *node) {
  MeshAxis axis = node_axis(node);
  return frame->stage && axis == MESH_ALL ? MESH_STAGE : axis;
}

int interp_ranks(const Eval *eval) {
  const Frame *frame = eval->frame;
  return frame->rank ? mesh_size(frame->mesh, interp_axis(frame, eval->node)) : 1;
}

int interp_rank(const Eval *eval) {
  const Frame *frame = eval->frame;
  MeshAxis axis = interp_axis(frame, eval->node);
  return frame->rank ? mesh_index(frame->mesh, axis, interp_rank_of(frame)) : 0;
}

/* Number `index` of the node's group, seen from this rank. */
static const Frame *frame_of_member(const Frame *frame, const Node *node, int index) {
  MeshAxis axis = interp_axis(frame, node);
  return &frame->rank[mesh_member(frame->mesh, axis, interp_rank_of(frame), index)];
}

/* The node of another stage's graph that is this message, or this collective; NULL: none. */
static const Node *counterpart(const Frame *of, const Node *node, Op op) {
  const Attr *message = node_attr(node, ATTR_MESSAGE);
  if (!of->stage || !message) return node;
  const Graph *graph = of->stage[mesh_index(of->mesh, MESH_PIPELINE, interp_rank_of(of))];
  for (int i = 0; i < graph->nodes.count; i++) {
    const Attr *other = node_attr(graph->nodes.at[i], ATTR_MESSAGE);
    if (graph->nodes.at[i]->op == op && other && attr_equal(other, message))
      return graph->nodes.at[i];
  }
  return NULL;
}

const Tensor *interp_message(const Eval *eval) {
  const Frame *frame = eval->frame;
  if (!frame->rank || !frame->stage) return NULL;
  const Frame *peer = frame_of_member(frame, eval->node, (int)node_int(eval->node, ATTR_FROM, 0));
  const Node *send = counterpart(peer, eval->node, OP_SEND);
  return send ? peer->values[send->input[0]->id] : NULL;
}

const Tensor *interp_operand(const Eval *eval, int r, int k) {
  const Frame *frame = eval->frame;
  if (!frame->rank) return eval->in[k];
  const Frame *member = frame_of_member(frame, eval->node, r);
  return member->values[counterpart(member, eval->node, eval->node->op)->input[k]->id];
}

bool interp_refuse(const Eval *eval, const char *why) {
  return interp_fail(eval->frame->interp, eval->node, "%s", why);
}

bool interp_result(const Eval *eval) {
  Tensor **results = eval->frame->results[eval->node->input[0]->id];
  copy_elements(results[node_int(eval->node, ATTR_INDEX, 0)], eval->out);
  return true;
}

/* ── the walk ───────────────────────────────────────────────────────────────────────────────── */
Evaluator *const interp_evaluator[OP_COUNT] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, evaluator, ...)  \
  [OP_##ID] = IF_POINTWISE_##class(interp_pointwise, interp_##evaluator),
#include "ir/ops.def"
#undef OP
};

static bool eval_node(Frame *frame, const Node *node) {
  Interp *in = frame->interp;
  int64_t count = shape_elements(&node->type.shape);
  if (!take_elements(in, node, count)) return false;
  const Tensor **inputs = ARENA_ARRAY(in->arena, const Tensor *, node->input_count);
  for (int k = 0; k < node->input_count; k++) inputs[k] = frame->values[node->input[k]->id];
  Tensor *out = tensor_new(in->arena, node->type);
  const Eval eval = {node, inputs, out, frame};
  if (!interp_evaluator[node->op](&eval)) return false;
  if (in->after) in->after(node, inputs, out, frame->context);
  bool is_narrow = dtype_is_narrow(node->type.dtype) || dtype_is_float8(node->type.dtype);
  if ((in->round || is_narrow) && out->f)
    for (int64_t k = 0; k < count; k++) out->f[k] = dtype_round(node->type.dtype, out->f[k]);
  frame->values[node->id] = out;
  return true;
}

/* A node is evaluated for every rank before the next one is: what ranks join is there then. */
static bool eval_graph(Frame *frame, int ranks, const Graph *graph) {
  for (int r = 0; r < ranks; r++)
    frame[r].results = ARENA_ARRAY(frame->interp->arena, Tensor **, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++)
    for (int r = 0; r < ranks; r++)
      if (!eval_node(&frame[r], graph->nodes.at[i])) return false;
  return true;
}

bool graph_interpret(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *context, bool round,
                     Tensor **values, Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .round = round, .diag = diag};
  return eval_graph(&(Frame){.interp = &in, .context = context, .values = values}, 1, graph);
}

bool graph_interpret_changed(const Graph *graph, Arena *arena, InterpLeaf *leaf, InterpAfter *after,
                             void *context, Tensor **values, Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .after = after, .diag = diag};
  return eval_graph(&(Frame){.interp = &in, .context = context, .values = values}, 1, graph);
}

bool graph_interpret_mesh(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *const *context,
                          const Mesh *mesh, Tensor **const *values, Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .diag = diag};
  int ranks = mesh_ranks(mesh);
  Frame *frame = ARENA_ARRAY(arena, Frame, ranks);
  for (int r = 0; r < ranks; r++)
    frame[r] = (Frame){
        .interp = &in, .context = context[r], .values = values[r], .rank = frame, .mesh = mesh};
  return eval_graph(frame, ranks, graph);
}

/* What the node needs of other ranks is there. */
static bool interp_has_come(const Frame *frame, const Node *node) {
  Op op = node->op == OP_RECEIVE ? OP_SEND : node->op;
  if (!op_has(node->op, TRAIT_RANKS) || op_is_message(node->op) != (node->op == OP_RECEIVE))
    return true;
  const Eval eval = {.node = node, .frame = (Frame *)frame};
  int first = node->op == OP_RECEIVE ? (int)node_int(node, ATTR_FROM, 0) : 0;
  int last = node->op == OP_RECEIVE ? first : interp_ranks(&eval) - 1;
  for (int r = first; r <= last; r++) {
    const Frame *member = frame_of_member(frame, node, r);
    const Node *other = counterpart(member, node, op);
    if (!other || member->next < other->id) return false;
  }
  return true;
}

bool graph_interpret_stages(const Graph *const *stage, Arena *arena, InterpLeaf *leaf,
                            void *const *context, const Mesh *mesh, Tensor **const *values,
                            Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .diag = diag};
  int ranks = mesh_ranks(mesh), left = ranks;
  Frame *frame = ARENA_ARRAY(arena, Frame, ranks);
  for (int r = 0; r < ranks; r++) {
    int count = stage[mesh_index(mesh, MESH_PIPELINE, r)]->nodes.count;
    frame[r] = (Frame){.interp = &in,
                       .context = context[r],
                       .values = values[r],
                       .results = ARENA_ARRAY(arena, Tensor **, count),
                       .rank = frame,
                       .mesh = mesh,
                       .stage = stage};
  }
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int r = 0; r < ranks; r++) {
      const Graph *graph = stage[mesh_index(mesh, MESH_PIPELINE, r)];
      for (; frame[r].next < graph->nodes.count; frame[r].next++, goes_on = true) {
        const Node *node = graph->nodes.at[frame[r].next];
        if (!interp_has_come(&frame[r], node)) break;
        if (!eval_node(&frame[r], node)) return false;
        if (frame[r].next + 1 == graph->nodes.count) left--;
      }
    }
  }
  for (int r = 0; left && r < ranks; r++) {
    const Graph *graph = stage[mesh_index(mesh, MESH_PIPELINE, r)];
    if (frame[r].next < graph->nodes.count)
      return interp_fail(&in, graph->nodes.at[frame[r].next], "rank %d waits for ever", r);
  }
  return true;
}

bool graph_interpret_ranks(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *const *context,
                           int ranks, Tensor **const *values, Diag *diag) {
  return graph_interpret_mesh(graph, arena, leaf, context, &(Mesh){ranks, 1, 1}, values, diag);
}
