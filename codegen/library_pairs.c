/* library_pairs: two kernels, one call: see library.h. The kernels stay as they are, so that both
 * may be run as well; a pair's `instead` stands before those of its parts.
 * Invariant: steps change places only where neither writes what the other reads or writes. */
#include "codegen/library.h"
#include "codegen/recognise.h"
#include "plan/plan_calls.h"
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
static PlanInstead *find_instead(const Pairing *p, const NodeSteps *steps) {
  for (int i = 0; i < p->out->insteads.count; i++) {
    PlanInstead *instead = &p->out->insteads.at[i];
    if (instead->first == steps->first && instead->end == steps->end) return instead;
  }
  return NULL;
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

static int64_t value_of(const PlanStep *call, const char *key) { return call_int(call, key); }

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
  return value_of(call, "batch") == 1 && !value_of(call, "bias") && !value_of(call, "act") &&
         !value_of(call, "aux") && !value_of(call, "sums") && !value_of(call, "accumulate");
}

/* ── order ────────────────────────────────────────────────────────────────────────────────── */
static bool buffers_overlap(const PlanBuffer *a, const PlanBuffer *b) {
  return a->arena == b->arena && a->offset < b->offset + type_bytes(&b->type) &&
         b->offset < a->offset + type_bytes(&a->type);
}

static bool steps_conflict(const PlanGraph *plan, const PlanStep *a, const PlanStep *b) {
  for (int i = 0; i < a->arg_count; i++)
    for (int j = 0; j < b->arg_count; j++)
      if ((i >= a->input_count || j >= b->input_count) &&
          buffers_overlap(&plan->buffers.at[a->args[i]], &plan->buffers.at[b->args[j]]))
        return true;
  return false;
}

/* May the launches of `early` go behind all that stands between them and `late`? */
static bool can_sink(const Pairing *p, const NodeSteps *early, const NodeSteps *late) {
  for (int i = early->first; i < early->end; i++)
    for (int j = early->end; j < late->first; j++)
      if (steps_conflict(p->out, &p->out->steps.at[i], &p->out->steps.at[j])) return false;
  return true;
}

/* Where step `at` is after steps [first, end) have gone to just before `to`. */
static int moved(int at, int first, int end, int to) {
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
    int last = moved(instead->end - 1, first, end, to);
    instead->first = moved(instead->first, first, end, to);
    instead->end = last + 1;
  }
  for (int i = 0; i < p->count; i++) {
    int last = moved(p->steps[i].end - 1, first, end, to);
    p->steps[i].first = moved(p->steps[i].first, first, end, to);
    p->steps[i].end = last + 1;
  }
}

/* The call must not write what it, or only a part of what it replaces, still reads. */
static bool is_sound(const Pairing *p, const PlanStep *call) {
  for (int i = call->input_count; i < call->arg_count; i++)
    for (int j = 0; j < call->arg_count; j++)
      if (i != j &&
          buffers_overlap(&p->out->buffers.at[call->args[i]], &p->out->buffers.at[call->args[j]]))
        return false;
  return true;
}

static bool add_pair(Pairing *p, int early, int late, const PlanStep *call) {
  const char *why;
  if (p->is_paired[early] || p->is_paired[late] || p->steps[early].first > p->steps[late].first ||
      !is_sound(p, call) || !can_sink(p, &p->steps[early], &p->steps[late]) ||
      !call_check(p->arena, call, p->out->buffers.at, &why))
    return false;
  sink(p, &p->steps[early], &p->steps[late]);
  PlanInstead pair = {.first = p->steps[early].first, .end = p->steps[late].end, .call = *call};
  VEC_PUSH(p->arena, p->out->insteads, pair);
  p->is_paired[early] = p->is_paired[late] = true;
  return true;
}

/* ── the gradient of an activation ────────────────────────────────────────────────────────── */
typedef struct {
  int product, value; /* arguments of the kernel: the product, and what the slope is taken at */
  int result, sums;   /* its results; sums -1: none */
  CallAct act;
} Gradient;

/* Is `node` a sum over all dimensions but the last, point by point of these values? */
static bool is_column_sum(Recogniser *r, const Node *node, int64_t columns, const double *values) {
  if (node->op != OP_SUM) return false;
  const Shape *in = &node->input[0]->type.shape, *out = &node->type.shape;
  if (in->dim[in->rank - 1] != columns || out->rank != in->rank) return false;
  for (int d = 0; d < out->rank; d++)
    if (out->dim[d] != (d == out->rank - 1 ? columns : 1)) return false;
  const double *summed = recognise_values(r, node->input[0]);
  return recognise_form(summed, FORM_SAME, values);
}

static bool recognise_gradient(const Node *user, const Node *product, int64_t m, int64_t n,
                               Gradient *out) {
  const Graph *body = user->body;
  *out = (Gradient){.product = -1, .value = -1, .result = -1, .sums = -1};
  if (user->input_count != 2 || body->roots.count > 2) return false;
  for (int i = 0; i < 2; i++) {
    if (shape_elements(&user->input[i]->type.shape) != m * n) return false;
    *(maker_of(user->input[i]) == product ? &out->product : &out->value) = i;
  }
  if (out->product < 0 || out->value < 0) return false;
  Arena *scratch = arena_new();
  Recogniser *r = recogniser_new(scratch, body, NULL);
  const double *x = recognise_variable(r, out->value), *g = recognise_variable(r, out->product);
  for (int i = 0; i < body->roots.count; i++)
    if (recognise_values(r, body->roots.at[i].node)) out->result = i;
  bool is_good = out->result >= 0;
  const double *values = is_good ? recognise_values(r, body->roots.at[out->result].node) : NULL;
  out->act = recognise_slope(values, FORM_GELU, x, g) ? ACT_GELU_GRADIENT : ACT_RELU_GRADIENT;
  if (out->act == ACT_RELU_GRADIENT) is_good = recognise_slope(values, FORM_RELU, x, g);
  if (body->roots.count == 2) out->sums = 1 - out->result;
  if (is_good && out->sums >= 0)
    is_good = is_column_sum(r, body->roots.at[out->sums].node, n, values);
  arena_free(scratch);
  return is_good;
}

/* The bits that relu's call leaves for its gradient: asks the forward product for them. Only calls
 * know them: the runtime makes the gradient's call only where it makes that one. */
static int find_mask(Pairing *p, const Node *value) {
  int at = find_steps(p, maker_of(value));
  PlanInstead *forward = at < 0 ? NULL : find_instead(p, &p->steps[at]);
  if (!forward || value_of(&forward->call, "act") != ACT_RELU ||
      value_of(&forward->call, "batch") != 1)
    return -1;
  PlanStep *call = &forward->call;
  if (value_of(call, "aux")) return call->args[call->arg_count - 1];
  int64_t row = (value_of(call, "n") + 127) / 128 * 16, rows = value_of(call, "m");
  Type type = {DT_U8, shape_of(2, (int64_t[]){rows, row})};
  Place place = {ARENA_WORK, lower_extend(p->lowering, ARENA_WORK, type_bytes(&type))};
  int *args = ARENA_ARRAY(p->arena, int, call->arg_count + 1);
  memcpy(args, call->args, sizeof *args * (size_t)call->arg_count);
  *call = copy_call(p, call);
  args[call->arg_count++] = lower_buffer(p->lowering, place, &type);
  call->args = args;
  set_value(call, "aux", 1);
  return args[call->arg_count - 1];
}

static void pair_gradient(Pairing *p, int at) {
  const PlanInstead *bare = find_instead(p, &p->steps[at]);
  if (!bare || !is_bare(&bare->call)) return;
  const Node *product = p->steps[at].node, *user = only_reader(p->graph, product);
  int late = user && user->op == OP_FUSED ? find_steps(p, user) : -1;
  Gradient found;
  if (late < 0 || !recognise_gradient(user, product, value_of(&bare->call, "m"),
                                      value_of(&bare->call, "n"), &found))
    return;
  const int *theirs = p->out->steps.at[p->steps[late].first].args;
  PlanStep call = copy_call(p, &bare->call);
  int *args = ARENA_ARRAY(p->arena, int, 5), results = user->input_count;
  args[0] = bare->call.args[0];
  args[1] = bare->call.args[1];
  args[2] = theirs[found.value];
  args[3] = theirs[results + found.result];
  if (found.sums >= 0) args[4] = theirs[results + found.sums];
  call.args = args;
  call.input_count = 3;
  call.arg_count = 4 + (found.sums >= 0);
  set_value(&call, "act", found.act);
  set_value(&call, "aux", 1);
  set_value(&call, "sums", found.sums >= 0);
  if (found.act == ACT_GELU_GRADIENT) {
    if (value_of(&call, "n") % 8 == 0) add_pair(p, at, late, &call);
    return;
  }
  /* the mask is made only if all else is right */
  PlanStep trial = call;
  if (!is_sound(p, &trial) || !can_sink(p, &p->steps[at], &p->steps[late])) return;
  args[2] = find_mask(p, user->input[found.value]);
  if (args[2] >= 0) add_pair(p, at, late, &call);
}

/* ── a bias's gradient beside its weight's ────────────────────────────────────────────────── */
/* op(a) is stored the other way round: its rows' sums are the sums of a's columns. */
static void pair_sums(Pairing *p, int at) {
  const PlanInstead *bare = find_instead(p, &p->steps[at]);
  if (!bare || !is_bare(&bare->call) || !value_of(&bare->call, "ta")) return;
  int64_t rows = value_of(&bare->call, "k"), columns = value_of(&bare->call, "m");
  for (int i = 0; i < p->count; i++) {
    const Node *node = p->steps[i].node;
    if (node->op != OP_FUSED || node->input_count != 1 || node->body->roots.count != 1) continue;
    const PlanStep *step = &p->out->steps.at[p->steps[i].first];
    if (step->args[0] != bare->call.args[0] ||
        shape_elements(&node->input[0]->type.shape) != rows * columns ||
        maker_of(node->input[0]) != maker_of(p->steps[at].node->input[0]))
      continue;
    Arena *scratch = arena_new();
    Recogniser *r = recogniser_new(scratch, node->body, NULL);
    bool is_sum = is_column_sum(r, node->body->roots.at[0].node, columns, recognise_variable(r, 0));
    arena_free(scratch);
    if (!is_sum) continue;
    PlanStep call = copy_call(p, &bare->call);
    int *args = ARENA_ARRAY(p->arena, int, 4);
    memcpy(args, call.args, sizeof *args * 3);
    args[3] = step->args[1];
    call.args = args;
    call.arg_count = 4;
    set_value(&call, "sums", 1);
    if (add_pair(p, i < at ? i : at, i < at ? at : i, &call)) return;
  }
}

/* By their first step; the longest first. */
static void sort_insteads(PlanGraph *out) {
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
  sort_insteads(p.out);
}
