/* lower_beside: collectives, which go on beside the compute queue. One is begun where its node
 * stands, and ended before the first step that needs its bytes: one that touches what it writes, or
 * writes what it reads. Until all steps have their places, `partner` of a BEGIN and its END is the
 * number of the collective; lower_partners makes indices of these. */
#include "codegen/lower_private.h"
#include "plan/plan_order.h"

static bool is_within(const PlanBuffer *buffer, Address at, int64_t bytes) {
  int64_t end = buffer->offset + type_bytes(&buffer->type);
  return buffer->place == (int)at.place && buffer->offset < at.offset + bytes && at.offset < end;
}

static void lower_end(Lowering *lowering, int number) {
  Collective *collective = &lowering->collectives.at[number];
  PlanStep step = {.kind = STEP_END,
                   .name = step_kind_text(STEP_END),
                   .queue = QUEUE_COMMUNICATE,
                   .partner = number,
                   .line = collective->begin.line,
                   .label = collective->begin.label,
                   .layer = collective->begin.layer,
                   .phase = collective->begin.phase,
                   .work_kind = WORK_COMMUNICATION};
  collective->is_ended = true;
  VEC_PUSH(lowering->plan->arena, lowering->out->steps, step);
}

void lower_wait(Lowering *lowering, Address at, int64_t bytes, bool writes) {
  for (int i = lowering->first_open; i < lowering->collectives.count; i++) {
    const Collective *open = &lowering->collectives.at[i];
    const PlanBuffer *buffers = lowering->out->buffers.at;
    const PlanBuffer *in = &buffers[open->args[0]], *out = &buffers[open->args[open->reads]];
    bool meets = (open->writes && is_within(out, at, bytes)) ||
                 (open->reads && writes && is_within(in, at, bytes));
    if (!open->is_ended && meets) lower_end(lowering, i);
  }
  while (lowering->first_open < lowering->collectives.count &&
         lowering->collectives.at[lowering->first_open].is_ended)
    lowering->first_open++;
}

void lower_end_all(Lowering *lowering) {
  for (int i = lowering->first_open; i < lowering->collectives.count; i++)
    if (!lowering->collectives.at[i].is_ended) lower_end(lowering, i);
  lowering->collectives.count = lowering->first_open = 0;
}

void lower_partners(Lowering *lowering, PlanGraph *graph) {
  int *begun = ARENA_ARRAY(lowering->arena, int, graph->steps.count + 1);
  for (int i = 0; i < graph->steps.count; i++) {
    PlanStep *step = &graph->steps.at[i];
    if (step->kind == STEP_BEGIN) begun[step->partner] = i;
    if (step->kind != STEP_END) continue;
    step->partner = begun[step->partner];
    graph->steps.at[step->partner].partner = i;
  }
}

/* ── beginning ──────────────────────────────────────────────────────────────────────────────── */
/* Where a collective reads and writes; the two are the same bytes or apart. */
typedef struct {
  Address from, to;
  int64_t bytes, made; /* read, and written */
} Piece;

static bool lower_beside_is_in_place(const Piece *piece) {
  return piece->from.place == piece->to.place && piece->from.offset == piece->to.offset;
}

/* In the order of the attribute `op` in plan/beside.def. */
static int64_t reduction_number(const Node *node) {
  static const Op ops[] = {OP_SUM, OP_RMIN, OP_RMAX, OP_PROD};
  Op op = OP_SUM;
  int64_t number = 0;
  op_parse(node_str(node, ATTR_REDUCTION), &op);
  while (ops[number] != op) number++;
  return number;
}

static int lower_flat(Lowering *lowering, Address at, DType dtype, int64_t bytes) {
  int64_t elements = bytes / dtype_bytes(dtype);
  return lower_buffer(lowering, at, &(Type){dtype, shape_of(1, &elements)});
}

/* All ranks of a graph are those of its stage. */
static MeshAxis lower_group(const Lowering *lowering, const Node *node) {
  MeshAxis axis = node_axis(node);
  const SettingValue *settings = lowering->program->settings;
  bool is_stage = axis == MESH_ALL && settings && setting_pipeline(settings) > 1;
  return is_stage ? MESH_STAGE : axis;
}

/* The attributes of plan/beside.def, in its order. */
static int lower_ints(Lowering *lowering, const Node *node, PlanInt **out) {
  Arena *arena = lowering->plan->arena;
  static const struct {
    AttrId id;
    const char *key;
  } keys[] = {{ATTR_REDUCTION, "op"}, {ATTR_ROOT, "peer"}, {ATTR_FROM, "from"}, {ATTR_TO, "to"}};
  bool is_message = op_is_message(node->op);
  PlanInt *ints = *out = ARENA_ARRAY(arena, PlanInt, 3);
  int count = 0;
  ints[count++] = (PlanInt){"group", lower_group(lowering, node)};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!node_attr(node, keys[i].id)) continue;
    int64_t value =
        keys[i].id == ATTR_REDUCTION ? reduction_number(node) : node_int(node, keys[i].id, 0);
    ints[count++] = (PlanInt){is_message ? "peer" : keys[i].key, value};
  }
  return count;
}

static void lower_begin(Lowering *lowering, const Node *node, const Piece *piece) {
  Arena *arena = lowering->plan->arena;
  DType dtype = (node->op == OP_SEND ? node->input[0] : node)->type.dtype;
  bool reads = piece->bytes > 0, writes = piece->made > 0;
  if (!reads && !writes) return;
  if (reads)
    lower_wait(lowering, piece->from, piece->bytes, writes && lower_beside_is_in_place(piece));
  if (writes) lower_wait(lowering, piece->to, piece->made, true);
  PlanInt *ints;
  int int_count = lower_ints(lowering, node, &ints);
  int *args = ARENA_ARRAY(arena, int, 2), arg_count = 0;
  if (reads) args[arg_count++] = lower_flat(lowering, piece->from, dtype, piece->bytes);
  if (writes) args[arg_count++] = lower_flat(lowering, piece->to, dtype, piece->made);
  const char *what = node_str(node, ATTR_WHY);
  PlanStep step = {.kind = STEP_BEGIN,
                   .name = node->op == OP_BROADCAST_FROM ? "broadcast" : op_info[node->op].text,
                   .queue = QUEUE_COMMUNICATE,
                   .args = args,
                   .arg_count = arg_count,
                   .input_count = reads,
                   .partner = lowering->collectives.count,
                   .ints = ints,
                   .int_count = int_count,
                   .bytes = piece->bytes + piece->made,
                   .label = what ? arena_strdup(arena, what) : op_info[node->op].text,
                   .work_kind = WORK_COMMUNICATION};
  lower_belonging(lowering, node, &step);
  VEC_PUSH(arena, lowering->out->steps, step);
  Collective open = {.args = args, .reads = reads, .writes = writes, .begin = step};
  VEC_PUSH(lowering->arena, lowering->collectives, open);
}

/* The result of a send is nothing, and nothing reads it. */
static void lower_message(Lowering *lowering, const Node *node) {
  Piece piece = {0};
  if (node->op == OP_SEND) {
    piece.from = lower_address(lowering, node->input[0]);
    piece.bytes = type_bytes(&node->input[0]->type);
  } else {
    piece.to = lower_address(lowering, node);
    piece.made = type_bytes(&node->type);
  }
  lower_begin(lowering, node, &piece);
}

void lower_collective(Lowering *lowering, const Node *node) {
  if (op_is_message(node->op)) {
    lower_message(lowering, node);
    return;
  }
  const Piece piece = {.from = lower_address(lowering, node->input[0]),
                       .to = lower_address(lowering, node),
                       .bytes = type_bytes(&node->input[0]->type),
                       .made = type_bytes(&node->type)};
  lower_begin(lowering, node, &piece);
}

/* ── all_reduce ─────────────────────────────────────────────────────────────────────────────── */
/* Gradients whose sums lie one behind the other in their own places are one collective: what is
 * between them is less than the alignment of tensors, so that no other one is there, and zero. */
static bool continues(const Piece *before, const Piece *piece) {
  int64_t end = before->to.offset + before->bytes, gap = piece->to.offset - end;
  return lower_beside_is_in_place(before) && lower_beside_is_in_place(piece) &&
         before->to.place == PLACE_GRADS && piece->to.place == PLACE_GRADS && gap >= 0 &&
         gap < PLAN_ALIGN && plan_aligned(end) == plan_aligned(piece->to.offset);
}

static Piece piece_of(Lowering *lowering, const Node *node, const Node *result, int k) {
  const Type *type = &node->input[k]->type;
  Piece piece = {.from = lower_address(lowering, node->input[k]),
                 .bytes = type_bytes(type),
                 .made = type_bytes(type)};
  if (result)
    piece.to = lower_address(lowering, result);
  else /* no node reads it */
    piece.to = (Address){PLACE_WORK, lower_extend(lowering, PLACE_WORK, piece.bytes)};
  return piece;
}

void lower_all_reduce(Lowering *lowering, const Node *node) {
  const Node **results;
  lower_results(lowering, node, &results);
  Piece whole = piece_of(lowering, node, results[0], 0);
  for (int k = 1; k < node->input_count; k++) {
    Piece next = piece_of(lowering, node, results[k], k);
    if (continues(&whole, &next)) {
      whole.bytes = whole.made = next.to.offset + next.bytes - whole.to.offset;
      continue;
    }
    lower_begin(lowering, node, &whole);
    whole = next;
  }
  lower_begin(lowering, node, &whole);
}
