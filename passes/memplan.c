/* memplan: gives every value a place. Leaves have fixed offsets in their places; scalars that a
 * root shows go to the place output, what pack collects to the place grads, what an assign stores
 * straight into its state where that is legal; everything else shares the place work by lifetime,
 * in place of an operand where a kernel may overwrite it. See memplan.h for what code generation
 * may assume.
 *
 * Both graphs must agree on inputs, params, states and settings: their places depend only on the
 * order of leaves, which is the same in both, and on the program's two lists of states. */
#include "passes/memplan.h"
#include "passes/narrow.h"
#include "passes/pass.h"
#include "passes/prepare.h"
#include <string.h>

typedef struct {
  PassContext *context;
  Graph *graph;
  Arena *arena;
  Lifetimes times;
  const char **where; /* by base value: the place, NULL as long as it is not decided */
  int64_t *at;
  int64_t
      cache_end; /* caches lie at the start of the place work, alike in all graphs that have them */
  int64_t frozen; /* the least offset of a frozen param: where their place begins */
  int *slot_of;   /* by base value; -1 */
  int64_t apart;  /* bytes of the small values that share their memory with no other */
  VEC(MemSlot) slots;
  LifetimeIds *read_in;   /* by leaf: the steps that read it */
  LifetimeIds *leaves_of; /* by state: what is a part of it */
  bool *is_shown;         /* by base value: a root */
  Lookup state_number;    /* by name: an index to */
  VEC(int64_t) state_offsets;
} MemPlan;

static int64_t aligned(int64_t bytes) {
  return (bytes + MEMPLAN_ALIGN - 1) / MEMPLAN_ALIGN * MEMPLAN_ALIGN;
}
static Node *node_at(const MemPlan *plan, int id) { return plan->graph->nodes.at[id]; }

static void put(MemPlan *plan, const Node *base, StandardPlace arena, int64_t at) {
  plan->where[base->id] = standard_place_text(arena);
  plan->at[base->id] = at;
}

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
typedef enum { STATES_MODEL, STATES_UPDATE, STATES_GIVEN, STATES_COUNT } StatesKind;

static void add_states(MemPlan *plan, const Graph *graph, StatesKind which, int64_t *end) {
  for (int i = 0; graph && i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is_fixed = node->role == ROLE_STEP || role_has(node->role, ROLE_APART);
    StatesKind kind = node->role == ROLE_GIVEN              ? STATES_GIVEN
                      : role_has(node->role, ROLE_UPDATE) ? STATES_UPDATE
                                                          : STATES_MODEL;
    if (node->op != OP_STATE || is_fixed || kind != which) continue;
    const char *name = node_str(node, ATTR_NAME);
    int fresh = plan->state_offsets.count;
    if (lookup_add_text(&plan->state_number, name, fresh) != fresh) continue;
    VEC_PUSH(plan->arena, plan->state_offsets, *end);
    *end += aligned(type_bytes(&node->type));
  }
}

/* The step counter, the model's states, those of the update; in a place of their own, those given by
 * files: the same in both graphs, although each of them may lack some. */
static void place_states(MemPlan *plan) {
  const Program *program = plan->context->program;
  int64_t end = MEMPLAN_ALIGN;
  for (int which = 0; which < STATES_COUNT; which++) {
    if (which == STATES_GIVEN) end = 0;
    for (int i = 0; program && i < PROGRAM_GRAPHS; i++)
      add_states(plan, program_graph(program, i), (StatesKind)which, &end);
    add_states(plan, plan->graph, (StatesKind)which, &end);
  }
}

static void place_state(MemPlan *plan, const Node *node) {
  int number;
  switch (node->role) {
  case ROLE_CACHE:
    put(plan, node, PLACE_WORK, plan->cache_end);
    plan->cache_end += aligned(type_bytes(&node->type));
    return;
  case ROLE_PARAMS:
    return put(plan, node, PLACE_PARAMS, 0);
  case ROLE_NARROW:
    return put(plan, node, PLACE_NARROW, 0);
  case ROLE_GRADIENT_SUM: /* where the gradient would be */
    return put(plan, node, PLACE_GRADS,
               node_int(node, ATTR_OFFSET, 0) * dtype_bytes(node->type.dtype));
  case ROLE_STEP:
    return put(plan, node, PLACE_STATE, 0);
  default:
    number = lookup_find_text(&plan->state_number, node_str(node, ATTR_NAME));
    put(plan, node, node->role == ROLE_GIVEN ? PLACE_GIVEN : PLACE_STATE,
        plan->state_offsets.at[number]);
  }
}

/* Inputs lie where the step has them, which in a pipeline takes more rows of each than an evaluation
 * does, and more than a variant of fewer samples. */
static int64_t input_bytes(const MemPlan *plan, const Node *input) {
  const Program *program = plan->context->program;
  bool is_other = plan->context->of == PASS_OF_EVAL || plan->context->is_variant;
  const Graph *train = program && is_other ? program->train : NULL;
  for (int i = 0; train && i < train->nodes.count; i++) {
    const Node *node = train->nodes.at[i];
    if (node->op == OP_INPUT && !strcmp(node_str(node, ATTR_NAME), node_str(input, ATTR_NAME)))
      return type_bytes(&node->type);
  }
  return type_bytes(&input->type);
}

static void place_param(MemPlan *plan, const Node *node) {
  bool is_frozen = node_is_frozen(node), is_narrow = is_narrow_param(node);
  int64_t at = node_int(node, ATTR_OFFSET, 0) - (is_frozen ? plan->frozen : 0);
  StandardPlace place = is_frozen ? (is_narrow ? PLACE_FROZEN_NARROW : PLACE_FROZEN)
                                  : (is_narrow ? PLACE_NARROW : PLACE_PARAMS);
  put(plan, node, place, at * dtype_bytes(node->type.dtype));
}

/* All params have their offsets in every graph. */
static int64_t first_frozen(const Graph *graph) {
  int64_t first = INT64_MAX;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i];
    int64_t offset = node_int(param, ATTR_OFFSET, 0);
    if (node_is_frozen(param) && offset < first) first = offset;
  }
  return first;
}

static void place_leaf(MemPlan *plan, const Node *node, int64_t *input_end) {
  const char *name = node_str(node, ATTR_NAME);
  switch (node->op) {
  case OP_INPUT:
    put(plan, node, PLACE_INPUT, *input_end);
    *input_end += aligned(input_bytes(plan, node));
    break;
  case OP_PARAM:
    place_param(plan, node);
    break;
  case OP_SETTING:
    put(plan, node, PLACE_SETTINGS, (int64_t)sizeof(double) * setting_find(name));
    break;
  default:
    place_state(plan, node);
  }
}

static void place_leaves(MemPlan *plan) {
  int64_t input_end = 0;
  plan->frozen = first_frozen(plan->graph);
  place_states(plan);
  for (int i = 0; i < plan->graph->nodes.count; i++)
    if (node_is_leaf(node_at(plan, i))) place_leaf(plan, node_at(plan, i), &input_end);
}

/* ── values with a place outside the place work ─────────────────────────────────────────────── */
/* Scalars, which are fetched while later steps run. A tensor that the model shows is read before
 * the next run: it lives to the end of the place work's use. */
static void place_outputs(MemPlan *plan) {
  int64_t end = 0;
  for (int i = 0; i < plan->graph->roots.count; i++) {
    const Root *root = &plan->graph->roots.at[i];
    const Node *base = lifetime_base(root->node);
    if (root->kind == ROOT_ASSIGN || plan->where[base->id]) continue;
    if (shape_elements(&base->type.shape) != 1) continue;
    put(plan, base, PLACE_OUTPUT, end);
    end += aligned(type_bytes(&base->type));
  }
}

static void find_readers(MemPlan *plan) {
  for (int i = 0; i < plan->times.count; i++)
    for (int k = 0; k < plan->times.node[i]->input_count; k++) {
      int base = lifetime_base(plan->times.node[i]->input[k])->id;
      if (node_is_leaf(node_at(plan, base))) VEC_PUSH(plan->arena, plan->read_in[base], i);
    }
  for (int i = 0; i < plan->graph->roots.count; i++)
    plan->is_shown[lifetime_base(plan->graph->roots.at[i].node)->id] = true;
}

/* May the step that makes `base` write it into the state? No step may read the old value later, and
 * the step itself only where it writes. */
static bool may_write_state(const MemPlan *plan, const Node *base, const Node *state) {
  if (plan->context->is_plain) return false;
  if (!lifetime_is_value(base) || plan->where[base->id]) return false;
  int step = plan->times.step[base->id];
  const Node *writer = plan->times.node[step];
  for (int i = 0; i < plan->leaves_of[state->id].count; i++) {
    const Node *leaf = node_at(plan, plan->leaves_of[state->id].at[i]);
    if (plan->is_shown[leaf->id]) return false;
    for (int k = 0; k < plan->read_in[leaf->id].count; k++) {
      int reader = plan->read_in[leaf->id].at[k];
      if (reader < step) continue;
      if (reader > step || leaf->op != OP_STATE ||
          !lifetime_may_overwrite(writer, (int)node_int(base, ATTR_INDEX, 0), leaf))
        return false;
    }
  }
  return true;
}

/* By offset in the place grads: the sums of gradients. */
static Lookup find_sums(const MemPlan *plan) {
  Lookup sums = {.arena = plan->arena};
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    int64_t offset = node_int(node_at(plan, i), ATTR_OFFSET, -1);
    if (node_at(plan, i)->role == ROLE_GRADIENT_SUM) lookup_add(&sums, &offset, sizeof offset, i);
  }
  return sums;
}

/* The operand that an all_reduce makes this result of and may write over; NULL: there is none. */
static const Node *reduced_operand(const MemPlan *plan, const Node *base) {
  const Node *reduce = base->op == OP_RESULT ? base->input[0] : base;
  if (reduce->op != OP_ALL_REDUCE || plan->context->is_plain) return NULL;
  int index = (int)node_int(base, ATTR_INDEX, 0);
  const Node *operand = lifetime_base(reduce->input[index]);
  bool is_last = plan->times.last[operand->id] == plan->times.step[reduce->id];
  bool may =
      lifetime_is_value(operand) && is_last && lifetime_may_overwrite(reduce, index, operand);
  return may ? operand : NULL;
}

static void place_gradients(MemPlan *plan) {
  const Node *pack = graph_find_gradients(plan->graph);
  if (!pack) return;
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  Lookup sums = find_sums(plan);
  int bytes = dtype_bytes(pack->type.dtype);
  if (!plan->where[pack->id]) put(plan, pack, PLACE_GRADS, 0);
  for (int k = 0; k < pack->input_count; k++) {
    const Node *base = lifetime_base(pack->input[k]);
    int sum = lookup_find(&sums, &offsets->ints[k], sizeof offsets->ints[k]);
    /* what all ranks make of it, and, there too, what this one has made */
    for (; base; base = reduced_operand(plan, base))
      if (!plan->where[base->id] && (sum < 0 || may_write_state(plan, base, node_at(plan, sum))))
        put(plan, base, PLACE_GRADS, offsets->ints[k] * bytes);
  }
}

static void place_assigned(MemPlan *plan) {
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    const Node *assign = node_at(plan, i);
    if (assign->op != OP_ASSIGN) continue;
    const Node *base = lifetime_base(assign->input[0]);
    const Node *state = graph_find_state(plan->graph, node_str(assign, ATTR_TARGET));
    plan->where[i] = plan->where[state->id];
    plan->at[i] = plan->at[state->id];
    if (may_write_state(plan, base, state)) {
      plan->where[base->id] = plan->where[i];
      plan->at[base->id] = plan->at[i];
    }
  }
}

/* What runs once for all batches leaves for the others: no two share a byte, and nothing else lies there.
 * What only such steps read, or a product packs, is temporary: they run in the same order. */
static void place_prepared(MemPlan *plan) {
  bool *is_kept = ARENA_ARRAY(plan->arena, bool, plan->graph->nodes.count);
  int64_t end = 0;
  for (int i = 0; i < plan->times.count; i++) {
    const Node *step = plan->times.node[i];
    for (int k = 0; k < step->input_count && !prepare_has(step); k++) {
      const Node *base = lifetime_base(step->input[k]);
      if (prepare_makes(base) && prepare_reads(step, k, plan->context->for_gpu)) is_kept[base->id] = true;
    }
  }
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    if (!is_kept[i]) continue;
    put(plan, node_at(plan, i), PLACE_PREPARED, end);
    end += aligned(type_bytes(&node_at(plan, i)->type));
  }
}

/* ── the place work ─────────────────────────────────────────────────────────────────────────── */
/* The slot of an operand that dies in this kernel and that the result may overwrite; -1: none. */
static int slot_to_reuse(const MemPlan *plan, const Node *result) {
  const Node *maker = result->op == OP_RESULT ? result->input[0] : result;
  int step = plan->times.step[result->id];
  for (int k = 0; k < maker->input_count; k++) {
    const Node *base = lifetime_base(maker->input[k]);
    int slot = plan->slot_of[base->id];
    if (slot < 0 || plan->times.last[base->id] != step || plan->slots.at[slot].last != step)
      continue;
    if (aligned(type_bytes(&result->type)) == plan->slots.at[slot].bytes &&
        result->type.pitch == base->type.pitch &&
        lifetime_may_overwrite(maker, (int)node_int(result, ATTR_INDEX, 0), base))
      return slot;
  }
  return -1;
}

/* A library may do a product and the gradient of an activation behind it in one call
 * (codegen/library.h): it reads the operands when it writes the gradient, so they live that long.
 */
static void keep_operands(MemPlan *plan) {
  const Node **reader = ARENA_ARRAY(plan->arena, const Node *, plan->graph->nodes.count);
  int *readers = ARENA_ARRAY(plan->arena, int, plan->graph->nodes.count);
  for (int s = 0; s < plan->times.count; s++) {
    const Node *step = plan->times.node[s];
    for (int k = 0; k < step->input_count; k++) {
      int base = lifetime_base(step->input[k])->id;
      readers[base] += reader[base] != step;
      reader[base] = step;
    }
  }
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    const Node *value = node_at(plan, i);
    const Node *product = value->op == OP_RESULT ? value->input[0] : value, *user = reader[i];
    const char *kind = product->op == OP_FUSED ? node_str(product, ATTR_KIND) : NULL;
    if (!lifetime_is_value(value) || readers[i] != 1 || user->op != OP_FUSED ||
        user->input_count != 2 || (product->op != OP_DOT && !(kind && !strcmp(kind, "dot"))) ||
        shape_elements(&user->input[0]->type.shape) != shape_elements(&user->input[1]->type.shape))
      continue;
    for (int k = 0; k < product->input_count; k++) {
      int *last = &plan->times.last[lifetime_base(product->input[k])->id];
      if (*last >= 0 && *last < plan->times.step[user->id]) *last = plan->times.step[user->id];
    }
  }
}

/* A step that writes where another value lay waits for all that read it. So that small launches can be joined
 * (codegen/join.h) small values lie apart, the first ones of the step. */
static bool takes_apart(MemPlan *plan, const Node *value) {
  enum { SMALL = 256 << 10, MOST = 4 << 20 };
  const PassContext *context = plan->context;
  int64_t bytes = aligned(type_bytes(&value->type));
  if (context->is_plain) return true;
  if (!context->for_gpu || !pass_trains(context) || text_has_word(context->left_out, "join_launches") ||
      bytes > SMALL || plan->apart + bytes > MOST)
    return false;
  plan->apart += bytes;
  return true;
}

static void make_slots(MemPlan *plan) {
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    const Node *node = node_at(plan, i);
    plan->slot_of[i] = -1;
    if (!lifetime_is_value(node) || plan->where[i]) continue;
    bool is_apart = takes_apart(plan, node);
    int slot = is_apart ? -1 : slot_to_reuse(plan, node), last = plan->times.last[i];
    if (slot < 0) {
      MemSlot fresh = {plan->times.first[i], last, aligned(type_bytes(&node->type)), 0};
      if (is_apart) fresh.first = 0, fresh.last = plan->times.count;
      slot = plan->slots.count;
      VEC_PUSH(plan->arena, plan->slots, fresh);
    } else {
      int taken = plan->times.step[i] + 1; /* by this result, even if nothing reads it */
      plan->slots.at[slot].last = last > taken ? last : taken;
    }
    plan->slot_of[i] = slot;
  }
}

static void place_work(MemPlan *plan) {
  make_slots(plan);
  memplan_pack(plan->slots.at, plan->slots.count, plan->arena);
  for (int i = 0; i < plan->graph->nodes.count; i++)
    if (plan->slot_of[i] >= 0)
      put(plan, node_at(plan, i), PLACE_WORK,
          plan->cache_end + plan->slots.at[plan->slot_of[i]].at);
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
static void write_places(MemPlan *plan) {
  for (int i = 0; i < plan->graph->nodes.count; i++) {
    Node *node = node_at(plan, i);
    const Node *base = lifetime_base(node);
    if (!plan->where[base->id]) continue;
    node_set_attr(plan->graph, node, attr_str(ATTR_PLACE, plan->where[base->id]));
    node_set_attr(plan->graph, node, attr_int(ATTR_AT, plan->at[base->id]));
  }
}

Graph *pass_memplan(PassContext *context, Graph *old) {
  Graph *graph = graph_rewrite(old, NULL, NULL);
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  MemPlan plan = {.context = context,
                  .graph = graph,
                  .arena = arena,
                  .times = lifetimes_of(graph, arena),
                  .where = ARENA_ARRAY(arena, const char *, count),
                  .at = ARENA_ARRAY(arena, int64_t, count),
                  .slot_of = ARENA_ARRAY(arena, int, count),
                  .read_in = ARENA_ARRAY(arena, LifetimeIds, count),
                  .leaves_of = lifetime_leaves_of_states(graph, arena),
                  .is_shown = ARENA_ARRAY(arena, bool, count),
                  .state_number = {.arena = arena}};
  find_readers(&plan);
  if (context->for_gpu && !context->is_plain) keep_operands(&plan);
  place_leaves(&plan);
  place_outputs(&plan);
  place_gradients(&plan);
  place_assigned(&plan);
  place_prepared(&plan);
  place_work(&plan);
  write_places(&plan);
  return graph;
}

MemSlot *memplan_slots(const Graph *planned, Arena *arena, int *count, int **slot_of) {
  Lifetimes times = lifetimes_of(planned, arena);
  VEC(MemSlot) slots = {0};
  int *index = ARENA_ARRAY(arena, int, planned->nodes.count);
  for (int i = 0; i < planned->nodes.count; i++) {
    const Node *node = planned->nodes.at[i];
    index[i] = -1;
    if (!lifetime_is_value(node) || !node_str(node, ATTR_PLACE) ||
        strcmp(node_str(node, ATTR_PLACE), standard_place_text(PLACE_WORK)) != 0)
      continue;
    MemSlot slot = {times.first[i], times.last[i], aligned(type_bytes(&node->type)),
                    node_int(node, ATTR_AT, 0)};
    for (int k = slots.count - 1; k >= 0 && index[i] < 0; k--) /* continues one that ends here */
      if (slots.at[k].at == slot.at && slots.at[k].last == slot.first &&
          slots.at[k].bytes == slot.bytes)
        index[i] = k;
    if (index[i] >= 0) {
      slots.at[index[i]].last = slot.last;
      continue;
    }
    index[i] = slots.count;
    VEC_PUSH(arena, slots, slot);
  }
  *count = slots.count;
  if (slot_of) *slot_of = index;
  return slots.at;
}
