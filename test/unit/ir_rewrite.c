/* ir_rewrite: building with the short hands, rewriting, use counts, attributes of nodes. */
#include "ir_help.h"


static Node *input(Graph *graph, const char *name, int rank, const int64_t *dims) {
  Attr attr = attr_str(ATTR_NAME, name);
  Type type = {DT_F32, shape_of(rank, dims)};
  return graph_node(graph, OP_INPUT, NULL, 0, &attr, 1, &type);
}

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), ((int64_t[]){__VA_ARGS__})

static void short_hands(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = graph_new(arena, "g");
  Node *a = input(graph, "a", DIMS(4, 1, 3)), *b = input(graph, "b", DIMS(2, 1));
  Node *sum = make_binary(graph, OP_ADD, a, b);
  char text[TYPE_TEXT];
  assert_string_equal(type_text(&sum->type, text), "f32[4,2,3]");
  assert_int_equal(sum->input[1]->op, OP_BROADCAST);
  assert_int_equal(sum->input[1]->input[0]->op, OP_RESHAPE);
  Node *back = make_unbroadcast(graph, sum, b->type.shape);
  assert_true(type_equal(&back->type, &b->type));
  assert_int_equal(back->op, OP_RESHAPE);
  assert_int_equal(back->input[0]->op, OP_SUM);
  assert_int_equal(node_attr(back->input[0], ATTR_AXES)->count, 2); /* 0 and 2 */
  assert_ptr_equal(make_unbroadcast(graph, sum, sum->type.shape), sum);
  int before = graph->nodes.count;
  assert_ptr_equal(make_cast(graph, a, DT_F32), a);
  assert_ptr_equal(make_reshape(graph, a, a->type.shape), a);
  assert_ptr_equal(make_broadcast(graph, a, a->type.shape), a);
  assert_ptr_equal(make_transpose(graph, a, (int64_t[]){0, 1, 2}), a);
  assert_int_equal(graph->nodes.count, before);
  Node *mask = make_binary(graph, OP_LT, a, b);
  Node *chosen = make_select(graph, mask, a, make_like(graph, a, 0));
  assert_string_equal(type_text(&chosen->type, text), "f32[4,2,3]");
  Node *dot = make_dot(graph, make_reshape(graph, a, shape_of(DIMS(4, 3))),
                       input(graph, "w", DIMS(5, 3)), false, true);
  assert_string_equal(type_text(&dot->type, text), "f32[4,5]");
  arena_free(arena);
}

static void attributes(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = graph_new(arena, "g");
  Node *a = input(graph, "a", DIMS(2));
  char name[] = "work";
  node_set_attr(graph, a, attr_int(ATTR_AT, 64));
  node_set_attr(graph, a, attr_str(ATTR_PLACE, name));
  node_set_attr(graph, a, attr_ints(ATTR_AXES, (int64_t[]){1, 2}, 2));
  name[0] = 'x'; /* attributes are copied */
  assert_string_equal(node_str(a, ATTR_PLACE), "work");
  assert_int_equal(node_int(a, ATTR_AT, 0), 64);
  node_set_attr(graph, a, attr_int(ATTR_AT, 128));
  assert_int_equal(node_int(a, ATTR_AT, 0), 128);
  assert_int_equal(a->attr_count, 4);
  for (int i = 1; i < a->attr_count; i++) assert_true(a->attr[i - 1].id < a->attr[i].id);
  assert_null(node_attr(a, ATTR_PERM));
  assert_int_equal(node_int(a, ATTR_INDEX, 7), 7);
  arena_free(arena);
}

/* Replaces every neg of a neg by what stands below, and renames nothing else. */
static Node *drop_double_neg(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)fresh;
  ++*(int *)context;
  return old->op == OP_NEG && inputs[0]->op == OP_NEG ? inputs[0]->input[0] : NULL;
}

static void rewriting(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *old = help_graph(arena, "%a = input {name=\"a\"} : f32[] @5:6\n"
                                 "%b = neg %a : f32[]\n%c = neg %b : f32[]\n"
                                 "%d = exp %c : f32[] @~7:8\n"
                                 "loss \"loss\" %d\noutput \"o\" %c");
  char *before = graph_to_text(old, arena);
  int visits = 0;
  Graph *fresh = graph_rewrite(old, drop_double_neg, &visits);
  assert_int_equal(visits, 4);
  assert_string_equal(graph_to_text(old, arena), before); /* the old graph stays */
  assert_string_equal(graph_to_text(fresh, arena), "graph \"g\" {\n"
                                                   "  %0 = input {name=\"a\"} : f32[]  @5:6\n"
                                                   "  %1 = neg %0 : f32[]\n"
                                                   "  %2 = exp %0 : f32[]  @~7:8\n"
                                                   "  loss \"loss\" %2\n"
                                                   "  output \"o\" %0\n"
                                                   "}\n");
  assert_ptr_equal(graph_find_root(fresh, ROOT_OUTPUT, "o"), fresh->nodes.at[0]);
  assert_ptr_equal(graph_find_root(fresh, ROOT_LOSS, NULL), fresh->nodes.at[2]);
  assert_null(graph_find_root(fresh, ROOT_METRIC, NULL));
  arena_free(arena);
}

static void identity_keeps_all(void **state) {
  (void)state;
  Arena *arena = arena_new();
  char *text = help_read(arena, "test/lit/ir/Inputs/every_op.ftir");
  Graph *fresh = graph_rewrite(help_parse(arena, text), NULL, NULL);
  assert_string_equal(graph_to_text(fresh, arena), text);
  arena_free(arena);
}

static void use_counts(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = help_graph(arena, "%a = input {name=\"a\"} : f32[]\n%b = add %a, %a : f32[]\n"
                                   "%c = neg %a : f32[]\nloss \"loss\" %b\noutput \"o\" %b");
  int *uses = graph_use_counts(graph, arena);
  assert_int_equal(uses[0], 3);
  assert_int_equal(uses[1], 2);
  assert_int_equal(uses[2], 0);
  arena_free(arena);
}

/* A leaf is found by op and name: the first of several, in copies too, and no other op's. */
static void leaves_by_name(void **state) {
  (void)state;
  enum { LEAVES = 3000 };
  Arena *arena = arena_new();
  Graph *graph = graph_new(arena, "g");
  Type type = {DT_F32, shape_scalar()};
  for (int i = 0; i < 2 * LEAVES; i++) {
    Attr name = attr_str(ATTR_NAME, arena_printf(arena, "leaf%d", i % LEAVES));
    graph_node(graph, i % 3 ? OP_STATE : OP_INPUT, NULL, 0, &name, 1, &type);
  }
  const Graph *graphs[] = {graph, graph_rewrite(graph, NULL, NULL)};
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < LEAVES; i++) { /* LEAVES is a multiple of 3: both of a name have one op */
      const char *name = arena_printf(arena, "leaf%d", i);
      Op op = i % 3 ? OP_STATE : OP_INPUT;
      assert_ptr_equal(graph_find_leaf(graphs[g], op, name), graphs[g]->nodes.at[i]);
      assert_null(graph_find_leaf(graphs[g], op == OP_STATE ? OP_INPUT : OP_STATE, name));
    }
  assert_null(graph_find_leaf(graph, OP_PARAM, "leaf0"));
  assert_null(graph_find_state(graph, "leaf"));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_hands), cmocka_unit_test(attributes),
      cmocka_unit_test(rewriting),   cmocka_unit_test(identity_keeps_all),
      cmocka_unit_test(use_counts),  cmocka_unit_test(leaves_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
