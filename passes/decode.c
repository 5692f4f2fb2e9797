/* decode: from the evaluation graph of a causal language model to a graph of one sample and a few
 * new positions, which remembers the keys and values of those before.
 *
 *   in       the eval graph: one input of tokens i32|i64[B,T] leads to an output f32[B,T,V]
 *   out      for N texts, generate.batch, that have equally many tokens so far:
 *            "decode": the tokens of 1 position -> scores f32[N,1,V]; "prefill": PREFILL_WIDTH
 *            tokens, no output: it only fills the caches. Both read their tokens, text by text, at
 *            the start of the whole graph's input, and the state decode.position i64[], how many
 *            positions are done, which they advance. Every attention has caches decode.I.key and
 *            .value, [N,G,T,D], states of role cache: they are in the place work and live as long
 *            as no other graph runs. Position + width must not exceed T.
 *
 * A value that depends on the tokens keeps its positions along some dimension (decode_factors.h)
 * and is computed for the new ones only; what does not (the rows of a table of positions, angles of
 * rotary embeddings, masks) is read at the position, where an op joins it with one that does. An op
 * that mixes positions, unless it is causal attention, has no such form: then there is no decode
 * graph, and context->refused says why. */
#include "passes/decode.h"
#include "passes/decode_factors.h"
#include "passes/forms.h"
#include "passes/pass.h"
#include <math.h>
#include <string.h>

typedef struct {
  Node *node;
  Factors factors;
} Part;

typedef struct {
  const Graph *old;
  Graph *graph;
  Arena *arena;
  int64_t window, width, texts;     /* T, new positions, N */
  bool *depends;                    /* by old node: on the tokens */
  bool *is_rounded;                 /* by old node: values went through round, and then through pointwise ops at most */
  Part *part;                       /* by old node that depends: its part */
  VEC(Factors) wanted;              /* factors that were needed; the forms of `values` */
  Forms values;                     /* by old node that does not depend */
  Node *position, *index, *visible; /* i64[], i64[width], bool[1,1,width,T] */
  int attentions;
  bool sums_products;
  const char *precision; /* train.precision */
  const char *why;
} Decode;

static Node *decode_refuse(Decode *d, const Node *old, const char *what) {
  if (d->why) return NULL;
  const char *name = node_called(old);
  d->why = old->origin.loc.line ? arena_printf(d->arena, "line %u: %s %s", old->origin.loc.line, name, what)
                                : arena_printf(d->arena, "%s %s", name, what);
  return NULL;
}

static Node *decode_node(Decode *d, const Node *old, Node *const *inputs, Shape shape) {
  Type type = {old->type.dtype, shape};
  return graph_node(d->graph, old->op, inputs, old->input_count, old->attr, old->attr_count, &type);
}

static Node *decode_number(Decode *d, DType dtype, double value) {
  return make_const(d->graph, dtype, shape_scalar(), value);
}

/* ── values that do not depend on the tokens ────────────────────────────────────────────────── */
enum { WHOLE = -1 };
static Node *decode_whole(Decode *d, const Node *old) { return forms_get(&d->values, old, WHOLE); }

static Node *make_whole(Decode *d, const Node *old) {
  if (old->op == OP_RANDOM || old->op == OP_INPUT)
    return decode_refuse(d, old, "is not known here");
  Node **inputs = ARENA_ARRAY(d->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++)
    if (!(inputs[i] = decode_whole(d, old->input[i]))) return NULL;
  return graph_copy_node(d->graph, old, inputs);
}

static Node *decode_take(Decode *d, const Node *old, const Factors *want) {
  Node *x = decode_whole(d, old);
  for (int k = 0; k < want->rank && x; k++) {
    if (factors_is_plain_dim(want, k)) continue;
    if (factors_is(want, k, FACTOR_PLACE)) {
      x = make_take(d->graph, x, d->index, k);
    } else if (factors_is(want, k, FACTOR_BATCH)) { /* any sample does, for all */
      Shape shape = x->type.shape;
      shape.dim[k] = 1;
      x = make_slice(d->graph, x, (int64_t[MAX_RANK]){0}, shape);
      shape.dim[k] = d->texts;
      x = make_broadcast(d->graph, x, shape);
    } else {
      return decode_refuse(d, old, "lays samples or positions out in a way that is not understood");
    }
  }
  return x;
}

static Node *decode_at(Decode *d, const Node *old, const Factors *want);

static Node *iota_at(Decode *d, const Node *old, const Factors *want) {
  int axis = (int)node_int(old, ATTR_AXIS, 0);
  Shape shape = factors_shape(want, d->texts, d->width), line = {.rank = shape.rank};
  if (!factors_has(want, axis, FACTOR_PLACE)) /* of a batch: sample 0 */
    return factors_is_plain_dim(want, axis) || factors_is(want, axis, FACTOR_BATCH)
               ? decode_node(d, old, NULL, shape)
               : decode_take(d, old, want);
  if (!factors_is(want, axis, FACTOR_PLACE)) return decode_take(d, old, want);
  for (int i = 0; i < line.rank; i++) line.dim[i] = i == axis ? d->width : 1;
  Node *index = make_cast(d->graph, d->index, old->type.dtype);
  return make_broadcast(d->graph, make_reshape(d->graph, index, line), shape);
}

/* The factors of an operand of a result with the factors `want`; false: there are none. */
static bool operand_factors(const Node *old, const Factors *want, Factors *out) {
  const Shape *from = &old->input[0]->type.shape, *to = &old->type.shape;
  *out = factors_plain(from);
  switch (old->op) {
  case OP_RESHAPE:
    return factors_reshape(want, from, out);
  case OP_TRANSPOSE:
    for (int i = 0; i < to->rank; i++) out->dim[node_attr(old, ATTR_PERM)->ints[i]] = want->dim[i];
    return true;
  case OP_BROADCAST:
    for (int i = 0; i < to->rank; i++)
      if (from->dim[i] == to->dim[i]) out->dim[i] = want->dim[i];
    return true;
  case OP_SLICE: { /* the first so many positions: with the same numbers */
    const int64_t *start = node_attr(old, ATTR_START)->ints,
                  *step = node_attr(old, ATTR_STEP)->ints;
    for (int i = 0; i < to->rank; i++) {
      if (factors_is_plain_dim(want, i)) continue;
      if (start[i] || step[i] != 1 || want->dim[i].count != 1) return false;
      factors_set(out, i, want->dim[i].at[0].kind, from->dim[i]);
    }
    return true;
  }
  default:
    *out = *want;
    return op_info[old->op].op_class == CLASS_POINTWISE || old->op == OP_STOP_GRADIENT;
  }
}

static Node *make_at(Decode *d, const Node *old, const Factors *want) {
  if (old->op == OP_CONST)
    return decode_node(d, old, NULL, factors_shape(want, d->texts, d->width));
  if (old->op == OP_IOTA) return iota_at(d, old, want);
  Factors needs;
  if (!old->input_count || !operand_factors(old, want, &needs)) return decode_take(d, old, want);
  Node **inputs = ARENA_ARRAY(d->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++)
    if (!(inputs[i] = decode_at(d, old->input[i], &needs))) return NULL;
  return decode_node(d, old, inputs, factors_shape(want, d->texts, d->width));
}

/* The part of a value that does not depend on the tokens, for an op on values with the factors
 * `want`. */
static Node *decode_at(Decode *d, const Node *old, const Factors *want) {
  int form = 0;
  if (factors_is_plain(want)) return decode_whole(d, old);
  while (form < d->wanted.count && !factors_equal(&d->wanted.at[form], want)) form++;
  if (form == d->wanted.count) VEC_PUSH(d->arena, d->wanted, *want);
  return forms_get(&d->values, old, form);
}

static Node *decode_make(void *decode, const Node *old, int form) {
  Decode *d = decode;
  if (form == WHOLE) return make_whole(d, old);
  const Factors want = d->wanted.at[form];
  return make_at(d, old, &want);
}

/* ── values that do ─────────────────────────────────────────────────────────────────────────── */
static Node *decode_input(Decode *d, const Node *old, int k, const Factors *want) {
  const Node *input = old->input[k];
  if (!d->depends[input->id]) return decode_at(d, input, want);
  if (factors_equal(&d->part[input->id].factors, want)) return d->part[input->id].node;
  return decode_refuse(d, old, "mixes positions or samples");
}

/* All inputs have the same factors, but for the size of dimension `except` (-1: none). */
static Node *alike(Decode *d, const Node *old, int except, Factors *out) {
  Node **inputs = ARENA_ARRAY(d->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++)
    if (d->depends[old->input[i]->id]) *out = d->part[old->input[i]->id].factors;
  if (except >= 0 && !factors_is_plain_dim(out, except))
    return decode_refuse(d, old, "puts positions or samples side by side");
  for (int i = 0; i < old->input_count; i++) {
    if (except >= 0) factors_set(out, except, FACTOR_PLAIN, old->input[i]->type.shape.dim[except]);
    if (!(inputs[i] = decode_input(d, old, i, out))) return NULL;
  }
  if (except >= 0) factors_set(out, except, FACTOR_PLAIN, old->type.shape.dim[except]);
  return decode_node(d, old, inputs, factors_shape(out, d->texts, d->width));
}

static Node *move(Decode *d, const Node *old, Factors *out) {
  const Part *x = &d->part[old->input[0]->id];
  const Shape *from = &old->input[0]->type.shape, *to = &old->type.shape;
  const Attr *low = node_attr(old, ATTR_LOW), *high = node_attr(old, ATTR_HIGH);
  *out = x->factors;
  if (old->op == OP_RESHAPE) {
    if (!factors_reshape(&x->factors, to, out))
      return decode_refuse(d, old, "cuts through the positions");
  } else if (old->op == OP_TRANSPOSE) {
    for (int i = 0; i < to->rank; i++)
      out->dim[i] = x->factors.dim[node_attr(old, ATTR_PERM)->ints[i]];
  } else {
    for (int i = 0; i < to->rank; i++) {
      bool is_same = from->dim[i] == to->dim[i] && (!low || !(low->ints[i] || high->ints[i]));
      if (is_same) continue; /* a slice of all of them starts at 0 */
      if (!factors_is_plain_dim(out, i))
        return decode_refuse(d, old, "takes or adds some positions");
      factors_set(out, i, FACTOR_PLAIN, to->dim[i]);
    }
  }
  return decode_node(d, old, (Node *[]){x->node}, factors_shape(out, d->texts, d->width));
}

static Node *decode_reduce(Decode *d, const Node *old, Factors *out) {
  const Part *x = &d->part[old->input[0]->id];
  const Attr *axes = node_attr(old, ATTR_AXES);
  *out = x->factors;
  for (int i = 0; i < axes->count; i++) {
    int axis = (int)axes->ints[i];
    if (!factors_is_plain_dim(out, axis))
      return decode_refuse(d, old, "goes over positions or samples");
    out->dim[axis].count = 0;
  }
  return decode_node(d, old, (Node *[]){x->node}, factors_shape(out, d->texts, d->width));
}

static Node *decode_gather(Decode *d, const Node *old, Factors *out) {
  const Node *table = old->input[0], *index = old->input[1];
  if (d->depends[table->id]) return decode_refuse(d, old, "takes from a table made of the tokens");
  const Factors *places = &d->part[index->id].factors;
  *out = factors_plain(&old->type.shape);
  for (int i = 0; i < places->rank; i++) out->dim[i] = places->dim[i];
  Node *inputs[] = {decode_whole(d, table), d->part[index->id].node};
  return inputs[0] ? decode_node(d, old, inputs, factors_shape(out, d->texts, d->width)) : NULL;
}

/* A row times a matrix takes no longer than reading the matrix: so it becomes a sum of products
 * over its rows or columns, a simpler kernel than a product, which reads faster (GPT-2 124M on two
 * cores: 15 ms a token instead of 20). A matrix of rounded numbers stays in a product, whose kernel reads fewer bytes
 * (pass integers). */
static Node *product_of_row(Decode *d, const Node *old, Node *const *inputs, bool turned) {
  Graph *g = d->graph;
  int rank = old->type.shape.rank;
  int64_t axis = turned ? rank - 1 : rank - 2;
  Node *row = inputs[0], *matrix = inputs[1];
  if (!turned) { /* [..., 1, K] as [..., K, 1] */
    Shape shape = row->type.shape;
    shape.dim[rank - 2] = shape.dim[rank - 1];
    shape.dim[rank - 1] = 1;
    row = make_reshape(g, row, shape);
  }
  Node *sum = make_reduce(g, OP_SUM, make_binary(g, OP_MUL, matrix, row), &axis, 1);
  Shape shape = old->type.shape;
  for (int i = 0; i < rank - 1; i++) shape.dim[i] = 1;
  return make_reshape(g, sum, shape);
}

/* A large parameter [k, n] lies [n, k] in memory for generation (passes/storage_choose.c), which the kernel for products reads. */
static bool is_turned_in_memory(const Node *matrix, bool turned) {
  enum { LARGE = 1 << 18 };
  return matrix->op == OP_PARAM && matrix->type.shape.rank == 2 && !turned && shape_elements(&matrix->type.shape) >= LARGE;
}

static Node *decode_dot(Decode *d, const Node *old, Factors *out) {
  int rank = old->type.shape.rank, leading = rank - 2;
  bool turned[2] = {node_int(old, ATTR_TRANS_A, 0), node_int(old, ATTR_TRANS_B, 0)};
  Factors operand[2];
  for (int k = 0; k < 2; k++) {
    const Node *input = old->input[k];
    operand[k] =
        d->depends[input->id] ? d->part[input->id].factors : factors_plain(&input->type.shape);
  }
  int first = d->depends[old->input[0]->id] ? 0 : 1;
  *out = factors_plain(&old->type.shape);
  for (int i = 0; i < leading; i++) {
    out->dim[i] = operand[first].dim[i];
    if (!d->depends[old->input[1 - first]->id]) operand[1 - first].dim[i] = out->dim[i];
  }
  Node *inputs[2];
  for (int k = 0; k < 2; k++) {
    int along = leading + (k == 0 ? turned[0] : !turned[1]), summed = 2 * leading + 1 - along;
    if (!factors_is_plain_dim(&operand[k], summed))
      return decode_refuse(d, old, "sums over positions or samples");
    out->dim[leading + k] = operand[k].dim[along];
    for (int i = 0; i < leading; i++)
      if (!factors_equal_dim(&operand[k], i, out, i))
        return decode_refuse(d, old, "mixes positions or samples");
    if (!(inputs[k] = decode_input(d, old, k, &operand[k]))) return NULL;
  }
  if (!factors_is_plain_dim(out, rank - 2) && !factors_is_plain_dim(out, rank - 1))
    return decode_refuse(d, old, "compares positions: use attention(..., causal=true)");
  Shape shape = factors_shape(out, d->texts, d->width);
  if (d->sums_products && !node_str(old, ATTR_PRECISION) && !d->is_rounded[old->input[1]->id] &&
      shape_elements(&shape) == shape.dim[rank - 1] && !turned[0] && !is_turned_in_memory(inputs[1], turned[1]))
    return product_of_row(d, old, inputs, turned[1]);
  return decode_node(d, old, inputs, shape);
}

/* ── attention ──────────────────────────────────────────────────────────────────────────────── */
/* Key j is seen by the new positions from j on. */
static Node *visible(Decode *d) {
  if (d->visible) return d->visible;
  Shape plane = shape_of(4, (int64_t[]){1, 1, d->width, d->window});
  Node *row = make_reshape(d->graph, d->index, shape_of(4, (int64_t[]){1, 1, d->width, 1}));
  Node *key = make_iota(d->graph, DT_I64, plane, 3);
  return d->visible = make_binary(d->graph, OP_LE, key, row);
}

/* The type to which attention will round its operands: the cache has it. */
static DType type_remembered(const Decode *d, const Node *old, DType whole) {
  const char *precision = node_str(old, ATTR_PRECISION);
  if (!precision) precision = d->precision;
  bool is_wide_range = !strcmp(precision, "bf16") || !strcmp(precision, "fp8");
  return is_wide_range ? DT_BF16 : !strcmp(precision, "fp16") ? DT_F16 : whole;
}

/* Puts keys or values, [N,G,width,D], behind the earlier ones, in a state [N,G,T,D]. The positions
 * behind them in the state are stale or were never written, and no position sees them. */
static Node *put_in_cache(Decode *d, const Node *old, Node *fresh, const char *what) {
  Graph *g = d->graph;
  DType whole = fresh->type.dtype;
  fresh = make_cast(g, fresh, type_remembered(d, old, whole));
  Type type = fresh->type;
  type.shape.dim[2] = d->window;
  const char *name = arena_printf(d->arena, OWN_DECODE "%d.%s", d->attentions, what);
  Node *state = make_state(g, ROLE_CACHE, name, type, 0);
  Attr axis = attr_int(ATTR_AXIS, 2);
  Node *inputs[] = {state, fresh, d->position};
  Node *value = graph_node(g, OP_PUT, inputs, 3, &axis, 1, NULL);
  make_assign(g, name, value);
  return make_cast(g, value, whole);
}

/* The mask that was given, at the new positions, and the order of positions. */
static Node *mask_for(Decode *d, const Node *old) {
  Node *order = visible(d);
  if (old->input_count == 3) return order;
  const Node *given = old->input[3];
  if (d->depends[given->id]) return decode_refuse(d, old, "has a mask made of the tokens");
  Factors want = factors_plain(&given->type.shape);
  if (given->type.shape.dim[0] > 1) factors_set(&want, 0, FACTOR_BATCH, given->type.shape.dim[0]);
  if (given->type.shape.dim[2] > 1) factors_set(&want, 2, FACTOR_PLACE, d->window);
  Node *mask = decode_at(d, given, &want);
  if (!mask) return NULL;
  if (mask->type.dtype == DT_BOOL) return make_binary(d->graph, OP_AND, mask, order);
  return make_select(d->graph, order, mask, decode_number(d, mask->type.dtype, -INFINITY));
}

static Node *decode_attention(Decode *d, const Node *old, Factors *out) {
  Node *inputs[4];
  if (!node_int(old, ATTR_CAUSAL, 0))
    return decode_refuse(d, old, "looks at later positions (no causal=true)");
  for (int k = 0; k < 3; k++) {
    const Node *input = old->input[k];
    const Factors *f = &d->part[input->id].factors;
    if (!d->depends[input->id] || !factors_is(f, 2, FACTOR_PLACE) || !factors_is_plain_dim(f, 1) ||
        !factors_is_plain_dim(f, 3) || factors_has(f, 0, FACTOR_PLACE))
      return decode_refuse(d, old, "has its positions elsewhere than in dimension 2");
    inputs[k] = d->part[input->id].node;
  }
  if (inputs[0]->type.shape.dim[0] != d->texts)
    return decode_refuse(d, old, "has more in its dimension 0 than the samples");
  *out = d->part[old->input[0]->id].factors;
  factors_set(out, 3, FACTOR_PLAIN, old->type.shape.dim[3]);
  if (!(inputs[3] = mask_for(d, old))) return NULL;
  inputs[1] = put_in_cache(d, old, inputs[1], "key");
  inputs[2] = put_in_cache(d, old, inputs[2], "value");
  d->attentions++;
  Attr attrs[3] = {attr_float(ATTR_SCALE, node_float(old, ATTR_SCALE, 1))};
  const char *precision = node_str(old, ATTR_PRECISION);
  int count = 1;
  if (node_attr(old, ATTR_SOFTCAP))
    attrs[count++] = attr_float(ATTR_SOFTCAP, node_float(old, ATTR_SOFTCAP, 0));
  if (precision) attrs[count++] = attr_str(ATTR_PRECISION, precision);
  return graph_node(d->graph, OP_ATTENTION, inputs, 4, attrs, count, NULL);
}

static Node *result(Decode *d, const Node *old, Factors *out) {
  *out = d->part[old->input[0]->id].factors;
  int index = (int)node_int(old, ATTR_INDEX, 0);
  if (index) factors_set(out, 3, FACTOR_PLAIN, 1);
  return make_result(d->graph, d->part[old->input[0]->id].node, index);
}

static Node *convert(Decode *d, const Node *old, Factors *out) {
  switch (old->op) {
  case OP_RESHAPE:
  case OP_TRANSPOSE:
  case OP_BROADCAST:
  case OP_SLICE:
  case OP_PAD:
    return move(d, old, out);
  case OP_CONCAT:
    return alike(d, old, (int)node_int(old, ATTR_AXIS, 0), out);
  case OP_GATHER:
    return decode_gather(d, old, out);
  case OP_DOT:
    return decode_dot(d, old, out);
  case OP_ATTENTION:
    return decode_attention(d, old, out);
  case OP_RESULT:
    return result(d, old, out);
  default:
    if (op_info[old->op].op_class == CLASS_REDUCE) return decode_reduce(d, old, out);
    if (op_info[old->op].op_class == CLASS_POINTWISE || old->op == OP_STOP_GRADIENT)
      return alike(d, old, -1, out);
    return decode_refuse(d, old, "has no form for one position at a time");
  }
}

/* ── the graph ──────────────────────────────────────────────────────────────────────────────── */
static const Node *find_scores(const Graph *graph, const Node *tokens) {
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    const Type *type = &root->node->type;
    if (root->kind == ROOT_OUTPUT && type->dtype == DT_F32 && type->shape.rank == 3 &&
        type->shape.dim[0] == tokens->type.shape.dim[0] &&
        type->shape.dim[1] == tokens->type.shape.dim[1])
      return root->node;
  }
  return NULL;
}

static bool *needed_for(const Graph *graph, RootKind kind, const Node *root, Arena *arena) {
  bool *needed = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->roots.count; i++)
    if (root ? graph->roots.at[i].node == root : graph->roots.at[i].kind == kind)
      needed[graph->roots.at[i].node->id] = true;
  graph_mark_inputs(graph, needed);
  return needed;
}

/* The one input that the outputs need, if it is tokens [B,T]. */
static const Node *find_tokens(const Graph *graph, Arena *arena) {
  bool *needed = needed_for(graph, ROOT_OUTPUT, NULL, arena);
  const Node *tokens = NULL;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op != OP_INPUT || !needed[i]) continue;
    if (tokens) return NULL;
    tokens = node;
  }
  bool fits = tokens && tokens->type.shape.rank == 2 && tokens->type.shape.dim[0] > 0 &&
              tokens->type.shape.dim[1] > 1 &&
              (tokens->type.dtype == DT_I32 || tokens->type.dtype == DT_I64);
  return fits ? tokens : NULL;
}

/* [N,width]: those at the start of the input. */
static Node *new_tokens(Decode *d, Node *input) {
  int64_t all = shape_elements(&input->type.shape), count = d->texts * d->width, start = 0;
  Node *line = make_reshape(d->graph, input, shape_of(1, &all));
  Node *first = make_slice(d->graph, line, &start, shape_of(1, &count));
  return make_reshape(d->graph, first, shape_of(2, (int64_t[]){d->texts, d->width}));
}

/* Every leaf that memplan and the optimizer count; the tokens' part; the position. */
static void add_leaves(Decode *d, const Node *tokens) {
  for (int i = 0; i < d->old->nodes.count; i++) {
    const Node *old = d->old->nodes.at[i];
    if (old->op != OP_INPUT && old->op != OP_PARAM && old->op != OP_STATE) continue;
    Node *fresh = old->op == OP_INPUT ? graph_copy_node(d->graph, old, NULL) : decode_whole(d, old);
    if (old != tokens) continue;
    d->graph->origin = old->origin;
    d->depends[i] = true;
    d->part[i].node = new_tokens(d, fresh);
    d->part[i].factors = factors_plain(&old->type.shape);
    factors_set(&d->part[i].factors, 0, FACTOR_BATCH, old->type.shape.dim[0]);
    factors_set(&d->part[i].factors, 1, FACTOR_PLACE, old->type.shape.dim[1]);
  }
  d->graph->origin = tokens->origin;
  Type scalar = {DT_I64, shape_scalar()};
  d->position = make_state(d->graph, ROLE_POSITION, OWN_DECODE "position", scalar, 0);
  Node *count = make_iota(d->graph, DT_I64, shape_of(1, &d->width), 0);
  d->index = make_binary(d->graph, OP_ADD, count, d->position);
}

static void decode_advance(Decode *d) {
  Node *next =
      make_binary(d->graph, OP_ADD, d->position, decode_number(d, DT_I64, (double)d->width));
  make_assign(d->graph, node_str(d->position, ATTR_NAME), next);
}

static void write_graph(Decode *d, const Node *scores) {
  bool *needed = needed_for(d->old, ROOT_OUTPUT, scores, d->arena);
  for (int i = 0; i < d->old->nodes.count && !d->why; i++) {
    const Node *old = d->old->nodes.at[i];
    if (!needed[i] || old->op == OP_INPUT) continue;
    if (!shape_elements(&old->type.shape)) decode_refuse(d, old, "is empty");
    for (int k = 0; k < old->input_count; k++) d->depends[i] |= d->depends[old->input[k]->id];
    d->graph->origin = old->origin;
    if (d->depends[i] && !d->why) d->part[i].node = convert(d, old, &d->part[i].factors);
  }
}

/* What pass integers may take for rounded. */
static bool *find_rounded(const Graph *old, Arena *arena) {
  bool *is_rounded = ARENA_ARRAY(arena, bool, old->nodes.count);
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *node = old->nodes.at[i];
    OpClass class = op_info[node->op].op_class;
    is_rounded[i] = node->op == OP_ROUND;
    for (int k = 0; k < node->input_count && (class == CLASS_POINTWISE || class == CLASS_MOVE); k++)
      is_rounded[i] |= is_rounded[node->input[k]->id];
  }
  return is_rounded;
}

static bool is_one_position(const Decode *d, const Node *scores) {
  const Factors *f = &d->part[scores->id].factors;
  return d->depends[scores->id] && factors_is(f, 1, FACTOR_PLACE) && factors_is_plain_dim(f, 2) &&
         !factors_has(f, 0, FACTOR_PLACE) &&
         d->part[scores->id].node->type.shape.dim[0] == d->texts;
}

/* Why so many texts cannot be generated at once; NULL: they can. */
static const char *too_many(const Decode *d, const Node *tokens) {
  const Shape *shape = &tokens->type.shape;
  if (d->texts > 1 && shape->dim[0] == 1)
    return "generate.batch is more than 1, and with train.batch = 1 the model has no batch";
  return d->texts * d->width > shape_elements(shape)
             ? "generate.batch is more than the tokens of a batch"
             : NULL;
}

Graph *pass_decode(PassContext *context, Graph *old) {
  bool is_prefill = context->of == PASS_OF_PREFILL;
  Arena *arena = context->scratch;
  const Node *tokens = find_tokens(old, arena);
  const Node *scores = tokens ? find_scores(old, tokens) : NULL;
  if (context->settings &&
      (setting_parts(context->settings) > 1 || setting_group(context->settings) > 1)) {
    context->refused = "ranks have parts of the parameters (distributed.zero, distributed.tensor, "
                       "distributed.pipeline)";
    return NULL;
  }
  if (!scores) {
    context->refused = "it is for models of tokens i32[B,T] with an output of scores f32[B,T,V]";
    return NULL;
  }
  int count = old->nodes.count;
  const char *precision =
      context->settings ? setting_text(context->settings, "train.precision") : "f32";
  double texts = context->settings ? setting_number(context->settings, "generate.batch") : 1;
  /* narrow products are rounded as products only */
  bool is_wide = !strcmp(precision, "f32") || !strcmp(precision, "tf32");
  Decode d = {.old = old,
              .graph = graph_new(old->arena, old->name),
              .arena = arena,
              .window = tokens->type.shape.dim[1],
              .width = is_prefill ? PREFILL_WIDTH : 1,
              .texts = texts > 1 ? (int64_t)texts : 1,
              .sums_products = !is_prefill && is_wide,
              .precision = precision,
              .depends = ARENA_ARRAY(arena, bool, count),
              .is_rounded = find_rounded(old, arena),
              .part = ARENA_ARRAY(arena, Part, count)};
  d.values = (Forms){old, d.graph, decode_make, &d, {.arena = arena}};
  if (is_prefill && (context->for_gpu || d.window < 2 * PREFILL_WIDTH)) {
    context->refused = "a prompt is read token by token";
    return NULL;
  }
  d.why = too_many(&d, tokens);
  if (!d.why) add_leaves(&d, tokens);
  if (!d.why) write_graph(&d, scores);
  if (!d.why && !is_one_position(&d, scores)) d.why = "the scores do not belong to positions";
  if (!d.why && is_prefill && !d.attentions) d.why = "no attention has keys and values to keep";
  if (d.why) {
    context->refused = arena_strdup(context->arena, d.why);
    return NULL;
  }
  d.graph->origin = tokens->origin;
  decode_advance(&d);
  if (!is_prefill) {
    for (int i = 0; i < old->roots.count; i++)
      if (old->roots.at[i].node == scores && old->roots.at[i].kind == ROOT_OUTPUT)
        graph_add_root(d.graph, ROOT_OUTPUT, old->roots.at[i].name, d.part[scores->id].node);
  }
  return d.graph;
}
