/* codegen_pitch: GPU kernels of rows with a pitch (passes/pitch.c) compute what the interpreter does,
 * whatever lies between the rows: here NaN. The head of a language model, whose scores products read
 * in all four ways, with every tile, on fibers (codegen_gpu.h) and for sm_90a in the simulator. */
#include "codegen_nvptx.h"

/* Scores of `v` words at `m` places, their softmax, and what products, a loop and sums of columns make
 * of it. */
static const char *head_text(Arena *arena, const char *type, int m, int k, int v) {
  bool is_narrow = strcmp(type, "f32") != 0;
  Text text = {0};
  text_printf(&text,
              "graph \"head\" {\n%%x = param {name=\"x\"} : %s[%d,%d]\n%%w = param {name=\"w\"} : %s[%d,%d]\n"
              "%%b = param {name=\"b\"} : %s[1,%d]\n%%c = param {name=\"c\"} : %s[24,%d]\n",
              type, m, k, type, v, k, type, v, type, m);
  text_printf(&text,
              "%%l = dot %%x, %%w {tb=true} : %s[%d,%d]\n%%bb = broadcast %%b : %s[%d,%d]\n"
              "%%lb = add %%l, %%bb : %s[%d,%d]\n",
              type, m, v, type, m, v, type, m, v);
  if (is_narrow) text_printf(&text, "%%f = cast %%lb : f32[%d,%d]\n", m, v);
  const char *f = is_narrow ? "%f" : "%lb", *s = is_narrow ? "%s" : "%q";
  text_printf(&text,
              "%%top = rmax %s {axes=[1]} : f32[%d,1]\n%%topb = broadcast %%top : f32[%d,%d]\n"
              "%%d = sub %s, %%topb : f32[%d,%d]\n%%e = exp %%d : f32[%d,%d]\n"
              "%%sum = sum %%e {axes=[1]} : f32[%d,1]\n%%sumb = broadcast %%sum : f32[%d,%d]\n"
              "%%q = div %%e, %%sumb : f32[%d,%d]\n",
              f, m, m, v, f, m, v, m, v, m, m, v, m, v);
  if (is_narrow) text_printf(&text, "%%s = cast %%q : %s[%d,%d]\n", type, m, v);
  text_printf(&text,
              "%%y = dot %s, %%w : %s[%d,%d]\n%%z = dot %s, %%x {ta=true} : %s[%d,%d]\n"
              "%%g = dot %%c, %s : %s[24,%d]\n%%h = dot %%g, %s {tb=true} : %s[24,%d]\n"
              "%%t = mul %s, %s : %s[%d,%d]\n%%o = dot %%t, %%w : %s[%d,%d]\n",
              s, type, m, k, s, type, v, k, s, type, v, s, type, m, s, s, type, m, v, type, m, k);
  text_printf(&text, "%%u = sum %%q {axes=[0]} : f32[1,%d]\n", v);
  for (const char *c = "yzhou"; *c; c++) text_printf(&text, "output \"%c\" %%%c\n", *c, *c);
  text_printf(&text, "}\n");
  const char *out = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return out;
}

/* As many values have a pitch as the pass gives one. */
static void has_pitches(const char *text, int least) {
  Arena *arena = arena_new();
  Diag diag;
  PassContext context = help_context(arena, &diag, 0);
  context.for_gpu = true;
  Graph *graph;
  int count = 0;
  assert_int_equal(graph_parse(arena, &diag, "graph", text, &graph, 1), 1);
  graph = help_pass(&context, graph, "fuse,schedule,pitch");
  for (int i = 0; i < graph->nodes.count; i++) count += graph->nodes.at[i]->type.pitch > 0;
  if (count < least) fail_msg("%d values with a pitch:\n%s", count, graph_to_text(graph, arena));
  arena_free(arena);
}

static void check_head(const char *type, int m, int k, int v, How how) {
  Arena *arena = arena_new();
  const char *text = head_text(arena, type, m, k, v);
  has_pitches(text, 4);
  assert_true(run_text_after(text, "fuse,schedule,pitch", how) >= 7);
  arena_free(arena);
}

static void all_tiles(void **state) {
  (void)state;
  static const char *const types[] = {"f32", "bf16", "f16"};
  for (int tile = 1; tile <= 10; tile++) {
    How how = {.only_tile = tile, .only_splits = 3 - tile % 3, .allows_tf32 = tile % 2};
    check_head(types[tile % 3], 19 + tile, tile % 3 ? 24 : 150, 65 + tile % 4 * 14, how);
  }
}

static void all_hopper_tiles(void **state) {
  (void)state;
  for (int tile = 11; tile <= 54; tile += 3)
    if (help_has_its_turn(tile / 3))
      check_head(tile % 2 ? "bf16" : "f16", 40 + tile % 3 * 8, 24, tile % 3 ? 131 : 70,
               (How){.only_tile = tile, .only_splits = tile % 3 + 1, .gpu = "sm_90a"});
}

/* Of the first with 3001 and more words a block has each row; of others, a part of a block. */
static void all_rows(void **state) {
  (void)state;
  static const int words[] = {70, 257, 1001, 1537, 3001, 9003};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    check_head(i % 3 == 1 ? "f32" : "bf16", 8, 8, words[i], (How){.only_tile = 4, .only_splits = 1});
}

/* Loops that read rows with a pitch in another order, or write them so: matrices and batches of them. Rows of 15 and 30 words fit
 * into one tile of shared memory, which takes them one behind the other where they have no pitch. */
static void check_turned(const char *type, int batch, int m, int v, How how) {
  Arena *arena = arena_new();
  Text text = {0};
  text_printf(&text,
              "graph \"turned\" {\n%%x = param {name=\"x\"} : %s[%d,%d,24]\n%%w = param {name=\"w\"} : %s[%d,24,%d]\n"
              "%%l = dot %%x, %%w : %s[%d,%d,%d]\n"
              "%%a = transpose %%l {perm=[0,2,1]} : %s[%d,%d,%d]\n%%y = tanh %%a : %s[%d,%d,%d]\n"
              "%%b = transpose %%l {perm=[2,0,1]} : %s[%d,%d,%d]\n%%z = sigmoid %%b : %s[%d,%d,%d]\n"
              "%%c = transpose %%l {perm=[1,0,2]} : %s[%d,%d,%d]\n%%d = reshape %%c : %s[%d,%d]\n%%o = exp %%d : %s[%d,%d]\n"
              "%%p = param {name=\"p\"} : %s[%d,%d,%d]\n%%k = param {name=\"k\"} : %s[%d,8,%d]\n"
              "%%e = transpose %%p {perm=[0,2,1]} : %s[%d,%d,%d]\n%%f = tanh %%e : %s[%d,%d,%d]\n%%g = dot %%f, %%k {tb=true} : %s[%d,%d,8]\n"
              "output \"y\" %%y\noutput \"z\" %%z\noutput \"o\" %%o\noutput \"g\" %%g\n}\n",
              type, batch, m, type, batch, v, type, batch, m, v, type, batch, v, m, type, batch, v, m, type, v, batch, m, type, v, batch, m,
              type, m, batch, v, type, m, batch * v, type, m, batch * v, type, batch, v, m, type, batch, v, type, batch, m, v, type, batch, m, v,
              type, batch, m);
  has_pitches(text_cstr(&text), 2);
  assert_true(run_text_after(text_cstr(&text), "fuse,schedule,pitch", how) >= 4);
  text_free(&text);
  arena_free(arena);
}

/* Rows that become the slower part of what a loop reads along: its neighbours are those within a row only. Read so, and written so. */
static void check_rows_within(const char *type, int batch, int m, int v, How how) {
  Arena *arena = arena_new();
  const char *read = arena_printf(arena,
                                  "graph \"within\" {\n%%x = param {name=\"x\"} : %s[%d,%d,8]\n%%w = param {name=\"w\"} : %s[%d,8,%d]\n"
                                  "%%l = dot %%x, %%w : %s[%d,%d,%d]\n%%t = transpose %%l {perm=[1,2,0]} : %s[%d,%d,%d]\n"
                                  "%%y = sin %%t : %s[%d,%d,%d]\noutput \"y\" %%y\n}\n",
                                  type, batch, m, type, batch, v, type, batch, m, v, type, m, v, batch, type, m, v, batch);
  const char *written = arena_printf(arena,
                                     "graph \"within\" {\n%%x = param {name=\"x\"} : %s[%d,%d,%d]\n%%w = param {name=\"w\"} : %s[%d,8,%d]\n"
                                     "%%t = transpose %%x {perm=[2,0,1]} : %s[%d,%d,%d]\n%%s = sin %%t : %s[%d,%d,%d]\n"
                                     "%%y = dot %%s, %%w {tb=true} : %s[%d,%d,8]\noutput \"y\" %%y\n}\n",
                                     type, m, v, batch, type, batch, v, type, batch, m, v, type, batch, m, v, type, batch, m);
  const char *texts[] = {read, written};
  for (int i = 0; i < 2; i++) {
    has_pitches(texts[i], 1);
    assert_true(run_text_after(texts[i], "fuse,schedule,pitch", how) >= 2);
  }
  arena_free(arena);
}

static void turned(void **state) {
  (void)state;
  static const int words[] = {60, 30, 62, 124, 129, 15, 44, 23, 29};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (int batch = 1; batch <= 3; batch += 2)
      for (int m = 32; m <= 67; m += 35) {
        How how = {.only_tile = 4, .only_splits = 1, .gpu = i % 2 ? "sm_90a" : NULL};
        if (help_has_its_turn((int)i + m / 35))
          check_turned(i % 3 == 2 ? "f32" : i % 3 ? "bf16" : "f16", batch, m, words[i], how);
        if (help_has_its_turn((int)i + m / 35) && words[i] > 40)
          check_rows_within(i % 3 == 2 ? "f32" : i % 3 ? "bf16" : "f16", batch + 7, m, words[i], how);
      }
}

/* Bytes, in tiles of both sizes: whole, in part, with ends of lines that are no 16 bytes long in the operand or in the result, which
 * both have a pitch then. */
static void check_bytes(int batch, int m, int n) {
  Arena *arena = arena_new();
  const char *text = arena_printf(
      arena,
      "graph \"bytes\" {\n%%x = param {name=\"x\"} : f32[%d,%d,%d]\n%%a = cast %%x : e4m3[%d,%d,%d]\n"
      "%%t = transpose %%a {perm=[0,2,1]} : e4m3[%d,%d,%d]\n%%y = param {name=\"y\"} : f32[%d,8,%d]\n"
      "%%b = cast %%y : e4m3[%d,8,%d]\n%%p = dot %%t, %%b {tb=true, result=f32} : f32[%d,%d,8]\n"
      "%%z = param {name=\"z\"} : f32[%d,8,%d]\n%%c = cast %%z : e4m3[%d,8,%d]\n"
      "%%q = dot %%a, %%c {tb=true, result=f32} : f32[%d,%d,8]\noutput \"p\" %%p\noutput \"q\" %%q\n}\n",
      batch, m, n, batch, m, n, batch, n, m, batch, m, batch, m, batch, n, batch, n, batch, n, batch, m);
  assert_true(run_text_after(text, "fuse,schedule,pitch", (How){.gpu = "sm_90a", .keeps_orders = true}) >= 5);
  arena_free(arena);
}

static void turned_bytes(void **state) {
  (void)state;
  static const int sizes[][3] = {{1, 128, 64}, {1, 80, 208}, {3, 96, 72}, {1, 79, 144}, {2, 129, 131}, {1, 65, 300}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (help_has_its_turn((int)i)) check_bytes(sizes[i][0], sizes[i][1], sizes[i][2]);
  static const char *const orders[] = {"[64,80]", "[1,0] : u8[80,64]", "[2,128,64]", "[0,2,1] : u8[2,64,128]", "[80,3,64]", "[2,1,0] : u8[64,3,80]",
                                       "[2,8,16,96]", "[0,3,1,2] : u8[2,96,8,16]", "[96,2,80]", "[1,2,0] : u8[2,80,96]", "[2112,2064]", "[1,0] : u8[2064,2112]"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i += 2) {
    Arena *arena = arena_new();
    const char *text = arena_printf(arena, "graph \"order\" {\n%%x = input {name=\"x\"} : u8%s\n%%t = transpose %%x {perm=%.*s}%s\noutput \"t\" %%t\n}\n",
                                    orders[i], (int)strcspn(orders[i + 1], " "), orders[i + 1], strchr(orders[i + 1], ' '));
    assert_int_equal(run_text(text, (How){.gpu = i % 4 ? NULL : "sm_90a", .is_exact = true}), 1);
    arena_free(arena);
  }
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(turned),
      cmocka_unit_test(turned_bytes),
      cmocka_unit_test(all_tiles),
      cmocka_unit_test(all_hopper_tiles),
      cmocka_unit_test(all_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
