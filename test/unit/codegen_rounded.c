/* codegen_rounded: products by rounded weights, which a GPU reads in 4 or 8 bits: the kernels, in the simulator, give what the
 * interpreter does, by every tile. */
#include "codegen_nvptx.h"
#include "passes/integers.h"

typedef struct {
  int batch, m, n, groups, group;
} Size;

/* Weights of numbers from low to high, times one scale for each group of steps. */
static void weights_text(Text *text, int way, Size s, bool is_turned, int low, int high) {
  int k = s.groups * s.group;
  char type[64], scales[64], wide[64];
  snprintf(type, sizeof type, "f32[%d,%d,%d]", s.batch, is_turned ? s.n : k, is_turned ? k : s.n);
  if (is_turned) {
    snprintf(scales, sizeof scales, "f32[%d,%d,%d,1]", s.batch, s.n, s.groups);
    snprintf(wide, sizeof wide, "f32[%d,%d,%d,%d]", s.batch, s.n, s.groups, s.group);
  } else {
    snprintf(scales, sizeof scales, "f32[%d,%d,1,%d]", s.batch, s.groups, s.n);
    snprintf(wide, sizeof wide, "f32[%d,%d,%d,%d]", s.batch, s.groups, s.group, s.n);
  }
  text_printf(text, "%%x%d = input {name=\"x%d\"} : %s\n%%c%d = const {value=%d} : %s\n", way, way, type, way, high / 2 + 2, type);
  text_printf(text, "%%t%d = mul %%x%d, %%c%d : %s\n%%r%d = round %%t%d : %s\n", way, way, way, type, way, way, type);
  text_printf(text, "%%l%d = const {value=%d} : %s\n%%h%d = const {value=%d} : %s\n", way, low, type, way, high, type);
  text_printf(text, "%%m%d = max %%r%d, %%l%d : %s\n%%w%d = min %%m%d, %%h%d : %s\n", way, way, way, type, way, way, way, type);
  text_printf(text, "%%s%d = input {name=\"s%d\"} : %s\n%%e%d = broadcast %%s%d : %s\n%%f%d = reshape %%e%d : %s\n", way, way, scales,
              way, way, wide, way, way, type);
  text_printf(text, "%%b%d = mul %%w%d, %%f%d : %s\n", way, way, way, type);
}

/* %a<way>, the first operand, and where it is wanted %whole<way>, whole numbers of 8 bits. */
static void rows_text(Text *text, int way, const char *type, bool is_whole) {
  text_printf(text, "%%a%d = input {name=\"a%d\"} : %s\n", way, way, type);
  if (!is_whole) return;
  text_printf(text, "%%i%d = const {value=60} : %s\n%%j%d = mul %%a%d, %%i%d : %s\n%%k%d = round %%j%d : %s\n", way, type, way, way, way, type, way, way,
              type);
  text_printf(text, "%%lo%d = const {value=-128} : %s\n%%hi%d = const {value=127} : %s\n", way, type, way, type);
  text_printf(text, "%%u%d = max %%k%d, %%lo%d : %s\n%%whole%d = min %%u%d, %%hi%d : %s\n", way, way, way, type, way, way, way, type);
}

/* All four ways the operands may lie, of 4 bits and of 8, each with an epilogue. */
static const char *rounded_text(Arena *arena, Size s, bool is_whole) {
  Text text = {0};
  int k = s.groups * s.group;
  text_printf(&text, "graph \"rounded\" {\n%%v = input {name=\"v\"} : f32[1,1,%d]\n%%w = broadcast %%v : f32[%d,%d,%d]\n", s.n, s.batch,
              s.m, s.n);
  for (int way = 0; way < 4; way++) {
    bool ta = way & 1, tb = way & 2;
    int low = way % 3 ? -8 : -100, high = way % 3 ? 7 : 127;
    weights_text(&text, way, s, tb, low, high);
    char type[64];
    snprintf(type, sizeof type, "f32[%d,%d,%d]", s.batch, ta ? k : s.m, ta ? s.m : k);
    rows_text(&text, way, type, is_whole);
    text_printf(&text, "%%p%d = dot %%%s%d, %%b%d {ta=%s, tb=%s, rounded=[%d, %d, %d, %d]} : f32[%d,%d,%d]\n", way, is_whole ? "whole" : "a", way, way,
                ta ? "true" : "false", tb ? "true" : "false", low, high, s.group, is_whole ? ROUNDED_WHOLE : ROUNDED_ANY, s.batch, s.m, s.n);
    text_printf(&text, "%%y%d = %s %%p%d, %%w : f32[%d,%d,%d]\noutput \"o%d\" %%y%d\n", way, way % 2 ? "add" : "mul", way, s.batch, s.m,
                s.n, way, way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

static const Size sizes[] = {{1, 1, 1, 1, 1}, {1, 8, 64, 4, 32}, {2, 7, 48, 3, 16}, {1, 33, 131, 5, 24}, {1, 13, 34, 1, 600}, {3, 20, 36, 2, 11}, {1, 70, 20, 1, 64}, {1, 3, 257, 2, 128}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Over sizes that it fits and that stick out, with splits, where rows have pitches and where they have none. */
static void every_tile_of_rounded(void **state) {
  (void)state;
  enum { TILES = 18 };
  Arena *arena = arena_new();
  for (int tile = 1; tile <= TILES; tile++)
    for (int i = 0; i < SIZES; i++) {
      if (!getenv("FT_ALL_TILES") && ((i + tile) % 4 || !help_has_its_turn(tile + i / 4))) continue;
      How how = {.only_tile = tile, .only_splits = (tile + i) / 4 % 3 + 1, .gpu = tile % 2 ? "sm_80" : "sm_90a"};
      const char *passes = (tile + i / 2) % 3 ? "fuse,schedule,pitch" : "fuse";
      assert_true(run_text_after(rounded_text(arena, sizes[i], (i + tile / 4) % 3 == 0), passes, how) >= 5);
    }
  arena_free(arena);
}

/* The last four tiles split rows for a whole block, by stages: with several of them, and rows that are not there. */
static void every_stage_of_rounded(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (int tile = 15; tile <= 18; tile++)
    assert_true(run_text_after(rounded_text(arena, (Size){1, 19, 37, 5, 32}, tile % 2), "fuse", (How){.only_tile = tile, .only_splits = tile % 2 + 1, .gpu = "sm_80"}) >= 4);
  arena_free(arena);
}

/* As it is chosen. */
static void chosen_rounded(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (int i = 0; i < SIZES; i++)
    if (help_has_its_turn(i)) assert_true(run_text_after(rounded_text(arena, sizes[i], i % 2), "fuse", (How){.gpu = i % 2 ? "sm_80" : "sm_90a"}) >= 4);
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_of_rounded), cmocka_unit_test(every_stage_of_rounded), cmocka_unit_test(chosen_rounded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
