/* utf8_out: whatever the pieces, all bytes come out in order, and after each piece what is out ends
 * at the end of a character, if the text is one of characters. */
#include "runtime/common/utf8.h"
#include "runtime/common/utf8_out.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x91\x8d!\xf4\x8f\xbf\xbf\xed\x9f\xbf.";

static void in_pieces(void **state) {
  (void)state;
  for (size_t each = 1; each < 6; each++) {
    char *got = NULL;
    size_t count = 0;
    Utf8Out out = {.to = open_memstream(&got, &count)};
    for (size_t at = 0; at < sizeof text - 1; at += each) {
      size_t bytes = sizeof text - 1 - at < each ? sizeof text - 1 - at : each;
      utf8_out_write(&out, text + at, bytes);
      fflush(out.to);
      assert_memory_equal(got, text, count);
      assert_true(at + bytes - count < 4);
      assert_int_not_equal((unsigned char)text[count] & 0xc0, 0x80);
    }
    assert_int_equal(count, sizeof text - 1);
    fclose(out.to);
    free(got);
  }
}

static void of_no_text(void **state) {
  (void)state;
  static const char odd[] =
      "\xff\x80x\xc3(\xe2\x82(\xed\xa0\x80\xf0\x80\x80\x80\xf5\xc0\xaf\xe2\x82";
  char *got = NULL;
  size_t count = 0;
  Utf8Out out = {.to = open_memstream(&got, &count)};
  for (size_t at = 0; at < sizeof odd - 1; at++) utf8_out_write(&out, odd + at, 1);
  fflush(out.to);
  assert_int_equal(count, sizeof odd - 3); /* the last two may be the start of a character */
  utf8_out_end(&out);
  fclose(out.to);
  assert_int_equal(count, sizeof odd - 1);
  assert_memory_equal(got, odd, count);
  free(got);
}

static void characters(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int length;
  } cases[] = {{"a", 1},
               {"\xc3\xa9", 2},
               {"\xc0\xaf", 0},
               {"\xc3", 0},
               {"\xe0\x9f\xbf", 0},
               {"\xe0\xa0\x80", 3},
               {"\xed\xa0\x80", 0},
               {"\xf0\x8f\xbf\xbf", 0},
               {"\xf0\x90\x80\x80", 4},
               {"\xf4\x90\x80\x80", 0},
               {"\x80", 0},
               {"", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(utf8_character(cases[i].text, strlen(cases[i].text)), cases[i].length);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_pieces), cmocka_unit_test(of_no_text),
                                     cmocka_unit_test(characters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
