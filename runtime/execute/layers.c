/* layers: see layers.h. Here: the step that stops on its way, and what its ranks have between them. */
#include "runtime/execute/layers.h"
#include "runtime/common/element.h"
#include "runtime/execute/exec_fetch.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_PIECE = 1 << 16 /* elements read at a time */ };
enum { SUMS_FIELDS = 5 /* of LayerSums that are added over the ranks; beside them `most` */ };

struct Layers {
  Exec *exec;
  LayerPoints points;
  LayerParam *param; /* of all stages of a pipeline */
  int param_count;
  int *number;      /* by param of this rank's plan: in the list; -1: another rank tells of it */
  double *elements; /* by param of the list: of the whole */
  int grads;        /* the place */
  int *cut;         /* by graph: the first step that writes parameters; -1: none does */
  ExecGraph last;   /* the graph that made the update; EXEC_NO_GRAPH: none has in this step */
  char *before;     /* of the parameters of this rank; NULL: none are kept */
  double factor;    /* of gradients in memory */
  LayersSee *see;
  void *see_context;
  char *raw;
  float *values, *earlier;
  double *sum, *most; /* for joining: all sums, and all largest values */
};

/* ── numbers in memory ────────────────────────────────────────────────────────────────────── */
/* `count` numbers from byte `offset` of a place on, as f32: where they lie, or in `values`. */
static Status read_piece(Layers *layers, int place, int64_t offset, DType dtype, int64_t count,
                         const float **out) {
  Exec *exec = layers->exec;
  const char *at = exec->base[place] + offset;
  *out = layers->values;
  if (!exec->type->is_host_memory || dtype != DT_F32) {
    STATUS_TRY(exec_read(exec, place, offset, count * dtype_bytes(dtype), layers->raw));
    at = layers->raw;
  }
  if (dtype == DT_F32)
    *out = (const float *)(const void *)at;
  else
    element_convert(at, element_of(dtype), false, count, DT_F32, layers->values);
  return STATUS_OK;
}

static Status take_place(Layers *layers, int place, int64_t offset, const Type *type,
                         LayersTake *take, void *context) {
  int64_t count = shape_elements(&type->shape), bytes = dtype_bytes(type->dtype);
  int64_t length = type->pitch ? shape_last(&type->shape) : count;
  for (int64_t done = 0, piece; done < count; done += piece) {
    const float *values;
    int64_t left = length - done % length; /* that lie side by side */
    piece = left < LAYERS_PIECE ? left : LAYERS_PIECE;
    STATUS_TRY(read_piece(layers, place, offset + type_place(type, done) * bytes, type->dtype, piece,
                          &values));
    take(context, values, piece);
  }
  return STATUS_OK;
}

static void take_sums(void *context, const float *values, int64_t count) {
  layer_sums_add(context, values, count);
}

static Status add_place(Layers *layers, int place, int64_t offset, const Type *type,
                        LayerSums *sums) {
  return take_place(layers, place, offset, type, take_sums, sums);
}

/* ── parameters ───────────────────────────────────────────────────────────────────────────── */
static bool is_trained(const Plan *plan, const PlanTensor *param) {
  return !plan->places.at[param->place].is_frozen;
}

static int64_t offset_of_gradient(const PlanTensor *param) {
  return param->offset / dtype_bytes(param->type.dtype) * dtype_bytes(DT_F32);
}

/* Does a step before `end` write there what it has computed? Of a parameter that the loss does not depend on
 * there are zeros only, made of nothing. */
static bool is_written(const PlanGraph *graph, int end, int place, int64_t offset, int64_t bytes) {
  for (int s = 0; s < end; s++) {
    const PlanStep *step = &graph->steps.at[s];
    for (int i = step->input_count; step->input_count && i < step->arg_count; i++) {
      const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
      if (buffer->place == place && buffer->offset < offset + bytes &&
          buffer->offset + type_bytes(&buffer->type) > offset)
        return true;
    }
  }
  return false;
}

/* The first step that writes what is trained. Where nothing is, the end of the graph that ends a step. */
static int find_cut(const Exec *exec, int number) {
  const Plan *plan = exec->plan;
  const PlanGraph *graph = &plan->graphs.at[number];
  int64_t ignored = 0;
  int params = -1;
  for (int i = 0; i < plan->params.count && params < 0; i++)
    if (is_trained(plan, &plan->params.at[i]))
      params = plan_whole_place(plan, plan->params.at[i].place, &ignored);
  for (int s = 0; s < graph->steps.count; s++) {
    const PlanStep *step = &graph->steps.at[s];
    for (int i = step->input_count; i < step->arg_count; i++)
      if (plan_whole_place(plan, graph->buffers.at[step->args[i]].place, &ignored) == params)
        return s;
  }
  return number == exec_result_graph(exec, PROGRAMME_STEP) ? graph->steps.count : -1;
}

Status layers_read_gradient(Layers *layers, int param, LayersTake *take, void *context) {
  const PlanTensor *of = &layers->exec->plan->params.at[param];
  Type held = plan_held(of), gradient = {DT_F32, held.shape};
  return take_place(layers, layers->grads, offset_of_gradient(of), &gradient, take, context);
}

void layers_see_gradients(Layers *layers, LayersSee *see, void *context) {
  layers->see = see;
  layers->see_context = context;
}

double layers_factor(const Layers *layers) { return layers->factor; }

/* Before the update: gradients are whole, and weights as they were. */
static Status look_before_update(Layers *layers, ExecGraph graph) {
  const Plan *plan = layers->exec->plan;
  const PlanGraph *of = exec_graph_plan(layers->exec, graph);
  int64_t bytes = 0, at = 0;
  for (int i = 0; i < plan->params.count; i++) {
    Type held = plan_held(&plan->params.at[i]);
    if (layers->number[i] >= 0 && is_trained(plan, &plan->params.at[i])) bytes += type_bytes(&held);
  }
  layers->last = graph;
  layers->before = malloc((size_t)bytes + 1);
  if (!layers->before) return status_errno(ENOMEM, "train.log.layers: a copy of the weights");
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    if (layers->number[i] < 0) continue;
    LayerParam *out = &layers->param[layers->number[i]];
    Type held = plan_held(param), gradient = {DT_F32, held.shape};
    int64_t offset = offset_of_gradient(param);
    STATUS_TRY(add_place(layers, param->place, param->offset, &held, &out->weight));
    if (!is_trained(plan, param)) continue;
    STATUS_TRY(exec_read(layers->exec, param->place, param->offset, type_bytes(&held),
                         layers->before + at));
    at += type_bytes(&held);
    out->has_gradient =
        is_written(of, layers->cut[graph], layers->grads, offset, type_bytes(&gradient));
    if (out->has_gradient)
      STATUS_TRY(add_place(layers, layers->grads, offset, &gradient, &out->gradient));
    if (out->has_gradient && layers->see && !param->shared && !param->cut.ranks)
      STATUS_TRY(layers->see(layers->see_context, layers, i));
  }
  return STATUS_OK;
}

static Status add_update(Layers *layers, const PlanTensor *param, const char *before,
                         LayerSums *sums) {
  Type held = plan_held(param);
  int64_t count = shape_elements(&held.shape), bytes = dtype_bytes(held.dtype);
  for (int64_t done = 0, piece; done < count; done += piece) {
    const float *values;
    piece = count - done < LAYERS_PIECE ? count - done : LAYERS_PIECE;
    STATUS_TRY(
        read_piece(layers, param->place, param->offset + done * bytes, held.dtype, piece, &values));
    element_convert(before + done * bytes, element_of(held.dtype), false, piece, DT_F32,
                    layers->earlier);
    for (int64_t i = 0; i < piece; i++) layers->earlier[i] = values[i] - layers->earlier[i];
    layer_sums_add(sums, layers->earlier, piece);
  }
  return STATUS_OK;
}

/* By what gradients in memory are multiplied before they are used. */
static Status find_factor(const Layers *layers, double *out) {
  int output = exec_find_output(layers->exec, layers->last, OUTPUT_GRAD_FACTOR, NULL);
  *out = 1;
  return output < 0 ? STATUS_OK : exec_scalar(layers->exec, layers->last, output, out);
}

static Status look_after_update(Layers *layers) {
  const Plan *plan = layers->exec->plan;
  int64_t at = 0;
  STATUS_TRY(exec_sync(layers->exec));
  STATUS_TRY(find_factor(layers, &layers->factor));
  for (int i = 0; i < plan->params.count; i++) {
    if (layers->number[i] < 0 || !is_trained(plan, &plan->params.at[i])) continue;
    LayerParam *out = &layers->param[layers->number[i]];
    Type held = plan_held(&plan->params.at[i]);
    STATUS_TRY(add_update(layers, &plan->params.at[i], layers->before + at, &out->update));
    layer_sums_scale(&out->gradient, layers->factor);
    at += type_bytes(&held);
  }
  return STATUS_OK;
}

/* ── the step ─────────────────────────────────────────────────────────────────────────────── */
void layers_begin(Layers *layers) {
  for (int i = 0; i < layers->param_count; i++) {
    LayerParam *param = &layers->param[i];
    *param = (LayerParam){.name = param->name};
  }
  for (int i = 0; i < layers->points.value_count; i++)
    layers->points.value[i].sums = (LayerSums){0};
  free(layers->before);
  layers->before = NULL;
  layers->last = EXEC_NO_GRAPH;
}

static Status run_to(Layers *layers, ExecGraph graph, const void *batch, int *done, int end) {
  int64_t time = 0;
  int first = *done;
  if (end <= first) return STATUS_OK;
  *done = end;
  return layers->exec->type->run_part(layers->exec->graph[graph], batch, first, end, &time);
}

Status layers_run(Layers *layers, ExecGraph graph, const void *batch) {
  Exec *exec = layers->exec;
  const PlanGraph *of = exec_graph_plan(exec, graph);
  int done = 0, cut = layers->cut[graph];
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = 1;
  for (int i = 0; i <= layers->points.point_count; i++) {
    const LayerPoint *point = i < layers->points.point_count ? &layers->points.point[i] : NULL;
    if (point && point->graph != graph) continue;
    int end = point ? point->end : of->steps.count;
    if (cut >= 0 && cut <= end && !layers->before) {
      STATUS_TRY(run_to(layers, graph, batch, &done, cut));
      STATUS_TRY(look_before_update(layers, graph));
    }
    STATUS_TRY(run_to(layers, graph, batch, &done, end));
    if (point)
      STATUS_TRY(add_place(layers, point->place, point->offset, &point->type,
                           &layers->points.value[point->value].sums));
  }
  return STATUS_OK;
}

/* ── the ranks ────────────────────────────────────────────────────────────────────────────── */
static LayerSums *layer_sums_at(Layers *layers, int index) {
  int params = 3 * layers->param_count;
  if (index >= params) return &layers->points.value[index - params].sums;
  LayerParam *param = &layers->param[index / 3];
  return index % 3 == 0 ? &param->weight : index % 3 == 1 ? &param->gradient : &param->update;
}

static int sums_count(const Layers *layers) {
  return 3 * layers->param_count + layers->points.value_count;
}

/* Behind the end of what ranks have of a parameter there are zeros. */
static void take_out_padding(LayerSums *sums, double elements) {
  double padding = sums->count - elements;
  if (sums->count == 0 || padding <= 0) return;
  sums->count -= padding;
  sums->zeros = sums->zeros > padding ? sums->zeros - padding : 0;
}

static Status layers_join_ranks(Layers *layers) {
  int count = sums_count(layers), params = layers->param_count;
  Comm *comm = layers->exec->comm;
  for (int i = 0; i < count; i++) {
    const LayerSums *s = layer_sums_at(layers, i);
    const double fields[SUMS_FIELDS] = {s->count, s->zeros, s->bad, s->sum, s->squares};
    memcpy(layers->sum + SUMS_FIELDS * i, fields, sizeof fields);
    layers->most[i] = s->most;
  }
  for (int i = 0; i < params; i++) layers->most[count + i] = layers->param[i].has_gradient;
  CommWork work = {.kind = COMM_ALL_REDUCE,
                   .op = COMM_SUM,
                   .over = MESH_ALL,
                   .dtype = DT_F64,
                   .count = SUMS_FIELDS * count,
                   .x = layers->sum,
                   .out = layers->sum,
                   .label = "statistics of layers"};
  STATUS_TRY(comm_do(comm, &work));
  work.op = COMM_MAX, work.count = count + params, work.x = work.out = layers->most;
  STATUS_TRY(comm_do(comm, &work));
  for (int i = 0; i < count; i++) {
    const double *f = layers->sum + SUMS_FIELDS * i;
    *layer_sums_at(layers, i) = (LayerSums){.count = f[0],
                                            .zeros = f[1],
                                            .bad = f[2],
                                            .sum = f[3],
                                            .squares = f[4],
                                            .most = layers->most[i]};
  }
  for (int i = 0; i < params; i++) layers->param[i].has_gradient = layers->most[count + i] != 0;
  return STATUS_OK;
}

Status layers_end(Layers *layers) {
  if (layers->before) STATUS_TRY(look_after_update(layers));
  free(layers->before);
  layers->before = NULL;
  if (layers->exec->comm) STATUS_TRY(layers_join_ranks(layers));
  for (int i = 0; i < 3 * layers->param_count; i++)
    take_out_padding(layer_sums_at(layers, i), layers->elements[i / 3]);
  return STATUS_OK;
}

const LayerParam *layers_params(const Layers *layers, int *count) {
  *count = layers->param_count;
  return layers->param;
}

const LayerValue *layers_values(const Layers *layers, int *count) {
  *count = layers->points.value_count;
  return layers->points.value;
}

/* ── making ───────────────────────────────────────────────────────────────────────────────── */
static int list_param(Layers *layers, const PlanTensor *param) {
  for (int i = 0; i < layers->param_count; i++)
    if (!strcmp(layers->param[i].name, param->name)) return i;
  Type whole = plan_whole(param);
  layers->param[layers->param_count].name = param->name;
  layers->elements[layers->param_count] = (double)shape_elements(&whole.shape);
  return layers->param_count++;
}

/* Of ranks that have the same numbers the first tells. */
static bool tells_of(const Exec *exec, const PlanTensor *param) {
  return (param->shared || comm_index(exec->comm, MESH_DATA) == 0) &&
         (param->cut.ranks || comm_index(exec->comm, MESH_TENSOR) == 0);
}

static Status list_all(Layers *layers) {
  const Exec *exec = layers->exec;
  const PlanStages *stages = exec_stages(exec);
  for (int s = 0; s < stages->count; s++) {
    const Plan *plan = stages->at[s];
    bool is_own = plan == exec->plan;
    for (int i = 0; i < plan->params.count; i++) {
      int known = layers->param_count, number = list_param(layers, &plan->params.at[i]);
      if (is_own)
        layers->number[i] = number == known && tells_of(exec, &plan->params.at[i]) ? number : -1;
    }
    STATUS_TRY(layer_points_find(plan, is_own, &layers->points));
  }
  return STATUS_OK;
}

static int compare_points(const void *a, const void *b) {
  const LayerPoint *x = a, *y = b;
  return x->graph != y->graph ? (x->graph > y->graph) - (x->graph < y->graph)
                              : (x->end > y->end) - (x->end < y->end);
}

static Status make_layers(Layers *layers) {
  const Exec *exec = layers->exec;
  const Plan *plan = exec->plan;
  const PlanStages *stages = exec_stages(exec);
  size_t most = 1;
  for (int s = 0; s < stages->count; s++) most += (size_t)stages->at[s]->params.count;
  layers->param = calloc(most, sizeof *layers->param);
  layers->elements = calloc(most, sizeof *layers->elements);
  layers->number = calloc((size_t)plan->params.count + 1, sizeof *layers->number);
  layers->cut = calloc((size_t)plan->graphs.count + 1, sizeof *layers->cut);
  layers->raw = malloc(LAYERS_PIECE * sizeof(double));
  layers->values = malloc(LAYERS_PIECE * sizeof(float));
  layers->earlier = malloc(LAYERS_PIECE * sizeof(float));
  if (!layers->param || !layers->elements || !layers->number || !layers->cut || !layers->raw ||
      !layers->values || !layers->earlier)
    return status_errno(ENOMEM, "train.log.layers");
  layers->grads = plan_find_place(plan, standard_place_text(PLACE_GRADS));
  for (int g = 0; g < plan->graphs.count; g++) layers->cut[g] = find_cut(exec, g);
  STATUS_TRY(list_all(layers));
  if (layers->points.point_count)
    qsort(layers->points.point, (size_t)layers->points.point_count, sizeof *layers->points.point,
          compare_points);
  size_t sums = (size_t)sums_count(layers) + (size_t)layers->param_count + 1;
  layers->sum = calloc(sums * SUMS_FIELDS, sizeof *layers->sum);
  layers->most = calloc(sums, sizeof *layers->most);
  return layers->sum && layers->most ? STATUS_OK : status_errno(ENOMEM, "train.log.layers");
}

/* Of one batch on one rank gradients are what is in memory. Where they are sums of parts, or have a
 * loss scale, the step gives the factor out, if it was compiled to. */
static Status check_factor(const Exec *exec) {
  const Plan *plan = exec->plan;
  ExecGraph step = exec_result_graph(exec, PROGRAMME_STEP);
  bool has_factor = exec_find_output(exec, step, OUTPUT_GRAD_FACTOR, NULL) >= 0;
  bool is_scaled = exec_find_output(exec, step, OUTPUT_LOSS_SCALE, NULL) >= 0;
  bool is_sum =
      exec_parts(exec) * plan_parts_at_once(plan) > 1 || setting_ranks(plan->settings) != 1;
  if (has_factor || (!is_scaled && !is_sum)) return STATUS_OK;
  return status_fail(
      STATUS_USER,
      "train.log.layers: with %s the step must tell by what its gradients are to be "
      "multiplied, and this artifact does not: compile the model with log { layers = "
      "100 steps }, or ftc --set train.log.layers=100",
      is_scaled ? "fp16" : "accumulate or several ranks");
}

Status layers_new(Exec *exec, Layers **out) {
  *out = NULL;
  STATUS_TRY(check_factor(exec));
  Layers *layers = calloc(1, sizeof *layers);
  if (!layers) return status_errno(ENOMEM, "train.log.layers");
  layers->exec = exec;
  Status status = make_layers(layers);
  if (status != STATUS_OK) {
    layers_free(layers);
    return status;
  }
  layers_begin(layers);
  *out = layers;
  return STATUS_OK;
}

void layers_free(Layers *layers) {
  if (!layers) return;
  free(layers->points.value);
  free(layers->points.point);
  free(layers->param);
  free(layers->elements);
  free(layers->number);
  free(layers->cut);
  free(layers->before);
  free(layers->raw);
  free(layers->values);
  free(layers->earlier);
  free(layers->sum);
  free(layers->most);
  free(layers);
}
