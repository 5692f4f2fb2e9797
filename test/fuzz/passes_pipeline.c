/* Any graph text that parses and verifies goes through the whole pipeline, as the train and as the
 * eval graph, without a crash; what comes out of every pass verifies. The first byte chooses the
 * optimizer and the target. */
#include "passes/pass.h"
#include <string.h>

static bool is_small(const Graph *graph) {
  int64_t elements = 0;
  for (int i = 0; i < graph->nodes.count; i++)
    elements += shape_elements(&graph->nodes.at[i]->type.shape);
  return graph->nodes.count < 2000 && elements < ((int64_t)1 << 40);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const optimizers[] = {"sgd", "adam", "adamw"};
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  if (size < 1) return 0;
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, nowhere);
  char *text = arena_strndup(arena, (const char *)data + 1, size - 1);
  Graph *graph;
  const char *why;
  if (graph_parse(arena, &diag, "fuzz", text, &graph, 1) == 1 && is_small(graph) &&
      graph_verify(graph, STAGE_FORWARD, &diag)) {
    Program program = {
        .arena = arena, .train = graph, .eval = graph, .settings = settings_new(arena)};
    PassOptions options = {.verify = true, .dump_dir = "/nonexistent"};
    setting_set(arena, program.settings, setting_find("train.optimizer"), optimizers[data[0] % 3],
                &why);
    passes_run(&program, &diag, &options, data[0] & 128);
  }
  arena_free(arena);
  return 0;
}
