/* allreduce: what the ranks of a training exchange in a step.
 *
 * - Gradients: what is packed becomes the sum over the ranks. Operands that lie side by side in the
 *   pack are one collective (a bucket), up to a size that follows from latency and bandwidth
 *   (plan/comm_cost.h), or distributed.bucket; it begins as soon as its last gradient exists, beside the rest of backward.
 * - Scalars and other values that `all_reduce` nodes join already (totals.c): those that wait for no
 *   other one, of one type and reduction, are put into one tensor, for one collective.
 *
 * Every rank runs the same graph, so all of them begin the same collectives in the same order. */
#include "passes/tasks.h"
#include "plan/comm_cost.h"
#include <stdlib.h>
#include <string.h>

/* Operands of one collective. */
typedef struct {
  Op reduction;
  DType dtype;
  MeshAxis over;
  const char *why;
  bool is_tensor;             /* its operands are put into one */
  int task;                   /* of a pipeline (tasks.h), in which all of it is done */
  VEC(const Node *) operands; /* of the old graph */
  int missing;                /* operands that are not made yet */
  Node *made;
} Bucket;

typedef struct {
  const Graph *old;
  Graph *fresh;
  Arena *arena;
  const int *task;  /* by old node; NULL: there are none */
  const Node *pack; /* of the gradients; NULL: there is none */
  VEC(Bucket) buckets;
  int *of_operand;  /* by k-th operand of the pack: its bucket */
  int *of_node;     /* by old node: the bucket that replaces this all_reduce; -1 */
  int *first;       /* by old node: where its operand stands in that bucket */
  VEC(int) * waits; /* by old node: buckets that wait for it */
  Node **map;
  VEC(int) delayed; /* old nodes that wait for a bucket */
} AllReduce;

/* ── buckets ────────────────────────────────────────────────────────────────────────────────── */
static int add_bucket(AllReduce *a, Op reduction, DType dtype, MeshAxis over) {
  VEC_PUSH(a->arena, a->buckets, ((Bucket){.reduction = reduction, .dtype = dtype, .over = over}));
  return a->buckets.count - 1;
}

/* Returns the operand's place in it. */
static int add_operand(AllReduce *a, int bucket, const Node *operand) {
  Bucket *to = &a->buckets.at[bucket];
  VEC_PUSH(a->arena, to->operands, operand);
  VEC_PUSH(a->arena, a->waits[operand->id], bucket);
  to->missing++;
  return to->operands.count - 1;
}

/* Where the run is not known: one node of eight GPUs for every eight ranks, four nodes of them for
 * any number; processes of one machine. It only steers how gradients are cut, and must be the same
 * on all ranks, so it is decided here and not by the machine that runs. */
static Fabric expected_fabric(const PassContext *context) {
  const Machine *machine = machine_find(context->for_gpu ? "h100" : "cpu");
  int ranks = (int)setting_ranks(context->settings), local = context->for_gpu ? 8
                                                             : ranks          ? ranks
                                                                              : 4;
  if (!ranks) return fabric_of(machine, context->for_gpu ? 4 : 1, local);
  return fabric_of(machine, (ranks + local - 1) / local, ranks < local ? ranks : local);
}

static BucketSize bucket_size(const PassContext *context, int64_t total) {
  double mebibytes = setting_number(context->settings, "distributed.bucket");
  Fabric fabric = expected_fabric(context);
  if (mebibytes <= 0) return comm_bucket_size(&fabric, total);
  int64_t bytes = (int64_t)(mebibytes * 1048576);
  return (BucketSize){bytes, bytes};
}

typedef struct {
  int64_t bytes;
  int id, operand;
} Gradient;

static int latest_first(const void *a, const void *b) {
  const Gradient *x = a, *y = b;
  return x->id != y->id ? (x->id < y->id ? 1 : -1) : x->operand - y->operand;
}

static int64_t bytes_of_all(const Node *pack) {
  int64_t total = 0;
  for (int k = 0; k < pack->input_count; k++) total += type_bytes(&pack->input[k]->type);
  return total;
}

/* By operand of the pack: the bytes of the gradients that exist later, without those that are
 * buckets by themselves: as they come last, their own collective takes as long as they hide. */
static int64_t *bytes_behind(const AllReduce *a, BucketSize size) {
  int count = a->pack->input_count;
  Gradient *gradient = ARENA_ARRAY(a->arena, Gradient, count);
  int64_t *behind = ARENA_ARRAY(a->arena, int64_t, count), sum = 0;
  for (int k = 0; k < count; k++) {
    const Node *node = a->pack->input[k];
    gradient[k] = (Gradient){type_bytes(&node->type), node->id, k};
  }
  qsort(gradient, (size_t)count, sizeof *gradient, latest_first);
  for (int i = 0; i < count; i++) {
    behind[gradient[i].operand] = sum;
    if (gradient[i].bytes <= size.bytes) sum += gradient[i].bytes;
  }
  return behind;
}

/* A bucket begins when its last gradient exists, and what hides it is the rest of backward: so it
 * has no more bytes than the gradients that come later, and those at the end are small. */
static int64_t bucket_limit(BucketSize size, int64_t behind) {
  int64_t most = behind > size.last ? behind : size.last;
  return most < size.bytes ? most : size.bytes;
}

/* The ranks whose gradients are added: those that share the batch; where ranks share each layer's
 * work, of a param that all have whole those too, and of a part no others. AXIS_COUNT: none. */
static MeshAxis gradient_axis(const PassContext *context, const Node *param) {
  bool shares_batch = setting_ranks(context->settings) != 1;
  if (setting_tensor(context->settings) == 1) return MESH_ALL;
  if (node_attr(param, ATTR_CUT)) return shares_batch ? MESH_DATA : MESH_AXIS_COUNT;
  return shares_batch ? MESH_ALL : MESH_TENSOR;
}

/* The names of the parameters, by the offset at which their gradients are packed, and those
 * ranks. */
static const MeshAxis *allreduce_find_params(const AllReduce *a, const PassContext *context,
                                             const char ***out) {
  const Attr *offsets = node_attr(a->pack, ATTR_OFFSETS);
  MeshAxis *over = ARENA_ARRAY(a->arena, MeshAxis, offsets->count);
  const char **names = *out = ARENA_ARRAY(a->arena, const char *, offsets->count);
  Lookup at = {.arena = a->arena};
  for (int k = 0; k < offsets->count; k++)
    lookup_add(&at, &offsets->ints[k], sizeof offsets->ints[k], k);
  for (int i = 0; i < a->old->nodes.count; i++) {
    const Node *node = a->old->nodes.at[i];
    int64_t offset = node_int(node, ATTR_OFFSET, -1);
    int k = node->op == OP_PARAM ? lookup_find(&at, &offset, sizeof offset) : -1;
    if (k < 0) continue;
    names[k] = node_str(node, ATTR_NAME);
    over[k] = gradient_axis(context, node);
  }
  return over;
}

/* "h.3.attn.*, h.3.ln.weight, …": neighbours of one parent are told together. */
static const char *name_pattern(Arena *arena, const char **names, int count) {
  enum { MOST = 3 };
  const char *text = "";
  for (int k = 0, told = 0, same; k < count; k += same, told++) {
    const char *name = names[k] ? names[k] : "?", *dot = strrchr(name, '.');
    size_t parent = dot ? (size_t)(dot + 1 - name) : 0;
    for (same = 1; parent && k + same < count; same++) {
      const char *next = names[k + same];
      if (!next || strncmp(next, name, parent) || strchr(next + parent, '.')) break;
    }
    const char *comma = told ? ", " : "";
    if (told == MOST) return arena_printf(arena, "%s, …", text);
    text = same > 1 ? arena_printf(arena, "%s%s%.*s*", text, comma, (int)parent, name)
                    : arena_printf(arena, "%s%s%s", text, comma, name);
  }
  return text;
}

/* The end of the bucket that begins with this operand. What exists before the bucket may begin goes
 * with it beyond the limit too, so far as that takes much less than the latency of a collective of
 * its own, but where the user said how large buckets are. */
static int bucket_end(const Node *pack, int first, const int64_t *behind, BucketSize size,
                      const MeshAxis *over) {
  int64_t bytes = type_bytes(&pack->input[first]->type), after = behind[first];
  int64_t spare = size.last < size.bytes ? size.last / 4 : 0;
  int end = first + 1, latest = pack->input[first]->id;
  for (; end < pack->input_count && over[end] == over[first]; end++) {
    const Node *next = pack->input[end];
    int64_t more = type_bytes(&next->type);
    if (behind[end] < after) after = behind[end];
    if (bytes + more > bucket_limit(size, after)) {
      if (more > spare || next->id > latest) break;
      spare -= more;
    }
    if (next->id > latest) latest = next->id;
    bytes += more;
  }
  return end;
}

static void cut_gradients(AllReduce *a, const PassContext *context) {
  BucketSize size = bucket_size(context, bytes_of_all(a->pack));
  const int64_t *behind = bytes_behind(a, size);
  const char **names;
  const MeshAxis *over = allreduce_find_params(a, context, &names);
  for (int first = 0, end, number = 1; first < a->pack->input_count; first = end) {
    end = bucket_end(a->pack, first, behind, size, over);
    if (over[first] == MESH_AXIS_COUNT) {
      while (first < end) a->of_operand[first++] = -1;
      continue;
    }
    int bucket = add_bucket(a, OP_SUM, a->pack->input[first]->type.dtype, over[first]);
    for (int k = first; k < end; k++) {
      a->of_operand[k] = bucket;
      add_operand(a, bucket, a->pack->input[k]);
    }
    a->buckets.at[bucket].why =
        arena_printf(a->fresh->arena, "bucket %d: gradients of %s", number++,
                     name_pattern(a->arena, names + first, end - first));
  }
}

static int find_bucket(AllReduce *a, Op reduction, const Node *node) {
  int task = a->task ? a->task[node->id] : 0;
  for (int i = 0; i < a->buckets.count; i++) {
    const Bucket *bucket = &a->buckets.at[i];
    if (bucket->reduction == reduction && bucket->dtype == node->type.dtype &&
        bucket->over == node_axis(node) && bucket->task == task)
      return i;
  }
  int made = add_bucket(a, reduction, node->type.dtype, node_axis(node));
  a->buckets.at[made].task = task;
  return made;
}

static void join_totals(AllReduce *a) {
  bool *behind = ARENA_ARRAY(a->arena, bool, a->old->nodes.count); /* made of an all_reduce */
  for (int i = 0; i < a->old->nodes.count; i++) {
    const Node *node = a->old->nodes.at[i];
    a->of_node[i] = -1;
    for (int k = 0; k < node->input_count; k++) behind[i] |= behind[node->input[k]->id];
    if (node->op != OP_ALL_REDUCE || node_axis(node) == MESH_TENSOR ||
        node_axis(node) == MESH_PIPELINE)
      continue;
    bool is_behind = behind[i];
    Op reduction = OP_SUM;
    op_parse(node_str(node, ATTR_REDUCTION), &reduction);
    behind[i] = true;
    if (is_behind) continue;
    int bucket = find_bucket(a, reduction, node);
    a->buckets.at[bucket].is_tensor = true;
    a->of_node[i] = bucket;
    for (int k = 0; k < node->input_count; k++) {
      int at = add_operand(a, bucket, node->input[k]);
      if (k == 0) a->first[i] = at;
    }
    const char *why = node_str(node, ATTR_WHY);
    a->buckets.at[bucket].why = why ? why : "totals of the loss and metrics";
  }
}

/* ── the new graph ──────────────────────────────────────────────────────────────────────────── */
static Node *allreduce_reduced(AllReduce *a, const Bucket *bucket, int at) {
  const Node *operand = bucket->operands.at[at];
  a->fresh->origin = operand->origin;
  if (!bucket->is_tensor) return make_result(a->fresh, bucket->made, at);
  int64_t start = 0, count = shape_elements(&operand->type.shape);
  for (int k = 0; k < at; k++) start += shape_elements(&bucket->operands.at[k]->type.shape);
  Node *whole = make_result(a->fresh, bucket->made, 0);
  Node *part = make_slice(a->fresh, whole, &start, shape_of(1, &count));
  return make_reshape(a->fresh, part, operand->type.shape);
}

/* The operands behind one another in one dimension. */
static Node *one_tensor(AllReduce *a, Node **operands, int count) {
  for (int k = 0; k < count; k++) {
    int64_t elements = shape_elements(&operands[k]->type.shape);
    operands[k] = make_reshape(a->fresh, operands[k], shape_of(1, &elements));
  }
  Attr axis = attr_int(ATTR_AXIS, 0);
  return count == 1 ? operands[0]
                    : graph_node(a->fresh, OP_CONCAT, operands, count, &axis, 1, NULL);
}

/* The node in the new graph; NULL: it must wait. */
static Node *allreduce_place(AllReduce *a, const Node *node) {
  const Node *of = node->op == OP_RESULT ? node->input[0] : node;
  if (of->op == OP_ALL_REDUCE && a->of_node[of->id] >= 0) {
    const Bucket *bucket = &a->buckets.at[a->of_node[of->id]];
    if (!bucket->made || node == of) return bucket->made;
    return allreduce_reduced(a, bucket, a->first[of->id] + (int)node_int(node, ATTR_INDEX, 0));
  }
  Node **inputs = ARENA_ARRAY(a->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    bool is_reduced = node == a->pack && a->of_operand[k] >= 0;
    const Bucket *bucket = is_reduced ? &a->buckets.at[a->of_operand[k]] : NULL;
    inputs[k] = bucket ? bucket->made : a->map[node->input[k]->id];
    if (!inputs[k]) return NULL;
  }
  int first = 0;
  for (int k = 0; node == a->pack && k < node->input_count; k++) {
    if (k && a->of_operand[k] != a->of_operand[k - 1]) first = k;
    if (a->of_operand[k] >= 0)
      inputs[k] = allreduce_reduced(a, &a->buckets.at[a->of_operand[k]], k - first);
  }
  return graph_copy_node(a->fresh, node, inputs);
}

static void make_bucket(AllReduce *a, Bucket *bucket) {
  int count = bucket->operands.count;
  Node **operands = ARENA_ARRAY(a->arena, Node *, count);
  for (int k = 0; k < count; k++) operands[k] = a->map[bucket->operands.at[k]->id];
  Attr attrs[] = {attr_str(ATTR_REDUCTION, op_info[bucket->reduction].text),
                  attr_str(ATTR_WHY, bucket->why),
                  attr_str(ATTR_OVER, mesh_axis_text(bucket->over))};
  a->fresh->origin = bucket->operands.at[count - 1]->origin;
  if (bucket->is_tensor) operands[0] = one_tensor(a, operands, count);
  if (bucket->is_tensor) count = 1;
  bucket->made = graph_node(a->fresh, OP_ALL_REDUCE, operands, count, attrs, 3, NULL);
}

static void try_delayed(AllReduce *a);

static void placed(AllReduce *a, const Node *node, Node *made) {
  bool is_complete = false;
  a->map[node->id] = made;
  for (int i = 0; i < a->waits[node->id].count; i++) {
    Bucket *bucket = &a->buckets.at[a->waits[node->id].at[i]];
    if (--bucket->missing) continue;
    make_bucket(a, bucket);
    is_complete = true;
  }
  if (is_complete) try_delayed(a);
}

/* In their order, as far as they need not wait any longer. */
static void try_delayed(AllReduce *a) {
  for (int i = 0; i < a->delayed.count; i++) {
    const Node *node = a->old->nodes.at[a->delayed.at[i]];
    Node *made = a->map[node->id] ? NULL : allreduce_place(a, node);
    if (made) placed(a, node, made);
  }
}

Graph *pass_allreduce(PassContext *context, Graph *graph) {
  const SettingValue *settings = context->settings;
  if (!settings || (setting_ranks(settings) == 1 && setting_tensor(settings) == 1)) return graph;
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  bool is_shared = context->of != PASS_OF_TRAIN || setting_parts(context->settings) > 1;
  AllReduce a = {.old = graph,
                 .fresh = graph_new(graph->arena, graph->name),
                 .arena = arena,
                 .pack = is_shared ? NULL : graph_find_gradients(graph),
                 .of_node = ARENA_ARRAY(arena, int, count),
                 .first = ARENA_ARRAY(arena, int, count),
                 .map = ARENA_ARRAY(arena, Node *, count)};
  a.waits = arena_alloc(arena, sizeof *a.waits * (size_t)(count + 1));
  Tasks tasks = {0};
  if (tasks_find(context, graph, arena, &tasks)) a.task = tasks.task;
  join_totals(&a);
  if (a.pack) a.of_operand = ARENA_ARRAY(arena, int, a.pack->input_count);
  if (a.pack) cut_gradients(&a, context);
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    Node *made = allreduce_place(&a, node);
    if (made)
      placed(&a, node, made);
    else
      VEC_PUSH(arena, a.delayed, i);
  }
  graph_copy_roots(a.fresh, graph, a.map);
  return a.fresh;
}
