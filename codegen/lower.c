/* lower: the walk over a graph in its order, which is the order of execution. */
#include "codegen/chain.h"
#include "codegen/join.h"
#include "codegen/library.h"
#include "codegen/lower_private.h"
#include "passes/prepare.h"
#include <string.h>

/* What tells a buffer from others of its graph. */
typedef struct {
  int64_t place, offset, dtype, pitch, rank, dim[MAX_RANK];
} BufferKey;

static BufferKey buffer_key(Address at, const Type *type) {
  BufferKey key = {at.place, at.offset, type->dtype, type->pitch, type->shape.rank, {0}};
  for (int i = 0; i < type->shape.rank; i++) key.dim[i] = type->shape.dim[i];
  return key;
}

/* The buffers of the graph at hand. */
static Lookup *buffer_index(Lowering *lowering) {
  Lookup *index = &lowering->buffer_index[lowering->out - lowering->plan->graphs.at];
  index->arena = lowering->arena;
  return index;
}

int lower_buffer(Lowering *lowering, Address at, const Type *type) {
  PlanGraph *out = lowering->out;
  BufferKey key = buffer_key(at, type);
  int next = out->buffers.count, found = lookup_add(buffer_index(lowering), &key, sizeof key, next);
  if (found != next) return found;
  PlanBuffer buffer = {at.place, at.offset, *type};
  VEC_PUSH(lowering->plan->arena, out->buffers, buffer);
  lower_grow(lowering, at, type);
  return next;
}

void lower_grow(Lowering *lowering, Address at, const Type *type) {
  int64_t end = plan_aligned(at.offset + type_bytes(type));
  int64_t *size = &lowering->plan->places.at[at.place].bytes;
  if (end > *size) *size = end;
}

int64_t lower_extend(Lowering *lowering, StandardPlace place, int64_t bytes) {
  int64_t *size = &lowering->plan->places.at[place].bytes, at = *size;
  *size += plan_aligned(bytes);
  return at;
}

void lower_copy(Lowering *lowering, Address from, Address to, const Type *type, const Node *cause) {
  Arena *arena = lowering->plan->arena;
  if ((from.place == to.place && from.offset == to.offset) || !type_bytes(type)) return;
  lower_wait(lowering, from, type_bytes(type), false);
  lower_wait(lowering, to, type_bytes(type), true);
  int *args = ARENA_ARRAY(arena, int, 2);
  args[0] = lower_buffer(lowering, from, type);
  args[1] = lower_buffer(lowering, to, type);
  PlanStep step = {.kind = STEP_COPY,
                   .name = step_kind_text(STEP_COPY),
                   .queue = QUEUE_COPY,
                   .args = args,
                   .arg_count = 2,
                   .input_count = 1,
                   .work = type_bytes(type),
                   .bytes = 2 * type_bytes(type),
                   .label = arena_printf(arena, "copy to %s", standard_place_text(to.place)),
                   .work_kind = WORK_MOVE};
  lower_belonging(lowering, cause, &step);
  VEC_PUSH(arena, lowering->out->steps, step);
}

/* Operands that memplan could not place inside the packed tensor are copied there. */
static void lower_pack(Lowering *lowering, const Node *node) {
  Address to = lower_address(lowering, node);
  const int64_t *offsets = node_attr(node, ATTR_OFFSETS)->ints;
  for (int i = 0; i < node->input_count; i++) {
    const Node *operand = node->input[i];
    Address part = {to.place, to.offset + offsets[i] * dtype_bytes(node->type.dtype)};
    lower_copy(lowering, lower_address(lowering, operand), part, &operand->type, node);
  }
}

static void lower_assign(Lowering *lowering, const Node *node) {
  Address to = lower_address(lowering, node);
  lower_copy(lowering, lower_address(lowering, node->input[0]), to, &node->type, node);
}

static bool lower_node(Lowering *lowering, const Node *node) {
  switch (node->op) {
  case OP_PACK:
    lower_pack(lowering, node);
    return true;
  case OP_ASSIGN:
    lower_assign(lowering, node);
    return true;
  case OP_ALL_REDUCE:
    lower_all_reduce(lowering, node);
    return true;
  case OP_ALL_GATHER:
  case OP_REDUCE_SCATTER:
  case OP_ALL_TO_ALL:
  case OP_BROADCAST_FROM:
  case OP_TRANSFER:
  case OP_SEND:
  case OP_RECEIVE:
    lower_collective(lowering, node);
    return true;
  case OP_INPUT:
  case OP_PARAM:
  case OP_STATE:
  case OP_SETTING:
  case OP_RESULT:
  case OP_RESHAPE:
  case OP_STOP_GRADIENT:
    return true;
  default:
    return lower_kernel(lowering, node);
  }
}

/* The graph's part of the place prepared: what memplan has put there, and packed operands behind it. */
static void begin_prepared(Lowering *lowering, const Graph *graph) {
  int64_t bytes = 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    const char *place = node_str(node, ATTR_PLACE);
    int64_t end = node_int(node, ATTR_AT, 0) + type_bytes(&node->type);
    if (place && !strcmp(place, standard_place_text(PLACE_PREPARED)) && end > bytes) bytes = end;
  }
  lowering->prepared = lower_extend(lowering, PLACE_PREPARED, bytes);
}

static bool lower_graph(Lowering *lowering, const Graph *graph, PlanGraph *out) {
  Plan *plan = lowering->plan;
  bool good = true;
  lowering->graph = graph;
  lowering->rows = chain_find(lowering->module, lowering->arena, graph);
  lowering->out = out;
  lowering->prepare = out->prepare ? &plan->graphs.at[plan_find_graph(plan, out->prepare)] : NULL;
  if (lowering->prepare) begin_prepared(lowering, graph);
  for (int i = 0; i < graph->nodes.count; i++)
    good = lower_node(lowering, graph->nodes.at[i]) && good;
  lower_end_all(lowering);
  lower_outputs(lowering);
  return good;
}

/* Where a batch comes in parts, the next one's gradients are added to zeros (passes/
 * optimizer_accumulate.c). */
static void clear_sums(Lowering *lowering, const Graph *train) {
  int64_t elements = lowering->plan->places.at[PLACE_GRADS].bytes / 4;
  Arena *arena = lowering->plan->arena;
  Type type = {DT_F32, shape_of(1, &elements)};
  int *args = ARENA_ARRAY(arena, int, 1);
  lowering->out = &lowering->plan->graphs.at[plan_find_graph(lowering->plan, train->name)];
  args[0] = lower_buffer(lowering, (Address){PLACE_GRADS, 0}, &type);
  PlanStep step = {.kind = STEP_FILL,
                   .name = step_kind_text(STEP_FILL),
                   .queue = QUEUE_COPY,
                   .args = args,
                   .arg_count = 1,
                   .work = type_bytes(&type),
                   .bytes = type_bytes(&type),
                   .label = "clear the sums of gradients",
                   .phase = PHASE_UPDATE,
                   .work_kind = WORK_MOVE};
  VEC_PUSH(arena, lowering->out->steps, step);
}

static bool find_order(Lowering *lowering, PlanGraph *graph) {
  const char *why = join_launches(lowering->module, lowering->plan, graph);
  if (why)
    diag_error(lowering->module->diag, (Loc){0},
               "no order of the steps of graph '%s' can be found: %s", graph->name, why);
  return !why;
}

/* The graphs that there are, and behind them those that prepare weights for them: all before the first is
 * filled, since they may move as the list grows. The count of the first. */
static int list_graphs(const Program *program, Plan *plan, const Graph *graph[PROGRAM_GRAPHS]) {
  for (int g = 0; g < PROGRAM_GRAPHS; g++) {
    const Graph *from = program_graph(program, g);
    if (!from) continue;
    graph[plan->graphs.count] = from;
    VEC_PUSH(plan->arena, plan->graphs, (PlanGraph){.name = arena_strdup(plan->arena, from->name)});
  }
  int count = plan->graphs.count;
  for (int g = 0; g < count; g++) {
    if (!prepare_is_any(graph[g])) continue;
    PlanGraph prepare = {.name = arena_printf(plan->arena, "%s.prepare", graph[g]->name)};
    plan->graphs.at[g].prepare = prepare.name;
    VEC_PUSH(plan->arena, plan->graphs, prepare);
  }
  return count;
}

bool lower_program(Module *const *modules, int count, const Program *program, Plan *plan) {
  Lowering lowering = {.module = modules[0],
                       .modules = modules,
                       .module_count = count,
                       .arena = arena_new(),
                       .program = program,
                       .plan = plan};
  const Graph *graph[PROGRAM_GRAPHS];
  int graphs = list_graphs(program, plan, graph);
  bool good = lower_tables(&lowering);
  for (int g = 0; g < graphs && good; g++)
    good = lower_graph(&lowering, graph[g], &plan->graphs.at[g]);
  int64_t work = plan->places.at[PLACE_WORK].bytes;
  for (int g = 0; g < graphs && good && modules[0]->target == TARGET_PTX; g++) {
    lowering.out = &plan->graphs.at[g];
    library_pairs(&lowering, graph[g], lowering.node_steps[g].at, lowering.node_steps[g].count);
  }
  int all = plan->graphs.count;
  for (int g = 0; g < all && good; g++)
    lower_body_order(&plan->graphs.at[g], lowering.node_steps[g].at, lowering.node_steps[g].count);
  for (int g = 0; g < graphs && good; g++) lower_partners(&lowering, &plan->graphs.at[g]);
  if (good && program->micro) clear_sums(&lowering, program->train);
  for (int i = 0; i < program->variant_count && good && program->micro; i++)
    clear_sums(&lowering, program->variants[i].train);
  for (int g = 0; g < all && good; g++) good = find_order(&lowering, &plan->graphs.at[g]);
  lower_places(&lowering);
  lower_programmes(program, plan);
  if (good) lower_memory(&lowering, plan->places.at[PLACE_WORK].bytes - work);
  arena_free(lowering.arena);
  return good;
}
