/* fuse_unit: decides which nodes are units (computed once, in one kernel) and which are pulled into
 * every kernel that reads them.
 *
 * The cost model counts per element of the node: arithmetic 1, division, roots and reading across
 * rows 4, exp and its kin 12, a random number 20, a window twice its area. A node is a unit if
 *   - it must be: reductions, contractions, and what those, pack, assign and the roots need in
 *     memory;
 *   - it is broadcast, gathered from, spread by the gradient of a pooling or read by overlapping
 *     windows and costs more than GROWTH_COST: pulling would repeat the work for every copy; on a
 *     GPU windows may repeat as much as costs less time than to write and read the value;
 *   - it has several users and pulling it into each would read more bytes than its own value has,
 *     or cost more than RECOMPUTE_COST, or keep alive what nothing else keeps and is no smaller
 *     (then storing the node in place of its source costs no more and saves the work);
 *   - its cone of pulled nodes has become too big. A node counts once for each place that it is pulled
 *     at: of sums of shifted sums the first terms are computed at twice as many with each.
 * The f32 form of a bf16 or f16 value is never one, unless it is needed in memory: it is exact,
 * free and twice as large, so its readers read the narrow value and widen it. Being a unit
 * costs nothing while all its readers end up in the same kernel. The same rules hold for scalars: a
 * division is done wherever its result is needed, the power and the cosine of a schedule once, in
 * the kernel that collects all tiny work. */
#include "passes/fuse_plan.h"
#include "passes/integers.h"

enum {
  GROWTH_COST = 3,
  SCALAR_COST = 10,
  WINDOW_COST = 8,
  GPU_COST_PER_BYTE = 4, /* half of what an H100 computes while it loads a byte */
  RECOMPUTE_COST = 40,
  CONE_NODES = 64,
  SCALAR_CONE_NODES = 256, /* a schedule has some dozens */
  CONE_READS = 16,
  SMALL_PART = 64 /* a slice of so small a part is read again by each reader */
};

int64_t fuse_elements(const Node *node) { return shape_elements(&node->type.shape); }

/* Reads its operands from memory, whole. */
static bool needs_memory(Op op) { return op_has(op, TRAIT_ALONE) || op == OP_DOT || op == OP_CONV; }

bool fuse_is_widening(const Node *node) {
  if (node->op != OP_CAST || node->type.dtype != DT_F32) return false;
  DType from = node->input[0]->type.dtype;
  return dtype_is_narrow(from);
}

/* What a reader of `node` reads, behind what is free. */
static const Node *strip_free(const Node *node) {
  while (node->op == OP_RESHAPE || fuse_is_widening(node)) node = node->input[0];
  return node;
}

static int window_area(const Node *node) {
  const Attr *kernel = node_attr(node, ATTR_KERNEL), *stride = node_attr(node, ATTR_STRIDE);
  if (node->op == OP_POOL_MAX || node->op == OP_POOL_INDEX || node->op == OP_POOL_AVG)
    return (int)(kernel->ints[0] * kernel->ints[1]);
  int64_t rows = (kernel->ints[0] + stride->ints[0] - 1) / stride->ints[0];
  return (int)(rows * ((kernel->ints[1] + stride->ints[1] - 1) / stride->ints[1]));
}

/* How many windows an element is in; 0 where none overlap. */
static double overlap_of(const Node *node) {
  const Attr *kernel = node_attr(node, ATTR_KERNEL), *stride = node_attr(node, ATTR_STRIDE);
  if (kernel->ints[0] <= stride->ints[0] && kernel->ints[1] <= stride->ints[1]) return 0;
  return (double)(kernel->ints[0] * kernel->ints[1]) / (double)(stride->ints[0] * stride->ints[1]);
}

/* Neighbours in the result are not neighbours in memory. */
static bool strides(const Node *transpose) {
  const Attr *perm = node_attr(transpose, ATTR_PERM);
  return perm->count > 0 && perm->ints[perm->count - 1] != perm->count - 1;
}

static int op_cost(const Node *node) {
  switch (node->op) {
  case OP_TRANSPOSE:
    return strides(node) ? 4 : 1;
  case OP_CONST:
  case OP_IOTA:
  case OP_RESHAPE:
  case OP_BROADCAST:
    return 0;
  case OP_DIV:
  case OP_REM:
  case OP_SQRT:
  case OP_RSQRT:
    return 4;
  case OP_RANDOM:
    return 20;
  default:
    if (op_has(node->op, TRAIT_ELEMENTARY)) return 12;
    return op_info[node->op].op_class == CLASS_WINDOW ? 2 * window_area(node) : 1;
  }
}

/* How much code the node is, in sums and products: LLVM's time grows faster than a kernel does. */
static int code_of(const Node *node) {
  return node->op == OP_RANDOM ? 16 : op_has(node->op, TRAIT_ELEMENTARY) ? 4 : 1;
}

/* ── cones ──────────────────────────────────────────────────────────────────────────────────── */
/* What pulling a node means: the values that are computed, its cone, and those that they read, the
 * cone's operands. A node that is pulled at several indices is computed at each of them, and so is all
 * that it pulls: of x + shifted(x), the cone has x twice, and of the same again, four times. */
typedef struct {
  int cost, nodes, code, reads;
  int sources;        /* how many of its operands have more than half as many elements */
  int64_t bytes;      /* of those */
  const Node *source; /* the last of those: the only one if sources is 1 */
  const Node *latest; /* the last unit that it reads; in a norm that is a sum, not the source */
} Cone;

/* A node at an index: that of the top, or a hash of the ways from there. */
typedef struct {
  int node, now;
  uint64_t index;
} Pulled;

enum {
  PULLED_MOST = KERNEL_MOST_NODES, /* a larger cone is cut anyway */
  PULLED_SLOTS = 512               /* more, or no slot would be empty */
};

typedef struct {
  FusePlan *plan;
  int *stamp, now; /* stamp == now: in the cone that was walked last; now - 1: an operand of that */
  Pulled *pulled;  /* PULLED_SLOTS, open addressing; another `now` is of an earlier walk: empty */
} ConeWalk;

/* The index at which `node`, itself pulled at `index`, pulls operand k. Where two are equal, the
 * emitter remembers the value (codegen/emit.c); what it makes in a branch it forgets behind it, so a
 * pad or a concat makes an index of its own even where it changes nothing. */
static uint64_t index_of_operand(const Node *node, int k, uint64_t index) {
  const Node *input = node->input[k];
  OpClass op_class = op_info[node->op].op_class;
  if (input->op == OP_CONST || fuse_elements(input) <= 1) return 0;
  if (node->op == OP_RESHAPE || (op_class != CLASS_MOVE && op_class != CLASS_WINDOW)) return index;
  uint64_t way = hash_type(hash_mix(index, node_hash(node, NULL)), &input->type);
  return node->input_count == 1 ? way : hash_mix(hash_mix(way, (uint64_t)node->id), (uint64_t)k);
}

/* False: the walk has been there. */
static bool is_first_pull(ConeWalk *walk, const Node *node, uint64_t index) {
  uint64_t at = hash_mix(hash_mix(0, index), (uint64_t)node->id);
  for (;; at++) {
    Pulled *slot = &walk->pulled[at % PULLED_SLOTS];
    if (slot->now == walk->now && (slot->node != node->id || slot->index != index)) continue;
    bool is_first = slot->now != walk->now;
    *slot = (Pulled){node->id, walk->now, index};
    return is_first;
  }
}

static void walk_cone(ConeWalk *walk, const Node *node, const Node *top, uint64_t index, Cone *cone) {
  if (node != top && (node_is_leaf(node) || walk->plan->is_unit[node->id])) {
    if (walk->stamp[node->id] == walk->now - 1) return;
    walk->stamp[node->id] = walk->now - 1;
    cone->reads++;
    if (!node_is_leaf(node) && (!cone->latest || node->id > cone->latest->id)) cone->latest = node;
    if (fuse_elements(node) * 2 > fuse_elements(top)) {
      cone->bytes += type_bytes(&node->type);
      cone->sources++;
      cone->source = node;
    }
    return;
  }
  if (cone->nodes > PULLED_MOST || !is_first_pull(walk, node, index)) return;
  walk->stamp[node->id] = walk->now;
  cone->nodes++;
  cone->cost += op_cost(node);
  cone->code += code_of(node);
  for (int i = 0; i < node->input_count; i++)
    walk_cone(walk, node->input[i], top, index_of_operand(node, i, index), cone);
}

static Cone cone_of(ConeWalk *walk, const Node *node) {
  Cone cone = {0};
  walk->now += 2;
  walk_cone(walk, node, node, 1, &cone);
  return cone;
}

/* ── users, seen through views and widenings ────────────────────────────────────────────────── */
typedef VEC(const Node *) NodeList;
typedef struct {
  NodeList *users; /* by node; a view's users count as users of what it views, a widening's too */
  bool *grows, *in_window;
  double *overlap; /* how often overlapping windows read an element; 0: none do */
  bool *has_index; /* a pool_index reads it: the pool_max of it belongs in the same kernel */
} Users;

static void note_use(FusePlan *plan, Users *users, const Node *user, int operand) {
  const Node *used = user->input[operand], *base = strip_free(used);
  NodeList *list = &users->users[base->id];
  if (list->count == 0 || list->at[list->count - 1] != user) VEC_PUSH(plan->arena, *list, user);
  if (user->op == OP_BROADCAST && fuse_elements(user) > fuse_elements(used))
    users->grows[base->id] = true;
  bool is_spread = user->op == OP_POOL_MAX_GRAD || user->op == OP_POOL_AVG_GRAD;
  if ((user->op == OP_GATHER && operand == 0) || is_spread) users->grows[base->id] = true;
  if (op_info[user->op].op_class == CLASS_WINDOW && !is_spread) {
    users->in_window[base->id] = true;
    users->has_index[base->id] |= user->op == OP_POOL_INDEX;
    double overlap = overlap_of(user);
    if (overlap > users->overlap[base->id]) users->overlap[base->id] = overlap;
  }
}

static Users find_users(FusePlan *plan) {
  Users users = {.users = ARENA_ARRAY(plan->arena, NodeList, plan->count),
                 .grows = ARENA_ARRAY(plan->arena, bool, plan->count),
                 .overlap = ARENA_ARRAY(plan->arena, double, plan->count),
                 .in_window = ARENA_ARRAY(plan->arena, bool, plan->count),
                 .has_index = ARENA_ARRAY(plan->arena, bool, plan->count)};
  for (int i = 0; i < plan->count; i++) {
    const Node *node = plan->graph->nodes.at[i];
    if (!plan->is_live[i] || node->op == OP_RESHAPE || fuse_is_widening(node)) continue;
    for (int k = 0; k < node->input_count; k++) note_use(plan, &users, node, k);
  }
  return users;
}

/* ── units ──────────────────────────────────────────────────────────────────────────────────── */
static void materialize(FusePlan *plan, const Node *node) {
  node = node_base(node);
  if (node_is_leaf(node)) return;
  plan->is_unit[node->id] = plan->is_materialized[node->id] = true;
}

static void find_materialized(FusePlan *plan) {
  const Graph *graph = plan->graph;
  for (int i = 0; i < graph->roots.count; i++) materialize(plan, graph->roots.at[i].node);
  for (int i = 0; i < plan->count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!plan->is_live[i]) continue;
    if (op_has(node->op, TRAIT_ALONE) || op_info[node->op].op_class == CLASS_REDUCE ||
        op_info[node->op].op_class == CLASS_CONTRACT)
      plan->is_unit[i] = true;
    for (int k = 0; needs_memory(node->op) && k < node->input_count; k++)
      materialize(plan, node->input[k]);
    if (node->op == OP_RANDOM) materialize(plan, node->input[1]); /* passes/streams.c */
    if (node->op == OP_ASSIGN) plan->is_assigned[node_base(node->input[0])->id] = true;
  }
}

/* Is `source` read by anything that is not in the cone that was walked last? */
static bool is_kept_anyway(const FusePlan *plan, const Users *users, const ConeWalk *walk,
                           const Node *source) {
  if (node_is_leaf(source) || plan->is_materialized[source->id]) return true;
  const NodeList *list = &users->users[source->id];
  for (int i = 0; i < list->count; i++)
    if (walk->stamp[list->at[i]->id] != walk->now) return true;
  return false;
}

/* A GPU computes while it waits for memory: what every window computes anew is neither written nor
 * read. What is read in its place comes from memory once, and then from a cache. */
static bool pays_in_windows(const FusePlan *plan, const Users *users, const Node *node,
                            const Cone *cone) {
  int64_t written_and_read = 2 * dtype_bytes(node->type.dtype);
  return plan->for_gpu && cone->bytes <= 2 * type_bytes(&node->type) &&
         cone->cost * users->overlap[node->id] <= (double)(GPU_COST_PER_BYTE * written_and_read);
}

/* Does a later task of a pipeline read it? Then what it is made of would be kept until that. */
static bool is_read_later(const FusePlan *plan, const Users *users, int id) {
  const NodeList *list = &users->users[id];
  for (int i = 0; plan->task && i < list->count; i++)
    if (plan->task[list->at[i]->id] > plan->task[id]) return true;
  return false;
}

bool fuse_is_long_concat(const Node *node) {
  return node->op == OP_CONCAT && node->input_count > FUSE_CONCAT_PARTS / 2;
}

static bool should_be_unit(FusePlan *plan, const Users *users, ConeWalk *walk, const Node *node) {
  if (op_info[node->op].op_class == CLASS_CONTRACT) return false; /* of a pooling: it is part of it */
  if (node_is_leaf(node) || node->op == OP_CONST || node->op == OP_IOTA || node->op == OP_RANDOM ||
      node->op == OP_RESHAPE)
    return false;
  if (plan->is_plain) return node->op != OP_BROADCAST;
  if (fuse_is_widening(node)) return false;
  int id = node->id;
  Cone cone = cone_of(walk, node);
  if (fuse_is_long_concat(node)) return true;
  if (fuse_elements(node) <= 1)
    return cone.nodes > SCALAR_CONE_NODES || (users->grows[id] && cone.cost > SCALAR_COST);
  if (cone.nodes > CONE_NODES || cone.reads > CONE_READS) return true;
  if (users->grows[id] && cone.cost > GROWTH_COST) return true;
  if (users->overlap[id] > 0 && cone.cost > 0 && !pays_in_windows(plan, users, node, &cone))
    return true;
  bool may_join_source = cone.sources == 1 && cone.source == cone.latest;
  if (users->in_window[id] && cone.cost > 0 && (cone.cost > WINDOW_COST || may_join_source))
    return true;
  if (node->op == OP_POOL_MAX && users->has_index[strip_free(node->input[0])->id]) return true;
  if (cone.bytes > type_bytes(&node->type) && is_read_later(plan, users, id)) return true;
  if (users->users[id].count < 2) return false;
  if (node->op == OP_TRANSPOSE || cone.cost > RECOMPUTE_COST) return true;
  if (node->op == OP_SLICE && fuse_elements(node) * SMALL_PART <= fuse_elements(node->input[0]))
    return false;
  if (cone.bytes > type_bytes(&node->type)) return true;
  return cone.sources == 1 && cone.bytes == type_bytes(&node->type) &&
         !is_kept_anyway(plan, users, walk, cone.source);
}

/* A convolution of integers that only a pooling reads is computed with it. */
static void join_pools(FusePlan *plan, const Users *users) {
  for (int i = 0; plan->has_integer_pools && i < plan->count; i++) {
    const Node *pool = plan->graph->nodes.at[i];
    if (!plan->is_live[i] || !pool->input_count || !integers_have_pool(pool)) continue;
    int conv = pool->input[0]->id;
    if (users->users[conv].count != 1 || plan->is_materialized[conv] ||
        (plan->task && plan->task[conv] != plan->task[i]) ||
        pool->origin.piece != pool->input[0]->origin.piece)
      continue;
    plan->is_unit[conv] = false;
    plan->is_unit[i] = plan->is_pooled[i] = true;
  }
}

/* ── reads ──────────────────────────────────────────────────────────────────────────────────── */
/* The divisor at which `node`, itself read at `divisor`, reads operand k. */
static int64_t step_divisor(const Node *node, int64_t divisor) {
  if (divisor == SCATTERED || node->op == OP_RESHAPE ||
      op_info[node->op].op_class == CLASS_POINTWISE)
    return divisor;
  if (node->op != OP_BROADCAST) return SCATTERED;
  const Shape *to = &node->type.shape, *from = &node->input[0]->type.shape;
  int64_t copies = 1;
  bool is_trailing = true;
  for (int i = to->rank - 1; i >= 0; i--) {
    if (to->dim[i] == 1) continue;
    if (from->dim[i] == 1) {
      if (!is_trailing) return SCATTERED;
      copies *= to->dim[i];
    } else {
      is_trailing = false;
    }
  }
  return copies == 0 ? SCATTERED : divisor * copies;
}

typedef struct {
  FusePlan *plan;
  FuseUnit *unit;
  int *stamp, now;
  int64_t *seen; /* the divisor of the first visit, by node */
} ReadWalk;

static void add_read(ReadWalk *walk, const Node *node, int64_t divisor) {
  for (int i = 0; i < walk->unit->reads.count; i++) {
    FuseRead *read = &walk->unit->reads.at[i];
    if (read->node != node->id) continue;
    if (read->divisor != divisor) read->divisor = SCATTERED;
    return;
  }
  VEC_PUSH(walk->plan->arena, walk->unit->reads, ((FuseRead){node->id, divisor}));
}

static bool broadcasts_vector(const Node *node) {
  const Shape *to = &node->type.shape, *from = &node->input[0]->type.shape;
  int64_t length = to->dim[to->rank - 1];
  return fuse_elements(node->input[0]) == 1 ||
         (fuse_elements(node->input[0]) == length && from->dim[from->rank - 1] == length);
}

static void walk_reads(ReadWalk *walk, const Node *node, int64_t divisor) {
  bool is_filler = node->op == OP_CONST || node->op == OP_IOTA; /* never read from memory */
  if (!is_filler && (walk->plan->is_unit[node->id] || node_is_leaf(node))) {
    add_read(walk, node, divisor);
    return;
  }
  if (walk->stamp[node->id] == walk->now) {
    if (walk->seen[node->id] == divisor || walk->seen[node->id] == SCATTERED) return;
    divisor = SCATTERED;
  }
  walk->stamp[node->id] = walk->now;
  walk->seen[node->id] = divisor;
  bool is_number = node->op == OP_SLICE && fuse_elements(node) == 1 && node_is_leaf(node_base(node->input[0]));
  bool is_simple = op_info[node->op].op_class == CLASS_POINTWISE || node->op == OP_BROADCAST || is_number ||
                   node->op == OP_RESHAPE || node->op == OP_CONST || node->op == OP_RANDOM;
  walk->unit->is_simple &= is_simple;
  walk->unit->is_flat &= node->op != OP_BROADCAST || broadcasts_vector(node);
  for (int i = 0; i < node->input_count; i++)
    walk_reads(walk, node->input[i], step_divisor(node, divisor));
}

static void find_reads(ReadWalk *walk, ConeWalk *cones, const Node *node) {
  bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
  walk->unit = &walk->plan->unit[node->id];
  walk->unit->nodes = needs_memory(node->op) ? code_of(node) : cone_of(cones, node).code;
  walk->unit->is_simple = op_info[node->op].op_class == CLASS_POINTWISE || is_reduce;
  walk->unit->is_flat = true;
  walk->now++;
  for (int i = 0; i < node->input_count; i++) {
    if (needs_memory(node->op))
      add_read(walk, node_base(node->input[i]), SCATTERED);
    else
      walk_reads(walk, node->input[i], is_reduce ? 1 : step_divisor(node, 1));
  }
}

void fuse_choose_units(FusePlan *plan) {
  plan->is_live = graph_find_live(plan->graph, plan->arena);
  plan->is_early = graph_find_early(plan->graph, plan->is_live, plan->arena);
  find_materialized(plan);
  Users users = find_users(plan);
  join_pools(plan, &users);
  ConeWalk cones = {.plan = plan,
                    .stamp = ARENA_ARRAY(plan->arena, int, plan->count),
                    .pulled = ARENA_ARRAY(plan->arena, Pulled, PULLED_SLOTS)};
  for (int i = 0; i < plan->count; i++)
    if (plan->is_live[i] && !plan->is_unit[i])
      plan->is_unit[i] = should_be_unit(plan, &users, &cones, plan->graph->nodes.at[i]);
  ReadWalk reads = {.plan = plan,
                    .stamp = ARENA_ARRAY(plan->arena, int, plan->count),
                    .seen = ARENA_ARRAY(plan->arena, int64_t, plan->count)};
  for (int i = 0; i < plan->count; i++)
    if (plan->is_unit[i]) find_reads(&reads, &cones, plan->graph->nodes.at[i]);
}
