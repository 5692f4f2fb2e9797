/* ir_help: graphs from text for the unit tests of ir/. Errors of a parse that must succeed fail the
 * test and show the message. */
#ifndef FT_TEST_IR_HELP_H
#define FT_TEST_IR_HELP_H
#include "base/text.h"
#include "ir/graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* needs the headers above */

/* Parses one graph; on failure fills *message (malloc'd) and returns NULL. */
static inline Graph *help_try(Arena *arena, const char *text, char **message) {
  size_t size;
  FILE *out = open_memstream(message, &size);
  Diag diag;
  Graph *graph = NULL;
  diag_init(&diag, arena, out);
  int count = graph_parse(arena, &diag, "test.ftir", text, &graph, 1);
  fclose(out);
  assert_true(count == 1 ? diag.errors == 0 : diag.errors > 0);
  return count == 1 ? graph : NULL;
}

static inline Graph *help_parse(Arena *arena, const char *text) {
  char *message;
  Graph *graph = help_try(arena, text, &message);
  if (!graph) print_error("%s", message);
  free(message);
  assert_non_null(graph);
  return graph;
}

/* The graph of these node lines, wrapped. */
static inline Graph *help_graph(Arena *arena, const char *lines) {
  return help_parse(arena, arena_printf(arena, "graph \"g\" {\n%s\n}\n", lines));
}

static inline char *help_read(Arena *arena, const char *path) {
  Text text = {0};
  assert_int_equal(text_read_file(&text, path), 0);
  char *copy = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return copy;
}
#endif
