/* lower_tables: what the runtime must know besides the steps: parameters, states, inputs, settings,
 * outputs, memory. The train graph comes first; what only the eval graph has is appended. */
#include "codegen/lower_private.h"
#include "passes/decode.h"
#include "passes/memory_report.h"
#include "passes/narrow.h"
#include "passes/tensor_cut.h"
#include <stdlib.h>
#include <string.h>

Address lower_address(Lowering *lowering, const Node *node) {
  const char *text = node_str(node, ATTR_PLACE);
  Address at = {PLACE_WORK, node_int(node, ATTR_AT, 0)};
  if (text && standard_place_parse(text, &at.place)) {
    if (at.place == PLACE_PREPARED) at.offset += lowering->prepared;
    return at;
  }
  if (node->op == OP_RESHAPE || node->op == OP_STOP_GRADIENT)
    return lower_address(lowering, node->input[0]);
  diag_error(lowering->module->diag, node->origin.loc, "internal error: memplan gave '%s' no place",
             op_info[node->op].text);
  return at;
}

static Init init_of(Arena *arena, const Node *leaf) {
  const char *text = node_str(leaf, ATTR_INIT);
  const Attr *args = node_attr(leaf, ATTR_INIT_ARGS);
  Init init = {.text = arena_strdup(arena, text ? text : "zeros")};
  for (int i = 0; args && i < args->count && i < 2; i++)
    init.arg[init.arg_count++] = args->floats[i];
  return init;
}

static PlanCut lower_cut(const Node *leaf) {
  Cut cut = tensor_cut_of_param(leaf);
  if (!cut.run) return (PlanCut){0};
  return (PlanCut){cut.dim, cut.run, node_int(leaf, ATTR_TENSOR, 0), tensor_length_of_param(leaf)};
}

/* What boxes of an input's elements may be, from the attribute that bound.c writes. */
static void take_parts(Arena *arena, const Node *leaf, PlanTensor *tensor) {
  const Attr *parts = node_attr(leaf, ATTR_PARTS);
  int rank = leaf->type.shape.rank, width = PARTS_HEAD + 3 * rank;
  if (!parts) return;
  tensor->parts = ARENA_ARRAY(arena, PlanPart, parts->count / width);
  for (int at = 0; at < parts->count; at += width) {
    const int64_t *from = &parts->ints[at], *place = from + PARTS_HEAD;
    PlanPart part = {.below = from[0], .has_ignore = from[1] != 0, .ignore = from[2]};
    for (int i = 0; i < rank; i++, place += 3)
      part.start[i] = place[0], part.step[i] = place[1], part.count[i] = place[2];
    if (part.below) tensor->parts[tensor->part_count++] = part;
  }
}

static void add_leaf(Lowering *lowering, const Node *leaf, bool is_eval) {
  Plan *plan = lowering->plan;
  const char *name = node_str(leaf, ATTR_NAME);
  Address at = lower_address(lowering, leaf);
  lower_grow(lowering, at, &leaf->type);
  if (leaf->role == ROLE_CACHE) {
    int64_t end = at.offset + type_bytes(&leaf->type);
    if (end > lowering->cache_bytes) lowering->cache_bytes = end;
    return;
  }
  PlanTensor tensor = {.name = arena_strdup(plan->arena, name),
                       .type = {leaf->type.dtype, node_file_shape(leaf)},
                       .place = at.place,
                       .offset = at.offset,
                       .storage = node_storage(leaf),
                       .shared = node_int(leaf, ATTR_RANKS, 0),
                       .rests = node_int(leaf, ATTR_REST, 0),
                       .cut = lower_cut(leaf),
                       .init = init_of(plan->arena, leaf),
                       .role = leaf->role};
  if (leaf->role == ROLE_GIVEN) {
    tensor.file = arena_strdup(plan->arena, node_str(leaf, ATTR_FILE));
    tensor.file_name = arena_strdup(plan->arena, node_str(leaf, ATTR_TENSOR_NAME));
  }
  const Attr *ignore = node_attr(leaf, ATTR_IGNORE);
  tensor.below = node_int(leaf, ATTR_BELOW, 0);
  tensor.has_ignore = tensor.below && ignore;
  if (tensor.has_ignore) tensor.ignore = ignore->i;
  take_parts(plan->arena, leaf, &tensor);
  int known;
  switch (leaf->op) {
  case OP_PARAM:
    if (is_narrow_param(leaf)) return; /* the plan knows it by its place */
    if (plan_find_tensor(plan->params.at, plan->params.count, name) < 0)
      VEC_PUSH(plan->arena, plan->params, tensor);
    break;
  case OP_INPUT:
    if (plan_find_tensor(plan->inputs.at, plan->inputs.count, name) < 0)
      VEC_PUSH(plan->arena, plan->inputs, tensor);
    break;
  case OP_SETTING:
    if (plan_find_tensor(plan->scalars.at, plan->scalars.count, name) < 0)
      VEC_PUSH(plan->arena, plan->scalars, tensor);
    break;
  default:
    if (role_has(leaf->role, ROLE_APART)) return; /* the plan knows it by its place */
    known = plan_find_tensor(plan->states.at, plan->states.count, name);
    if (known < 0) {
      known = plan->states.count;
      VEC_PUSH(plan->arena, plan->states, tensor);
    }
    if (is_eval && (leaf->role == ROLE_MODEL || leaf->role == ROLE_FLOAT8)) plan->states.at[known].is_saved = true;
  }
}

/* The operands that one result of a kernel depends on; those of its neighbours do not count. */
static void mark_operands(Lowering *lowering, const Node *result, bool *needed) {
  const Node *fused = result->input[0];
  const Graph *body = fused->body;
  bool *inner = ARENA_ARRAY(lowering->arena, bool, body->nodes.count);
  inner[body->roots.at[node_int(result, ATTR_INDEX, 0)].node->id] = true;
  for (int i = body->nodes.count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    for (int k = 0; inner[i] && k < node->input_count; k++) inner[node->input[k]->id] = true;
    if (inner[i] && node->op == OP_ARG)
      needed[fused->input[node_int(node, ATTR_INDEX, 0)]->id] = true;
  }
}

/* A state that is assigned but never read has no leaf: it is not kept. Which inputs do the outputs
 * of the eval graph depend on? */
static void mark_predict(Lowering *lowering, const Graph *graph) {
  Plan *plan = lowering->plan;
  bool *needed = ARENA_ARRAY(lowering->arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->roots.count; i++)
    if (graph->roots.at[i].kind == ROOT_OUTPUT) needed[graph->roots.at[i].node->id] = true;
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    if (needed[i] && node->op == OP_RESULT && node->input[0]->op == OP_FUSED)
      mark_operands(lowering, node, needed);
    else
      for (int k = 0; needed[i] && k < node->input_count; k++) needed[node->input[k]->id] = true;
    if (!needed[i] || node->op != OP_INPUT) continue;
    int input = plan_find_tensor(plan->inputs.at, plan->inputs.count, node_str(node, ATTR_NAME));
    if (input >= 0) plan->inputs.at[input].is_needed_for_predict = true;
  }
}

/* The reader of plans wants every table in the order of memory. */
static int lower_by_offset(const void *a, const void *b) {
  const PlanTensor *x = a, *y = b;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static void sort_tensors(PlanTensor *tensors, int count) {
  if (count) qsort(tensors, (size_t)count, sizeof *tensors, lower_by_offset);
  for (int i = 0; i < count; i++) tensors[i].stream = i;
}

/* Which of the program's parameters it is, where a plan has those of a stage only. */
static int number_of_param(const Program *program, const char *name, int otherwise) {
  for (int i = 0; i < program->params.count; i++)
    if (!strcmp(program->params.at[i], name)) return i;
  return otherwise;
}

/* Initial values go with the order of the program, not with how the recipe has placed params. */
static void sort_params(const Program *program, PlanTensor *params, int count) {
  for (int i = 0; i < count; i++) {
    params[i].stream = number_of_param(program, params[i].name, i);
    for (int k = 0; k < program->outputs.count; k++) params[i].is_output |= !strcmp(program->outputs.at[k], params[i].name);
  }
  if (count) qsort(params, (size_t)count, sizeof *params, lower_by_offset);
}

bool lower_tables(Lowering *lowering) {
  const Program *program = lowering->program;
  Plan *plan = lowering->plan;
  plan->model = program->model_name;
  plan->source = program->path;
  plan->settings = program->settings;
  plan_add_standard_places(plan);
  for (int i = 0; i < program->sources.count; i++)
    VEC_PUSH(plan->arena, plan->sources, program->sources.at[i]);
  plan->decode_refused = program->decode_refused;
  for (int g = 0; g < PROGRAM_GRAPHS; g++) {
    const Graph *graph = program_graph(program, g);
    for (int i = 0; graph && i < graph->nodes.count; i++)
      if (node_is_leaf(graph->nodes.at[i])) add_leaf(lowering, graph->nodes.at[i], g == 1);
  }
  sort_tensors(plan->scalars.at, plan->scalars.count);
  sort_tensors(plan->states.at, plan->states.count);
  sort_params(program, plan->params.at, plan->params.count);
  sort_tensors(plan->inputs.at, plan->inputs.count);
  mark_predict(lowering, program->eval);
  return !lowering->module->diag->errors;
}

/* ── outputs ────────────────────────────────────────────────────────────────────────────────── */
void lower_outputs(Lowering *lowering) {
  Arena *arena = lowering->plan->arena;
  static const OutputKind kinds[] = {[ROOT_LOSS] = OUTPUT_LOSS,
                                     [ROOT_METRIC] = OUTPUT_METRIC,
                                     [ROOT_OUTPUT] = OUTPUT_RESULT,
                                     [ROOT_AUC] = OUTPUT_AUC,
                                     [ROOT_PASSES] = OUTPUT_PASSES,
                                     [ROOT_RATE] = OUTPUT_RATE,
                                     [ROOT_LOSS_SCALE] = OUTPUT_LOSS_SCALE,
                                     [ROOT_SKIPPED] = OUTPUT_SKIPPED,
                                     [ROOT_GRAD_NORM] = OUTPUT_GRAD_NORM,
                                     [ROOT_GRAD_FACTOR] = OUTPUT_GRAD_FACTOR};
  for (int i = 0; i < lowering->graph->roots.count; i++) {
    const Root *root = &lowering->graph->roots.at[i];
    bool is_elsewhere = root->kind == ROOT_GRADIENTS; /* in a place of their own */
    if (root->kind == ROOT_ASSIGN || root->kind == ROOT_RESULT || is_elsewhere) continue;
    Address at = lower_address(lowering, root->node);
    bool is_shown = at.place == PLACE_OUTPUT || at.place == PLACE_WORK;
    if (!is_shown) { /* an input or a parameter as it is */
      bool is_scalar = shape_elements(&root->node->type.shape) == 1;
      StandardPlace place = is_scalar ? PLACE_OUTPUT : PLACE_WORK;
      Address fresh = {place, lower_extend(lowering, place, type_bytes(&root->node->type))};
      lower_copy(lowering, at, fresh, &root->node->type, root->node);
      at = fresh;
    }
    lower_grow(lowering, at, &root->node->type);
    PlanOutput output = {.kind = kinds[root->kind],
                         .name = arena_strdup(arena, root->name),
                         .type = root->node->type,
                         .place = at.place,
                         .offset = at.offset};
    VEC_PUSH(arena, lowering->out->outputs, output);
  }
}

/* ── places ─────────────────────────────────────────────────────────────────────────────────── */
/* f16 if a graph reads f16 there: train.precision does not say it, a model of f32 may round its
 * parameters itself. */
static DType lower_narrow_type(const Plan *plan) {
  for (int g = 0; g < plan->graphs.count; g++)
    for (int i = 0; i < plan->graphs.at[g].buffers.count; i++) {
      const PlanBuffer *buffer = &plan->graphs.at[g].buffers.at[i];
      bool is_rounded = buffer->place == PLACE_NARROW || buffer->place == PLACE_FROZEN_NARROW;
      if (is_rounded && buffer->type.dtype == DT_F16) return DT_F16;
    }
  return DT_BF16;
}

/* Of all parameters, since whatever writes one also rounds it. */
static void lower_rounded(Plan *plan, StandardPlace of, StandardPlace rounded) {
  PlanPlace *params = &plan->places.at[of], *narrow = &plan->places.at[rounded];
  if (plan->params.count) params->dtype = plan->params.at[0].type.dtype;
  narrow->dtype = lower_narrow_type(plan);
  if (narrow->bytes)
    narrow->bytes = plan_aligned(params->bytes / 2);
  else
    narrow->elements = ELEMENTS_NONE, narrow->is_frozen = false;
}

void lower_places(Lowering *lowering) {
  Plan *plan = lowering->plan;
  const PlanPlace *params = &plan->places.at[PLACE_PARAMS];
  lower_rounded(plan, PLACE_PARAMS, PLACE_NARROW);
  lower_rounded(plan, PLACE_FROZEN, PLACE_FROZEN_NARROW);
  PlanPlace *grads = &plan->places.at[PLACE_GRADS];
  if (grads->bytes > plan_aligned(params->bytes / dtype_bytes(params->dtype) * dtype_bytes(DT_F32)))
    grads->elements = ELEMENTS_NONE; /* sums of whole gradients behind the parts of a rank */
  if (lowering->cache_bytes)
    plan_add_place(plan, (PlanPlace){.name = "caches",
                                     .bytes = lowering->cache_bytes,
                                     .life = FOR_TEXT,
                                     .is_window = true,
                                     .of = PLACE_WORK});
  for (int i = 0; i < plan->states.count; i++)
    if (role_has(plan->states.at[i].role, ROLE_SLICED)) plan_add_slice(plan, &plan->states.at[i]);
}

/* ── memory ─────────────────────────────────────────────────────────────────────────────────── */
void lower_memory(Lowering *lowering, int64_t handed_on) {
  Plan *plan = lowering->plan;
  MemoryReport report = memory_report(lowering->program, lowering->arena);
  for (int i = 0; i < MEMORY_CATEGORY_COUNT; i++) {
    PlanMemory row = {memory_category_text((MemoryCategory)i), report.bytes[i]};
    if (memory_is_shown(&report, (MemoryCategory)i)) VEC_PUSH(plan->arena, plan->memory, row);
  }
  PlanMemory prepared = {"weights prepared for inference", plan->places.at[PLACE_PREPARED].bytes};
  if (prepared.bytes) VEC_PUSH(plan->arena, plan->memory, prepared);
  PlanMemory own = {"kernels' workspace", plan->places.at[PLACE_WORKSPACE].bytes + handed_on};
  VEC_PUSH(plan->arena, plan->memory, own);
}
