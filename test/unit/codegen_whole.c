/* codegen_whole: products and convolutions of whole numbers of 8 bits on tensor cores: the kernels, in the simulator, give to the bit what
 * the interpreter does. */
#include "codegen_nvptx.h"

typedef struct {
  int batch, m, n, k;
} Size;

/* A shape, and what a factor of it has: one for each line along k. */
typedef struct {
  int rank, dim[4], line[4];
} Sides;

static const char *sides_text(Arena *arena, const Sides *s, const char *element, bool is_line) {
  Text text = {0};
  for (int i = 0; i < s->rank; i++) text_printf(&text, "%s%d", i ? "," : "", is_line ? s->line[i] : s->dim[i]);
  const char *result = arena_printf(arena, "%s[%s]", element, text_cstr(&text));
  text_free(&text);
  return result;
}

/* One operand of whole numbers from low to high, as way says turned; lines (along k, or of an image, or a window) whose
 * factor is drawn above a quarter have halves, and are none. */
static void operand_text(Arena *arena, Text *text, int way, const char *name, const Sides *shape, bool is_signed, bool has_halves) {
  const char *type = sides_text(arena, shape, "f32", false), *narrow = sides_text(arena, shape, "f32", true);
  char id[16];
  snprintf(id, sizeof id, "%s%d", name, way);
  text_printf(text, "%%x_%s = input {name=\"x_%s\"} : %s\n%%c_%s = const {value=60} : %s\n", id, id, type, id, type);
  text_printf(text, "%%t_%s = mul %%x_%s, %%c_%s : %s\n%%r_%s = round %%t_%s : %s\n", id, id, id, type, id, id, type);
  text_printf(text, "%%l_%s = const {value=%d} : %s\n%%h_%s = const {value=%d} : %s\n", id, is_signed ? -128 : 0, type, id,
              is_signed ? 127 : 255, type);
  text_printf(text, "%%m_%s = max %%r_%s, %%l_%s : %s\n%%%s%s = min %%m_%s, %%h_%s : %s\n", id, id, id, type, has_halves ? "w_" : "",
              id, id, id, type);
  if (!has_halves) return;
  text_printf(text, "%%f_%s = input {name=\"f_%s\"} : %s\n%%o_%s = const {value=1} : %s\n%%e_%s = const {value=0.5} : %s\n%%q_%s = const {value=0.25} : %s\n",
              id, id, narrow, id, narrow, id, narrow, id, narrow);
  text_printf(text, "%%g_%s = gt %%f_%s, %%q_%s : %s\n%%s_%s = select %%g_%s, %%e_%s, %%o_%s : %s\n", id, id, id,
              sides_text(arena, shape, "bool", true), id, id, id, id, narrow);
  text_printf(text, "%%b_%s = broadcast %%s_%s : %s\n%%%s = mul %%w_%s, %%b_%s : %s\n", id, id, type, id, id, id, type);
}

/* All four ways the operands may lie, each with other signs and an epilogue; `halves`: of the first operand (1), and of
 * the second (2), which then is not certain. */
static const char *whole_text(Arena *arena, Size s, int halves) {
  Text text = {0};
  text_printf(&text, "graph \"whole\" {\n%%v = input {name=\"v\"} : f32[1,1,%d]\n%%q = round %%v : f32[1,1,%d]\n", s.n, s.n);
  text_printf(&text, "%%w = broadcast %%q : f32[%d,%d,%d]\n", s.batch, s.m, s.n);
  for (int way = 0; way < 4; way++) {
    bool ta = way & 1, tb = way & 2, is_a_signed = (way + halves) % 3 != 1, is_b_signed = way % 3 != 2;
    Sides a = {3, {s.batch, ta ? s.k : s.m, ta ? s.m : s.k}, {s.batch, ta ? 1 : s.m, ta ? s.m : 1}};
    Sides b = {3, {s.batch, tb ? s.n : s.k, tb ? s.k : s.n}, {s.batch, tb ? s.n : 1, tb ? 1 : s.n}};
    operand_text(arena, &text, way, "a", &a, is_a_signed, halves & 1);
    operand_text(arena, &text, way, "b", &b, is_b_signed, halves & 2);
    text_printf(&text, "%%p%d = dot %%a%d, %%b%d {ta=%s, tb=%s, integers=[%d, %d, %d, %d, %d]} : f32[%d,%d,%d]\n", way, way, way,
                ta ? "true" : "false", tb ? "true" : "false", is_a_signed ? -128 : 0, is_a_signed ? 127 : 255,
                is_b_signed ? -128 : 0, is_b_signed ? 127 : 255, !(halves & 2), s.batch, s.m, s.n);
    text_printf(&text, "%%y%d = %s %%p%d, %%w : f32[%d,%d,%d]\noutput \"o%d\" %%y%d\n", way, way % 2 ? "add" : "mul", way, s.batch,
                s.m, s.n, way, way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

static const Size sizes[] = {{1, 128, 64, 128}, {2, 72, 48, 96}, {1, 137, 131, 75}, {1, 66, 34, 600}, {3, 20, 36, 44}, {2, 1, 5, 1}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Every tile, over sizes that it fits, that stick out, and whose rows are no whole words; with splits; where rows have
 * pitches and where they have none; on sm_80 and on Hopper. */
static void every_tile_of_whole(void **state) {
  (void)state;
  enum { TILES = 10 };
  Arena *arena = arena_new();
  for (int tile = 1; tile <= TILES; tile++)
    for (int i = 0; i < SIZES; i++) {
      if (!getenv("FT_ALL_TILES") && ((i + tile) % 2 || !help_has_its_turn(tile + i / 2))) continue;
      How how = {.only_tile = tile, .only_splits = (tile + i) / 2 % 2 + 1, .gpu = tile % 2 ? "sm_80" : "sm_90a", .is_exact = true};
      const char *passes = (tile + i / 2) % 3 ? "fuse,schedule,pitch" : "fuse";
      assert_true(run_text_after(whole_text(arena, sizes[i], i % 3 ? (tile + i) % 4 : 0), passes, how) >= 5);
    }
  arena_free(arena);
}

/* As it is chosen. */
static void chosen_whole(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (int i = 0; i < SIZES; i++)
    for (int halves = 0; halves < 4; halves++)
      if (help_has_its_turn(i + halves))
        assert_true(run_text_after(whole_text(arena, sizes[i], halves), halves % 2 ? "fuse,schedule,pitch" : "fuse",
                                   (How){.gpu = i % 2 ? "sm_80" : "sm_90", .is_exact = true}) >= 4);
  arena_free(arena);
}

/* ── convolutions ───────────────────────────────────────────────────────────────────────────── */

typedef struct {
  int images, height, width, in, groups, out; /* channels: of a group */
  int kernel[2], stride[2], padding[4], dilation[2];
} Window;

/* Few channels, in words and in pieces; more than a piece; groups; windows that see nothing but zeros. */
static const Window convolutions[] = {
    {2, 9, 8, 3, 1, 12, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},   {1, 14, 13, 32, 1, 64, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {2, 11, 7, 20, 1, 33, {3, 2}, {2, 1}, {0, 2, 1, 0}, {1, 1}}, {3, 6, 10, 16, 2, 8, {2, 3}, {1, 2}, {1, 0, 0, 3}, {2, 3}},
    {2, 5, 6, 48, 1, 20, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},  {1, 12, 9, 1, 1, 5, {5, 4}, {3, 2}, {4, 5, 3, 2}, {2, 3}},
    {2, 4, 5, 18, 3, 6, {3, 3}, {1, 1}, {2, 2, 2, 2}, {1, 2}},   {5, 3, 4, 6, 1, 8, {2, 2}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
};
enum { CONVOLUTIONS = sizeof convolutions / sizeof *convolutions };

static int places_of(const Window *w, int d) {
  int size = (d ? w->width : w->height) + w->padding[d] + w->padding[2 + d];
  return (size - (w->kernel[d] - 1) * w->dilation[d] - 1) / w->stride[d] + 1;
}

/* With each pair of signs, and an epilogue or none. */
static const char *convolution_text(Arena *arena, const Window *w, int halves) {
  Text text = {0};
  int channels = w->out * w->groups, down = places_of(w, 0), across = places_of(w, 1);
  text_printf(&text, "graph \"whole\" {\n%%v = input {name=\"v\"} : f32[1,1,1,%d]\n%%q = round %%v : f32[1,1,1,%d]\n", channels, channels);
  text_printf(&text, "%%w = broadcast %%q : f32[%d,%d,%d,%d]\n", w->images, down, across, channels);
  for (int way = 0; way < 4; way++) {
    bool is_a_signed = way & 1, is_b_signed = way & 2;
    Sides a = {4, {w->images, w->height, w->width, w->in * w->groups}, {w->images, w->height, 1, 1}};
    Sides b = {4, {channels, w->kernel[0], w->kernel[1], w->in}, {channels, 1, 1, 1}};
    operand_text(arena, &text, way, "a", &a, is_a_signed, halves & 1);
    operand_text(arena, &text, way, "b", &b, is_b_signed, halves & 2);
    text_printf(&text,
                "%%p%d = conv %%a%d, %%b%d {stride=[%d,%d], padding=[%d,%d,%d,%d], dilation=[%d,%d], groups=%d, layout=\"nhwc\", "
                "integers=[%d, %d, %d, %d, %d]} : f32[%d,%d,%d,%d]\n",
                way, way, way, w->stride[0], w->stride[1], w->padding[0], w->padding[1], w->padding[2], w->padding[3], w->dilation[0],
                w->dilation[1], w->groups, is_a_signed ? -128 : 0, is_a_signed ? 127 : 255, is_b_signed ? -128 : 0,
                is_b_signed ? 127 : 255, !(halves & 2), w->images, down, across, channels);
    if (way != 1)
      text_printf(&text, "%%y%d = %s %%p%d, %%w : f32[%d,%d,%d,%d]\n", way, way % 2 ? "add" : "mul", way, w->images, down, across, channels);
    text_printf(&text, "output \"o%d\" %%%s%d\n", way, way != 1 ? "y" : "p", way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* Every tile, over windows of each kind; with splits, with lines and windows that are no whole numbers. */
static void every_tile_of_convolutions(void **state) {
  (void)state;
  enum { TILES = 10 };
  Arena *arena = arena_new();
  for (int tile = 1; tile <= TILES; tile++)
    for (int i = 0; i < CONVOLUTIONS; i++) {
      if (!getenv("FT_ALL_TILES") && ((i + tile) % 2 || !help_has_its_turn(tile + i / 2))) continue;
      How how = {.only_tile = tile, .only_splits = (tile + i) / 2 % 2 + 1, .gpu = tile % 2 ? "sm_80" : "sm_90a", .is_exact = true};
      assert_true(run_text_after(convolution_text(arena, &convolutions[i], i % 3 ? (tile + i) % 4 : 0), "fuse", how) >= 5);
    }
  arena_free(arena);
}

static void chosen_convolutions(void **state) {
  (void)state;
  Arena *arena = arena_new();
  for (int i = 0; i < CONVOLUTIONS; i++)
    for (int halves = 0; halves < 4; halves++)
      if (help_has_its_turn(i + halves))
        assert_true(run_text_after(convolution_text(arena, &convolutions[i], halves), "fuse",
                                   (How){.gpu = i % 2 ? "sm_80" : "sm_90", .is_exact = true}) >= 4);
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_of_whole), cmocka_unit_test(chosen_whole),
                                     cmocka_unit_test(every_tile_of_convolutions), cmocka_unit_test(chosen_convolutions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
