/* codegen_recognise: the gradient of maximum(x, 0) is that of relu but for x = 0, where half of it
 * goes through. A library knows relu's only, so the one is not taken for the other, which points
 * that are never 0 would do. */
#include "codegen/recognise.h"
#include "ir_help.h"

#define HEAD                                                                                       \
  "%g = input {name=\"g\"} : f32[4] %r = fused %g, %g {kind=\"loop\"} body {"                      \
  "%g = arg {index=0} : f32[4] %x = arg {index=1} : f32[4] %z = const {value=0} : f32[4]"
#define TAIL "result %r } : f32[4]"

static const struct {
  const char *text;
  bool is_relu;
} cases[] = {
    {HEAD "%c = le %x, %z : bool[4] %r = select %c, %z, %g : f32[4]" TAIL, true},
    {HEAD "%c = gt %x, %z : bool[4] %r = select %c, %g, %z : f32[4]" TAIL, true},
    {HEAD "%c = lt %x, %z : bool[4] %r = select %c, %z, %g : f32[4]" TAIL, false},
    {HEAD "%c = lt %x, %z : bool[4] %h = const {value=0.5} : f32[4] %t = eq %x, %z : bool[4]"
          "%p = mul %g, %h : f32[4] %s = select %t, %p, %g : f32[4]"
          "%r = select %c, %z, %s : f32[4]" TAIL,
     false},
};

static void slopes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    const Graph *graph = help_graph(arena, cases[i].text), *body = graph->nodes.at[1]->body;
    Recogniser *r = recogniser_new(arena, body, NULL);
    const double *g = recognise_variable(r, 0), *x = recognise_variable(r, 1);
    const double *values = recognise_values(r, body->roots.at[0].node);
    assert_non_null(values);
    if (recognise_slope(values, FORM_RELU, x, g) != cases[i].is_relu) fail_msg("%s", cases[i].text);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(slopes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
