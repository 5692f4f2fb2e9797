/* foreign and text_nearest: what is suggested in place of a word. */
#include "base/foreign.h"
#include "base/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_nearest(void **state) {
  (void)state;
  static const char *const names[] = {"relu", "rope",          "adam",   "adamw", "B",   "cross_entropy",
                                      "mean", "max_pool2d",    "Linear", "log",   "tanh"};
  enum { COUNT = sizeof names / sizeof *names };
  static const struct {
    const char *word, *near;
  } cases[] = {
      {"AdamW", "adamw"},          {"adamww", "adamw"},         {"rleu", "relu"},
      {"CrossEntropy", "cross_entropy"}, {"crossentropy", "cross_entropy"}, {"MaxPool2d", "max_pool2d"},
      {"Liner", "Linear"},         {"lg", "log"},               {"taanh", "tanh"},
      {"self", NULL},              {"None", NULL},              {"F", NULL},
      {"xx", NULL},                {"", NULL},                  {"print", NULL},
      {"b", "B"},                  {"a_name_of_more_letters_than_any_word_has_that_is_compared_here_ok", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *near = text_nearest(cases[i].word, names, COUNT);
    if (cases[i].near) assert_string_equal(near ? near : cases[i].word, cases[i].near);
    else assert_null(near);
  }
}

/* Each word once in its kind, and an advice that can follow "; ". */
static void test_table(void **state) {
  (void)state;
  static const struct {
    ForeignKind kind;
    const char *word, *advice;
  } rows[] = {
#define FOREIGN(KIND, word, advice) {FOREIGN_##KIND, word, advice},
#include "base/foreign.def"
#undef FOREIGN
  };
  enum { ROWS = sizeof rows / sizeof *rows };
  for (size_t i = 0; i < ROWS; i++) {
    assert_string_equal(foreign_find(rows[i].kind, rows[i].word), rows[i].advice);
    assert_true(*rows[i].advice && rows[i].advice[0] != ';');
    for (size_t k = 0; k < i; k++)
      if (rows[i].kind == rows[k].kind) assert_string_not_equal(rows[i].word, rows[k].word);
  }
  assert_null(foreign_find(FOREIGN_NAME, "relu"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nearest), cmocka_unit_test(test_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
