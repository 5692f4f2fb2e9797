/* codegen_float8: products of 8-bit floats on tensor cores, and what is stored as such: the kernels for sm_89 and sm_90a,
 * in the simulator, compute what the interpreter does. */
#include "codegen_nvptx.h"

typedef struct {
  int batch, m, n, k;
} Size;

/* All four ways the operands of a product may lie, or four times that with neighbours in k, each with other formats and an
 * epilogue; the operands are rounded by kernels of their own. */
static const char *float8_text(Arena *arena, Size s, bool is_along_k) {
  Text text = {0};
  text_printf(&text, "graph \"float8\" {\n%%v = input {name=\"v\"} : f32[1,1,%d]\n", s.n);
  text_printf(&text, "%%w = broadcast %%v : f32[%d,%d,%d]\n", s.batch, s.m, s.n);
  for (int way = 0; way < 4; way++) {
    bool ta = way & 1 && !is_along_k, tb = way & 2 || is_along_k, is_a_wide = is_along_k ? way & 1 : way == 1;
    int a[2] = {ta ? s.k : s.m, ta ? s.m : s.k}, b[2] = {tb ? s.n : s.k, tb ? s.k : s.n};
    text_printf(&text, "%%x%d = input {name=\"x%d\"} : f32[%d,%d,%d]\n", way, way, s.batch, a[0], a[1]);
    text_printf(&text, "%%y%d = input {name=\"y%d\"} : f32[%d,%d,%d]\n", way, way, s.batch, b[0], b[1]);
    text_printf(&text, "%%a%d = cast %%x%d : %s[%d,%d,%d]\n", way, way, is_a_wide ? "e5m2" : "e4m3", s.batch, a[0], a[1]);
    text_printf(&text, "%%b%d = cast %%y%d : %s[%d,%d,%d]\n", way, way, way >= 2 ? "e5m2" : "e4m3", s.batch, b[0], b[1]);
    text_printf(&text, "%%p%d = dot %%a%d, %%b%d {ta=%s, tb=%s, result=f32} : f32[%d,%d,%d]\n", way, way, way,
                ta ? "true" : "false", tb ? "true" : "false", s.batch, s.m, s.n);
    text_printf(&text, "%%s%d = %s %%p%d, %%w : f32[%d,%d,%d]\noutput \"o%d\" %%s%d\n", way, way % 2 ? "add" : "mul", way,
                s.batch, s.m, s.n, way, way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* Every tile, over sizes that it fits, that stick out, and whose rows are no multiples of 16 or of 4 bytes; with
 * splits; where rows have pitches and where they have none. */
static void every_tile_of_float8(void **state) {
  (void)state;
  enum { TILES = 10 };
  static const Size sizes[] = {{1, 128, 64, 128}, {2, 72, 48, 96}, {1, 137, 131, 75}, {1, 66, 34, 70}, {3, 20, 36, 44}};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  Arena *arena = arena_new();
  for (int tile = 1; tile <= TILES; tile++)
    for (int i = 0; i < SIZES; i++) {
      if (!getenv("FT_ALL_TILES") && ((i + tile) % 2 || !help_has_its_turn(tile + i / 2))) continue;
      How how = {.only_tile = tile, .only_splits = (tile + i) / 2 % 2 + 1, .gpu = "sm_89"};
      const char *passes = (tile + i / 2) % 3 ? "fuse,schedule,pitch" : "fuse";
      assert_true(run_text_after(float8_text(arena, sizes[i], false), passes, how) >= 5);
    }
  for (int i = 0; i < SIZES; i++) /* as it is chosen */
    if (help_has_its_turn(i)) assert_true(run_text_after(float8_text(arena, sizes[i], false), "fuse,schedule,pitch", (How){.gpu = "sm_89"}) >= 5);
  arena_free(arena);
}

/* Hopper's: every tile of wgmma, by cp.async, by tensor maps and by both kinds of clusters, with splits of k; rows that are whole pieces of 16 bytes,
 * or have a pitch. What wgmma does not take goes by mma.sync, as all tiles before do. */
static void every_wgmma_of_float8(void **state) {
  (void)state;
  enum { FIRST = 11, TILES = 7, WAYS = 4 };
  static const Size sizes[] = {{1, 128, 256, 128}, {2, 136, 72, 400}, {1, 72, 260, 144}, {3, 20, 37, 48}, {1, 65, 129, 300}};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  Arena *arena = arena_new();
  for (int tile = 0; tile < WAYS * TILES; tile++)
    for (int i = 0; i < SIZES; i++) {
      if (!getenv("FT_ALL_TILES") && (i != tile % SIZES || !help_has_its_turn(tile + tile / 5))) continue;
      How how = {.only_tile = FIRST + tile, .only_splits = (tile + i) % 2 + 1, .gpu = "sm_90a"};
      assert_true(run_text_after(float8_text(arena, sizes[i], true), "fuse,schedule,pitch", how) >= 5);
      if (i == 1)
        assert_true(run_text_after(float8_text(arena, sizes[i], false), "fuse,schedule,pitch", how) >= 5);
    }
  for (int i = 0; i < SIZES; i++) /* as it is chosen, in all orders */
    for (int is_along_k = 0; is_along_k < 2 && help_has_its_turn(i); is_along_k++)
      assert_true(run_text_after(float8_text(arena, sizes[i], is_along_k), "fuse,schedule,pitch", (How){.gpu = "sm_90a"}) >= 5);
  arena_free(arena);
}

/* Stored by loops of each width, by transposes, and read again. */
static void stores_of_float8(void **state) {
  (void)state;
  static const int sizes[] = {1, 6, 31, 36, 64};
  Arena *arena = arena_new();
  for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
    int n = sizes[i / 2];
    const char *type = i % 2 ? "e4m3" : "e5m2";
    const char *text = arena_printf(arena,
                                    "graph \"stores\" {\n%%x = input {name=\"x\"} : f32[37,%d]\n%%k = const {value=%g} : f32[37,%d]\n"
                                    "%%y = mul %%x, %%k : f32[37,%d]\n%%a = cast %%y : %s[37,%d]\n%%h = cast %%x : bf16[37,%d]\n"
                                    "%%b = cast %%h : %s[37,%d]\n%%t = transpose %%b {perm=[1,0]} : %s[%d,37]\n%%w = cast %%a : f32[37,%d]\n"
                                    "%%z = add %%w, %%x : f32[37,%d]\noutput \"a\" %%a\noutput \"t\" %%t\noutput \"z\" %%z\n}\n",
                                    n, i % 4 ? 100.0 : 0.004, n, n, type, n, n, type, n, type, n, n, n);
    assert_true(run_text(text, (How){.gpu = "sm_89"}) >= 1);
  }
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_of_float8), cmocka_unit_test(every_wgmma_of_float8), cmocka_unit_test(stores_of_float8)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
