/* layer_values: which of the values that a step writes are what its layers give, and what they are
 * called. The plan says of each kernel what it computes, op by op (plan/plan_body.h), so a value is known by the
 * op that made it, whatever it was fused with. Left out are what norms, softmax and losses reduce on
 * their way, copies, and sums of which other ranks have a part. See layers.h. */
#include "plan/plan_body.h"
#include "runtime/execute/layers.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  const Plan *plan;
  const PlanGraph *graph;
  const PlanBody *body;
  Arena *arena;
  bool *is_statistic; /* by op of the body */
} ValueBody;

static const PlanOp *op_at(const PlanBody *body, int value) {
  return value < body->input_count ? NULL : &body->ops.at[value - body->input_count];
}

/* Is the layer `inner` within `outer`, which may be none? */
static bool is_layer_within(const char *inner, const char *outer) {
  size_t length = outer ? strlen(outer) : 0;
  if (!inner) return false;
  return !outer || (!strncmp(inner, outer, length) && inner[length] == '.');
}

/* Has the layer parameters of its own: is it one of the library's, or like these? */
static bool has_params(const Plan *plan, const char *layer) {
  for (int i = 0; layer && i < plan->params.count; i++) {
    const char *name = plan->params.at[i].name;
    if (is_layer_within(name, layer) && !strchr(name + strlen(layer) + 1, '.')) return true;
  }
  return false;
}

/* … and none within it that have some? Then what it gives is one value; a block has several. */
static bool is_leaf_layer(const Plan *plan, const char *layer) {
  for (int i = 0; layer && i < plan->params.count; i++) {
    const char *name = plan->params.at[i].name;
    if (is_layer_within(name, layer) && strchr(name + strlen(layer) + 1, '.')) return false;
  }
  return has_params(plan, layer);
}

static bool is_of_model(const PlanOp *op) {
  return op->phase == PHASE_FORWARD && op->op != OP_CONST && op->op != OP_IOTA;
}

static bool is_forward_step(const PlanGraph *graph, const PlanBody *body) {
  StepPhase phase = graph->steps.at[body->first].phase;
  return body->results && (phase == PHASE_FORWARD || phase == PHASE_BOTH);
}

/* Some of the numbers, several times, or beside others: what they are was seen where they were made. */
static bool moves_numbers(Op op) { return op_info[op].op_class == CLASS_MOVE && op != OP_GATHER; }

/* The same numbers in another type or order. */
static bool is_copy(Op op) {
  return op == OP_CAST || op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_STOP_GRADIENT;
}

static int without_copies(const PlanBody *body, int value) {
  const PlanOp *op = op_at(body, value);
  while (op && is_copy(op->op)) {
    value = op->inputs[0];
    op = op_at(body, value);
  }
  return value;
}

/* ── what is reduced on the way ─────────────────────────────────────────────────────────────── */
static void find_statistics(const PlanBody *body, bool *is_statistic) {
  for (int i = 0; i < body->ops.count; i++) {
    const PlanOp *op = &body->ops.at[i];
    is_statistic[i] = op_info[op->op].op_class == CLASS_REDUCE;
    bool goes_on = op_info[op->op].op_class == CLASS_POINTWISE || is_copy(op->op);
    for (int k = 0; goes_on && k < op->input_count; k++) {
      int from = op->inputs[k] - body->input_count;
      if (from >= 0 && is_statistic[from] &&
          shape_elements(&body->ops.at[from].type.shape) == shape_elements(&op->type.shape))
        is_statistic[i] = true;
    }
  }
}

/* Does the layer, or the function, whose reduction this is go on with more elements? Then it is a
 * means; else, as of a mean over positions, it is what the function gives. */
static bool is_means(const ValueBody *of, const PlanOp *op) {
  int64_t elements = shape_elements(&op->type.shape);
  bool is_layer = has_params(of->plan, op->layer);
  for (int b = 0; b < of->graph->bodies.count; b++) {
    const PlanBody *body = &of->graph->bodies.at[b];
    for (int i = 0; i < body->ops.count; i++) {
      const PlanOp *other = &body->ops.at[i];
      if (is_of_model(other) && body_is_same_name(other->layer, op->layer) &&
          (is_layer || body_is_same_name(other->function, op->function)) &&
          shape_elements(&other->type.shape) > elements)
        return true;
    }
  }
  return false;
}

static bool is_of_loss(const PlanGraph *graph, const char *layer) {
  for (int i = 0; layer && i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    bool is_scored = output->kind == OUTPUT_LOSS || output->kind == OUTPUT_METRIC;
    if (is_scored &&
        (body_is_same_name(layer, output->name) || is_layer_within(layer, output->name)))
      return true;
  }
  return false;
}

/* ── names ────────────────────────────────────────────────────────────────────────────────── */
/* The layer within its own, nearest on the way back, that the value was made of: a relu belongs to
 * the product in front of it. NULL: there is none. */
static const char *layer_behind(const ValueBody *of, int value) {
  const PlanBody *body = of->body;
  const char *own = op_at(body, value)->layer;
  bool *seen = ARENA_ARRAY(of->arena, bool, body->ops.count);
  VEC(int) queue = {0};
  VEC_PUSH(of->arena, queue, value);
  for (int i = 0; i < queue.count; i++) {
    const PlanOp *op = op_at(body, queue.at[i]);
    if (is_of_model(op) && is_layer_within(op->layer, own)) return op->layer;
    for (int k = 0; k < op->input_count; k++) {
      int next = op->inputs[k] - body->input_count;
      if (next < 0 || seen[next]) continue;
      seen[next] = true;
      VEC_PUSH(of->arena, queue, op->inputs[k]);
    }
  }
  return NULL;
}

/* Is any of these values read by an op of this layer? `reached` has one for each value of the body. */
static bool is_read_in(const PlanBody *body, bool *reached, const char *layer) {
  for (int i = 0; i < body->ops.count; i++) {
    const PlanOp *op = &body->ops.at[i];
    for (int k = 0; k < op->input_count; k++) {
      if (!reached[op->inputs[k]]) continue;
      if (is_of_model(op) && !is_copy(op->op) && op->op != OP_BROADCAST &&
          body_is_same_name(op->layer, layer))
        return true;
      if (is_copy(op->op) || op->op == OP_BROADCAST) reached[body->input_count + i] = true;
    }
  }
  return false;
}

static bool is_at(const PlanGraph *graph, int arg, const PlanBuffer *buffer) {
  const PlanBuffer *other = &graph->buffers.at[arg];
  return other->place == buffer->place && other->offset == buffer->offset;
}

/* Does the layer go on with this value, in the same kernel or in one that reads it from memory? */
static bool layer_goes_on(const ValueBody *of, int value, const PlanBuffer *buffer) {
  const PlanBody *body = of->body;
  const char *layer = op_at(body, value)->layer;
  bool *reached = ARENA_ARRAY(of->arena, bool, body->input_count + body->ops.count);
  reached[value] = true;
  if (is_read_in(body, reached, layer)) return true;
  const PlanBody *end = of->graph->bodies.at + of->graph->bodies.count;
  for (const PlanBody *later = body + 1; later < end; later++) {
    if (!is_forward_step(of->graph, later)) continue;
    bool is_gone = false;
    reached = ARENA_ARRAY(of->arena, bool, later->input_count + later->ops.count);
    for (int i = 0; i < later->arg_count; i++) {
      bool is_it = is_at(of->graph, later->args[i], buffer);
      if (i < later->input_count) reached[i] = is_it;
      if (i >= later->input_count) is_gone |= is_it;
    }
    if (is_read_in(later, reached, layer)) return true;
    if (is_gone) return false;
  }
  return false;
}

/* Ranks that share a layer's work have parts of the sums on the way to what it gives. */
static bool is_part(const ValueBody *of, int value, const PlanBuffer *buffer) {
  const char *layer = op_at(of->body, value)->layer;
  return setting_tensor(of->plan->settings) > 1 && has_params(of->plan, layer) &&
         !layer_behind(of, value) && layer_goes_on(of, value, buffer);
}

static LayerValue layer_value_name(const ValueBody *of, int value, const PlanBuffer *buffer) {
  const PlanOp *op = op_at(of->body, value);
  const char *behind = layer_behind(of, value), *text = op_info[op->op].text;
  LayerValue out = {.layer = behind ? behind : op->layer ? op->layer : "", .line = op->line};
  if (behind)
    out.what = op->function ? op->function : text;
  else if (is_leaf_layer(of->plan, op->layer))
    out.what = layer_goes_on(of, value, buffer) ? text : "output";
  else
    out.what = op->function ? op->function : text;
  return out;
}

/* ── the list ─────────────────────────────────────────────────────────────────────────────── */
/* Is it handed on to other ranks, which have parts of it or of the sum that it is part of? */
static bool is_joined(const PlanGraph *graph, const PlanBody *body, const PlanBuffer *buffer) {
  for (int s = body->end; s < graph->steps.count; s++) {
    const PlanStep *step = &graph->steps.at[s];
    for (int i = 0; i < step->arg_count; i++) {
      if (!is_at(graph, step->args[i], buffer)) continue;
      if (step->kind == STEP_BEGIN && i < step->input_count) return true;
      if (i >= step->input_count) return false;
    }
  }
  return false;
}

static bool is_activation(const ValueBody *of, int value, const PlanBuffer *buffer) {
  const PlanOp *op = op_at(of->body, value);
  const PlanPlace *place = &of->plan->places.at[buffer->place];
  if (!op || !is_of_model(op) || op->op == OP_RANDOM || moves_numbers(op->op) ||
      !dtype_is_float(op->type.dtype))
    return false;
  if (place->life != FOR_BATCH || place->host != HOST_NONE) return false;
  if (!dtype_is_float(buffer->type.dtype) || buffer->type.dtype == DT_F64) return false;
  if (is_of_loss(of->graph, op->layer)) return false;
  if (of->is_statistic[value - of->body->input_count] && is_means(of, op)) return false;
  return !is_joined(of->graph, of->body, buffer) && !is_part(of, value, buffer);
}

/* Attention gives the sums of its rows beside what it is for. */
static bool is_by_product(const PlanBody *body, const PlanGraph *graph, int result) {
  int64_t most = 0;
  const int *args = body->args + body->input_count;
  for (int i = 0; i < body->arg_count - body->input_count; i++) {
    int64_t elements = shape_elements(&graph->buffers.at[args[i]].type.shape);
    if (body->results[i] == body->results[result] && elements > most) most = elements;
  }
  return shape_elements(&graph->buffers.at[args[result]].type.shape) < most;
}

static int list_value(LayerPoints *points, const LayerValue *value) {
  for (int i = 0; i < points->value_count; i++) {
    const LayerValue *other = &points->value[i];
    if (other->line == value->line && body_is_same_name(other->layer, value->layer) &&
        body_is_same_name(other->what, value->what))
      return i;
  }
  LayerValue *more =
      realloc(points->value, (size_t)(points->value_count + 1) * sizeof *points->value);
  if (!more) return -1;
  points->value = more;
  more[points->value_count] = *value;
  return points->value_count++;
}

/* Is the buffer read by steps from `first` on, before one writes it? */
static bool is_read_after(const PlanGraph *graph, int first, const PlanBuffer *buffer) {
  for (int s = first; s < graph->steps.count; s++) {
    const PlanStep *step = &graph->steps.at[s];
    for (int i = 0; i < step->arg_count; i++)
      if (is_at(graph, step->args[i], buffer)) return i < step->input_count;
  }
  return false;
}

/* A library may do several steps at once, and leaves out what only these read: the first step at
 * which the value is there for sure, 0 if there is none. */
static int end_behind_library(const PlanGraph *graph, int end, const PlanBuffer *buffer) {
  for (int i = 0; i < graph->insteads.count; i++) {
    const PlanInstead *instead = &graph->insteads.at[i];
    if (instead->first >= end || instead->end <= end) continue;
    if (!is_read_after(graph, instead->end, buffer)) return 0;
    end = instead->end, i = -1; /* one may lie within another */
  }
  return end;
}

static Status add_point(LayerPoints *points, const LayerPoint *point) {
  LayerPoint *more =
      realloc(points->point, (size_t)(points->point_count + 1) * sizeof *points->point);
  if (!more) return status_fail(STATUS_FAULT, "out of memory");
  points->point = more;
  more[points->point_count++] = *point;
  return STATUS_OK;
}

static Status add_body(const ValueBody *of, int graph, bool is_own, LayerPoints *points) {
  const PlanBody *body = of->body;
  int results = body->arg_count - body->input_count;
  for (int i = 0; i < results; i++) {
    const PlanBuffer *buffer = &of->graph->buffers.at[body->args[body->input_count + i]];
    int value = without_copies(body, body->results[i]);
    bool is_again = false;
    for (int k = 0; k < i; k++)
      is_again |=
          without_copies(body, body->results[k]) == value && !is_by_product(body, of->graph, k);
    if (is_again || is_by_product(body, of->graph, i) || !is_activation(of, value, buffer))
      continue;
    int end = end_behind_library(of->graph, body->end, buffer);
    if (!end) continue;
    LayerValue named = layer_value_name(of, value, buffer);
    int number = list_value(points, &named);
    if (number < 0) return status_fail(STATUS_FAULT, "out of memory");
    LayerPoint point = {graph, end, buffer->place, buffer->offset, buffer->type, number};
    if (is_own) STATUS_TRY(add_point(points, &point));
  }
  return STATUS_OK;
}

Status layer_points_find(const Plan *plan, bool is_own, LayerPoints *points) {
  Arena *arena = arena_new();
  Status status = STATUS_OK;
  for (int g = 0; g < plan->graphs.count; g++) {
    const PlanGraph *graph = &plan->graphs.at[g];
    bool is_run = false;
    for (int p = 0; p < plan->programmes.count; p++) {
      const PlanProgramme *step = &plan->programmes.at[p];
      bool is_step = !strcmp(step->name, PROGRAMME_STEP); /* of any length of rows */
      for (int r = 0; is_step && r < step->runs.count; r++) is_run |= step->runs.at[r].graph == g;
    }
    for (int b = 0; is_run && b < graph->bodies.count && status == STATUS_OK; b++) {
      const PlanBody *body = &graph->bodies.at[b];
      if (!is_forward_step(graph, body)) continue;
      ValueBody of = {plan, graph, body, arena, ARENA_ARRAY(arena, bool, body->ops.count + 1)};
      find_statistics(body, of.is_statistic);
      status = add_body(&of, g, is_own, points);
    }
  }
  arena_free(arena);
  return status;
}
