/* schedule: node order becomes launch order. Leaves come first, assigns last. Between them nodes
 * keep the order they have, but for these: a node that frees more memory than it takes is
 * moved as early as it can be (weight gradients are the last readers of activations), and what
 * reads a state is moved before the kernel that computes its next value, unless that makes a cycle,
 * so that memplan may let that kernel write the state in place; and a collective that adds up what
 * ranks have is begun as soon as its operands exist, so that the rest of backward hides it; what
 * reads it comes last where no other collective waits for that. Where ranks share each layer's work,
 * a product of backward that none of their collectives waits for (a weight's gradient) is kept until
 * the next step would wait for one of these, and one runs beside each.
 *
 * Where the batch is in pieces (pieces.c), steps run as they would by reckoned times (step_time.h): one that
 * waits for nothing comes before one that waits for a collective, and of those the one behind which the
 * next collective within layers begins soonest, so that the pieces take turns and none of the two queues
 * is idle as long as some piece has work for it.
 *
 * With a pipeline a rank does one task after the other (tasks.h), and the order above is that within
 * a task. What the stages say to each other is begun in one order on both sides; what is received,
 * as soon as all before it has been begun. */
#include "passes/lifetime.h"
#include "passes/step_time.h"
#include "passes/tasks.h"
#include <math.h>
#include <string.h>

/* A step that may run, by its task, then by what it was worth when it became so: larger comes first,
 * then the earlier one. */
typedef struct {
  int task;
  int64_t gain;
  int step;
} Ready;
typedef VEC(Ready) Heap;

typedef VEC(int) Ids;

/* Of pieces of a batch, by reckoned times, in seconds. */
typedef struct {
  bool is_on;
  StepTimes times;
  double *lead; /* by step: to the next collective within layers, this step included */
  double *done; /* by collective: when it ends */
  bool *
      is_of_leaf; /* by step: it is made of no input, so that it could always run: it has its place */
  double now, free; /* when the step that was placed last ends, and the last collective */
  Ids ready;        /* steps that may run */
} Timed;

typedef struct {
  Arena *arena;
  Graph *graph;
  Timed timed;
  bool is_plain; /* the first step that may run runs first */
  int *task;     /* by step; NULL: there are none */
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
  bool *is_late;   /* by step: runs when no other one may */
  bool *is_fill;   /* by step: is kept to run beside a collective within layers */
  bool *is_hidden; /* by collective: something ran beside it, or nothing could */
  int *stamp, now;
  Heap by_id, by_gain; /* steps that may run; those worth something, some of them out of date */
  Heap late, fill;
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
  return node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER || op_is_message(node->op);
}

/* Each message waits for the one before it, and what is received for nothing else. */
static void order_messages(Schedule *s, const PassContext *context) {
  Tasks tasks = {0};
  if (!tasks_find(context, s->graph, s->arena, &tasks)) return;
  s->task = tasks.task;
  for (int i = 0; i < tasks.messages.count; i++) {
    const Node *node = tasks.messages.at[i];
    if (node->op == OP_RECEIVE) s->task[node->id] = -1;
    if (i) add_edge(s, tasks.messages.at[i - 1], node);
  }
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
      bool is_waited = of && op_has(of->op, TRAIT_RANKS) && !op_is_message(of->op);
      if (is_waited && !leads[i]) s->is_late[i] = true;
    }
  }
}

static bool is_within_layers(const Node *node) {
  bool is_collective = op_has(node->op, TRAIT_RANKS);
  return is_collective && node->origin.is_backward && node_axis(node) == MESH_TENSOR;
}

static bool has_product(const Node *node) {
  if (op_info[node->op].op_class == CLASS_CONTRACT) return true;
  for (int i = 0; node->body && i < node->body->nodes.count; i++)
    if (op_info[node->body->nodes.at[i]->op].op_class == CLASS_CONTRACT) return true;
  return false;
}

static void find_fill(Schedule *s) {
  bool *leads = ARENA_ARRAY(s->arena, bool, s->count), is_there = false;
  for (int i = 0; i < s->count; i++) is_there |= is_within_layers(schedule_at(s, i));
  for (int i = s->count - 1; i >= 0 && is_there && !s->is_plain; i--) {
    const Node *node = schedule_at(s, i);
    for (int k = 0; k < s->after[i].count; k++) {
      int next = s->after[i].at[k];
      leads[i] |= leads[next] || is_within_layers(schedule_at(s, next));
    }
    bool is_backward = lifetime_is_step(node) && node->origin.is_backward;
    s->is_fill[i] = is_backward && has_product(node) && !leads[i] && !s->is_late[i];
  }
}

/* ── pieces ─────────────────────────────────────────────────────────────────────────────────── */
static bool is_within_any_layers(const Node *node) {
  return op_has(node->op, TRAIT_RANKS) && node_axis(node) == MESH_TENSOR;
}

static void find_times(Schedule *s, const PassContext *context) {
  Timed *t = &s->timed;
  for (int i = 0; i < s->count && context->settings && !s->is_plain && !s->task; i++)
    t->is_on |= is_within_any_layers(schedule_at(s, i)) && schedule_at(s, i)->origin.piece;
  if (!t->is_on) return;
  t->times = step_times(context);
  t->lead = ARENA_ARRAY(s->arena, double, s->count);
  t->done = ARENA_ARRAY(s->arena, double, s->count);
  t->is_of_leaf = ARENA_ARRAY(s->arena, bool, s->count);
  for (int i = s->count - 1; i >= 0; i--) {
    const Node *node = schedule_at(s, i);
    t->lead[i] = INFINITY;
    for (int k = 0; k < s->after[i].count; k++) {
      const Node *next = schedule_at(s, s->after[i].at[k]);
      double lead = is_within_any_layers(next) ? 0 : t->lead[next->id];
      t->lead[i] = fmin(t->lead[i], lead);
    }
    if (lifetime_is_step(node)) t->lead[i] += step_seconds(&t->times, node);
  }
  for (int i = 0; i < s->count; i++) {
    const Node *node = schedule_at(s, i);
    t->is_of_leaf[i] = true;
    for (int k = 0; k < node->input_count; k++) {
      const Node *of = maker(node->input[k]);
      bool is_input = lifetime_base(node->input[k])->op == OP_INPUT;
      t->is_of_leaf[i] &= of ? t->is_of_leaf[of->id] : !is_input;
    }
  }
}

/* Seconds for which the step would wait for collectives. */
static double reckoned_wait(const Schedule *s, const Node *node) {
  double until = 0;
  for (int k = 0; k < node->input_count; k++) {
    const Node *of = maker(node->input[k]);
    if (of && op_has(of->op, TRAIT_RANKS)) until = fmax(until, s->timed.done[of->id]);
  }
  return fmax(0, until - s->timed.now);
}

static void pass_time(Schedule *s, const Node *node) {
  Timed *t = &s->timed;
  if (op_has(node->op, TRAIT_RANKS)) {
    double seconds = step_collective_seconds(&t->times, node);
    t->free = fmax(t->free, t->now + reckoned_wait(s, node)) + seconds;
    t->done[node->id] = t->free;
  } else {
    t->now += reckoned_wait(s, node) + step_seconds(&t->times, node);
  }
}

/* Which of two that may run comes first. */
static bool comes_sooner(const Schedule *s, int a, int b) {
  bool begins_a = is_within_any_layers(schedule_at(s, a)),
       begins_b = is_within_any_layers(schedule_at(s, b));
  double wait_a = reckoned_wait(s, schedule_at(s, a)), wait_b = reckoned_wait(s, schedule_at(s, b));
  bool frees_a = s->gain[a] > 0, frees_b = s->gain[b] > 0;
  if (wait_a != wait_b) return wait_a < wait_b;
  if (begins_a != begins_b) return begins_a;
  if (frees_a != frees_b) return frees_a;
  if (s->timed.lead[a] != s->timed.lead[b]) return s->timed.lead[a] < s->timed.lead[b];
  return a < b;
}

/* What frees memory or goes on to a collective; a product that is kept while that would wait, or where
 * too many are kept; what is made of leaves only, at its place in the order; what is late. */
static const Node *choose_by_time(Schedule *s) {
  enum { MOST_KEPT = 4 };
  Ids *ready = &s->timed.ready;
  int best = -1, fill = -1, leaf = -1, late = -1, kept = 0, count = 0;
  for (int i = 0; i < ready->count; i++) {
    int step = ready->at[i];
    if (s->is_placed[step]) continue;
    ready->at[count++] = step;
    int *of = s->is_late[step] ? &late : s->is_fill[step] ? &fill : &best;
    if (s->timed.is_of_leaf[step]) {
      if (leaf < 0 || step < leaf) leaf = step;
      continue;
    }
    kept += s->is_fill[step];
    if (*of < 0 || comes_sooner(s, step, *of)) *of = step;
  }
  ready->count = count;
  bool waits = best >= 0 && reckoned_wait(s, schedule_at(s, best)) > 0;
  if (fill >= 0 && (best < 0 || waits || kept > MOST_KEPT)) best = fill;
  if (leaf >= 0 && (best < 0 || leaf < best)) best = leaf;
  if (best < 0) best = late;
  return best < 0 ? NULL : schedule_at(s, best);
}

/* ── what may run ───────────────────────────────────────────────────────────────────────────── */
static bool comes_before(const Ready *a, const Ready *b) {
  if (a->task != b->task) return a->task < b->task;
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

static bool may_ever_run(const Schedule *s, int step) {
  return lifetime_is_step(schedule_at(s, step)) && schedule_at(s, step)->op != OP_ASSIGN;
}

static bool may_run(const Schedule *s, int step) {
  return may_ever_run(s, step) && !s->waits[step] && !s->is_placed[step];
}

static int task_of(const Schedule *s, int step) { return s->task ? s->task[step] : 0; }

static void offer(Schedule *s, int step) {
  bool has_time = s->is_late[step] || s->is_fill[step];
  if (may_run(s, step) && s->gain[step] > 0 && !s->is_plain && !has_time)
    heap_push(s, &s->by_gain, (Ready){task_of(s, step), s->gain[step], step});
}

/* Nothing that it waits for is left. */
static void enter(Schedule *s, int step) {
  Heap *heap = s->is_late[step] ? &s->late : s->is_fill[step] ? &s->fill : &s->by_id;
  if (may_run(s, step)) heap_push(s, heap, (Ready){task_of(s, step), 0, step});
  if (may_run(s, step) && s->timed.is_on) VEC_PUSH(s->arena, s->timed.ready, step);
  offer(s, step);
}

/* The first of the heap that is not placed yet, and whose gain is still that; NULL: none. */
static const Ready *schedule_first(const Schedule *s, Heap *heap, bool by_gain) {
  for (; heap->count; heap_pop(heap)) {
    const Ready *best = &heap->at[0];
    bool is_old = by_gain && s->gain[best->step] != best->gain;
    if (!s->is_placed[best->step] && !is_old) return best;
  }
  return NULL;
}

/* Would it wait for a collective within layers beside which nothing has run? */
static bool would_wait(const Schedule *s, const Node *node) {
  for (int k = 0; k < node->input_count; k++) {
    const Node *of = maker(node->input[k]);
    if (of && is_within_layers(of) && !s->is_hidden[of->id]) return true;
  }
  return false;
}

/* What would wait for these collectives need not any longer. */
static void mark_hidden(Schedule *s, const Node *node) {
  for (int k = 0; k < node->input_count; k++) {
    const Node *of = maker(node->input[k]);
    if (of && is_within_layers(of)) s->is_hidden[of->id] = true;
  }
}

/* The product that runs before this step, which would wait; or if too many are kept, whose operands
 * take memory. NULL: none. */
static const Node *run_beside(Schedule *s, const Ready *next, const Ready *kept) {
  enum { MOST_KEPT = 2 };
  if (!kept || kept->task != next->task || would_wait(s, schedule_at(s, kept->step))) return NULL;
  bool is_asked = s->fill.count > MOST_KEPT || would_wait(s, schedule_at(s, next->step));
  return is_asked ? schedule_at(s, kept->step) : NULL;
}

/* The step that frees most; of those that free nothing, the first one; then the late ones. Those of
 * earlier tasks come before. */
static const Node *schedule_choose(Schedule *s) {
  if (s->timed.is_on) return choose_by_time(s);
  const Ready *first[] = {schedule_first(s, &s->by_gain, true), schedule_first(s, &s->by_id, false),
                          schedule_first(s, &s->fill, false), schedule_first(s, &s->late, false)};
  const Ready *best = NULL;
  for (int i = 0; i < 4; i++)
    if (first[i] && (!best || first[i]->task < best->task)) best = first[i];
  if (!best) return NULL;
  const Node *next = schedule_at(s, best->step), *beside = run_beside(s, best, first[2]);
  mark_hidden(s, next);
  return beside ? beside : next;
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
  if (s->timed.is_on) pass_time(s, node);
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
                .is_fill = ARENA_ARRAY(arena, bool, count),
                .is_hidden = ARENA_ARRAY(arena, bool, count),
                .stamp = ARENA_ARRAY(arena, int, count),
                .fresh = graph_new(graph->arena, graph->name),
                .map = ARENA_ARRAY(arena, Node *, count)};
  add_data_edges(&s);
  order_messages(&s, context);
  add_state_edges(&s);
  find_outside(&s);
  find_gains(&s);
  find_late(&s);
  find_fill(&s);
  find_times(&s, context);
  for (int i = 0; i < count; i++) {
    if (node_is_leaf(schedule_at(&s, i))) schedule_place(&s, schedule_at(&s, i));
    enter(&s, i);
  }
  for (const Node *next; (next = schedule_choose(&s));) schedule_place(&s, next);
  for (int i = 0; i < count; i++)
    if (!s.is_placed[i] && may_ever_run(&s, i)) return NULL; /* it waits for itself: a fault */
  for (int i = 0; i < count; i++) schedule_place(&s, schedule_at(&s, i));
  graph_copy_roots(s.fresh, graph, s.map);
  return s.fresh;
}
