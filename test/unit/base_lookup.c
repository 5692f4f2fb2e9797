/* lookup: against a list that is searched from its start. */
#include "base/lookup.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_against_a_list(void **state) {
  (void)state;
  enum { KEYS = 3000 };
  static char key[KEYS][8];
  Arena *arena = arena_new();
  Lookup lookup = {.arena = arena};
  uint64_t chance = 1;
  assert_int_equal(lookup_find_text(&lookup, "a"), -1);
  for (int i = 0; i < KEYS; i++) {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    snprintf(key[i], sizeof key[i], "%x", (unsigned)(chance >> 33) % 2000);
    int first = 0;
    while (strcmp(key[first], key[i]) != 0) first++;
    assert_int_equal(lookup_find_text(&lookup, key[i]), first < i ? first : -1);
    assert_int_equal(lookup_add_text(&lookup, key[i], i), first);
    assert_int_equal(lookup_find_text(&lookup, key[i]), first);
  }
  assert_int_equal(lookup_find_text(&lookup, "zz"), -1);
  arena_free(arena);
}

/* Bytes, zeros among them; one key is the beginning of another; a key may change afterwards. */
static void test_bytes(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Lookup lookup = {.arena = arena};
  char bytes[4] = {0};
  for (int length = 0; length <= 4; length++)
    assert_int_equal(lookup_add(&lookup, bytes, (size_t)length, length), length);
  bytes[0] = 1;
  assert_int_equal(lookup_find(&lookup, bytes, 4), -1);
  bytes[0] = 0;
  for (int length = 0; length <= 4; length++)
    assert_int_equal(lookup_find(&lookup, bytes, (size_t)length), length);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_list),
                                     cmocka_unit_test(test_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
