/* fuse_body: writes the fused graph: leaves first, then the groups, each behind those that it
 * reads. Where that leaves a choice, a group stands where its first member stood, but in backward
 * where its last one did, because what a kernel of several layers' gradients reads may be
 * recomputed for it, layer by layer. A body is made by pulling from the results: the value of a
 * node, laid out as some shape of equally many elements (the domain D, its reduced shape, or the
 * node's own shape where it is read in another order). Views and broadcasts are re-expressed in D
 * wherever their dimensions allow it, so that in most bodies every node has shape D or the reduced
 * shape. */
#include "passes/fuse_plan.h"
#include <string.h>

typedef struct {
  int node;
  Shape shape;
  Node *made;
  int before; /* views: the one of the same value made before; -1: none */
} Made;

/* A group that is being written: its next member, and that one's next read. */
typedef struct {
  int group, member, read;
} Visit;

typedef struct {
  FusePlan *plan;
  Graph *fresh;
  Node **value;    /* by node of the prepared graph: leaves and units that lie in memory */
  bool *is_done;   /* by group */
  VEC(Made) views; /* in fresh: reshapes of values */
  VEC(int) viewed; /* by node of fresh: the last of its views; -1: none */
  Node **
      *results; /* by node of the prepared graph with several, outside of bodies; NULL: none yet */
  VEC(Visit) visits;
  /* of the body that is being written: */
  Graph *body;
  int group;
  Shape domain, reduced, columns; /* columns: of sums of columns beside a row's reductions */
  int64_t axes[MAX_RANK], kept[MAX_RANK]; /* kept: all but axes */
  int axis_count, kept_count;
  VEC(Made) made, args;
  VEC(Node *) operands;
} Emit;

/* ── values in memory ───────────────────────────────────────────────────────────────────────── */
static Node *view_of(Emit *emit, Node *value, Shape shape) {
  while (value->op == OP_RESHAPE) value = value->input[0];
  if (shape_equal(&value->type.shape, &shape)) return value;
  while (emit->viewed.count <= value->id) VEC_PUSH(emit->plan->arena, emit->viewed, -1);
  int *last = &emit->viewed.at[value->id];
  for (int i = *last; i >= 0; i = emit->views.at[i].before)
    if (shape_equal(&emit->views.at[i].shape, &shape)) return emit->views.at[i].made;
  emit->fresh->origin = value->origin;
  Node *view = make_reshape(emit->fresh, value, shape);
  VEC_PUSH(emit->plan->arena, emit->views, ((Made){value->id, shape, view, *last}));
  *last = emit->views.count - 1;
  return view;
}

/* A value in memory, through views, in the shape of `node`. */
static Node *in_memory(Emit *emit, const Node *node) {
  return view_of(emit, emit->value[node_base(node)->id], node->type.shape);
}

/* The shape of a reduction of the body. */
static const Shape *reduced_shape(const Emit *emit, const Node *node) {
  bool is_beside = emit->plan->groups.at[emit->group].shape == SHAPE_ROW && !fuse_is_row(node);
  return is_beside ? &emit->columns : &emit->reduced;
}

/* ── bodies ─────────────────────────────────────────────────────────────────────────────────── */
static Node *pull(Emit *emit, const Node *node, Shape shape);

static Node *argument(Emit *emit, const Node *node, Shape shape) {
  Node *operand = view_of(emit, emit->value[node->id], shape);
  for (int i = 0; i < emit->args.count; i++)
    if (emit->operands.at[i] == operand) return emit->args.at[i].made;
  Attr index = attr_int(ATTR_INDEX, emit->operands.count);
  const Origin before = emit->body->origin;
  emit->body->origin = node->origin;
  Node *arg = graph_node(emit->body, OP_ARG, NULL, 0, &index, 1, &operand->type);
  emit->body->origin = before;
  VEC_PUSH(emit->plan->arena, emit->operands, operand);
  VEC_PUSH(emit->plan->arena, emit->args, ((Made){node->id, shape, arg}));
  return arg;
}

/* Lays `from`, which broadcasts to `to`, out along `want`, a regrouping of to's dimensions: every
 * dimension of `want` is a run of to's that `from` has whole or not at all. */
static bool regroup(const Shape *to, const Shape *from, const Shape *want, Shape *out) {
  int at = 0;
  *out = *want;
  for (int i = 0; i < want->rank; i++) {
    int64_t size = 1, have = 1;
    while (at < to->rank && (size < want->dim[i] || to->dim[at] == 1)) {
      size *= to->dim[at];
      have *= from->dim[at++];
    }
    if (size != want->dim[i] || (have != size && have != 1)) return false;
    out->dim[i] = have;
  }
  return at == to->rank;
}

static Node *pull_broadcast(Emit *emit, const Node *node, Shape shape) {
  Shape from;
  if (!regroup(&node->type.shape, &node->input[0]->type.shape, &shape, &from)) return NULL;
  return make_broadcast(emit->body, pull(emit, node->input[0], from), shape);
}

static Node *pull_iota(Emit *emit, const Node *node, Shape shape) {
  Shape only = {.rank = node->type.shape.rank}, at;
  int64_t axis = node_int(node, ATTR_AXIS, 0);
  for (int i = 0; i < only.rank; i++) only.dim[i] = i == axis ? node->type.shape.dim[i] : 1;
  if (!regroup(&node->type.shape, &only, &shape, &at)) return NULL;
  for (int i = 0; i < at.rank; i++)
    if (at.dim[i] > 1) return make_iota(emit->body, node->type.dtype, shape, i);
  return make_const(emit->body, node->type.dtype, shape, 0);
}

static Node *copy_raw(Emit *emit, const Node *node) {
  Node **inputs = ARENA_ARRAY(emit->plan->arena, Node *, node->input_count);
  bool from_memory = op_info[node->op].op_class == CLASS_CONTRACT;
  for (int i = 0; i < node->input_count; i++)
    inputs[i] = from_memory ? argument(emit, node_base(node->input[i]), node->input[i]->type.shape)
                            : pull(emit, node->input[i], node->input[i]->type.shape);
  return graph_copy_node(emit->body, node, inputs);
}

static Node *pull_new(Emit *emit, const Node *node, Shape shape) {
  Node *inputs[3];
  Type type = {node->type.dtype, shape};
  switch (node->op) {
  case OP_RESHAPE:
    return pull(emit, node->input[0], shape);
  case OP_CONST:
    return make_const(emit->body, type.dtype, shape, node_float(node, ATTR_VALUE, 0));
  case OP_IOTA:
    return pull_iota(emit, node, shape);
  case OP_BROADCAST:
    return pull_broadcast(emit, node, shape);
  case OP_RANDOM:
    for (int i = 0; i < node->input_count; i++)
      inputs[i] =
          pull(emit, node->input[i], node->input[i]->type.shape.rank ? shape : shape_scalar());
    return graph_node(emit->body, node->op, inputs, node->input_count, node->attr, node->attr_count,
                      &type);
  default:
    break;
  }
  if (op_info[node->op].op_class == CLASS_POINTWISE) {
    for (int i = 0; i < node->input_count; i++) inputs[i] = pull(emit, node->input[i], shape);
    return graph_node(emit->body, node->op, inputs, node->input_count, node->attr, node->attr_count,
                      &type);
  }
  if (op_info[node->op].op_class == CLASS_REDUCE) {
    const Shape *own = reduced_shape(emit, node);
    if (!shape_equal(&shape, own)) return NULL;
    inputs[0] = pull(emit, node->input[0], emit->domain);
    return own == &emit->columns
               ? make_reduce(emit->body, node->op, inputs[0], emit->kept, emit->kept_count)
               : make_reduce(emit->body, node->op, inputs[0], emit->axes, emit->axis_count);
  }
  return NULL;
}

/* A reduction or a move has its value in one shape only; any other is a view of that in the body.
 */
static Node *pull_viewed(Emit *emit, const Node *node, Shape shape) {
  bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
  Shape own = is_reduce ? *reduced_shape(emit, node) : node->type.shape;
  if (shape_equal(&own, &shape)) return copy_raw(emit, node);
  return make_reshape(emit->body, pull(emit, node, own), shape);
}

static Node *pull(Emit *emit, const Node *node, Shape shape) {
  const FusePlan *plan = emit->plan;
  bool is_outside =
      node_is_leaf(node) || (plan->is_unit[node->id] && plan->group[node->id] != emit->group);
  bool is_filler = node->op == OP_CONST || node->op == OP_IOTA;
  if (is_outside && !is_filler) return argument(emit, node, shape);
  for (int i = 0; i < emit->made.count; i++)
    if (emit->made.at[i].node == node->id && shape_equal(&emit->made.at[i].shape, &shape))
      return emit->made.at[i].made;
  const Origin before = emit->body->origin; /* that of its reader */
  emit->body->origin = node->origin;
  Node *made = pull_new(emit, node, shape);
  if (!made) made = pull_viewed(emit, node, shape);
  emit->body->origin = before;
  VEC_PUSH(plan->arena, emit->made, ((Made){node->id, shape, made}));
  return made;
}

/* ── kernels ────────────────────────────────────────────────────────────────────────────────── */
static const Node *fuse_body_node_at(const Emit *emit, int id) {
  return emit->plan->graph->nodes.at[id];
}

/* The member that a reader should think of: the contraction, the reduction, or the last. */
static const Node *main_member(const Emit *emit, const FuseGroup *group) {
  if (group->contract >= 0) return fuse_body_node_at(emit, group->contract);
  if (group->reduce >= 0) return fuse_body_node_at(emit, group->reduce);
  return fuse_body_node_at(emit, group->members.at[group->members.count - 1]);
}

static void choose_domain(Emit *emit, const FuseGroup *group) {
  emit->axis_count = 0;
  if (group->contract >= 0) {
    emit->domain = fuse_body_node_at(emit, group->contract)->type.shape;
    for (int i = 0; group->reduce >= 0 && i < emit->domain.rank - 1; i++)
      emit->axes[emit->axis_count++] = i;
  } else if (group->reduce >= 0) {
    int fewest = MAX_RANK + 1; /* argmax can do with one axis only */
    for (int i = 0; i < group->members.count; i++) {
      const Node *node = fuse_body_node_at(emit, group->members.at[i]);
      int64_t axes[MAX_RANK];
      int count;
      if (op_info[node->op].op_class != CLASS_REDUCE ||
          (group->shape == SHAPE_ROW && !fuse_is_row(node)))
        continue;
      Shape domain = fuse_reduce_domain(node, axes, &count);
      if (count >= fewest) continue;
      fewest = emit->axis_count = count;
      emit->domain = domain;
      memcpy(emit->axes, axes, sizeof axes);
    }
  } else {
    emit->domain = fuse_squeeze(&main_member(emit, group)->type.shape);
  }
  emit->reduced = emit->columns = emit->domain;
  emit->kept_count = 0;
  for (int i = 0; i < emit->axis_count; i++) emit->reduced.dim[emit->axes[i]] = 1;
  for (int i = 0; i < emit->domain.rank; i++)
    if (emit->reduced.dim[i] != 1) {
      emit->kept[emit->kept_count++] = i;
      emit->columns.dim[i] = 1;
    }
}

static const char *kind_text(const FuseGroup *group, const Node *contract) {
  switch (group->shape) {
  case SHAPE_ROW:
    return "row";
  case SHAPE_COLUMN:
    return "column";
  case SHAPE_CONTRACT:
    return contract->op == OP_DOT ? "dot" : "conv";
  default:
    return "loop";
  }
}

/* "row_exp_sum": the kind and the ops of the results, as a dump or a profile shows it. */
static const char *kernel_name(Emit *emit, const FuseGroup *group, const char *kind) {
  enum { NAMED = 4 };
  const char *name = kind;
  int named = 0;
  for (int i = 0; i < group->members.count && named < NAMED; i++) {
    const Node *node = fuse_body_node_at(emit, group->members.at[i]);
    if (node->id == group->contract) continue;
    name = arena_printf(emit->plan->arena, "%s_%s", name, op_info[node->op].text);
    named++;
  }
  return name;
}

static void emit_results(Emit *emit, Node *fused, const int *results, int count) {
  for (int i = 0; i < count; i++) {
    const Node *node = fuse_body_node_at(emit, results[i]);
    Attr index = attr_int(ATTR_INDEX, i);
    emit->fresh->origin = node->origin;
    Node *result = graph_node(emit->fresh, OP_RESULT, &fused, 1, &index, 1,
                              &emit->body->roots.at[i].node->type);
    emit->value[node->id] = view_of(emit, result, node->type.shape);
  }
}

static void emit_kernel(Emit *emit, int id) {
  FusePlan *plan = emit->plan;
  const FuseGroup *group = &plan->groups.at[id];
  const Node *chief = main_member(emit, group);
  const char *kind = kind_text(group, chief);
  emit->group = id;
  emit->made.count = emit->args.count = emit->operands.count = 0;
  emit->body = graph_new(emit->fresh->arena, kernel_name(emit, group, kind));
  choose_domain(emit, group);
  int *results = ARENA_ARRAY(plan->arena, int, group->members.count), count = 0;
  for (int i = 0; i < group->members.count; i++) {
    const Node *node = fuse_body_node_at(emit, group->members.at[i]);
    if (!fuse_is_result(plan, node->id)) continue;
    bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
    bool is_full = !is_reduce && fuse_elements(node) == group->elements;
    Node *made = pull(emit, node,
                      is_full     ? emit->domain
                      : is_reduce ? *reduced_shape(emit, node)
                                  : emit->reduced);
    graph_add_root(emit->body, ROOT_RESULT, "", made);
    results[count++] = node->id;
  }
  if (count == 0) return;
  Attr attrs[] = {attr_str(ATTR_KIND, kind), attr_ints(ATTR_AXES, emit->axes, emit->axis_count)};
  emit->fresh->origin = chief->origin;
  Node *fused = graph_node(emit->fresh, OP_FUSED, emit->operands.at, emit->operands.count, attrs,
                           group->reduce >= 0 ? 2 : 1, &emit->body->roots.at[0].node->type);
  fused->body = emit->body;
  fused->origin.is_backward = true; /* a kernel that does some forward work belongs to forward */
  for (int i = 0; i < group->members.count; i++)
    fused->origin.is_backward &= fuse_body_node_at(emit, group->members.at[i])->origin.is_backward;
  emit_results(emit, fused, results, count);
}

/* A kernel that copies: for a root or an operand of pack that has no kernel of its own. */
static Node *emit_copy(Emit *emit, Node *value, const Node *reader) {
  Attr index = attr_int(ATTR_INDEX, 0), kind = attr_str(ATTR_KIND, "loop");
  Graph *body = graph_new(emit->fresh->arena, "loop_copy");
  body->origin = emit->fresh->origin =
      (Origin){.loc = reader->origin.loc, .layer = reader->origin.layer};
  graph_add_root(body, ROOT_RESULT, "", graph_node(body, OP_ARG, NULL, 0, &index, 1, &value->type));
  Node *fused = graph_node(emit->fresh, OP_FUSED, &value, 1, &kind, 1, &value->type);
  fused->body = body;
  return graph_node(emit->fresh, OP_RESULT, &fused, 1, &index, 1, &value->type);
}

/* Every operand of pack is written where pack wants it: so it needs a kernel, and one place. */
static void separate_pack(Emit *emit, const Node *node, Node **inputs) {
  for (int i = 0; i < node->input_count; i++) {
    const Node *base = node_base(inputs[i]);
    bool is_shared = node_is_leaf(base) || base->op == OP_PACK;
    for (int k = 0; k < i; k++) is_shared |= node_base(inputs[k]) == base;
    if (is_shared) inputs[i] = emit_copy(emit, inputs[i], node);
  }
}

/* Where the result of a node outside of bodies is noted: it has one place, however many nodes of
 * the step project it. */
static Node **place_of_result(const Emit *emit, const Node *result) {
  const Node *of = result->input[0];
  Node ***results = &emit->results[of->id];
  if (!*results) *results = ARENA_ARRAY(emit->plan->arena, Node *, node_result_count(of));
  return &(*results)[node_int(result, ATTR_INDEX, 0)];
}

static void emit_alone(Emit *emit, const Node *node) {
  bool is_result = node->op == OP_RESULT;
  if (is_result && (emit->value[node->id] = *place_of_result(emit, node))) return;
  Node **inputs = ARENA_ARRAY(emit->plan->arena, Node *, node->input_count);
  for (int i = 0; i < node->input_count; i++) inputs[i] = in_memory(emit, node->input[i]);
  if (node->op == OP_PACK) separate_pack(emit, node, inputs);
  emit->value[node->id] = graph_copy_node(emit->fresh, node, inputs);
  if (is_result) *place_of_result(emit, node) = emit->value[node->id];
}

static void fuse_body_visit(Emit *emit, int group) {
  if (group < 0 || emit->is_done[group]) return;
  emit->is_done[group] = true;
  VEC_PUSH(emit->plan->arena, emit->visits, ((Visit){group, 0, 0}));
}

static void emit_visited(Emit *emit, int id) {
  const FuseGroup *group = &emit->plan->groups.at[id];
  bool stands_alone =
      group->shape == SHAPE_ALONE || (group->contract >= 0 && group->members.count == 1 &&
                                      !emit->plan->is_pooled[group->contract]);
  if (stands_alone)
    emit_alone(emit, fuse_body_node_at(emit, group->members.at[0]));
  else
    emit_kernel(emit, id);
}

/* The group, behind all that it reads: no recursion, for a chain of groups may be long. */
static void emit_group(Emit *emit, int id) {
  const FusePlan *plan = emit->plan;
  fuse_body_visit(emit, id);
  while (emit->visits.count) {
    Visit *now = &emit->visits.at[emit->visits.count - 1];
    const FuseGroup *group = &plan->groups.at[now->group];
    if (now->member == group->members.count) {
      emit->visits.count--;
      emit_visited(emit, now->group);
      continue;
    }
    const FuseUnit *unit = &plan->unit[group->members.at[now->member]];
    if (now->read < unit->reads.count) {
      fuse_body_visit(emit, plan->group[unit->reads.at[now->read++].node]);
    } else {
      now->member++;
      now->read = 0;
    }
  }
}

static void emit_roots(Emit *emit) {
  const Graph *graph = emit->plan->graph;
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    Node *value = in_memory(emit, root->node);
    bool has_kernel = node_base(value)->op == OP_RESULT ||
                      op_info[node_base(value)->op].op_class == CLASS_CONTRACT;
    if (root->kind != ROOT_ASSIGN && !has_kernel) value = emit_copy(emit, value, root->node);
    graph_add_root(emit->fresh, root->kind, root->name, value);
  }
}

Graph *fuse_emit(FusePlan *plan, Arena *arena) {
  Emit emit = {.plan = plan,
               .fresh = graph_new(arena, plan->graph->name),
               .value = ARENA_ARRAY(plan->arena, Node *, plan->count),
               .is_done = ARENA_ARRAY(plan->arena, bool, plan->groups.count),
               .results = ARENA_ARRAY(plan->arena, Node **, plan->count)};
  for (int i = 0; i < plan->count; i++)
    if (node_is_leaf(fuse_body_node_at(&emit, i)))
      emit.value[i] = graph_copy_node(emit.fresh, fuse_body_node_at(&emit, i), NULL);
  for (int i = 0; i < plan->count; i++) {
    const FuseGroup *group = plan->is_unit[i] ? &plan->groups.at[plan->group[i]] : NULL;
    if (group && group->members.at[group->has_backward ? group->members.count - 1 : 0] == i)
      emit_group(&emit, plan->group[i]);
  }
  emit_roots(&emit);
  return emit.fresh;
}
