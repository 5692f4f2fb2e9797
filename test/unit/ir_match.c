/* ir_match: what match_relu takes for a relu has relu's values, of a NaN, of infinities and at 0
 * too; what differs somewhere is none. The same of means and of transposes of the last two
 * dimensions. */
#include "ir/match.h"
#include "ir_help.h"
#include <math.h>

#define HEAD                                                                                       \
  "%x = input {name=\"x\"} : f32[6] %z = const {value=0} : f32[6]"                                 \
  "%s = const {value=0} : f32[1] %b = broadcast %s : f32[6] %one = const {value=1} : f32[6] "

static const struct {
  const char *text;
  bool is_relu, is_same; /* is it taken for one; has it relu's values */
} relus[] = {
    {HEAD "%r = max %x, %z : f32[6]", true, true},
    {HEAD "%r = max %z, %x : f32[6]", true, true},
    {HEAD "%r = max %x, %b : f32[6]", true, true},
    {HEAD "%c = le %x, %z : bool[6] %r = select %c, %z, %x : f32[6]", true, true},
    {HEAD "%c = le %x, %b : bool[6] %r = select %c, %b, %x : f32[6]", true, true},
    {HEAD "%c = gt %x, %z : bool[6] %r = select %c, %x, %z : f32[6]", false, false}, /* NaN: 0 */
    {HEAD "%c = ge %x, %z : bool[6] %r = select %c, %z, %x : f32[6]", false, false},
    {HEAD "%c = le %x, %one : bool[6] %r = select %c, %z, %x : f32[6]", false, false},
    {HEAD "%c = le %one, %z : bool[6] %r = select %c, %z, %x : f32[6]", false, false},
    {HEAD "%c = le %x, %z : bool[6] %r = select %c, %x, %z : f32[6]", false, false},
    {HEAD "%r = max %x, %one : f32[6]", false, false},
    {HEAD "%r = min %x, %z : f32[6]", false, false},
    {HEAD "%r = add %x, %z : f32[6]", false, false},
};
static double points[6] = {-1.5, 0, 0.5, NAN, INFINITY, -INFINITY};

static const Tensor *leaf(const Node *node, void *context) {
  (void)context;
  static Tensor tensor;
  tensor = (Tensor){.type = node->type, .f = points};
  return &tensor;
}

static void relu(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof relus / sizeof *relus; i++) {
    Arena *arena = arena_new();
    Diag diag;
    diag_init(&diag, arena, stderr);
    Graph *graph = help_graph(arena, relus[i].text);
    Node *node = graph->nodes.at[graph->nodes.count - 1];
    Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
    assert_true(graph_interpret(graph, arena, leaf, NULL, false, values, &diag));
    bool is_same = true;
    for (int k = 0; k < 6; k++) {
      double want = points[k] <= 0 ? 0 : points[k], have = values[node->id]->f[k];
      is_same &= have == want || (isnan(have) && isnan(want));
    }
    if (is_same != relus[i].is_same) fail_msg("the values of %s", relus[i].text);
    if ((match_relu(node) != NULL) != relus[i].is_relu) fail_msg("%s", relus[i].text);
    if (relus[i].is_relu) assert_ptr_equal(match_relu(node), graph->nodes.at[0]);
    arena_free(arena);
  }
}

static void means_and_moves(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool is_mean, is_swap, is_column_sum;
  } cases[] = {
      {"%s = sum %x {axes=[0,1]} : f32[1,1,4]", false, false, true},
      {"%s = sum %x {axes=[0]} : f32[1,3,4]", false, false, false},
      {"%s = sum %x {axes=[2]} : f32[2,3,1]", false, false, false},
      {"%s = sum %x {axes=[2]} : f32[2,3,1] %c = const {value=0.25} : f32[2,3,1] %m = mul %s, %c : "
       "f32[2,3,1]",
       true, false, false},
      {"%s = sum %x {axes=[2]} : f32[2,3,1] %c = const {value=0.5} : f32[2,3,1] %m = mul %s, %c : "
       "f32[2,3,1]",
       false, false, false},
      {"%t = transpose %x {perm=[0,2,1]} : f32[2,4,3]", false, true, false},
      {"%t = transpose %x {perm=[1,0,2]} : f32[3,2,4]", false, false, false},
      {"%t = transpose %x {perm=[1,2,0]} : f32[3,4,2]", false, false, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    const char *text =
        arena_printf(arena, "%%x = input {name=\"x\"} : f32[2,3,4] %s", cases[i].text);
    Graph *graph = help_graph(arena, text);
    const Node *node = graph->nodes.at[graph->nodes.count - 1];
    if ((match_mean(node) != NULL) != cases[i].is_mean) fail_msg("mean: %s", text);
    if (match_swap_of_last_two(node) != cases[i].is_swap) fail_msg("swap: %s", text);
    if (match_column_sum(node) != cases[i].is_column_sum) fail_msg("column sum: %s", text);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(relu), cmocka_unit_test(means_and_moves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
