/* fake_queue: see fake.h. An op runs when all before it in its stream have run; a wait first runs
 * the other stream up to the event. */
#include "fake_entry.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CudaStream fake_streams;
long fake_pending;
bool fake_is_hung;

/* ── doing ────────────────────────────────────────────────────────────────────────────────── */
static void do_copy(const FakeOp *op) {
  const CudaCopy2d *c = &op->copy;
  const char *from =
      c->from_kind == CUDA_MEMORY_HOST ? c->from_host : (const char *)(uintptr_t)c->from_device;
  char *to = c->to_kind == CUDA_MEMORY_HOST ? c->to_host : (char *)(uintptr_t)c->to_device;
  if (op->staged) from = op->staged;
  for (size_t row = 0; row < c->height; row++) {
    memcpy(to + row * c->to_pitch, from + row * c->from_pitch, c->width);
    if (c->to_kind == CUDA_MEMORY_DEVICE)
      sim_mark(fake_machine, to + row * c->to_pitch, (int64_t)c->width, true);
  }
}

static void do_kernel(const FakeOp *op) {
  long most = fake_setting("LOST_AFTER", 0), last = fake_setting("HANG_AFTER", 0);
  fake_counts.kernel++;
  fake_is_hung = last && fake_counts.kernel >= last;
  if (fake_is_hung) return;
  if (most && fake_counts.kernel >= most) {
    fake_sticky = CUDA_ERROR_LAUNCH_FAILED;
    return;
  }
  SimLaunch launch = op->launch;
  launch.params = op->params;
  if (sim_launch(fake_machine, op->kernel, &launch) != STATUS_OK) {
    fprintf(stderr, "fake CUDA driver: %s\n", status_message());
    fake_sticky = CUDA_ERROR_LAUNCH_FAILED;
  }
}

static void do_op(const FakeOp *op);

/* Any order that the edges allow. */
static void do_graph(CudaGraphExec exec) {
  CudaGraph graph = exec->graph;
  bool *is_done = calloc((size_t)graph->count + 1, sizeof *is_done);
  for (int left = graph->count; left > 0; left--) {
    int ready = 0, chosen = -1;
    for (int i = 0; i < graph->count; i++) {
      bool is_ready = !is_done[i];
      for (size_t k = 0; k < graph->node[i]->after_count && is_ready; k++)
        is_ready = is_done[graph->node[i]->after[k]->index];
      if (!is_ready) continue;
      ready++;
      /* with a seed: one of the ready ones, each as likely; without: the first */
      if (chosen < 0 || (fake_chance() && fake_chance() % (unsigned)ready == 0)) chosen = i;
    }
    if (chosen < 0) fake_die("a graph whose nodes wait for each other");
    is_done[chosen] = true;
    if (!fake_sticky && !fake_is_hung) do_op(&graph->node[chosen]->op);
  }
  free(is_done);
  exec->pending--;
  fake_pending--;
}

double fake_said_milliseconds;

static void do_op(const FakeOp *op) {
  switch (op->kind) {
  case OP_COPY:
    do_copy(op);
    break;
  case OP_FILL:
    memset((void *)(uintptr_t)op->to, op->value, op->bytes);
    sim_mark(fake_machine, (char *)(uintptr_t)op->to, (int64_t)op->bytes, true);
    break;
  case OP_KERNEL:
    do_kernel(op);
    break;
  case OP_HOST:
  case OP_COLLECTIVE:
    op->host(op->context);
    break;
  case OP_GRAPH:
    do_graph(op->graph);
    break;
  case OP_RECORD:
    op->event->done = op->generation;
    op->event->time = (double)clock_nanoseconds() * 1e-6 + fake_said_milliseconds;
    break;
  case OP_WAIT:
    break;
  }
}

static void run_next(CudaStream stream) {
  if (stream->is_running && pthread_equal(stream->runner, pthread_self()))
    fake_die("streams that wait for each other");
  if (stream->is_running) { /* a collective lets other threads in while it waits */
    fake_pause();
    return;
  }
  stream->is_running = true;
  stream->runner = pthread_self();
  FakeOp op = stream->op[stream->done];
  if (op.kind == OP_WAIT)
    while (op.event->done < op.generation && !fake_is_hung) run_next(op.event->stream);
  if (!fake_is_hung && (!fake_sticky || op.kind == OP_RECORD)) do_op(&op);
  if (fake_is_hung) { /* it stays where it is */
    stream->is_running = false;
    return;
  }
  free(op.staged);
  if (op.kind == OP_KERNEL) free(op.params);
  if (op.kind == OP_HOST || op.kind == OP_COLLECTIVE) free(op.context);
  stream->done++;
  stream->is_running = false;
}

CudaResult fake_run_until_empty(CudaStream stream) {
  while (stream->done < stream->count && !fake_is_hung) run_next(stream);
  if (!stream->is_running && !fake_is_hung) stream->count = stream->done = 0;
  return fake_sticky;
}

CudaResult fake_run_until_event(CudaEvent event) {
  while (event->done < event->recorded && !fake_is_hung) run_next(event->stream);
  return fake_sticky;
}

bool fake_event_is_done(CudaEvent event) { return event->done >= event->recorded; }

static bool stream_is_done(CudaStream stream) {
  return stream->done >= stream->count && !stream->is_running;
}

/* Asking in a row is the thread's own affair: another one may do something else meanwhile. */
static _Thread_local struct {
  const void *what;
  int times;
} asked;

/* With FT_FAKE_CUDA_SLOW: goes on to the next record of an event, if its time has come. */
static void move_slowly(CudaStream stream, long milliseconds) {
  static int64_t last;
  int64_t now = clock_nanoseconds();
  if (now - last < milliseconds * 1000000) return;
  last = now;
  bool is_record = false;
  while (stream->done < stream->count && !is_record && !fake_is_hung) {
    is_record = stream->op[stream->done].kind == OP_RECORD;
    run_next(stream);
  }
}

bool fake_ask(CudaEvent event, CudaStream stream) {
  enum { ENOUGH = 16 };
  const void *what = event ? (const void *)event : (const void *)stream;
  if (event ? fake_event_is_done(event) : stream_is_done(stream)) {
    fake_move_on();
    return true;
  }
  fake_move_on();
  asked.times = asked.what == what ? asked.times + 1 : 1;
  asked.what = what;
  long slow = fake_setting("SLOW", 0);
  if (slow) move_slowly(event ? event->stream : stream, slow);
  if (asked.times < ENOUGH || fake_is_hung || slow) return false;
  asked.what = NULL;
  if (event) {
    fake_counts.wait++;
    fake_counts.wait_young += fake_counts.graph_launch - event->launches < 2;
    fake_run_until_event(event);
    return fake_event_is_done(event);
  }
  fake_counts.synchronize++;
  fake_run_until_empty(stream);
  return stream_is_done(stream);
}

/* Can the next op run without another stream moving? */
static bool is_ready(CudaStream stream) {
  if (stream->done >= stream->count || stream->is_running) return false;
  const FakeOp *op = &stream->op[stream->done];
  return op->kind != OP_WAIT || op->event->done >= op->generation;
}

void fake_move_on(void) {
  if (!fake_chance()) return;
  for (CudaStream stream = fake_streams; stream; stream = stream->next)
    if (!stream->is_slow)
      for (unsigned moves = fake_chance() % 4; moves && is_ready(stream) && !fake_is_hung; moves--)
        run_next(stream);
}

/* What other ranks wait for: a GPU goes on by itself, also where the host asks it nothing. */
void fake_move_all(void) {
  if (fake_setting("SLOW", 0)) return;
  for (CudaStream stream = fake_streams; stream; stream = stream->next)
    while (is_ready(stream) && !fake_is_hung) run_next(stream);
}

/* ── capturing ────────────────────────────────────────────────────────────────────────────── */
bool fake_capture_refuses(const char *call) {
  bool refuses = false;
  for (CudaStream stream = fake_streams; stream; stream = stream->next) {
    if (!stream->capture || !pthread_equal(stream->capturer, pthread_self())) continue;
    stream->is_spoiled = refuses = true;
  }
  if (refuses) fprintf(stderr, "fake CUDA driver: %s while this thread captures a stream\n", call);
  return refuses;
}

void fake_capture_record(CudaStream stream, CudaEvent event) {
  event->capture_id = stream->capture_id;
  free(event->node);
  event->node_count = stream->wait_count;
  event->node = malloc((event->node_count + 1) * sizeof *event->node);
  if (event->node_count) memcpy(event->node, stream->wait, event->node_count * sizeof *event->node);
}

bool fake_capture_wait(CudaStream stream, CudaEvent event) {
  CudaStream other = fake_streams;
  while (other && (!other->capture || other->capture_id != event->capture_id)) other = other->next;
  if (!event->capture_id || !other) return false;
  if (!stream->capture) {
    if (stream->done < stream->count) fake_die("a stream with work joins a capture");
    stream->capture = other->capture;
    stream->capture_id = other->capture_id;
    stream->capturer = other->capturer;
    stream->is_member = true;
    stream->is_spoiled = false;
    stream->wait = NULL;
    stream->wait_count = 0;
  }
  if (stream->capture_id != event->capture_id) fake_die("an event of another capture");
  size_t count = stream->wait_count + event->node_count;
  stream->wait = realloc(stream->wait, (count + 1) * sizeof *stream->wait);
  if (event->node_count)
    memcpy(stream->wait + stream->wait_count, event->node, event->node_count * sizeof *event->node);
  stream->wait_count = count;
  return true;
}

static void mark_ancestors(const FakeNode *node, bool *is_before) {
  if (is_before[node->index]) return;
  is_before[node->index] = true;
  for (size_t i = 0; i < node->after_count; i++) mark_ancestors(node->after[i], is_before);
}

bool fake_capture_gather(CudaStream stream) {
  bool *is_before = calloc((size_t)stream->capture->count + 1, sizeof *is_before), all = true;
  for (size_t i = 0; i < stream->wait_count; i++) mark_ancestors(stream->wait[i], is_before);
  for (CudaStream other = fake_streams; other; other = other->next) {
    if (other == stream || other->capture != stream->capture) continue;
    for (size_t i = 0; i < other->wait_count; i++) all = all && is_before[other->wait[i]->index];
    other->capture = NULL;
    other->is_member = false;
    free(other->wait);
    other->wait = NULL;
    other->wait_count = 0;
  }
  free(is_before);
  return all;
}

/* Kernels and collectives that may run side by side. */
void fake_graph_count(CudaGraph graph) {
  bool *is_before = calloc((size_t)graph->count + 1, sizeof *is_before);
  bool *is_behind = calloc((size_t)graph->count + 1, sizeof *is_behind);
  for (int c = 0; c < graph->count; c++) {
    if (graph->node[c]->op.kind != OP_COLLECTIVE) continue;
    fake_counts.collective++;
    memset(is_before, 0, (size_t)graph->count);
    memset(is_behind, 0, (size_t)graph->count);
    mark_ancestors(graph->node[c], is_before);
    is_behind[c] = true;
    for (int i = c + 1; i < graph->count; i++) /* nodes stand behind those that they wait for */
      for (size_t k = 0; k < graph->node[i]->after_count; k++)
        is_behind[i] |= is_behind[graph->node[i]->after[k]->index];
    for (int i = 0; i < graph->count; i++)
      fake_counts.beside += graph->node[i]->op.kind == OP_KERNEL && !is_before[i] && !is_behind[i];
  }
  free(is_before);
  free(is_behind);
}

/* ── enqueuing ────────────────────────────────────────────────────────────────────────────── */
static void capture(CudaStream stream, const FakeOp *op) {
  CudaGraph graph = stream->capture;
  FakeNode *node = calloc(1, sizeof *node);
  node->op = *op;
  node->index = graph->count;
  node->after = stream->wait;
  node->after_count = stream->wait_count;
  graph->node = realloc(graph->node, sizeof *graph->node * (size_t)(graph->count + 1));
  graph->node[graph->count++] = node;
  stream->wait = malloc(sizeof *stream->wait);
  stream->wait[0] = node;
  stream->wait_count = 1;
}

CudaResult fake_enqueue(CudaStream stream, FakeOp op) {
  LOCKED();
  fake_context_check();
  asked.what = NULL;
  if (!stream) fake_die("work on the default stream");
  if (stream->context != fake_context()) fake_die("work on a stream of another context");
  if (fake_sticky) return fake_sticky;
  if (stream->capture) {
    if (stream->is_spoiled) return CUDA_ERROR_CAPTURE_SPOILED;
    if (op.kind == OP_RECORD || op.kind == OP_WAIT || op.kind == OP_GRAPH)
      fake_die("an event or graph while capturing");
    capture(stream, &op);
    return CUDA_SUCCESS;
  }
  if (stream->count == stream->capacity) {
    stream->capacity = stream->capacity * 2 + 64;
    stream->op = realloc(stream->op, sizeof *stream->op * (size_t)stream->capacity);
  }
  if (stream->done == stream->count) stream->done = stream->count = 0;
  stream->op[stream->count++] = op;
  fake_move_on();
  return CUDA_SUCCESS;
}
