/* codegen_sparse: products by weights of which two of four neighbours are 0, on sparse tensor cores: the kernels, in the simulator, give what the
 * interpreter does, by every tile. Places of the others: every pair, a graph for each. */
#include "codegen_nvptx.h"

typedef struct {
  int m, n, k;
} Size;

/* Of bf16 or f16, with an epilogue; first and second: which of four are kept. */
static const char *sparse_text(Arena *arena, Size s, int first, int second, bool is_half) {
  Text text = {0};
  const char *dtype = is_half ? "f16" : "bf16";
  int fours = s.n * s.k / 4;
  text_printf(&text, "graph \"sparse\" {\n%%e = input {name=\"e\"} : f32[%d,1]\n%%f = input {name=\"f\"} : f32[%d,1]\n", fours, fours);
  text_printf(&text, "%%p = pad %%e {value=0, low=[0,%d], high=[0,%d]} : f32[%d,4]\n", first, 3 - first, fours);
  text_printf(&text, "%%q = pad %%f {value=0, low=[0,%d], high=[0,%d]} : f32[%d,4]\n", second, 3 - second, fours);
  text_printf(&text, "%%r = add %%p, %%q : f32[%d,4]\n%%w = reshape %%r : f32[%d,%d]\n%%b = cast %%w : %s[%d,%d]\n", fours, s.n, s.k, dtype, s.n, s.k);
  text_printf(&text, "%%a = input {name=\"a\"} : %s[%d,%d]\n%%v = input {name=\"v\"} : f32[1,%d]\n%%u = broadcast %%v : f32[%d,%d]\n", dtype, s.m, s.k, s.n, s.m,
              s.n);
  text_printf(&text, "%%d = dot %%a, %%b {tb=true, sparse=1, result=f32} : f32[%d,%d]\n%%y = mul %%d, %%u : f32[%d,%d]\noutput \"y\" %%y\n}\n", s.m, s.n, s.m, s.n);
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

static const Size sizes[] = {{1, 1, 8}, {8, 64, 128}, {7, 48, 72}, {33, 131, 160}, {13, 34, 600}, {70, 20, 64}, {3, 257, 256}, {140, 150, 200}};
static const int pairs[][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
enum { SIZES = sizeof sizes / sizeof *sizes, PAIRS = sizeof pairs / sizeof *pairs };

/* Over sizes that it fits and that stick out, with splits. */
static void every_tile_of_sparse(void **state) {
  (void)state;
  enum { TILES = 21 };
  Arena *arena = arena_new();
  for (int tile = 1; tile <= TILES; tile++)
    for (int i = 0; i < SIZES; i++) {
      if (!getenv("FT_ALL_TILES") && ((i + tile) % 4 || !help_has_its_turn(tile + i / 4))) continue;
      How how = {.only_tile = tile, .only_splits = (tile + i) / 4 % 3 + 1, .gpu = tile % 2 ? "sm_80" : "sm_90a"};
      const int *pair = pairs[(tile + i / 4) % PAIRS];
      assert_true(run_text_after(sparse_text(arena, sizes[i], pair[0], pair[1], (tile + i / 4) % 2), "fuse", how) >= 2);
    }
  arena_free(arena);
}

/* As it is chosen; every pair of places. */
static void chosen_sparse(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (int i = 0; i < SIZES; i++)
    if (help_has_its_turn(i)) assert_true(run_text_after(sparse_text(arena, sizes[i], 1, 2, i % 2), "fuse", (How){.gpu = i % 2 ? "sm_80" : "sm_90a"}) >= 2);
  for (int i = 0; i < PAIRS; i++) assert_true(run_text_after(sparse_text(arena, (Size){5, 18, 96}, pairs[i][0], pairs[i][1], i % 2), "fuse", (How){.gpu = "sm_80"}) >= 2);
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_of_sparse), cmocka_unit_test(chosen_sparse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
