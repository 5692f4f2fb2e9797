/* library_pairs: two kernels, one call, or three and two: see library.h. The kernels stay as they
 * are, so that they may be run as well; such an `instead` stands before those of its parts.
 * Invariant: steps change places only where neither writes what the other reads or writes. */
#include "codegen/library.h"
#include "codegen/recognise.h"
#include "passes/fuse.h"
#include "plan/plan_calls.h"
#include "ir/match.h"
#include "plan/plan_order.h"
#include <string.h>

typedef struct {
  Lowering *lowering;
  Arena *arena; /* the plan's */
  const Graph *graph;
  PlanGraph *out;
  NodeSteps *steps;
  int count;
  bool *is_paired; /* by place in `steps` */
} Pairing;

/* ── finding things ───────────────────────────────────────────────────────────────────────── */
static const Node *without_views(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_STOP_GRADIENT) node = node->input[0];
  return node;
}

/* The node that computes a value: of a result, the node whose result it is. */
static const Node *maker_of(const Node *node) {
  node = without_views(node);
  return node->op == OP_RESULT ? node->input[0] : node;
}

static int find_steps(const Pairing *p, const Node *node) {
  for (int i = 0; i < p->count; i++)
    if (p->steps[i].node == node) return i;
  return -1;
}

/* The call that may do just these steps. */
static PlanStep *find_call(const Pairing *p, const NodeSteps *steps) {
  for (int i = 0; i < p->out->insteads.count; i++) {
    PlanInstead *instead = &p->out->insteads.at[i];
    if (instead->first == steps->first && instead->end == steps->end) return &instead->call[0];
  }
  return NULL;
}

static const PlanBuffer *buffer_at(const Pairing *p, int index) {
  return &p->out->buffers.at[index];
}

/* The same memory, whatever shape it is seen in. */
static bool is_same_place(const Pairing *p, int one, int other) {
  const PlanBuffer *a = buffer_at(p, one), *b = buffer_at(p, other);
  return a->place == b->place && a->offset == b->offset && a->type.dtype == b->type.dtype &&
         type_bytes(&a->type) == type_bytes(&b->type);
}

/* The one node that computes from what `maker` makes; NULL if there are several, or it is a root.
 */
static const Node *only_reader(const Graph *graph, const Node *maker) {
  const Node *reader = NULL;
  for (int i = 0; i < graph->roots.count; i++)
    if (maker_of(graph->roots.at[i].node) == maker) return NULL;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op == OP_RESHAPE || node->op == OP_STOP_GRADIENT || node->op == OP_RESULT) continue;
    for (int k = 0; k < node->input_count; k++)
      if (maker_of(node->input[k]) == maker) {
        if (reader && reader != node) return NULL;
        reader = node;
      }
  }
  return reader;
}

static int64_t call_value(const PlanStep *call, const char *key) { return call_int(call, key); }

static void set_value(PlanStep *call, const char *key, int64_t value) {
  for (int i = 0; i < call->int_count; i++)
    if (!strcmp(call->ints[i].key, key)) ((PlanInt *)call->ints)[i].value = value;
}

/* A copy whose attributes and arguments may be changed. */
static PlanStep copy_call(const Pairing *p, const PlanStep *call) {
  PlanStep copy = *call;
  PlanInt *ints = ARENA_ARRAY(p->arena, PlanInt, call->int_count);
  memcpy(ints, call->ints, sizeof *ints * (size_t)call->int_count);
  copy.ints = ints;
  return copy;
}

/* Nothing behind the product, nothing added. */
static bool is_bare(const PlanStep *call) {
  return call_value(call, "batch") == 1 && !call_value(call, "bias") && !call_value(call, "act") &&
         !call_value(call, "aux") && !call_value(call, "sums") && !call_value(call, "accumulate");
}

/* ── order ────────────────────────────────────────────────────────────────────────────────── */
/* All kernels share one workspace, and nothing in it is live from one kernel to the next. */
static bool is_workspace(const Pairing *p, int buffer) {
  return p->lowering->out->buffers.at[buffer].place == PLACE_WORKSPACE;
}

static bool steps_conflict(const Pairing *p, const PlanStep *a, const PlanStep *b) {
  for (int i = 0; i < a->arg_count; i++)
    for (int j = 0; j < b->arg_count; j++)
      if ((i >= a->input_count || j >= b->input_count) && !is_workspace(p, a->args[i]) &&
          plan_buffers_overlap(buffer_at(p, a->args[i]), buffer_at(p, b->args[j])))
        return true;
  return false;
}

/* May all parts, in their order, be moved down to the last one, behind the steps between them? */
static bool can_sink(const Pairing *p, const int *part, int count) {
  const NodeSteps *last = &p->steps[part[count - 1]];
  for (int i = 0; i + 1 < count; i++) {
    const NodeSteps *early = &p->steps[part[i]];
    if (early->first > p->steps[part[i + 1]].first) return false;
    for (int step = early->end; step < last->first; step++) {
      bool is_part = false;
      for (int k = 0; k < count; k++)
        is_part |= step >= p->steps[part[k]].first && step < p->steps[part[k]].end;
      for (int k = early->first; k < early->end && !is_part; k++)
        if (steps_conflict(p, &p->out->steps.at[k], &p->out->steps.at[step])) return false;
    }
  }
  return true;
}

/* The new index of step `at`, once steps [first, end) have been moved to just before step `to`. */
static int moved_index(int at, int first, int end, int to) {
  if (at >= first && at < end) return at + to - end;
  return at >= end && at < to ? at - (end - first) : at;
}

static void sink(Pairing *p, const NodeSteps *early, const NodeSteps *late) {
  int first = early->first, end = early->end, to = late->first, length = end - first;
  if (end == to) return;
  PlanStep *steps = p->out->steps.at, *held = ARENA_ARRAY(p->arena, PlanStep, length);
  memcpy(held, steps + first, sizeof *held * (size_t)length);
  memmove(steps + first, steps + end, sizeof *steps * (size_t)(to - end));
  memcpy(steps + to - length, held, sizeof *held * (size_t)length);
  for (int i = 0; i < p->out->insteads.count; i++) {
    PlanInstead *instead = &p->out->insteads.at[i];
    int last = moved_index(instead->end - 1, first, end, to);
    instead->first = moved_index(instead->first, first, end, to);
    instead->end = last + 1;
  }
  for (int i = 0; i < p->count; i++) {
    int last = moved_index(p->steps[i].end - 1, first, end, to);
    p->steps[i].first = moved_index(p->steps[i].first, first, end, to);
    p->steps[i].end = last + 1;
  }
}

/* The call must not write what it still reads itself. The kernels that it replaces may, where one
 * of them writes only when another has read. */
static bool pair_is_sound(const Pairing *p, const PlanStep *call) {
  for (int i = call->input_count; i < call->arg_count; i++)
    for (int j = 0; j < call->arg_count; j++)
      if (i != j && plan_buffers_overlap(&p->out->buffers.at[call->args[i]],
                                         &p->out->buffers.at[call->args[j]]))
        return false;
  return true;
}

/* Calls in place of the launches of some nodes, in their order, which are brought together. */
typedef struct {
  int part[3], part_count; /* places in `steps` */
  PlanStep call[INSTEAD_CALLS];
  int call_count;
} Offer;

static bool can_offer(const Pairing *p, const Offer *offer) {
  for (int i = 0; i < offer->part_count; i++)
    if (p->is_paired[offer->part[i]]) return false;
  for (int i = 0; i < offer->call_count; i++)
    if (!pair_is_sound(p, &offer->call[i])) return false;
  return can_sink(p, offer->part, offer->part_count);
}

static bool add_offer(Pairing *p, const Offer *offer) {
  const char *why;
  if (!can_offer(p, offer)) return false;
  for (int i = 0; i < offer->call_count; i++)
    if (!call_check(p->arena, &offer->call[i], p->out->buffers.at, &why)) return false;
  for (int i = offer->part_count - 2; i >= 0; i--)
    sink(p, &p->steps[offer->part[i]], &p->steps[offer->part[i + 1]]);
  PlanInstead made = {.first = p->steps[offer->part[0]].first,
                      .end = p->steps[offer->part[offer->part_count - 1]].end,
                      .call_count = offer->call_count};
  memcpy(made.call, offer->call, sizeof made.call);
  VEC_PUSH(p->arena, p->out->insteads, made);
  for (int i = 0; i < offer->part_count; i++) p->is_paired[offer->part[i]] = true;
  return true;
}

/* ── a bias's gradient beside its weight's ────────────────────────────────────────────────── */
/* The weight's gradient is a product over all rows of what the sums are of: as its operand a,
 * stored the other way round, or as its operand b. */
static int library_pairs_sums_of(const Pairing *p, const PlanStep *call, int summed) {
  if (!is_bare(call)) return 0;
  if (call_value(call, "ta") && is_same_place(p, call->args[0], summed)) return 1;
  return !call_value(call, "tb") && is_same_place(p, call->args[1], summed) ? 2 : 0;
}

/* The call that also makes the sums of an operand. */
static PlanStep with_sums(const Pairing *p, const PlanStep *bare, int of, int sums) {
  PlanStep call = copy_call(p, bare);
  int *args = ARENA_ARRAY(p->arena, int, 4);
  memcpy(args, bare->args, sizeof *args * 3);
  args[3] = sums;
  call.args = args;
  call.arg_count = 4;
  set_value(&call, "sums", of);
  return call;
}

/* ── the gradient of an activation ────────────────────────────────────────────────────────── */
typedef struct {
  int product, value; /* arguments of the kernel: the product, and what the slope is taken at */
  int result, sums;   /* its results; sums -1: none */
  CallAct act;
} Gradient;

/* Is `node` a sum over all dimensions but the last, point by point of these values? */
static bool pair_is_column_sum(Recogniser *r, const Node *node, int64_t columns,
                               const double *values) {
  const Shape *out = &node->type.shape;
  if (!match_column_sum(node) || out->dim[out->rank - 1] != columns) return false;
  const double *summed = recognise_values(r, node->input[0]);
  return recognise_form(summed, FORM_SAME, values);
}

/* Which argument of `user` is the product, and which the other one; `product` may be a node of its
 * body, which reads its own operands besides. */
static bool find_gradient_operands(const Node *user, const Node *product, int64_t elements,
                                   Gradient *out) {
  bool is_inside = kernel_contraction(user) != NULL;
  if (user->input_count != (is_inside ? 3 : 2)) return false;
  for (int i = 0; i < user->input_count; i++) {
    if (is_inside && (i == kernel_operand(user, 0) || i == kernel_operand(user, 1))) continue;
    if (shape_elements(&user->input[i]->type.shape) != elements) return false;
    *(maker_of(user->input[i]) == product ? &out->product : &out->value) = i;
  }
  return is_inside ? out->value >= 0 : out->value >= 0 && out->product >= 0;
}

static bool recognise_gradient(const Node *user, const Node *product, int64_t m, int64_t n,
                               Gradient *out) {
  const Graph *body = user->body;
  *out = (Gradient){.product = -1, .value = -1, .result = -1, .sums = -1};
  if (body->roots.count > 2 || !find_gradient_operands(user, product, m * n, out)) return false;
  Arena *scratch = arena_new();
  Recogniser *r = recogniser_new(scratch, body, kernel_contraction(user));
  const double *x = recognise_variable(r, out->value), *g = recognise_variable(r, out->product);
  for (int i = 0; i < body->roots.count; i++)
    if (recognise_values(r, body->roots.at[i].node)) out->result = i;
  bool is_good = out->result >= 0;
  const double *values = is_good ? recognise_values(r, body->roots.at[out->result].node) : NULL;
  out->act = recognise_slope(values, FORM_GELU, x, g) ? ACT_GELU_GRADIENT : ACT_RELU_GRADIENT;
  if (out->act == ACT_RELU_GRADIENT) is_good = recognise_slope(values, FORM_RELU, x, g);
  if (body->roots.count == 2) out->sums = 1 - out->result;
  if (is_good && out->sums >= 0)
    is_good = pair_is_column_sum(r, body->roots.at[out->sums].node, n, values);
  arena_free(scratch);
  return is_good;
}

/* The bits that relu's call leaves for its gradient: asks the forward product for them. Only calls
 * know them: the runtime makes the gradient's call only where it makes that one. */
static int pair_find_mask(Pairing *p, const Node *value) {
  int at = find_steps(p, maker_of(value));
  PlanStep *call = at < 0 ? NULL : find_call(p, &p->steps[at]);
  if (!call || call_value(call, "act") != ACT_RELU || call_value(call, "batch") != 1) return -1;
  if (call_value(call, "aux")) return call->args[call->arg_count - 1];
  int64_t row = (call_value(call, "n") + 127) / 128 * 16, rows = call_value(call, "m");
  Type type = {DT_U8, shape_of(2, (int64_t[]){rows, row})};
  Address place = {PLACE_WORK, lower_extend(p->lowering, PLACE_WORK, type_bytes(&type))};
  int *args = ARENA_ARRAY(p->arena, int, call->arg_count + 1);
  memcpy(args, call->args, sizeof *args * (size_t)call->arg_count);
  *call = copy_call(p, call);
  args[call->arg_count++] = lower_buffer(p->lowering, place, &type);
  call->args = args;
  set_value(call, "aux", 1);
  return args[call->arg_count - 1];
}

/* The product that takes the gradient for a weight's, behind the kernel that makes it. */
static bool add_weight(const Pairing *p, int gradient, int sums, Offer *offer) {
  int64_t columns = call_value(&offer->call[0], "n");
  for (int i = offer->part[offer->part_count - 1] + 1; i < p->count; i++) {
    const PlanStep *bare = find_call(p, &p->steps[i]);
    int of = bare && !p->is_paired[i] ? library_pairs_sums_of(p, bare, gradient) : 0;
    if (!of || call_value(bare, of == 1 ? "m" : "n") != columns) continue;
    offer->part[offer->part_count++] = i;
    offer->call[offer->call_count++] = with_sums(p, bare, of, sums);
    return true;
  }
  return false;
}

/* The call of just the product that a kernel of ours begins with. */
static bool open_product(const Pairing *p, int at, PlanStep *bare) {
  const NodeSteps *steps = &p->steps[at];
  const PlanStep *first = &p->out->steps.at[steps->first];
  KernelLaunch launch;
  if (steps->node->op != OP_FUSED) return false;
  for (int i = 0; i < first->arg_count; i++)
    if (buffer_at(p, first->args[i])->type.pitch) return false;
  if (!library_product(p->arena, steps->node, &launch)) return false;
  int *args = ARENA_ARRAY(p->arena, int, 2);
  *bare = *first;
  bare->kind = STEP_CALL;
  bare->name = launch.name;
  bare->ints = launch.ints;
  bare->int_count = launch.int_count;
  bare->args = args;
  bare->arg_count = bare->input_count = 2;
  bare->shared = 0;
  bare->stays = bare->cluster = 0;
  bare->is_early = false;
  bare->maps = NULL;
  bare->map_count = 0;
  memset(bare->grid, 0, sizeof bare->grid);
  memset(bare->block, 0, sizeof bare->block);
  for (int i = 0; i < 2; i++) args[i] = first->args[launch.args[i]];
  return true;
}

/* The kernel that makes an activation's gradient of a product: behind it, or the product's own. */
static int find_gradient(const Pairing *p, int at, PlanStep *bare, Gradient *found) {
  const Node *node = p->steps[at].node, *user = node;
  const PlanStep *call = find_call(p, &p->steps[at]);
  int late = at;
  if (call) {
    *bare = *call;
    user = is_bare(call) ? only_reader(p->graph, node) : NULL;
    late = user && user->op == OP_FUSED && !kernel_contraction(user) ? find_steps(p, user) : -1;
  } else if (!open_product(p, at, bare)) {
    return -1;
  }
  if (late < 0) return -1;
  int64_t m = call_value(bare, "m"), n = call_value(bare, "n");
  return recognise_gradient(user, node, m, n, found) ? late : -1;
}

/* The library sums the gradient in its own type. Sums of another one (f32, of 16 bits) are left to
 * the weight's gradient, whose type they have. */
static void pair_gradient(Pairing *p, int at) {
  Gradient found;
  PlanStep bare;
  int late = find_gradient(p, at, &bare, &found);
  if (late < 0) return;
  const Node *user = p->steps[late].node;
  const int *theirs = p->steps[late].buffers;
  int *args = ARENA_ARRAY(p->arena, int, 5), results = user->input_count;
  int gradient = theirs[results + found.result];
  int sums = found.sums < 0 ? -1 : theirs[results + found.sums];
  bool has_sums = sums >= 0 && buffer_at(p, sums)->type.dtype == buffer_at(p, gradient)->type.dtype;
  Offer offer = {.part = {at, late}, .part_count = at == late ? 1 : 2, .call_count = 1};
  PlanStep *call = &offer.call[0];
  *call = copy_call(p, &bare);
  memcpy(args, (int[]){bare.args[0], bare.args[1], theirs[found.value], gradient, sums},
         5 * sizeof *args);
  call->args = args;
  call->input_count = 3;
  call->arg_count = 4 + has_sums;
  set_value(call, "act", found.act);
  set_value(call, "aux", 1);
  set_value(call, "sums", has_sums);
  if (sums >= 0 && !has_sums && !add_weight(p, gradient, sums, &offer)) return;
  if (found.act == ACT_RELU_GRADIENT) {
    if (!can_offer(p, &offer)) return; /* the mask is made only if all else is right */
    args[2] = pair_find_mask(p, user->input[found.value]);
    if (args[2] < 0) return;
  } else if (call_value(call, "n") % 8) {
    return;
  }
  add_offer(p, &offer);
}

/* The node that computes what lies in a buffer that this node's steps read; NULL: none of its
 * operands is there. */
static const Node *maker_in(const Pairing *p, const Node *node, int buffer) {
  const PlanBuffer *at = buffer_at(p, buffer);
  for (int i = 0; i < node->input_count; i++) {
    Address operand = lower_address(p->lowering, node->input[i]);
    if ((int)operand.place == at->place && operand.offset == at->offset)
      return maker_of(node->input[i]);
  }
  return NULL;
}

/* A kernel that only makes the sums. */
static void pair_sums(Pairing *p, int at) {
  const PlanStep *bare = find_call(p, &p->steps[at]);
  if (!bare || !is_bare(bare)) return;
  for (int i = 0; i < p->count; i++) {
    const Node *node = p->steps[i].node;
    if (node->op != OP_FUSED || node->input_count != 1 || node->body->roots.count != 1) continue;
    const PlanStep *step = &p->out->steps.at[p->steps[i].first];
    int of = library_pairs_sums_of(p, bare, step->args[0]);
    if (!of || maker_of(node->input[0]) != maker_in(p, p->steps[at].node, bare->args[of - 1]))
      continue;
    Arena *scratch = arena_new();
    Recogniser *r = recogniser_new(scratch, node->body, NULL);
    bool is_sum =
        pair_is_column_sum(r, node->body->roots.at[0].node, call_value(bare, of == 1 ? "m" : "n"),
                           recognise_variable(r, 0));
    arena_free(scratch);
    if (!is_sum) continue;
    Offer offer = {.part = {i < at ? i : at, i < at ? at : i}, .part_count = 2, .call_count = 1};
    offer.call[0] = with_sums(p, bare, of, step->args[1]);
    if (add_offer(p, &offer)) return;
  }
}

/* By their first step; the longest first. */
static void pair_sort_insteads(PlanGraph *out) {
  for (int i = 1; i < out->insteads.count; i++) {
    PlanInstead one = out->insteads.at[i];
    int k = i;
    for (; k > 0; k--) {
      const PlanInstead *before = &out->insteads.at[k - 1];
      if (before->first < one.first || (before->first == one.first && before->end >= one.end))
        break;
      out->insteads.at[k] = *before;
    }
    out->insteads.at[k] = one;
  }
}

void library_pairs(Lowering *lowering, const Graph *graph, NodeSteps *steps, int count) {
  Pairing p = {.lowering = lowering,
               .arena = lowering->plan->arena,
               .graph = graph,
               .out = lowering->out,
               .steps = steps,
               .count = count,
               .is_paired = ARENA_ARRAY(lowering->arena, bool, count + 1)};
  for (int i = 0; i < count; i++) pair_gradient(&p, i);
  for (int i = 0; i < count; i++) pair_sums(&p, i);
  pair_sort_insteads(p.out);
}
