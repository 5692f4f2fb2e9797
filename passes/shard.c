/* shard: what the ranks share out with distributed.zero. Rajbhandari et al., ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models (2020): every rank keeps, and updates, a
 * part of each parameter and of what the optimizer keeps of it.
 *
 * A param becomes the rank's part of it, and where a kernel reads the param, an all_gather of the
 * parts: rounded before, where all readers round it. A gradient becomes, by a reduce_scatter, the
 * rank's part of the sum over the ranks, and everything flat in the update is as long as the parts
 * are. What the update adds up over the parameters is added over the ranks, too; matrices that Muon
 * makes orthogonal are exchanged (shard_matrices.h).
 *
 * zero = 1: of a batch in parts each rank adds its gradients up whole, and shares them out once.
 * zero = 2: it adds up its part of them.
 * zero = 3: forward and backward gather a param each for itself, so that it is not kept between.
 *
 * A part has part_elements(elements, ranks) elements in the order of memory; the last ones are
 * padded with zeros, which the rules of all optimizers leave at zero. */
#include "passes/prune_ranks.h"
#include "passes/shard_matrices.h"
#include "passes/shard_private.h"
#include "passes/shard_random.h"
#include <string.h>

Node *shard_get(Shard *s, const Node *old, Form form) {
  return forms_get(&s->forms, old, (int)form);
}

int64_t shard_part(const Shard *s, const Node *node) {
  return part_elements(shape_elements(&node->type.shape), s->ranks);
}

static Shape flat_shape(int64_t elements) { return shape_of(1, &elements); }

/* ── what the old graph says ────────────────────────────────────────────────────────────────── */
/* The param, or the rounding of one, that is gathered to make this value, which only moves it. */
static const Node *gathered_for(const Shard *s, const Node *node) {
  for (;; node = node->input[0]) {
    if (node->op == OP_PARAM) return node;
    bool moves = op_info[node->op].op_class == CLASS_MOVE || node->op == OP_CAST;
    if (!moves || node->input_count != 1) return NULL;
    const Node *from = node->input[0];
    if (node->op == OP_CAST && from->op == OP_PARAM && !s->is_read_plain[from->id] &&
        s->rounded[from->id] == node->type.dtype)
      return node;
  }
}

static Form form_for(const Shard *s, const Node *reader, const Node *operand) {
  bool is_back = reader->origin.is_backward || reader->origin.is_recomputed;
  return s->level == 3 && is_back && gathered_for(s, operand) ? BACK : PLAIN;
}

static void find_roundings(Shard *s, Arena *arena) {
  s->is_read_plain = ARENA_ARRAY(arena, bool, s->old->nodes.count);
  s->rounded = ARENA_ARRAY(arena, DType, s->old->nodes.count);
  for (int i = 0; i < s->old->nodes.count; i++) s->rounded[i] = DT_F32;
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    for (int k = 0; k < node->input_count; k++) {
      const Node *from = node->input[k];
      if (from->op != OP_PARAM) continue;
      bool rounds =
          node->op == OP_CAST && dtype_bytes(node->type.dtype) < dtype_bytes(from->type.dtype);
      bool is_other = s->rounded[from->id] != DT_F32 && s->rounded[from->id] != node->type.dtype;
      if (!rounds || is_other) s->is_read_plain[from->id] = true;
      s->rounded[from->id] = node->type.dtype;
    }
  }
}

/* Of the operands of the pack, and of what is added to a sum. */
static void find_gradients(Shard *s, Arena *arena) {
  const Node *pack = graph_find_gradients(s->old);
  const Attr *offsets = pack ? node_attr(pack, ATTR_OFFSETS) : NULL;
  s->param_at = (Lookup){.arena = arena};
  s->gradient_of = ARENA_ARRAY(arena, const Node *, s->old->nodes.count);
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    int64_t offset = node_int(node, ATTR_OFFSET, -1);
    if (node->op == OP_PARAM) lookup_add(&s->param_at, &offset, sizeof offset, i);
  }
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    for (int k = 0; k < node->input_count; k++) {
      bool is_sum = node->input_count == 2 && node->input[1 - k]->role == ROLE_GRADIENT_SUM;
      int64_t offset = node == pack ? offsets->ints[k]
                       : is_sum     ? node_int(node->input[1 - k], ATTR_OFFSET, -1)
                                    : -1;
      int param = lookup_find(&s->param_at, &offset, sizeof offset);
      if (param >= 0) s->gradient_of[node->input[k]->id] = s->old->nodes.at[param];
    }
  }
}

static bool is_shared_state(const Shard *s, const Node *state) {
  if (state->role == ROLE_GRADIENT_SUM) return s->level >= 2;
  return state->role == ROLE_PARAMS || role_has(state->role, ROLE_SLICED);
}

static void find_shared(Shard *s, Arena *arena) {
  const Node *pack = graph_find_gradients(s->old);
  s->is_shared = ARENA_ARRAY(arena, bool, s->old->nodes.count);
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    bool is = node == pack || (node->op == OP_STATE && is_shared_state(s, node));
    bool keeps = op_info[node->op].op_class == CLASS_POINTWISE || node->op == OP_RESHAPE;
    for (int k = 0; keeps && k < node->input_count; k++)
      is = is || s->is_shared[node->input[k]->id];
    if (node->op == OP_ASSIGN)
      is = is_shared_state(s, graph_find_state(s->old, node_str(node, ATTR_TARGET)));
    s->is_shared[i] = is;
  }
}

/* ── parts ──────────────────────────────────────────────────────────────────────────────────── */
static Node *refuse_form(Shard *s, const Node *node, const char *what) {
  diag_error(s->context->diag, node->origin.loc,
             "internal error: distributed.zero has no way to share out '%s'%s",
             op_info[node->op].text, what);
  return make_const(s->fresh, node->type.dtype, node->type.shape, 0);
}

static Node *shard_leaf(Shard *s, const Node *node, int64_t elements) {
  Type type = {node->type.dtype, flat_shape(elements)};
  Node *made = graph_copy_as(s->fresh, node, NULL, &type);
  const Attr *offset = node_attr(node, ATTR_OFFSET);
  if (offset) node_set_attr(s->fresh, made, attr_int(ATTR_OFFSET, offset->i / s->ranks));
  if (node->op != OP_PARAM) return made;
  Shape file = node_file_shape(node);
  node_set_attr(s->fresh, made, attr_ints(ATTR_SHAPE, file.dim, file.rank));
  node_set_attr(s->fresh, made, attr_int(ATTR_RANKS, s->ranks));
  return made;
}

/* Of the ranks that share a batch; those that share each layer's work have other parameters. */
Node *shard_over(Shard *s, Node *collective) {
  if (setting_tensor(s->context->settings) > 1)
    node_set_attr(s->fresh, collective, attr_str(ATTR_OVER, mesh_axis_text(MESH_DATA)));
  return collective;
}

Node *shard_part_to_gather(Shard *s, const Node *gathered) {
  const Node *param = gathered->op == OP_PARAM ? gathered : gathered->input[0];
  return make_cast(s->fresh, shard_get(s, param, LEAF), gathered->type.dtype);
}

/* All parts behind one another, and their elements as the value has them. */
static Node *shard_gather(Shard *s, const Node *node, Form form) {
  Node *joined = shard_joined_whole(s, node, form);
  if (joined) return joined;
  const Node *param = node->op == OP_PARAM ? node : node->input[0];
  s->fresh->origin = node->origin;
  Node *all = shard_over(s, make_all_gather(s->fresh, shard_part_to_gather(s, node), s->ranks));
  const char *name = node_str(param, ATTR_NAME);
  node_set_attr(s->fresh, all,
                attr_str(ATTR_WHY, arena_printf(s->fresh->arena, "parts of %s", name)));
  int64_t start = 0;
  all = make_slice(s->fresh, all, &start, flat_shape(shape_elements(&node->type.shape)));
  return make_reshape(s->fresh, all, node->type.shape);
}

/* Of what lies at this place of the arena of gradients. */
static Form gradient_form(const Shard *s, int64_t offset) {
  int param = lookup_find(&s->param_at, &offset, sizeof offset);
  bool is_cut = param >= 0 && node_attr(s->old->nodes.at[param], ATTR_CUT);
  return setting_tensor(s->context->settings) == 1 || is_cut ? SUMMED : JOINED;
}

Node *shard_sum_of_all(Shard *s, Node *part, Attr why) {
  Node *made = make_all_reduce(s->fresh, OP_SUM, part);
  node_set_attr(s->fresh, made->input[0], why);
  node_set_attr(s->fresh, made->input[0], attr_str(ATTR_OVER, mesh_axis_text(MESH_TENSOR)));
  return made;
}

static Node *shard_scatter(Shard *s, const Node *node, Form form) {
  int64_t elements = shape_elements(&node->type.shape), part = shard_part(s, node);
  if (node->op == OP_CONST && node_float(node, ATTR_VALUE, 0) == 0)
    return make_const(s->fresh, node->type.dtype, flat_shape(part), 0);
  Node *joined = shard_joined_part(s, node, form);
  if (joined) return joined;
  Node *whole = shard_get(s, node, PLAIN);
  s->fresh->origin = node->origin;
  int64_t low = 0, high = part * s->ranks - elements;
  whole = make_pad(s->fresh, make_reshape(s->fresh, whole, flat_shape(elements)), &low, &high);
  Node *made = shard_over(s, make_reduce_scatter(s->fresh, OP_SUM, whole, s->ranks));
  const Node *param = s->gradient_of[node->id];
  const char *name = param ? node_str(param, ATTR_NAME) : "?";
  Attr why = attr_str(ATTR_WHY, arena_printf(s->fresh->arena, "gradient of %s", name));
  node_set_attr(s->fresh, made, why);
  return form == SUMMED ? made : shard_sum_of_all(s, made, why);
}

static Node *copy_part(Shard *s, const Node *node, Form form, int64_t elements) {
  Node **inputs = ARENA_ARRAY(s->context->scratch, Node *, node->input_count);
  Type type = {node->type.dtype, flat_shape(elements)};
  for (int k = 0; k < node->input_count; k++) inputs[k] = shard_get(s, node->input[k], form);
  return graph_copy_as(s->fresh, node, inputs, &type);
}

/* A gradient; or, in parts of a batch, a sum of gradients of which the rank has its part. */
static Node *make_summed(Shard *s, const Node *node, Form form) {
  if (!s->is_shared[node->id]) return shard_scatter(s, node, form);
  if (node->op == OP_STATE) return shard_leaf(s, node, shard_part(s, node));
  if (node->op == OP_RESHAPE) return shard_get(s, node->input[0], form); /* the same elements */
  if (node->op == OP_ADD || node->op == OP_SUB)
    return copy_part(s, node, form, shard_part(s, node));
  return refuse_form(s, node, " of a gradient");
}

static Node *flat_pack(Shard *s, const Node *pack) {
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  int64_t *parts = ARENA_ARRAY(s->fresh->arena, int64_t, offsets->count);
  Node **inputs = ARENA_ARRAY(s->context->scratch, Node *, pack->input_count);
  for (int k = 0; k < pack->input_count; k++) {
    parts[k] = offsets->ints[k] / s->ranks;
    inputs[k] = shard_get(s, pack->input[k], gradient_form(s, offsets->ints[k]));
  }
  Attr attr = attr_ints(ATTR_OFFSETS, parts, offsets->count);
  Type type = {pack->type.dtype, flat_shape(s->elements / s->ranks)};
  s->fresh->origin = pack->origin;
  return graph_node(s->fresh, OP_PACK, inputs, pack->input_count, &attr, 1, &type);
}

/* Coefficients of runs of parameters are chosen by the index in the whole arena, where runs begin
 * and end at multiples of the ranks. */
static Node *flat_iota(Shard *s, const Node *node) {
  Type type = {node->type.dtype, flat_shape(s->elements / s->ranks)};
  Node *index = graph_copy_as(s->fresh, node, NULL, &type);
  return make_binary(s->fresh, OP_MUL, index, make_like(s->fresh, index, (double)s->ranks));
}

/* Of parameters that lie side by side; a run begins and ends where parameters do. */
static Node *flat_slice(Shard *s, const Node *node) {
  int64_t start = node_attr(node, ATTR_START)->ints[0] / s->ranks;
  Node *whole = shard_get(s, node->input[0], FLAT);
  s->fresh->origin = node->origin;
  return make_slice(s->fresh, whole, &start, flat_shape(node->type.shape.dim[0] / s->ranks));
}

/* This rank's part of a param, of a flat value; NULL: the node is none. */
static const Node *part_source(const Shard *s, const Node *node, int64_t *begin) {
  const Node *flat = prune_part_source(node, begin);
  return flat && s->is_shared[flat->id] ? flat : NULL;
}

static Node *part_of_flat(Shard *s, const Node *node, const Node *flat, int64_t begin) {
  int64_t start = begin / s->ranks;
  Node *whole = shard_get(s, flat, FLAT);
  s->fresh->origin = node->origin;
  return make_slice(s->fresh, whole, &start, node->type.shape);
}

static bool shard_is_joined(const Node *node) {
  return node->op == OP_PACK || node->op == OP_CONCAT;
}

/* What muon has for runs of parameters, one behind the other. */
static Node *flat_joined(Shard *s, const Node *node, const Type *type) {
  const Attr *offsets = node_attr(node, ATTR_OFFSETS);
  int count = offsets ? offsets->count : 0;
  Node **inputs = ARENA_ARRAY(s->context->scratch, Node *, node->input_count);
  int64_t *parts = ARENA_ARRAY(s->fresh->arena, int64_t, count + 1);
  for (int k = 0; k < node->input_count; k++) inputs[k] = shard_get(s, node->input[k], FLAT);
  for (int k = 0; k < count; k++) parts[k] = offsets->ints[k] / s->ranks;
  Attr attr = attr_ints(ATTR_OFFSETS, parts, count);
  return graph_copy_with(s->fresh, node, inputs, type, &attr, offsets != NULL);
}

static Node *flat_random(Shard *s, const Node *node, const Type *type) {
  Node *seed = shard_get(s, node->input[0], PLAIN), *step = shard_get(s, node->input[1], PLAIN);
  s->fresh->origin = node->origin;
  Node *inputs[] = {seed, step,
                    shard_random_first(s->fresh, s->old, s->context->settings, s->ranks,
                                       s->elements, s->context->scratch)};
  return graph_node(s->fresh, OP_RANDOM, inputs, 3, node->attr, node->attr_count, type);
}

static Node *make_flat(Shard *s, const Node *node) {
  bool is_flat = node->type.shape.rank == 1 && node->type.shape.dim[0] <= s->elements;
  if (!is_flat) return refuse_form(s, node, ": it is not over parameters");
  int64_t elements = node->type.shape.dim[0] / s->ranks;
  Type type = {node->type.dtype, flat_shape(elements)};
  const Node *directions = shard_matrices_directions(node);
  if (directions)
    return shard_matrices_part(s->fresh, node, shard_get(s, directions->input[0], PLAIN));
  if (prune_part_placed(node)) return shard_get(s, prune_part_placed(node), PLAIN);
  if (node->op == OP_SLICE) return flat_slice(s, node);
  if (node->op == OP_STATE && s->is_shared[node->id]) return shard_leaf(s, node, elements);
  if (node->op == OP_PACK && s->is_shared[node->id]) return flat_pack(s, node);
  if (shard_is_joined(node)) return flat_joined(s, node, &type);
  if (op_info[node->op].op_class == CLASS_POINTWISE) return copy_part(s, node, FLAT, elements);
  if (node->op == OP_CONST) return graph_copy_as(s->fresh, node, NULL, &type);
  if (node->op == OP_IOTA) return flat_iota(s, node);
  if (node->op == OP_RANDOM && node->type.shape.dim[0] == s->elements)
    return flat_random(s, node, &type);
  if (node->op == OP_BROADCAST && shape_elements(&node->input[0]->type.shape) == 1)
    return graph_copy_as(s->fresh, node, (Node *[]){shard_get(s, node->input[0], PLAIN)}, &type);
  return refuse_form(s, node, " over all parameters");
}

/* ── values that every rank has whole ───────────────────────────────────────────────────────── */
/* Over the parameters, and so over the ranks. */
static Node *shard_total(Shard *s, const Node *reduce) {
  if (!op_joins_ranks(reduce->op)) return refuse_form(s, reduce, " of all parameters");
  Node *own = graph_copy_node(s->fresh, reduce, (Node *[]){shard_get(s, reduce->input[0], FLAT)});
  s->fresh->origin = reduce->origin;
  Node *all = make_all_reduce(s->fresh, reduce->op, own);
  shard_over(s, all->input[0]);
  node_set_attr(s->fresh, all->input[0], attr_str(ATTR_WHY, "total over the parameters"));
  return all;
}

static Form assigned_form(const Shard *s, const Node *assign) {
  const Node *state = graph_find_state(s->old, node_str(assign, ATTR_TARGET));
  if (state->role != ROLE_GRADIENT_SUM) return FLAT;
  return gradient_form(s, node_int(state, ATTR_OFFSET, -1));
}

static Node *shard_assign(Shard *s, const Node *assign) {
  Node *value = shard_get(s, assign->input[0], assigned_form(s, assign));
  return graph_copy_node(s->fresh, assign, &value);
}

/* Sums of gradients that every rank has whole lie behind the parts of the gradients. */
static Node *whole_sum(Shard *s, const Node *state) {
  Node *made = graph_copy_node(s->fresh, state, NULL);
  int64_t at = node_int(state, ATTR_OFFSET, 0) + s->elements / s->ranks;
  node_set_attr(s->fresh, made, attr_int(ATTR_OFFSET, at));
  return made;
}

/* The flat value of which the node takes matrices, for this rank to do; NULL: it does not. */
static const Node *matrices_source(const Shard *s, const Node *node, int64_t *begin) {
  const Node *flat = shard_matrices_source(node, begin);
  return flat && s->is_shared[flat->id] ? flat : NULL;
}

static Node *shard_whole(Shard *s, const Node *node, Form form) {
  int64_t begin;
  const Node *flat = matrices_source(s, node, &begin);
  if (flat) return shard_matrices_own(s->fresh, node, shard_get(s, flat, FLAT), begin, s->ranks);
  flat = part_source(s, node, &begin);
  if (flat) return part_of_flat(s, node, flat, begin);
  if (node == gathered_for(s, node)) return shard_gather(s, node, form);
  if (node->op == OP_ASSIGN && s->is_shared[node->id]) return shard_assign(s, node);
  if (op_info[node->op].op_class == CLASS_REDUCE && s->is_shared[node->input[0]->id])
    return shard_total(s, node);
  if (s->is_shared[node->id]) return refuse_form(s, node, ": it is needed whole");
  if (node->role == ROLE_GRADIENT_SUM) return whole_sum(s, node);
  Node **inputs = ARENA_ARRAY(s->context->scratch, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    Form of = form == BACK ? BACK : form_for(s, node, node->input[k]);
    inputs[k] = shard_get(s, node->input[k], of);
  }
  return graph_copy_node(s->fresh, node, inputs);
}

static Node *shard_make(void *pass, const Node *node, int form) {
  Shard *s = pass;
  switch ((Form)form) {
  case LEAF:
    return shard_leaf(s, node, shard_part(s, node));
  case SUMMED:
  case JOINED:
    return make_summed(s, node, (Form)form);
  case FLAT:
    return make_flat(s, node);
  default:
    return shard_whole(s, node, (Form)form);
  }
}

/* ── the order ──────────────────────────────────────────────────────────────────────────────── */
static void ask_operands(Shard *s, const Node *node, Form form) {
  for (int k = 0; k < node->input_count; k++) s->asked[node->input[k]->id] |= 1u << form;
}

static void ask(Shard *s, const Node *node, Form form) { s->asked[node->id] |= 1u << form; }

static void ask_for_gradients(Shard *s, const Node *pack) {
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  for (int k = 0; k < pack->input_count; k++)
    ask(s, pack->input[k], gradient_form(s, offsets->ints[k]));
}

static void ask_for_flat(Shard *s, const Node *node) {
  const Node *directions = shard_matrices_directions(node);
  bool is_point = op_info[node->op].op_class == CLASS_POINTWISE;
  if (directions)
    ask(s, directions->input[0], PLAIN);
  else if (prune_part_placed(node))
    ask(s, prune_part_placed(node), PLAIN);
  else if (node->op == OP_PACK && s->is_shared[node->id])
    ask_for_gradients(s, node);
  else if (is_point || shard_is_joined(node) || node->op == OP_SLICE)
    ask_operands(s, node, FLAT);
  else if (node->op == OP_BROADCAST || node->op == OP_RANDOM)
    ask_operands(s, node, PLAIN);
}

static void ask_for_whole(Shard *s, const Node *node) {
  int64_t begin;
  const Node *flat = matrices_source(s, node, &begin);
  if (!flat) flat = part_source(s, node, &begin);
  bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
  if (flat)
    ask(s, flat, FLAT);
  else if (node->op == OP_ASSIGN && s->is_shared[node->id])
    ask_operands(s, node, assigned_form(s, node));
  else
    ask_operands(s, node, is_reduce && s->is_shared[node->input[0]->id] ? FLAT : PLAIN);
}

/* Which forms of each node the new graph needs, but BACK. */
static void find_asked(Shard *s, Arena *arena) {
  s->asked = ARENA_ARRAY(arena, unsigned, s->old->nodes.count);
  for (int i = 0; i < s->old->roots.count; i++) ask(s, s->old->roots.at[i].node, PLAIN);
  for (int i = s->old->nodes.count - 1; i >= 0; i--) {
    const Node *node = s->old->nodes.at[i];
    for (Form form = SUMMED; form <= JOINED; form++) {
      if (s->asked[i] & 1u << form && s->is_shared[i]) ask_operands(s, node, form);
      if (s->asked[i] & 1u << form && !s->is_shared[i]) ask(s, node, PLAIN);
    }
    if (s->asked[i] & 1u << FLAT) ask_for_flat(s, node);
    if (s->asked[i] & 1u << PLAIN) ask_for_whole(s, node);
  }
}

static void find_needs(Shard *s, Arena *arena) {
  Lookup known = {.arena = arena};
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    if (!(s->asked[i] & 1u << PLAIN) || gathered_for(s, node)) continue;
    for (int k = 0; k < node->input_count; k++) {
      const Node *what = gathered_for(s, node->input[k]);
      if (!what) continue;
      Need need = {{what, form_for(s, node, node->input[k])}, i};
      int key[] = {what->id, (int)need.wanted.form};
      if (lookup_add(&known, key, sizeof key, s->needs.count) == s->needs.count)
        VEC_PUSH(arena, s->needs, need);
    }
  }
}

/* Adds to a small sum of gradients: nothing waits for it. */
static bool is_small_sum(const Shard *s, const Node *node) {
  const Node *state =
      node->op == OP_ASSIGN ? graph_find_state(s->old, node_str(node, ATTR_TARGET)) : NULL;
  return state && state->role == ROLE_GRADIENT_SUM && shard_is_small(&state->type);
}

static void make_leaves(Shard *s) {
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    if (!node_is_leaf(node)) continue;
    bool is_sum = node->role == ROLE_GRADIENT_SUM;
    if (node->op == OP_PARAM)
      shard_get(s, node, LEAF);
    else
      shard_get(s, node,
                !s->is_shared[i] ? PLAIN
                : is_sum         ? gradient_form(s, node_int(node, ATTR_OFFSET, -1))
                                 : FLAT);
  }
}

/* Params are gathered one group ahead: when the first of a group is read, the next one is begun.
 * Directions of matrices are shared out as soon as they are there. */
static void make_in_order(Shard *s) {
  make_leaves(s); /* in their old order, by which params get their initial values */
  int read = 0, begun = shard_begin_group(s, 0); /* the first of the last group; its end */
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *node = s->old->nodes.at[i];
    while (read < begun && s->needs.at[read].before <= i) {
      read = begun;
      begun = shard_begin_group(s, begun);
    }
    bool is_made = (s->asked[i] & 1u << PLAIN) && !gathered_for(s, node) && !node_is_leaf(node);
    if (is_made && !is_small_sum(s, node)) shard_get(s, node, PLAIN);
    for (Form form = SUMMED; form <= JOINED && is_made && !s->is_shared[i]; form++)
      if (s->asked[i] & 1u << form) shard_share_out(s, node, form);
    if (s->asked[i] & 1u << FLAT && shard_matrices_directions(node)) shard_get(s, node, FLAT);
  }
}

/* All params have their places in every graph. Of those that are trained; a pipeline's stage that trains none has room for one. */
static int64_t shard_elements(const Shard *s) {
  int64_t end = 0;
  for (int i = 0; i < s->old->nodes.count; i++) {
    const Node *param = s->old->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param) || pass_rests(s->context, param)) continue;
    int64_t last = node_int(param, ATTR_OFFSET, 0) + s->ranks * shard_part(s, param);
    if (last > end) end = last;
  }
  const Node *pack = graph_find_gradients(s->old);
  return end || !pack ? end : pack->type.shape.dim[0];
}

Graph *pass_shard(PassContext *context, Graph *graph) {
  Arena *arena = context->scratch;
  if (!context->settings) return graph;
  bool has_cuts = setting_tensor(context->settings) > 1;
  if (setting_parts(context->settings) == 1)
    return has_cuts ? shard_random_of_tensor(graph, context->settings, arena) : graph;
  int errors = context->diag->errors;
  Shard s = {.context = context,
             .old = graph,
             .fresh = graph_new(graph->arena, graph->name),
             .ranks = setting_parts(context->settings),
             .level = (int)setting_number(context->settings, "distributed.zero")};
  s.forms = (Forms){.old = graph, .fresh = s.fresh, .make = shard_make, .pass = &s};
  s.forms.made.arena = s.joined_at.arena = arena;
  s.elements = shard_elements(&s);
  find_roundings(&s, arena);
  find_shared(&s, arena);
  find_gradients(&s, arena);
  find_asked(&s, arena);
  find_needs(&s, arena);
  make_in_order(&s);
  Graph *made = forms_end(&s.forms, PLAIN);
  return context->diag->errors == errors ? made : NULL;
}
