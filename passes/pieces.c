/* pieces: where ranks share each layer's work (distributed.tensor), what a layer joins or gathers is waited
 * for, because the next product reads it. So the batch is made in pieces of its samples: each has
 * products, collectives and backward of its own, and those of one piece go on beside the products of
 * the others (the order is pass schedule's; Wang et al., Domino, 2024, overlap halves of a batch so).
 * As samples meet in no product of forward, nothing is put together but where something needs all
 * of them, such as a mean of the loss; and as the cut is along the batch, pieces of inputs lie behind
 * one another. What it costs is a sum of the pieces' gradients for each weight, and more, smaller kernels.
 *
 * From the inputs a piece reaches forward as far as each node can be made of pieces. The algebra
 * of cuts is that of tensor_cut.h, with pieces in the place of ranks, in one run each. */
#include "passes/forms.h"
#include "passes/samples.h"
#include "passes/step_time.h"
#include "passes/tensor_cut.h"

/* Of the values' forms; piece k is FIRST_PIECE + k. */
enum { ALL_OF_IT, FIRST_PIECE };

typedef struct {
  TensorCuts cuts; /* ranks: pieces */
  Graph *fresh;
  Forms forms;
} Pieces;

/* ── which nodes ────────────────────────────────────────────────────────────────────────────── */
static bool is_run_of_samples(const Pieces *p, const Shape *shape, Cut cut) {
  return tensor_is_legal(shape, cut, p->cuts.ranks) &&
         shape->dim[cut.dim] == cut.run * p->cuts.ranks;
}

static bool is_in_pieces(const Pieces *p, const Node *node) {
  return p->cuts.cut[node->id].run && !p->cuts.is_taken[node->id];
}

/* The cut of a node that has this one in operand k; run 0: none. */
static Cut cut_behind(const Pieces *p, const Node *node, int k, Cut cut) {
  const Shape *shape = &node->type.shape;
  if (node->op == OP_RESHAPE)
    return tensor_reshaped(&node->input[0]->type.shape, cut, shape, p->cuts.ranks);
  for (int i = 0; i < shape->rank; i++) {
    Cut found = {i, cut.run}, operand;
    if (is_run_of_samples(p, shape, found) && tensor_operand(&p->cuts, node, found, k, &operand) &&
        tensor_cut_equal(operand, cut))
      return found;
  }
  return (Cut){0};
}

static bool can_read_piece(const Pieces *p, const Node *operand, Cut cut) {
  if (!cut.run) return !is_in_pieces(p, operand);
  if (operand->op == OP_CONST) return true;
  if (p->cuts.cut[operand->id].run) return tensor_cut_equal(p->cuts.cut[operand->id], cut);
  return is_run_of_samples(p, &operand->type.shape, cut) && !node_has_results(operand);
}

static bool can_make_pieces(const Pieces *p, const Node *node, Cut cut) {
  bool fine = is_run_of_samples(p, &node->type.shape, cut);
  for (int k = 0; k < node->input_count && fine; k++) {
    Cut operand;
    fine = tensor_operand(&p->cuts, node, cut, k, &operand) &&
           can_read_piece(p, node->input[k], operand);
  }
  return fine;
}

/* Is it made for each piece by itself, of what is no piece? What is the same for all samples; a random
 * number, which depends on its place: that of the first one, and where it stands. */
static bool is_made_for_each(const Pieces *p, const Node *node, Cut cut) {
  int64_t outer = 1;
  for (int i = 0; i < cut.dim; i++) outer *= node->type.shape.dim[i];
  if (node->op == OP_RANDOM) return outer == 1;
  if (op_info[node->op].op_class == CLASS_POINTWISE) { /* a mask of random numbers */
    bool is_mask = outer == 1;
    for (int k = 0; k < node->input_count; k++)
      is_mask &= node->input[k]->op == OP_RANDOM || node->input[k]->op == OP_CONST;
    return is_mask;
  }
  return node->op == OP_BROADCAST && node->input[0]->type.shape.dim[cut.dim] == 1 &&
         !is_in_pieces(p, node->input[0]);
}

static void cut_node(Pieces *p, const Node *node, Cut cut) {
  p->cuts.cut[node->id] = cut;
  for (int k = 0; k < node->input_count; k++) {
    const Node *x = node->input[k];
    Cut operand;
    tensor_operand(&p->cuts, node, cut, k, &operand);
    if (!operand.run || p->cuts.cut[x->id].run || x->op == OP_CONST) continue;
    p->cuts.cut[x->id] = operand;
    p->cuts.is_taken[x->id] = !is_made_for_each(p, x, operand);
    if (!p->cuts.is_taken[x->id] && x->op != OP_RANDOM) cut_node(p, x, operand);
  }
}

static void cut_samples(Pieces *p) {
  const Graph *graph = p->cuts.graph;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    const Shape *shape = &node->type.shape;
    if (node->op == OP_INPUT && shape->rank) {
      Cut cut = {0, shape->dim[0] / p->cuts.ranks};
      p->cuts.is_taken[i] = is_run_of_samples(p, shape, cut);
      if (p->cuts.is_taken[i]) p->cuts.cut[i] = cut;
    }
    for (int k = 0; k < node->input_count && !p->cuts.cut[i].run; k++) {
      const Node *x = node->input[k];
      if (!is_in_pieces(p, x) && !(x->op == OP_INPUT && p->cuts.is_taken[x->id])) continue;
      Cut cut = cut_behind(p, node, k, p->cuts.cut[x->id]);
      if (cut.run && can_make_pieces(p, node, cut)) cut_node(p, node, cut);
    }
  }
}

static Pieces cut_in_pieces(const Graph *graph, int64_t count, Arena *arena) {
  Pieces p = {.cuts = {.graph = graph,
                       .arena = arena,
                       .ranks = count,
                       .cut = ARENA_ARRAY(arena, Cut, graph->nodes.count),
                       .is_taken = ARENA_ARRAY(arena, bool, graph->nodes.count)}};
  cut_samples(&p);
  return p;
}

/* ── the new graph ──────────────────────────────────────────────────────────────────────────── */
static Type type_of_piece(const Pieces *p, const Node *node, Cut cut) {
  return (Type){node->type.dtype, tensor_local(&node->type.shape, cut, p->cuts.ranks)};
}

static Node *piece_taken(Pieces *p, const Node *node, int piece) {
  Cut cut = p->cuts.cut[node->id];
  int64_t start[MAX_RANK] = {0};
  start[cut.dim] = piece * cut.run;
  return make_slice(p->fresh, forms_get(&p->forms, node, ALL_OF_IT), start,
                    type_of_piece(p, node, cut).shape);
}

static Node *piece_drawn(Pieces *p, const Node *random, int piece) {
  Type type = type_of_piece(p, random, p->cuts.cut[random->id]);
  Node *inputs[3] = {
      forms_get(&p->forms, random->input[0], ALL_OF_IT),
      forms_get(&p->forms, random->input[1], ALL_OF_IT),
      make_const(p->fresh, DT_I64, shape_scalar(), (double)(piece * shape_elements(&type.shape)))};
  if (random->input_count > 2)
    inputs[2] =
        make_binary(p->fresh, OP_ADD, inputs[2], forms_get(&p->forms, random->input[2], ALL_OF_IT));
  return graph_node(p->fresh, OP_RANDOM, inputs, 3, random->attr, random->attr_count, &type);
}

static Node *piece_made(Pieces *p, const Node *node, int piece) {
  Cut cut = p->cuts.cut[node->id];
  Type type = type_of_piece(p, node, cut);
  Node **inputs = ARENA_ARRAY(p->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    const Node *x = node->input[k];
    Cut operand;
    tensor_operand(&p->cuts, node, cut, k, &operand);
    if (operand.run && x->op == OP_CONST) {
      Type of_const = type_of_piece(p, x, operand);
      inputs[k] = graph_copy_as(p->fresh, x, NULL, &of_const);
    } else {
      inputs[k] = forms_get(&p->forms, x, operand.run ? FIRST_PIECE + piece : ALL_OF_IT);
    }
  }
  return graph_copy_as(p->fresh, node, inputs, &type);
}

static Node *all_pieces(Pieces *p, const Node *node) {
  int count = (int)p->cuts.ranks;
  Node **pieces = ARENA_ARRAY(p->fresh->arena, Node *, count);
  for (int k = 0; k < count; k++) pieces[k] = forms_get(&p->forms, node, FIRST_PIECE + k);
  Attr axis = attr_int(ATTR_AXIS, p->cuts.cut[node->id].dim);
  return graph_node(p->fresh, OP_CONCAT, pieces, count, &axis, 1, NULL);
}

static Node *pieces_copied(Pieces *p, const Node *node) {
  Node **inputs = ARENA_ARRAY(p->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++)
    inputs[k] = forms_get(&p->forms, node->input[k], ALL_OF_IT);
  return graph_copy_node(p->fresh, node, inputs);
}

static Node *pieces_make(void *pass, const Node *node, int form) {
  Pieces *p = pass;
  int piece = form - FIRST_PIECE;
  bool is_put_together = is_in_pieces(p, node) && !node_has_results(node) &&
                         !is_made_for_each(p, node, p->cuts.cut[node->id]);
  p->fresh->origin = node->origin;
  if (form == ALL_OF_IT) return is_put_together ? all_pieces(p, node) : pieces_copied(p, node);
  Node *made = p->cuts.is_taken[node->id] ? piece_taken(p, node, piece)
               : node->op == OP_RANDOM    ? piece_drawn(p, node, piece)
                                          : piece_made(p, node, piece);
  made->origin.piece = form;
  return made;
}

/* ── what it gains ──────────────────────────────────────────────────────────────────────────── */
/* Of forward, by pieces. */
typedef struct {
  double kernels;      /* seconds of what hides the others: products, and what lies between them */
  double joins;        /* of collectives, which are waited for, */
  double joins_split;  /* and each in pieces */
  double weights;      /* to add the pieces' gradients of weights */
  double moves;        /* to put rows in the order in which they are joined and gathered, once */
  int count, launches; /* of collectives; of kernels that each piece has, backward too */
} PiecesCost;

/* A join of f32, or its reduce_scatter and, before the next product, an all_gather of what that reads. */
static double join_seconds(const StepTimes *times, bool is_in_rows, int64_t elements) {
  const Fabric *fabric = &times->fabric[MESH_TENSOR];
  if (!is_in_rows) return comm_cost(fabric, COST_ALL_REDUCE, 4 * elements).seconds;
  return comm_cost(fabric, COST_REDUCE_SCATTER, 4 * elements).seconds +
         comm_cost(fabric, COST_ALL_GATHER, times->narrow * elements).seconds;
}

/* A product that ranks share reads or makes a share of its rows' features, and has one of a weight. */
static void add_in_pieces(PiecesCost *cost, const StepTimes *times, const Node *node, double share,
                          double pieces) {
  enum { OF_A_PRODUCT = 6 }; /* forward, two of backward, and what is fused in as many others */
  double work = (double)step_flops(node) * share / times->products, moves = 0;
  cost->launches += OF_A_PRODUCT;
  if (node->op == OP_DOT) {
    DotForm f = dot_form(node);
    double rows = (double)f.batch * (double)f.m * (double)(f.k + f.n) * (1 + share) / 2;
    double weight = (double)f.batch * (double)f.k * (double)f.n * share;
    moves = (rows + pieces * weight) * times->narrow / times->bytes;
    /* one is written, and read by the next */
    if (f.batch == 1) cost->weights += weight * 2 * 4 / times->bytes;
  }
  cost->kernels += (work > moves ? work : moves) + pieces * STEP_LAUNCH;
}

static PiecesCost cost_of_pieces(const Pieces *p, const TensorCuts *tensor,
                                 const StepTimes *times) {
  enum { TOUCHED = 6 }; /* how often what lies between products reads or writes f32 rows */
  PiecesCost cost = {0};
  double pieces = (double)p->cuts.ranks, ranks = (double)tensor->ranks;
  for (int i = 0; i < p->cuts.graph->nodes.count; i++) {
    const Node *node = p->cuts.graph->nodes.at[i];
    bool is_shared = tensor->cut[i].run || tensor->is_joined[i];
    if (!is_in_pieces(p, node)) continue;
    if (op_info[node->op].op_class == CLASS_CONTRACT)
      add_in_pieces(&cost, times, node, is_shared ? 1 / ranks : 1, pieces);
    if (!tensor->is_joined[i]) continue;
    bool is_in_rows = tensor->cut[i].run && !tensor->is_taken[i];
    int64_t elements = shape_elements(&node->type.shape);
    double between = (double)elements * 4 / times->bytes;
    cost.kernels += TOUCHED * between / (is_in_rows ? ranks : 1) + pieces * STEP_LAUNCH;
    if (is_in_rows) cost.moves += (double)(elements * (4 + times->narrow)) / times->bytes;
    cost.joins += join_seconds(times, is_in_rows, elements);
    cost.joins_split += pieces * join_seconds(times, is_in_rows, elements / p->cuts.ranks);
    cost.count++;
  }
  return cost;
}

/* Do a rank's rows of so many samples lie in several places? They are samples, or where the ranks do not
 * divide these, positions of each. */
static bool is_spread(int64_t samples, int64_t ranks) { return samples > 1 && samples % ranks; }

/* Seconds of a step that so many pieces save. What is not hidden is what takes longer than the
 * kernels, and at each end of forward a piece's collective. Backward's go on beside the products of
 * weights' gradients, whether in pieces or not. */
static double gain_of_pieces(const Pieces *p, const TensorCuts *tensor, const StepTimes *times,
                             int64_t batch) {
  enum { MOVES = 4 }; /* a join's and a gather's, forward and backward */
  PiecesCost cost = cost_of_pieces(p, tensor, times);
  double more = (double)(p->cuts.ranks - 1);
  double moves =
      (is_spread(batch / p->cuts.ranks, tensor->ranks) - is_spread(batch, tensor->ranks)) * MOVES *
      cost.moves;
  if (!cost.count) return 0;
  double ends = 2 * cost.joins_split / cost.count / (double)p->cuts.ranks;
  double rest = cost.joins_split > cost.kernels ? cost.joins_split - cost.kernels : 0;
  return cost.joins - rest - ends - moves - more * (cost.weights + cost.launches * STEP_LAUNCH);
}

/* On CPUs what sends takes the time of what computes. */
static int64_t best_count(const PassContext *context, const Graph *graph, int64_t batch) {
  enum { MOST_TRIED = 8 };
  if (!context->for_gpu || setting_pipeline(context->settings) > 1) return 1;
  StepTimes times = step_times(context);
  TensorCuts tensor =
      tensor_choose(graph, graph, setting_tensor(context->settings), context->scratch);
  int64_t best = 1;
  double most = 0;
  for (int64_t count = 2; count <= MOST_TRIED; count++) {
    if (batch % count) continue;
    Pieces p = cut_in_pieces(graph, count, context->scratch);
    double gain = gain_of_pieces(&p, &tensor, &times, batch);
    if (gain <= most) continue;
    most = gain;
    best = count;
  }
  return best;
}

/* How many there are; 0: an error. */
static int64_t count_of_pieces(const PassContext *context, const Graph *graph) {
  const SettingValue *settings = context->settings;
  int64_t said = settings ? (int64_t)setting_number(settings, "distributed.pieces") : 1;
  int64_t inputs = samples_of_inputs(graph), batch = inputs ? inputs : 1;
  bool is_shared = settings && setting_tensor(settings) > 1, says = context->of == PASS_OF_TRAIN;
  if (said > 1 && !is_shared && says)
    diag_warning(context->diag, (Loc){0},
                 "distributed.pieces = %lld is for ranks that share each layer's work; say "
                 "distributed.tensor, or leave it out",
                 (long long)said);
  if (said == 1 || !is_shared) return 1;
  if (!said) return best_count(context, graph, batch);
  if (setting_pipeline(settings) > 1)
    diag_error(context->diag, (Loc){0},
               "distributed.pieces = %lld does not go with distributed.pipeline, whose "
               "micro-batches are pieces already (train.accumulate)",
               (long long)said);
  else if (batch % said)
    diag_error(context->diag, (Loc){0},
               "distributed.pieces = %lld: the batch of %lld samples is no multiple of that",
               (long long)said, (long long)batch);
  else
    return said;
  return 0;
}

Graph *pass_pieces(PassContext *context, Graph *graph) {
  int64_t count = count_of_pieces(context, graph);
  if (count <= 1) return count ? graph : NULL;
  Pieces p = cut_in_pieces(graph, count, context->scratch);
  p.fresh = graph_new(graph->arena, graph->name);
  p.forms = (Forms){.old = graph, .fresh = p.fresh, .make = pieces_make, .pass = &p};
  p.forms.made.arena = context->scratch;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op == OP_CONST || node->op == OP_IOTA || node->op == OP_RANDOM) continue;
    if (!is_in_pieces(&p, node)) forms_get(&p.forms, node, ALL_OF_IT);
    for (int k = 0; is_in_pieces(&p, node) && k < count; k++)
      forms_get(&p.forms, node, FIRST_PIECE + k);
  }
  return forms_end(&p.forms, ALL_OF_IT);
}
