/* The cubin in a .ptx file: what is written is read back, for every length; what is cut or damaged is
 * refused; ELF files whose parts lie outside of them are. And which GPU runs what. */
#include "plan/plan_cubin.h"
#include "plan/plan_text.h"
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char ptx[] = "//@ft plan\n.version 8.0\n.target sm_90a\n// //@cubin is no mark amid a line\n";
enum { HEAD = sizeof(Elf64_Ehdr) };

static Elf64_Ehdr elf_head(void) {
  return (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1}, .e_machine = 190};
}

static void make(const Elf64_Ehdr *head, size_t count, Text *out, uint8_t *code) {
  for (size_t i = 0; i < count; i++) code[i] = (uint8_t)(i * 37 + i / 5);
  memcpy(code, head, HEAD);
  text_printf(out, "%s", ptx);
  plan_append_cubin(out, "sm_90a", code, count);
}

/* In memory of just this size. */
static PlanCubin read_exactly(Arena *arena, const char *text, size_t size) {
  char *copy = malloc(size ? size : 1);
  assert_non_null(copy);
  memcpy(copy, text, size);
  PlanCubin cubin = plan_read_cubin(arena, copy, size);
  free(copy);
  return cubin;
}

static void test_every_length(void **state) {
  (void)state;
  uint8_t code[HEAD + 300];
  for (size_t count = HEAD; count <= sizeof code; count++) {
    Arena *arena = arena_new();
    Text text = {0};
    Elf64_Ehdr head = elf_head();
    make(&head, count, &text, code);
    PlanCubin cubin = read_exactly(arena, text.at, text.count);
    assert_null(cubin.problem);
    assert_string_equal(cubin.target, "sm_90a");
    assert_int_equal(cubin.count, count);
    assert_memory_equal(cubin.bytes, code, count);
    assert_int_equal(plan_ptx_length(text.at, text.count), sizeof ptx - 1);
    text_free(&text);
    arena_free(arena);
  }
}

static void test_a_file_without(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (size_t count = 0; count < sizeof ptx; count++) {
    assert_null(read_exactly(arena, ptx, count).target);
    assert_int_equal(plan_ptx_length(ptx, count), count);
  }
  arena_free(arena);
}

static void test_cut_and_damaged(void **state) {
  (void)state;
  uint8_t code[HEAD + 200];
  Text text = {0};
  Elf64_Ehdr head = elf_head();
  make(&head, sizeof code, &text, code);
  Arena *arena = arena_new();
  for (size_t count = sizeof ptx - 1 + strlen("//@cubin "); count < text.count - 1; count++) {
    PlanCubin cubin = read_exactly(arena, text.at, count);
    assert_true(!cubin.target || cubin.problem);
  }
  uint64_t random = 7;
  for (int round = 0; round < 20000; round++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    size_t at = (size_t)(random >> 33) % text.count;
    char before = text.at[at];
    text.at[at] = (char)(random >> 25);
    PlanCubin cubin = read_exactly(arena, text.at, text.count);
    if (cubin.target && !cubin.problem) { /* a number in other letters, another target's name, or nothing changed */
      assert_int_equal(cubin.count, sizeof code);
      assert_memory_equal(cubin.bytes, code, sizeof code);
    }
    text.at[at] = before;
  }
  arena_free(arena);
  text_free(&text);
}

static void test_what_lies_outside(void **state) {
  (void)state;
  static const struct {
    uint64_t offset, size;
    uint16_t count, entry, names;
    bool is_good;
  } cases[] = {{HEAD, 0, 1, 64, 0, true},           {HEAD + 1, 0, 1, 64, 0, false},
               {HEAD, 8, 1, 64, 0, true},           {HEAD, 129, 1, 64, 0, false},
               {HEAD, UINT64_MAX, 1, 64, 0, false}, {HEAD, 0, 2, 64, 0, false},
               {HEAD, 0, 1, 63, 0, false},          {HEAD, 0, 1, 64, 1, false},
               {UINT64_MAX - 8, 0, 1, 64, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t code[HEAD + 64] = {0};
    Elf64_Ehdr head = elf_head();
    head.e_shoff = cases[i].offset, head.e_shnum = cases[i].count;
    head.e_shentsize = cases[i].entry, head.e_shstrndx = cases[i].names;
    Elf64_Shdr section = {.sh_type = SHT_PROGBITS, .sh_size = cases[i].size};
    memcpy(code, &head, HEAD);
    memcpy(code + HEAD, &section, sizeof section);
    Text text = {0};
    text_printf(&text, "%s", ptx);
    plan_append_cubin(&text, "sm_90a", code, sizeof code);
    Arena *arena = arena_new();
    PlanCubin cubin = read_exactly(arena, text.at, text.count);
    assert_true(cases[i].is_good == !cubin.problem);
    arena_free(arena);
    text_free(&text);
  }
}

static void test_which_gpu(void **state) {
  (void)state;
  assert_true(plan_cubin_fits("sm_80", 8, 0) && plan_cubin_fits("sm_80", 8, 9));
  assert_true(plan_cubin_fits("sm_90a", 9, 0) && plan_cubin_fits("sm_100f", 10, 3));
  assert_true(plan_cubin_fits("sm_120", 12, 1));
  assert_false(plan_cubin_fits("sm_80", 9, 0) || plan_cubin_fits("sm_89", 8, 6));
  assert_false(plan_cubin_fits("sm_100a", 10, 3) || plan_cubin_fits("sm_90", 12, 0));
  assert_false(plan_cubin_fits("?", 8, 0) || plan_cubin_fits("sm_8", 8, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_length),    cmocka_unit_test(test_a_file_without),
      cmocka_unit_test(test_cut_and_damaged), cmocka_unit_test(test_what_lies_outside),
      cmocka_unit_test(test_which_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
