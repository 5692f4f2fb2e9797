/* schedule: node order becomes launch order. Leaves come first, assigns last. Between them nodes
 * keep the order they have, but for these: a node that frees more memory than it takes is
 * moved as early as it can be (weight gradients are the last readers of activations), and what
 * reads a state is moved before the kernel that computes its next value, unless that makes a cycle,
 * so that memplan may let that kernel write the state in place; and a collective that adds up what
 * ranks have is begun as soon as its operands exist, so that the rest of backward hides it; what
 * reads it comes last where no other collective waits for that. */
#include "passes/lifetime.h"
#include "passes/pass.h"
#include <string.h>

/* A step that may run, by what it was worth when it became so: larger comes first, then the earlier
 * one. */
typedef struct {
  int64_t gain;
  int step;
} Ready;
typedef VEC(Ready) Heap;

typedef VEC(int) Ids;

typedef struct {
  Arena *arena;
  Graph *graph;
  bool is_plain; /* the first step that may run runs first */
  int count;
  Ids *after;    /* by node: steps that must wait for it; a result's users wait for its kernel */
  Ids *results;  /* by step: its result nodes */
  Ids *read_by;  /* by leaf: the steps that read it */
  int *waits;    /* by step: how many of its inputs are not done */
  int *readers;  /* by base value: steps that have yet to read it, */
  int *reader;   /* and all their ids by exclusive or: that of the last one, when it is the last */
  int *seen;     /* by base value: the step that was seen last to read it */
  int64_t *gain; /* by step: bytes freed less bytes taken if this step were next */
  bool *is_outside; /* by base value: lies in another place than work */
  bool *is_placed;
  bool *is_late; /* by step: runs when no other one may */
  int *stamp, now;
  Heap by_id, by_gain; /* steps that may run; those worth something, some of them out of date */
  Heap late;
  Graph *fresh;
  Node **map;
} Schedule;

static Node *schedule_at(const Schedule *s, int id) { return s->graph->nodes.at[id]; }

/* The step that makes a value; NULL for leaves. */
static const Node *maker(const Node *value) {
  const Node *base = lifetime_base(value);
  if (base->op == OP_RESULT) return base->input[0];
  return lifetime_is_step(base) ? base : NULL;
}

static void add_edge(Schedule *s, const Node *first, const Node *then) {
  VEC_PUSH(s->arena, s->after[first->id], then->id);
  s->waits[then->id]++;
}

/* Is this the first operand of a step with this base? `mark` is the step's own number. */
static bool is_first_read(Schedule *s, const Node *base, int mark) {
  bool is_first = s->seen[base->id] != mark;
  s->seen[base->id] = mark;
  return is_first;
}

static void add_data_edges(Schedule *s) {
  for (int i = 0; i < s->count; i++) {
    const Node *node = schedule_at(s, i);
    if (node->op == OP_RESULT) VEC_PUSH(s->arena, s->results[node->input[0]->id], i);
    for (int k = 0; lifetime_is_step(node) && k < node->input_count; k++) {
      const Node *base = lifetime_base(node->input[k]), *first = maker(base);
      if (!is_first_read(s, base, i + 1)) continue;
      if (first) add_edge(s, first, node);
      if (node_is_leaf(base)) VEC_PUSH(s->arena, s->read_by[base->id], i);
      s->readers[base->id]++;
      s->reader[base->id] ^= i;
    }
  }
}

/* Marks all steps that must wait for this one. */
static void mark_after(Schedule *s, int from) {
  Ids stack = {0};
  s->stamp[from] = ++s->now;
  VEC_PUSH(s->arena, stack, from);
  while (stack.count) {
    const Ids *after = &s->after[stack.at[--stack.count]];
    for (int i = 0; i < after->count; i++) {
      if (s->stamp[after->at[i]] == s->now) continue;
      s->stamp[after->at[i]] = s->now;
      VEC_PUSH(s->arena, stack, after->at[i]);
    }
  }
}

/* Those that read the old value of a state, through this leaf, before the writer of the new one. An
 * edge to the writer changes nothing in what comes after it, so that once marked is enough. */
static void add_reader_edges(Schedule *s, const Node *leaf, const Node *writer, bool *is_marked) {
  const Ids *readers = &s->read_by[leaf->id];
  for (int i = 0; i < readers->count; i++) {
    const Node *reader = schedule_at(s, readers->at[i]);
    if (reader == writer || reader->op == OP_ASSIGN) continue;
    if (!*is_marked) mark_after(s, writer->id);
    *is_marked = true;
    if (s->stamp[reader->id] != s->now) add_edge(s, reader, writer);
  }
}

static void add_state_edges(Schedule *s) {
  const LifetimeIds *leaves = lifetime_leaves_of_states(s->graph, s->arena);
  for (int i = 0; i < s->count; i++) {
    const Node *assign = schedule_at(s, i);
    const Node *writer = assign->op == OP_ASSIGN ? maker(assign->input[0]) : NULL;
    if (!writer) continue;
    const Node *state = graph_find_state(s->graph, node_str(assign, ATTR_TARGET));
    bool is_marked = false;
    for (int k = 0; k < leaves[state->id].count; k++)
      add_reader_edges(s, schedule_at(s, leaves[state->id].at[k]), writer, &is_marked);
  }
}

/* Values that memplan will put elsewhere: they cost and free nothing here. */
static void find_outside(Schedule *s) {
  for (int i = 0; i < s->graph->roots.count; i++)
    s->is_outside[lifetime_base(s->graph->roots.at[i].node)->id] = true;
  for (int i = 0; i < s->count; i++) {
    const Node *node = schedule_at(s, i);
    if (node_is_leaf(node) || node->op == OP_PACK) s->is_outside[i] = true;
    /* a collective takes time: what it gives is not read early to free its bytes */
    bool is_collective = op_has(node->op, TRAIT_RANKS);
    if (is_collective) s->is_outside[i] = true;
    bool goes_there = node->op == OP_PACK || node->op == OP_ASSIGN || is_collective;
    for (int k = 0; goes_there && k < node->input_count; k++)
      s->is_outside[lifetime_base(node->input[k])->id] = true;
  }
}

static int64_t bytes_of(const Schedule *s, const Node *value) {
  return s->is_outside[value->id] ? 0 : type_bytes(&value->type);
}

/* What the step takes: results of which there are several nodes have one place. */
static int64_t taken_bytes(const Schedule *s, const Node *node) {
  if (!node_has_results(node)) return lifetime_is_value(node) ? bytes_of(s, node) : 0;
  const Ids *results = &s->results[node->id];
  int64_t sum = 0;
  for (int i = 0; i < results->count; i++) {
    int64_t index = node_int(schedule_at(s, results->at[i]), ATTR_INDEX, 0);
    bool again = false;
    for (int k = 0; k < i; k++)
      again |= node_int(schedule_at(s, results->at[k]), ATTR_INDEX, 0) == index;
    if (!again) sum += bytes_of(s, schedule_at(s, results->at[i]));
  }
  return sum;
}

/* What joins gradients goes on beside the kernels, so it begins as soon as it may. */
static bool is_begun_early(const Node *node) {
  return node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER;
}

static void find_gains(Schedule *s) {
  const int64_t more_than_bytes = (int64_t)1 << 60;
  for (int i = 0; i < s->count; i++)
    if (is_begun_early(schedule_at(s, i)))
      s->gain[i] = more_than_bytes;
    else if (lifetime_is_step(schedule_at(s, i)))
      s->gain[i] -= taken_bytes(s, schedule_at(s, i));
  for (int i = 0; i < s->count; i++)
    if (s->readers[i] == 1) s->gain[s->reader[i]] += bytes_of(s, schedule_at(s, i));
}

/* The totals of the loss are read for the log and the update only: who reads them, or gradients,
 * need not hold up the rest of backward. What leads to other collectives (synchronised statistics,
 * counts that scale gradients) has its place in the order. */
static void find_late(Schedule *s) {
  bool *leads = ARENA_ARRAY(s->arena, bool, s->count); /* by step: some collective waits for it */
  for (int i = s->count - 1; i >= 0 && !s->is_plain; i--) {
    const Node *node = schedule_at(s, i);
    for (int k = 0; k < s->after[i].count; k++) {
      int next = s->after[i].at[k];
      leads[i] |= leads[next] || op_has(schedule_at(s, next)->op, TRAIT_RANKS);
    }
    for (int k = 0; lifetime_is_step(node) && k < node->input_count; k++) {
      const Node *of = maker(node->input[k]);
      if (of && op_has(of->op, TRAIT_RANKS) && !leads[i]) s->is_late[i] = true;
    }
  }
}

/* ── what may run ───────────────────────────────────────────────────────────────────────────── */
static bool comes_before(const Ready *a, const Ready *b) {
  return a->gain != b->gain ? a->gain > b->gain : a->step < b->step;
}

static void heap_push(Schedule *s, Heap *heap, Ready ready) {
  VEC_PUSH(s->arena, *heap, ready);
  int i = heap->count - 1;
  for (; i > 0 && comes_before(&ready, &heap->at[(i - 1) / 2]); i = (i - 1) / 2)
    heap->at[i] = heap->at[(i - 1) / 2];
  heap->at[i] = ready;
}

static void heap_pop(Heap *heap) {
  Ready last = heap->at[--heap->count];
  int i = 0;
  for (int child; (child = 2 * i + 1) < heap->count; i = child) {
    child += child + 1 < heap->count && comes_before(&heap->at[child + 1], &heap->at[child]);
    if (!comes_before(&heap->at[child], &last)) break;
    heap->at[i] = heap->at[child];
  }
  if (heap->count) heap->at[i] = last;
}

static bool may_run(const Schedule *s, int step) {
  return lifetime_is_step(schedule_at(s, step)) && schedule_at(s, step)->op != OP_ASSIGN &&
         !s->waits[step] && !s->is_placed[step];
}

static void offer(Schedule *s, int step) {
  if (may_run(s, step) && s->gain[step] > 0 && !s->is_plain && !s->is_late[step])
    heap_push(s, &s->by_gain, (Ready){s->gain[step], step});
}

/* Nothing that it waits for is left. */
static void enter(Schedule *s, int step) {
  if (may_run(s, step)) heap_push(s, s->is_late[step] ? &s->late : &s->by_id, (Ready){0, step});
  offer(s, step);
}

/* The step that frees most; of those that free nothing, the first one; then the late ones. */
static const Node *schedule_choose(Schedule *s) {
  for (; s->by_gain.count; heap_pop(&s->by_gain)) {
    const Ready *best = &s->by_gain.at[0];
    if (!s->is_placed[best->step] && s->gain[best->step] == best->gain)
      return schedule_at(s, best->step);
  }
  Heap *heaps[] = {&s->by_id, &s->late};
  for (int i = 0; i < 2; i++)
    for (; heaps[i]->count; heap_pop(heaps[i]))
      if (!s->is_placed[heaps[i]->at[0].step]) return schedule_at(s, heaps[i]->at[0].step);
  return NULL;
}

/* ── placing ────────────────────────────────────────────────────────────────────────────────── */
/* The node into the new graph, behind the views that it reads. */
static void place_node(Schedule *s, const Node *node) {
  if (s->is_placed[node->id]) return;
  s->is_placed[node->id] = true;
  Node **inputs = ARENA_ARRAY(s->arena, Node *, node->input_count);
  for (int i = 0; i < node->input_count; i++) {
    Op op = node->input[i]->op;
    if (op == OP_RESHAPE || op == OP_RESULT) place_node(s, node->input[i]);
    inputs[i] = s->map[node->input[i]->id];
  }
  s->map[node->id] = graph_copy_node(s->fresh, node, inputs);
}

/* What waited for this step may run; a value that has one reader left will be freed by that one. */
static void schedule_place(Schedule *s, const Node *node) {
  if (s->is_placed[node->id]) return;
  place_node(s, node);
  if (!lifetime_is_step(node)) return;
  for (int i = 0; i < s->results[node->id].count; i++)
    place_node(s, schedule_at(s, s->results[node->id].at[i]));
  for (int k = 0; k < node->input_count; k++) {
    const Node *base = lifetime_base(node->input[k]);
    if (!is_first_read(s, base, -node->id - 1)) continue;
    s->reader[base->id] ^= node->id;
    if (--s->readers[base->id] != 1 || !bytes_of(s, base)) continue;
    s->gain[s->reader[base->id]] += bytes_of(s, base);
    offer(s, s->reader[base->id]);
  }
  for (int i = 0; i < s->after[node->id].count; i++) {
    int next = s->after[node->id].at[i];
    if (--s->waits[next]) continue;
    enter(s, next);
  }
}

Graph *pass_schedule(PassContext *context, Graph *graph) {
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  Schedule s = {.arena = arena,
                .graph = graph,
                .is_plain = context->is_plain,
                .count = count,
                .after = ARENA_ARRAY(arena, Ids, count),
                .results = ARENA_ARRAY(arena, Ids, count),
                .read_by = ARENA_ARRAY(arena, Ids, count),
                .waits = ARENA_ARRAY(arena, int, count),
                .readers = ARENA_ARRAY(arena, int, count),
                .reader = ARENA_ARRAY(arena, int, count),
                .seen = ARENA_ARRAY(arena, int, count),
                .gain = ARENA_ARRAY(arena, int64_t, count),
                .is_outside = ARENA_ARRAY(arena, bool, count),
                .is_placed = ARENA_ARRAY(arena, bool, count),
                .is_late = ARENA_ARRAY(arena, bool, count),
                .stamp = ARENA_ARRAY(arena, int, count),
                .fresh = graph_new(graph->arena, graph->name),
                .map = ARENA_ARRAY(arena, Node *, count)};
  add_data_edges(&s);
  add_state_edges(&s);
  find_outside(&s);
  find_gains(&s);
  find_late(&s);
  for (int i = 0; i < count; i++) {
    if (node_is_leaf(schedule_at(&s, i))) schedule_place(&s, schedule_at(&s, i));
    enter(&s, i);
  }
  for (const Node *next; (next = schedule_choose(&s));) schedule_place(&s, next);
  for (int i = 0; i < count; i++) schedule_place(&s, schedule_at(&s, i));
  graph_copy_roots(s.fresh, graph, s.map);
  return s.fresh;
}
