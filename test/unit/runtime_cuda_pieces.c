/* A text of PTX in pieces: each kernel is in one of them, what stands between kernels in all, their sizes are about the same, the
 * same text gives the same pieces, and what cannot be cut stays whole; texts that are cut anywhere, damaged or hostile. */
#include "runtime/device/cuda/cuda_pieces.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static Arena *arena; /* of all tests */
static const char head[] = ".version 8.0\n.target sm_90a\n.address_size 64\n\n.extern .shared .align 16 .b8 panels[];\n\n";

/* `count` kernels, of which number i has 20 i lines; between them `between`. */
static char *text_of(int count, const char *between) {
  size_t room = 1 << 20, used = 0;
  char *text = malloc(room);
  assert_non_null(text);
  used += (size_t)snprintf(text, room, "// Generated\n//@ft 1\n%s", head);
  for (int i = 0; i < count; i++) {
    used += (size_t)snprintf(text + used, room - used, "%s\t// .globl k%d\n.visible .entry k%d(\n\t.param .u64 p\n)\n.maxntid 128\n{\n", i ? between : "", i, i);
    for (int line = 0; line < 20 * i + 1; line++)
      used += (size_t)snprintf(text + used, room - used, "\tld.global.u32 \t%%r%d, [%%rd1]; { // scope\n\t}\n", line);
    used += (size_t)snprintf(text + used, room - used, "{\n\t.reg .b32 %%r;\n}\n\tret; // }\n}\n"); /* as kernels that are joined have it */
  }
  snprintf(text + used, room - used, "//@ft end");
  return text;
}

static int times_in(const char *text, const char *word) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, word)); at++) count++;
  return count;
}

static void cut(void **state) {
  (void)state;
  enum { KERNELS = 20 };
  char *text = text_of(KERNELS, ".const .align 4 .b8 table[4] = {1, 2, 3, 4};\n"), *piece[CUDA_PIECES], *again[CUDA_PIECES];
  for (int most = 2; most <= CUDA_PIECES; most++) {
    size_t largest = 0, smallest = SIZE_MAX;
    int count = cuda_pieces_cut(arena, text, 1024, most, piece);
    assert_int_equal(count, most);
    assert_int_equal(cuda_pieces_cut(arena, text, 1024, most, again), most);
    for (int i = 0; i < KERNELS; i++) {
      char name[32], whole[64];
      int found = 0, names = 0;
      snprintf(name, sizeof name, "entry k%d(", i);
      snprintf(whole, sizeof whole, "%%r%d, [%%rd1]; { // scope\n\t}\n{\n\t.reg .b32 %%r;\n}\n\tret; // }\n}\n", 20 * i);
      for (int p = 0; p < count; p++) {
        names += times_in(piece[p], name);
        const char *at = strstr(piece[p], name);
        found += at && strstr(at, whole);
      }
      assert_int_equal(names, 1);
      assert_int_equal(found, 1);
    }
    for (int p = 0; p < count; p++) {
      assert_string_equal(piece[p], again[p]);
      assert_int_equal(strncmp(piece[p], head, sizeof head - 1), 0);
      assert_int_equal(times_in(piece[p], ".const"), KERNELS - 1);
      assert_null(strstr(piece[p], "//@ft"));
      size_t length = strlen(piece[p]);
      largest = length > largest ? length : largest;
      smallest = length < smallest ? length : smallest;
    }
    assert_true(largest - smallest < strlen(text) / 10); /* the largest kernel */
  }
  free(text);
}

static void stays_whole(void **state) {
  (void)state;
  char *piece[CUDA_PIECES];
  static const char *const shared[] = {".visible .global .align 8 .u64 ft_waits;\n", ".global .align 4 .u32 x = 1;\n", ".func (.param .b32 r) f()\n{\n\tret;\n}\n"};
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
    char *text = text_of(20, shared[i]);
    assert_int_equal(cuda_pieces_cut(arena, text, 1024, CUDA_PIECES, piece), 0);
    free(text);
  }
  char *text = text_of(20, "");
  assert_int_equal(cuda_pieces_cut(arena, text, 1024, 1, piece), 0);
  assert_int_equal(cuda_pieces_cut(arena, text, strlen(text), CUDA_PIECES, piece), 0);
  int count = cuda_pieces_cut(arena, text, strlen(text) / 3, CUDA_PIECES, piece);
  assert_int_equal(count, 2);
  free(text);
  text = text_of(1, "");
  assert_int_equal(cuda_pieces_cut(arena, text, 1, CUDA_PIECES, piece), 0);
  free(text);
  static const char *const none[] = {"", "\n", "}", "}\n}\n", ".version 8.0\n", ".entry", ".visible .entry k(\n", "//", "{\n"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_int_equal(cuda_pieces_cut(arena, none[i], 1, CUDA_PIECES, piece), 0);
}

/* In memory of just this size: what reads beyond it is found by AddressSanitizer. */
static void hostile(void **state) {
  (void)state;
  char *piece[CUDA_PIECES], *text = text_of(9, ".const .u32 c;\n");
  size_t length = strlen(text);
  uint64_t random = 1;
  int were_cut = 0;
  for (int turn = 0; turn < 400; turn++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    size_t size = turn % 2 ? length : (size_t)(random >> 33) % length;
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    copy[size] = 0;
    for (int i = 0; i < turn % 7 && size; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      copy[(size_t)(random >> 33) % size] = "}\n{./\r \t"[random >> 20 & 7];
    }
    int count = cuda_pieces_cut(arena, copy, 512, 1 + turn % CUDA_PIECES, piece);
    assert_in_range(count, 0, CUDA_PIECES);
    were_cut += count > 0;
    for (int p = 0; p < count; p++) assert_true(strlen(piece[p]) <= size);
    free(copy);
  }
  assert_true(were_cut > 50);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cut), cmocka_unit_test(stays_whole), cmocka_unit_test(hostile)};
  arena = arena_new();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  arena_free(arena);
  return failed;
}
