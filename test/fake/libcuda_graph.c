/* libcuda_graph: the fake driver's CUDA graphs and how streams are captured, see fake.h. */
#include "fake_entry.h"
#include <stdlib.h>
#include <string.h>

/* FT_FAKE_CUDA_GRAPH_FAILS: does this part of making a graph fail now? "begin", which every graph
 * starts with, counts them. */
bool fake_graph_fails(const char *part) {
  static long graphs;
  const char *failing = getenv("FT_FAKE_CUDA_GRAPH_FAILS");
  if (!strcmp(part, "begin")) graphs++;
  return failing && !strcmp(failing, part) && graphs >= fake_setting("GRAPH_FAILS_FROM", 1);
}

CudaResult entry_capture_begin(CudaStream stream, int mode) {
  LIVE();
  if (mode != CUDA_CAPTURE_THREAD_LOCAL) fake_die("capture mode %d", mode);
  if (fake_graph_fails("begin")) return CUDA_ERROR_CAPTURE_UNSUPPORTED;
  if (!stream) return CUDA_ERROR_CAPTURE_UNSUPPORTED; /* the default stream cannot be captured */
  if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
  stream->is_spoiled = false;
  stream->capturer = pthread_self();
  stream->capture = calloc(1, sizeof *stream->capture);
  stream->capture->references = 1;
  static long captures;
  stream->capture_id = ++captures;
  stream->wait = NULL;
  stream->wait_count = 0;
  return CUDA_SUCCESS;
}

CudaResult entry_capture_end(CudaStream stream, CudaGraph *graph) {
  LIVE();
  if (!stream->capture) return 401;
  if (!pthread_equal(stream->capturer, pthread_self())) return CUDA_ERROR_CAPTURE_WRONG_THREAD;
  if (stream->is_member) return CUDA_ERROR_CAPTURE_UNMATCHED;
  bool is_whole = fake_capture_gather(stream);
  if (fake_graph_fails("end")) stream->is_spoiled = true;
  *graph = stream->capture;
  stream->capture = NULL;
  if (stream->is_spoiled) {
    entry_graph_destroy(*graph);
    *graph = NULL;
  }
  free(stream->wait);
  stream->wait = NULL;
  stream->wait_count = 0;
  if (!is_whole && !stream->is_spoiled) {
    entry_graph_destroy(*graph);
    *graph = NULL;
    return CUDA_ERROR_CAPTURE_UNJOINED;
  }
  return stream->is_spoiled ? CUDA_ERROR_CAPTURE_SPOILED : CUDA_SUCCESS;
}

CudaResult entry_capture_info(CudaStream stream, int *status, unsigned long long *id,
                              CudaGraph *graph, const CudaGraphNode **nodes, size_t *count) {
  LIVE();
  *status = !stream->capture ? 0 : stream->is_spoiled ? 2 : 1;
  *id = 1;
  *graph = stream->capture;
  *nodes = stream->wait;
  *count = stream->wait_count;
  return CUDA_SUCCESS;
}

CudaResult entry_capture_update(CudaStream stream, CudaGraphNode *nodes, size_t count,
                                unsigned flags) {
  LIVE();
  if (!stream->capture) return 401;
  if (fake_setting("NO_EDGES", 0)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CUDA_CAPTURE_SET_DEPENDENCIES) fake_die("adding dependencies");
  CudaGraphNode *copy_of_nodes = malloc((count + 1) * sizeof *nodes);
  for (size_t i = 0; i < count; i++) {
    bool is_ours = false;
    for (int k = 0; k < stream->capture->count; k++)
      is_ours |= stream->capture->node[k] == nodes[i];
    if (!is_ours) fake_die("a dependency on a node of another graph");
    copy_of_nodes[i] = nodes[i];
  }
  free(stream->wait);
  stream->wait = copy_of_nodes;
  stream->wait_count = count;
  return CUDA_SUCCESS;
}

CudaResult entry_graph_instantiate(CudaGraphExec *exec, CudaGraph graph, unsigned long long flags) {
  LIVE();
  if (flags) fake_die("a graph with flags");
  if (fake_graph_fails("make")) return CUDA_ERROR_OUT_OF_MEMORY;
  *exec = calloc(1, sizeof **exec);
  (*exec)->graph = graph;
  graph->references++;
  fake_counts.graph_make++;
  fake_counts.graph_late += fake_counts.graph_launch > 0;
  fake_graph_count(graph);
  return CUDA_SUCCESS;
}

CudaResult entry_graph_upload(CudaGraphExec exec, CudaStream stream) {
  (void)exec, (void)stream;
  LIVE();
  return fake_graph_fails("upload") ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CudaResult entry_graph_launch(CudaGraphExec exec, CudaStream stream) {
  LIVE();
  fake_counts.graph_launch++;
  exec->pending++;
  if (++fake_pending > fake_counts.most_ahead) fake_counts.most_ahead = fake_pending;
  return fake_enqueue(stream, (FakeOp){.kind = OP_GRAPH, .graph = exec});
}

CudaResult entry_graph_destroy(CudaGraph graph) {
  if (--graph->references > 0) return fake_sticky;
  for (int i = 0; i < graph->count; i++) {
    free(graph->node[i]->op.params);
    free(graph->node[i]->op.context);
    free(graph->node[i]->after);
    free(graph->node[i]);
  }
  free(graph->node);
  free(graph);
  return fake_sticky;
}

CudaResult entry_graph_exec_destroy(CudaGraphExec exec) {
  fake_context_check();
  if (exec->pending && !fake_sticky) fake_die("a graph is destroyed while it is under way");
  entry_graph_destroy(exec->graph);
  free(exec);
  return fake_sticky;
}
