/* tasks: what comes from another stage tells the task of all that is computed of it. What depends on
 * nothing that was received (forward of the first stage; masks) belongs to the first task that reads
 * it, where what is sent says which task sends it. The graph keeps no other note of micro-batches,
 * so no pass between can lose it. */
#include "passes/tasks.h"
#include "passes/messages.h"
#include "plan/pipeline_order.h"
#include <stdlib.h>

typedef struct {
  Pipeline pipeline;
  int rank, chunks;
  int *place[2];    /* by backward, chunk and micro-batch: this rank's number of the task */
  int64_t *end[2];  /* likewise, of all ranks: when it ends */
  int *backward_of; /* by number of a forward of the last chunk: that of its backward; -1 */
  int64_t *start;   /* by this rank's number */
  int count;        /* the first number is FIRST; before it, what is sent before everything else */
} Places;
enum { FIRST = 1 };

static int64_t task_key(const Places *p, int64_t chunk, int64_t micro) {
  return chunk * p->pipeline.micros + micro;
}

static void order_tasks(Places *p, Arena *arena) {
  int count, all = p->chunks * p->pipeline.micros;
  const PipelineTask *tasks = pipeline_order(arena, &p->pipeline, &count);
  for (int b = 0; b < 2; b++) {
    p->place[b] = ARENA_ARRAY(arena, int, all);
    p->end[b] = ARENA_ARRAY(arena, int64_t, all);
  }
  p->backward_of = ARENA_ARRAY(arena, int, count + FIRST);
  p->start = ARENA_ARRAY(arena, int64_t, count + FIRST);
  p->count = FIRST;
  for (int i = 0; i < count; i++) {
    int64_t key = task_key(p, tasks[i].chunk, tasks[i].micro);
    p->end[tasks[i].is_backward][key] = tasks[i].end;
    if (tasks[i].rank != p->rank) continue;
    p->start[p->count] = tasks[i].start;
    p->place[tasks[i].is_backward][key] = p->count++;
  }
  for (int i = 0; i < p->count; i++) p->backward_of[i] = -1;
  int64_t last = p->chunks - 1; /* backward of the last chunk is computed of its forward alone */
  for (int m = 0; m < p->pipeline.micros && last % p->pipeline.ranks == p->rank; m++)
    p->backward_of[p->place[0][task_key(p, last, m)]] = p->place[1][task_key(p, last, m)];
}

/* What goes on when all micro-batches are done. */
static bool is_last(const Node *node) {
  return message_is(node, MESSAGE_JOINED) ||
         (message_is_once(node) && message_is(node, MESSAGE_GRADIENT));
}

static bool is_sent_first(const Message *m) {
  return m->micro == MESSAGE_ONCE || (m->kind == MESSAGE_STATE && m->micro == 0);
}

/* When the task that sends it ends. */
static int64_t sent_at(const Places *p, const Message *m) {
  return p->end[m->kind == MESSAGE_GRADIENT][task_key(p, m->from, m->micro)];
}

/* The task that makes what is sent, or reads what is received, which is none that starts before it
 * is sent; not of the last ones. */
static int message_place(const Places *p, const Node *node) {
  Message m = message_of(node);
  bool is_send = node->op == OP_SEND;
  if (is_sent_first(&m)) return is_send ? 0 : FIRST;
  int place = p->place[m.kind == MESSAGE_GRADIENT][task_key(p, is_send ? m.from : m.to, m.micro)];
  while (!is_send && place < p->count && p->start[place] < sent_at(p, &m)) place++;
  return place;
}

/* ── the order of messages ──────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t key[6];
  const Node *node;
} Begun;

/* Params and states first, then each when the task that sends it ends, params' gradients, and what
 * is joined. */
static Begun begun(const Places *p, const Node *node) {
  Message m = message_of(node);
  int64_t phase = m.kind == MESSAGE_JOINED ? 3 : !is_sent_first(&m) ? 1 : is_last(node) ? 2 : 0;
  int64_t end = phase == 1 ? sent_at(p, &m) : 0, to = phase == 3 ? 0 : m.to;
  return (Begun){{phase, end, m.from, to, m.kind, m.number}, node};
}

static int by_message(const void *a, const void *b) {
  const Begun *x = a, *y = b;
  for (int i = 0; i < 6; i++)
    if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
  return x->node->id - y->node->id;
}

static void tasks_order_messages(const Places *p, const Graph *graph, Arena *arena, Tasks *out) {
  VEC(Begun) all = {0};
  for (int i = 0; i < graph->nodes.count; i++)
    if (node_attr(graph->nodes.at[i], ATTR_MESSAGE))
      VEC_PUSH(arena, all, begun(p, graph->nodes.at[i]));
  if (all.count) qsort(all.at, (size_t)all.count, sizeof *all.at, by_message);
  for (int i = 0; i < all.count; i++) VEC_PUSH(arena, out->messages, all.at[i].node);
}

/* ── tasks of nodes ─────────────────────────────────────────────────────────────────────────── */
/* Each of the last messages is a task by itself, behind the others. Returns the number of all. */
static int place_last(const Places *p, const Tasks *tasks, int *place) {
  int count = p->count;
  for (int i = 0; i < tasks->messages.count; i++) {
    const Node *node = tasks->messages.at[i];
    place[node->id] = is_last(node) ? count++ : message_place(p, node);
  }
  return count;
}

static void find_tasks(const Places *p, const Graph *graph, Arena *arena, const Tasks *tasks) {
  int *task = tasks->task, *place = ARENA_ARRAY(arena, int, graph->nodes.count);
  int count = place_last(p, tasks, place);
  int *first_reader = ARENA_ARRAY(arena, int, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    task[i] = -1;
    first_reader[i] = count;
    for (int k = 0; k < node->input_count; k++)
      if (task[node->input[k]->id] > task[i]) task[i] = task[node->input[k]->id];
    if (node_attr(node, ATTR_MESSAGE) && place[i] > task[i]) task[i] = place[i];
    int back = task[i] >= 0 && task[i] < p->count ? p->backward_of[task[i]] : -1;
    if (back >= 0 && node->origin.is_backward) task[i] = back;
  }
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    if (task[i] < 0) task[i] = first_reader[i];
    for (int k = 0; k < node->input_count; k++) {
      int *first = &first_reader[node->input[k]->id];
      if (task[i] < *first) *first = task[i];
    }
  }
}

bool tasks_find(const PassContext *context, const Graph *graph, Arena *arena, Tasks *out) {
  const SettingValue *settings = context->settings;
  if (!settings || setting_pipeline(settings) == 1) return false;
  bool trains = pass_trains(context);
  int ranks = (int)setting_pipeline(settings);
  int per_rank = (int)setting_number(settings, "distributed.interleave");
  Places p = {.pipeline = {.ranks = ranks,
                           .chunks = per_rank,
                           .micros = trains ? (int)setting_number(settings, "train.accumulate") : 1,
                           .is_forward = !trains},
              .rank = context->stage,
              .chunks = ranks * per_rank};
  order_tasks(&p, arena);
  out->task = ARENA_ARRAY(arena, int, graph->nodes.count);
  tasks_order_messages(&p, graph, arena, out);
  find_tasks(&p, graph, arena, out);
  return true;
}
