/* ir_interp: any graph that parses and is small is interpreted, verified or not, with and without
 * rounding: whatever stands in a .ftir file, the interpreter answers or refuses. */
#include "base/text.h"
#include "ir/graph.h"
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const Tensor *leaf(const Node *node, void *context) {
  static const double odd[] = {0, -1, 0.5, 3e9, -3e9, INFINITY, NAN, 1e-40, 255};
  Tensor *tensor = tensor_new(context, node->type);
  for (int64_t k = 0; k < shape_elements(&node->type.shape); k++) {
    if (tensor->f)
      tensor->f[k] = odd[(k + node->id) % 9];
    else
      tensor->i[k] = node->type.dtype == DT_BOOL ? k % 2 : k % 3;
  }
  return tensor;
}

static int64_t elements(const Graph *graph) {
  int64_t count = 0;
  for (int i = 0; i < graph->nodes.count && count < 1 << 20; i++) {
    const Node *node = graph->nodes.at[i];
    count += shape_elements(&node->type.shape) + (node->body ? elements(node->body) : 0);
  }
  return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 1 << 14) return 0;
  Arena *arena = arena_new();
  FILE *sink = fopen("/dev/null", "w");
  if (!sink) abort();
  Diag diag;
  Graph *graph;
  diag_init(&diag, arena, sink);
  char *text = arena_strndup(arena, (const char *)data, size);
  if (graph_parse(arena, &diag, "fuzz.ftir", text, &graph, 1) == 1 && elements(graph) < 4096) {
    Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
    for (int round = 0; round < 2; round++)
      graph_interpret(graph, arena, leaf, arena, round, values, &diag);
  }
  fclose(sink);
  arena_free(arena);
  return 0;
}
