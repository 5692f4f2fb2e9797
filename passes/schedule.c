/* schedule: node order becomes launch order. Leaves come first, assigns last. Between them nodes
 * keep the order they have, but for two things: a node that frees more memory than it takes goes as
 * soon as it can (weight gradients let go of activations), and what reads a state goes before the
 * kernel that computes its next value, wherever no cycle comes of it, so that memplan may let that
 * kernel write the state in place. */
#include "passes/lifetime.h"
#include "passes/pass.h"
#include <string.h>

typedef struct {
  Arena *arena;
  Graph *graph;
  bool is_plain; /* the first step that may run runs first */
  int count;
  VEC(int) * after; /* by node: steps that must wait for it; a result's users wait for its kernel */
  int *waits;       /* by step: how many of its inputs are not done */
  int *readers;     /* by base value: steps that have yet to read it */
  bool *is_outside; /* by base value: lies in another arena than the work arena */
  bool *is_placed;
  int *stamp, now;
  Graph *fresh;
  Node **map;
} Schedule;

static Node *at(const Schedule *s, int id) { return s->graph->nodes.at[id]; }

/* The step that makes a value; NULL for leaves. */
static const Node *maker(const Node *value) {
  const Node *base = lifetime_base(value);
  if (base->op == OP_RESULT) return base->input[0];
  return lifetime_is_step(base) ? base : NULL;
}

static bool add_edge(Schedule *s, const Node *first, const Node *then) {
  for (int i = 0; i < s->after[first->id].count; i++)
    if (s->after[first->id].at[i] == then->id) return false;
  VEC_PUSH(s->arena, s->after[first->id], then->id);
  s->waits[then->id]++;
  return true;
}

static void add_data_edges(Schedule *s) {
  for (int i = 0; i < s->count; i++) {
    const Node *node = at(s, i);
    for (int k = 0; lifetime_is_step(node) && k < node->input_count; k++) {
      if (maker(node->input[k])) add_edge(s, maker(node->input[k]), node);
      bool again = false;
      for (int m = 0; m < k; m++)
        again |= lifetime_base(node->input[m]) == lifetime_base(node->input[k]);
      if (!again) s->readers[lifetime_base(node->input[k])->id]++;
    }
  }
}

static bool leads_to(Schedule *s, int from, int to) {
  if (from == to) return true;
  s->stamp[from] = s->now;
  for (int i = 0; i < s->after[from].count; i++) {
    int next = s->after[from].at[i];
    if (s->stamp[next] != s->now && leads_to(s, next, to)) return true;
  }
  return false;
}

/* Readers of the old value before the writer of the new one. */
static void add_state_edges(Schedule *s) {
  for (int i = 0; i < s->count; i++) {
    const Node *assign = at(s, i);
    const Node *writer = assign->op == OP_ASSIGN ? maker(assign->input[0]) : NULL;
    if (!writer) continue;
    const Node *state = graph_find_state(s->graph, node_str(assign, ATTR_TARGET));
    for (int r = 0; r < s->count; r++) {
      const Node *reader = at(s, r);
      bool reads = false;
      for (int k = 0; lifetime_is_step(reader) && k < reader->input_count; k++)
        reads |= lifetime_is_of_state(lifetime_base(reader->input[k]), state);
      s->now++;
      if (reads && reader != writer && reader->op != OP_ASSIGN && !leads_to(s, writer->id, r))
        add_edge(s, reader, writer);
    }
  }
}

/* Values that memplan will put elsewhere: they cost and free nothing here. */
static void find_outside(Schedule *s) {
  for (int i = 0; i < s->graph->roots.count; i++)
    s->is_outside[lifetime_base(s->graph->roots.at[i].node)->id] = true;
  for (int i = 0; i < s->count; i++) {
    const Node *node = at(s, i);
    if (lifetime_is_leaf(node) || node->op == OP_PACK) s->is_outside[i] = true;
    for (int k = 0; (node->op == OP_PACK || node->op == OP_ASSIGN) && k < node->input_count; k++)
      s->is_outside[lifetime_base(node->input[k])->id] = true;
  }
}

static int64_t bytes_of(const Schedule *s, const Node *value) {
  return s->is_outside[value->id] ? 0 : type_bytes(&value->type);
}

/* Bytes freed less bytes taken if this step were next. */
static int64_t gain(const Schedule *s, const Node *node) {
  int64_t sum = 0;
  if (node_has_results(node)) {
    for (int i = 0; i < node_result_count(node); i++) {
      int next = node->id;
      while (next < s->count && !(at(s, next)->op == OP_RESULT && at(s, next)->input[0] == node &&
                                  node_int(at(s, next), ATTR_INDEX, 0) == i))
        next++;
      if (next < s->count) sum -= bytes_of(s, at(s, next));
    }
  } else if (lifetime_is_value(node)) {
    sum -= bytes_of(s, node);
  }
  for (int k = 0; k < node->input_count; k++) {
    const Node *base = lifetime_base(node->input[k]);
    bool again = false;
    for (int m = 0; m < k; m++) again |= lifetime_base(node->input[m]) == base;
    if (!again && s->readers[base->id] == 1) sum += bytes_of(s, base);
  }
  return sum;
}

/* The node into the new graph, with the results and views that hang on it. */
static void place(Schedule *s, const Node *node) {
  if (s->is_placed[node->id]) return;
  s->is_placed[node->id] = true;
  Node **inputs = ARENA_ARRAY(s->arena, Node *, node->input_count);
  for (int i = 0; i < node->input_count; i++) {
    if (node->input[i]->op == OP_RESHAPE || node->input[i]->op == OP_RESULT)
      place(s, node->input[i]);
    inputs[i] = s->map[node->input[i]->id];
  }
  s->map[node->id] = graph_copy_node(s->fresh, node, inputs);
  if (!lifetime_is_step(node)) return;
  for (int i = 0; i < s->after[node->id].count; i++) s->waits[s->after[node->id].at[i]]--;
  for (int k = 0; k < node->input_count; k++) {
    bool again = false;
    for (int m = 0; m < k; m++)
      again |= lifetime_base(node->input[m]) == lifetime_base(node->input[k]);
    if (!again) s->readers[lifetime_base(node->input[k])->id]--;
  }
  for (int i = node->id + 1; node_has_results(node) && i < s->count; i++)
    if (at(s, i)->op == OP_RESULT && at(s, i)->input[0] == node) place(s, at(s, i));
}

static const Node *choose(const Schedule *s, int from) {
  const Node *best = NULL;
  int64_t most = 0;
  for (int i = from; i < s->count; i++) {
    const Node *node = at(s, i);
    if (!lifetime_is_step(node) || node->op == OP_ASSIGN || s->is_placed[i] || s->waits[i] > 0)
      continue;
    if (s->is_plain) return node;
    int64_t gained = gain(s, node);
    if (!best || gained > most) {
      best = node;
      if (gained > most) most = gained;
    }
  }
  return best;
}

Graph *pass_schedule(PassContext *context, Graph *graph) {
  int count = graph->nodes.count, first = 0;
  Arena *arena = graph->arena;
  Schedule s = {.arena = arena,
                .graph = graph,
                .is_plain = context->is_plain,
                .count = count,
                .after = arena_alloc(arena, sizeof *s.after * (size_t)count),
                .waits = ARENA_ARRAY(arena, int, count),
                .readers = ARENA_ARRAY(arena, int, count),
                .is_outside = ARENA_ARRAY(arena, bool, count),
                .is_placed = ARENA_ARRAY(arena, bool, count),
                .stamp = ARENA_ARRAY(arena, int, count),
                .fresh = graph_new(arena, graph->name),
                .map = ARENA_ARRAY(arena, Node *, count)};
  add_data_edges(&s);
  add_state_edges(&s);
  find_outside(&s);
  for (int i = 0; i < count; i++)
    if (lifetime_is_leaf(at(&s, i))) place(&s, at(&s, i));
  for (const Node *next; (next = choose(&s, first));) {
    place(&s, next);
    while (first < count && (s.is_placed[first] || !lifetime_is_step(at(&s, first)))) first++;
  }
  for (int i = 0; i < count; i++) place(&s, at(&s, i));
  for (int i = 0; i < graph->roots.count; i++)
    graph_add_root(s.fresh, graph->roots.at[i].kind, graph->roots.at[i].name,
                   s.map[graph->roots.at[i].node->id]);
  return s.fresh;
}
