/* ir_parse: any bytes as .ftir text: parse, verify at every stage, print, DOT, and what was printed
 * must parse and print again to the same text. */
#include "base/text.h"
#include "ir/graph.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(Arena *arena, Diag *diag, FILE *sink, const Graph *graph) {
  Graph *again = NULL;
  for (int stage = STAGE_FORWARD; stage <= STAGE_PLANNED; stage++)
    graph_verify(graph, (Stage)stage, diag);
  graph_print_dot(graph, sink);
  char *text = graph_to_text(graph, arena);
  if (graph_parse(arena, diag, "again.ftir", text, &again, 1) != 1) abort();
  if (strcmp(graph_to_text(again, arena), text)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 1 << 16) return 0;
  Arena *arena = arena_new();
  FILE *sink = fopen("/dev/null", "w");
  if (!sink) abort();
  Diag diag;
  Graph *graphs[4];
  diag_init(&diag, arena, sink);
  char *text = arena_strndup(arena, (const char *)data, size);
  int count = graph_parse(arena, &diag, "fuzz.ftir", text, graphs, 4);
  for (int i = 0; i < count; i++) use(arena, &diag, sink, graphs[i]);
  fclose(sink);
  arena_free(arena);
  return 0;
}
