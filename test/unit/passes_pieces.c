/* passes_pieces: where ranks that share each layer's work make a batch in pieces (distributed.pieces), they train as one
 * rank with the batch in one: losses, metrics, parameters and states of several steps, with pieces of which the ranks have
 * samples each, and such of which they have positions. */
#include "test/unit/ranks_help.h"
#include "test/unit/ranks_models.h"

static bool rounds_sums(const char *source) {
  return strstr(source, "precision = bf16") && !strstr(source, "precision=f32");
}

static void test_pieces(void **unused) {
  (void)unused;
  static const struct {
    int rows, pieces;
    Form form;
  } forms[] = {{3, 3, {1, 1, 0, 2, 1, 1}}, {4, 2, {1, 1, 0, 2, 1, 1}}, {2, 2, {2, 3, 3, 2, 1, 1}},
               {4, 2, {1, 3, 0, 4, 1, 1}}, {6, 2, {1, 1, 0, 3, 1, 1}}, {4, 4, {2, 1, 1, 2, 1, 1}}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (size_t k = 0; k < sizeof forms / sizeof *forms && !rounds_sums(models[i]); k++) {
      rows = forms[k].rows;
      pieces = forms[k].pieces;
      check_form(models[i], forms[k].form);
    }
}

/* Samples that are not the first dimension: random numbers of theirs, and a mean that needs all of them. */
static void test_samples_behind(void **unused) {
  (void)unused;
  static const char source[] = "model M(x: f32[B, 2, 6]) {\n"
                               "  v = Linear(6, name=\"down\")(relu(Linear(8, name=\"up\")(x)))\n"
                               "  h = dropout(rearrange(v, \"b t c -> (t c) b\"), 0.3)\n"
                               "  loss = mean((h - mean(h, axis=1, keepdims=true)) ** 2)\n}\n"
                               "train { model = M; optimizer = sgd(lr=0.1) }\n";
  rows = 4;
  for (pieces = 2; pieces <= 4; pieces += 2) check_form(source, (Form){1, 1, 0, 2, 1, 1});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces),
                                     cmocka_unit_test(test_samples_behind)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
