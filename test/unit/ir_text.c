/* ir_text: the text form prints and parses back to itself, byte for byte, for every op; and wrong
 * text is refused with one message at the right place. */
#include "ir_help.h"
#include <math.h>

static void round_trip(const char *text) {
  Arena *arena = arena_new();
  char *first = graph_to_text(help_parse(arena, text), arena);
  char *second = graph_to_text(help_parse(arena, first), arena);
  assert_string_equal(first, second);
  arena_free(arena);
}

static void every_op(void **state) {
  (void)state;
  Arena *arena = arena_new();
  char *text = help_read(arena, "test/lit/ir/Inputs/every_op.ftir");
  Graph *graph = help_parse(arena, text);
  assert_string_equal(graph_to_text(graph, arena), text); /* the file is in printed form */
  bool seen[OP_COUNT] = {false};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    seen[node->op] = true;
    for (int k = 0; node->body && k < node->body->nodes.count; k++)
      seen[node->body->nodes.at[k]->op] = true;
  }
  for (int i = 0; i < OP_COUNT; i++)
    if (!seen[i]) fail_msg("%s is missing in every_op.ftir", op_info[i].text);
  arena_free(arena);
}

static void floats_round_trip(void **state) {
  (void)state;
  static const double values[] = {
      0,         -0.0,    0.1,     1.0 / 3,  1e300,    5e-324, 1e22,
      123456789, 1234567, 0x1p-24, INFINITY, 1e15 / 7, 1e-7,   0.30000000000000004};
  Arena *arena = arena_new();
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    Graph *graph = graph_new(arena, "g");
    make_const(graph, DT_F64, shape_scalar(), values[i]);
    Graph *again = help_parse(arena, graph_to_text(graph, arena));
    double back = node_float(again->nodes.at[0], ATTR_VALUE, 42);
    assert_memory_equal(&back, &values[i], sizeof back);
  }
  Graph *graph = graph_new(arena, "g");
  make_const(graph, DT_F64, shape_scalar(), NAN);
  Graph *again = help_parse(arena, graph_to_text(graph, arena));
  assert_true(isnan(node_float(again->nodes.at[0], ATTR_VALUE, 42)));
  arena_free(arena);
}

static void odd_text(void **state) {
  (void)state;
  round_trip("graph { }");
  round_trip(
      "; comment\ngraph name { // and one\n %a.b = const{value=1}:f32[] @~1:2:3\n loss %a.b }");
  round_trip("graph \"tab\\t newline\\n quote\\\" \xc3\xa4 \\x7f \\x1f \\xc3\" {}");
}

static void locations(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = help_graph(arena, "%a = const {value=1} : f32[] @~3:70000:5\n"
                                   "%b = neg %a : f32[] @9:8\n%c = neg %b : f32[] @~\n"
                                   "%d = neg %c : f32[] @!7:6#5 in \"h.0.fc\" of \"gelu\"\n"
                                   "%e = neg %d : f32[] @of \"gelu\"");
  const Node *a = graph->nodes.at[0], *b = graph->nodes.at[1], *c = graph->nodes.at[2];
  assert_int_equal(a->origin.loc.file, 3);
  assert_int_equal(a->origin.loc.line, 70000);
  assert_int_equal(a->origin.loc.column, 5);
  assert_true(a->origin.is_backward);
  assert_int_equal(b->origin.loc.file, 1);
  assert_int_equal(b->origin.loc.line, 9);
  assert_false(b->origin.is_backward);
  assert_int_equal(c->origin.loc.line, 0);
  assert_true(c->origin.is_backward);
  const Node *d = graph->nodes.at[3], *e = graph->nodes.at[4];
  assert_true(d->origin.is_update);
  assert_int_equal(d->origin.region.number, 5);
  assert_string_equal(d->origin.layer, "h.0.fc");
  assert_string_equal(d->origin.function, "gelu");
  assert_null(e->origin.layer);
  assert_string_equal(e->origin.function, "gelu");
  arena_free(arena);
}

static void several_graphs(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Diag diag;
  Graph *graphs[3];
  diag_init(&diag, arena, stderr);
  int count = graph_parse(arena, &diag, "two.ftir", "graph train {}\ngraph eval {}", graphs, 3);
  assert_int_equal(count, 2);
  assert_string_equal(graphs[0]->name, "train");
  assert_string_equal(graphs[1]->name, "eval");
  assert_int_equal(graph_parse(arena, &diag, "none.ftir", " // nothing\n", graphs, 3), 0);
  arena_free(arena);
}

/* Wrong text, and a part of the one message it must give. */
static const char *const wrong[][2] = {
    {"grap {}", "test.ftir:1:1: error: expected 'graph'"},
    {"graph {", "test.ftir:1:8: error: expected a node, a root or '}'"},
    {"graph {} graph {}", "test.ftir:1:10: error: this file has more than 1 graph"},
    {"graph {\n %0 = ad : f32[]\n}",
     "test.ftir:2:7: error: unknown operation 'ad'; did you mean 'add'?"},
    {"graph { %0 = neg %1 : f32[] }", "there is no node %1 before this one"},
    {"graph { %0 = neg %0 : f32[] }", "there is no node %0 before this one"},
    {"graph { %0 = const {value=1} : f32[] %0 = neg %0 : f32[] }",
     "1:38: error: the name of this node is taken"},
    {"graph { %0 = const {value=1} : f32[] %1 = neg %0 : f32[2] }",
     "1:52: error: this node's type is f32[]"},
    {"graph { %0 = const {valu=1} : f32[] }", "unknown attribute 'valu'; did you mean 'value'?"},
    {"graph { %0 = const {value=1, value=2} : f32[] }", "the attribute 'value' stands here twice"},
    {"graph { %0 = const {value=x} : f32[] }", "'x' is not a number"},
    {"graph { %0 = const : f32[] }", "const needs the attribute 'value'"},
    {"graph { %0 = const {value=1} : f31[] }", "unknown element type 'f31'"},
    {"graph { %0 = const {value=1} : f32[1,1,1,1,1,1,1,1,1] }", "at most 8 dimensions"},
    {"graph { %0 = const {value=1} : f32[-1] }", "this number must be between 0 and"},
    {"graph { %0 = const {value=1} : f32[99999999999999999999] }",
     "this number must be between 0 and"},
    {"graph { %0 = const {value=1} : f32[1048576,1048577] }", "more than 2^40 elements"},
    {"graph { %0 = const {value=1} : f32[1099511627776,1099511627776,0] }",
     "more than 2^40 elements"},
    {"graph { %0 = const {value=300} : u8[] }", "the constant 300 does not exist in u8"},
    {"graph { %0 = input {name=\"a} : u8[] }", "this string has no end"},
    {"graph { %0 = input {name=\"\\q\"} : u8[] }", "unknown escape"},
    {"graph { %0 = input {name=\"\\x00\"} : u8[] }", "unknown escape"},
    {"graph { %0 = input {name=\"\"} : u8[] }", "the 'name' of input is empty"},
    {"graph { %0 = const {value=1} : f32[] @ }", "expected a line number after '@'"},
    {"graph { %0 = const {value=1} : f32[] @1:2 in }", "expected '\"'"},
    {"graph { %0 = const {value=1} : f32[] @1:2 in \"h }", "this string has no end"},
    {"graph { %0 = const {value=1} : f32[] @3 }", "a location is line:column"},
    {"graph { %0 = const {value=1} : f32[] @3:99999 }", "at most 65535"},
    {"graph { %0 = const {value=1} : f32[] @4294967296:1 }", "must be between"},
    {"graph { %0 = fused {kind=\"loop\"} : f32[] }", "a fused node needs a body"},
    {"graph { %0 = const {value=1} body {} : f32[] }", "only a fused node has a body"},
    {"graph { lost \"x\" %0 }", "'lost' is not a root"},
    {"graph { loss \"x\" %0 }", "there is no node %0"},
    {"graph { %0 = result %0 {index=0} : f32[] }", "there is no node %0"},
    {"graph { %0 = const {value=1} : f32[] %1 = dot %0, %0 {ta=ture} : f32[] }",
     "expected true or false"},
    {"graph { %0 = const {value=1} : f32[] %1 = dot %0, %0 {ta=\"true\"} : f32[] }",
     "expected true or false"},
    {"graph {\n %0 = input {name=\"a\n\"} : u8[] }",
     "test.ftir:2:19: error: this string has no end"},
    {"graph { %0 = input {name=\"\\xg0\"} : u8[] }", "unknown escape"},
    {"graph { % = const {value=1} : f32[] }", "expected the name of a node after '%'"},
};

static void wrong_text(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Arena *arena = arena_new();
    char *message;
    if (help_try(arena, wrong[i][0], &message)) fail_msg("accepted: %s", wrong[i][0]);
    if (!strstr(message, wrong[i][1]))
      fail_msg("%s\ngives: %s\nnot: %s", wrong[i][0], message, wrong[i][1]);
    free(message);
    arena_free(arena);
  }
}

static void deep_bodies(void **state) {
  (void)state;
  Text text = {0};
  text_printf(&text, "graph {");
  for (int i = 0; i < 10000; i++) text_printf(&text, "%%0 = fused {kind=\"loop\"} body {");
  Arena *arena = arena_new();
  char *message;
  assert_null(help_try(arena, text_cstr(&text), &message));
  assert_non_null(strstr(message, "bodies are nested too deeply"));
  free(message);
  text_free(&text);
  arena_free(arena);
}

/* A prefix of a good text is never accepted as a whole and never crashes. */
static void truncated_text(void **state) {
  (void)state;
  Arena *arena = arena_new();
  char *text = help_read(arena, "test/lit/ir/Inputs/every_op.ftir");
  size_t length = strlen(text);
  arena_free(arena);
  for (size_t cut = 10; cut + 2 < length; cut += 7) {
    arena = arena_new();
    text = help_read(arena, "test/lit/ir/Inputs/every_op.ftir");
    text[cut] = 0;
    char *message;
    assert_null(help_try(arena, text, &message));
    free(message);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op),       cmocka_unit_test(floats_round_trip),
      cmocka_unit_test(odd_text),       cmocka_unit_test(locations),
      cmocka_unit_test(several_graphs), cmocka_unit_test(wrong_text),
      cmocka_unit_test(deep_bodies),    cmocka_unit_test(truncated_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
