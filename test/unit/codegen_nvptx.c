/* codegen_nvptx: GPU kernels compute what the interpreter does: every kernel of random steps, and
 * graphs written to reach each path of each skeleton, run on the host thread by thread (see
 * codegen_gpu.h); kernels for sm_90a, whose instructions LLVM knows as text only, run in the
 * simulator. Results and workspace lie between guards, so that a stray write is seen. */
#include "codegen_nvptx.h"
#include "test/random/graph.h"

/* The gradient of a maximum asks which element equals it: where another kernel computes the element
 * again, the last bit decides, and a comparison with exact values is moot. */
static bool has_extreme(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_RMAX || graph->nodes.at[i]->op == OP_RMIN) return true;
  return false;
}

static void random_steps(void **state) {
  (void)state;
  int kernels = 0;
  const char *only = getenv("FT_SEED");
  for (int seed = only ? atoi(only) : 0, steps = 0; steps < help_random_count(10); seed++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = help_context(arena, &diag, seed);
    context.for_gpu = true;
    Graph *graph = graph_random(arena, (uint64_t)seed, 40);
    bool is_one = !has_extreme(graph);
    if (is_one && (only || help_has_its_turn(steps))) {
      graph = help_pass(&context, graph,
                        "shapes,simplify,cse,dce,autodiff,attention,precision,widen,optimizer,"
                        "simplify2,cse2,dce2,layout,moments,fuse");
      kernels += run_graph(arena, &diag, graph, context.settings, (How){0});
    }
    steps += is_one;
    arena_free(arena);
  }
  printf("%d kernels\n", kernels);
  assert_true(kernels > (help_has_turns() ? 20 : 200));
}

static const char *const graphs[] = {
#include "codegen_nvptx.inc"
};

static void written_graphs(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    assert_true(run_text(graphs[i], (How){0}) > 0);
}

/* On tensor cores; graphs without products of f32 are the same as before, and pass quickly. */
static void written_graphs_tf32(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    if (strstr(graphs[i], "dot") || strstr(graphs[i], "conv"))
      assert_true(run_text(graphs[i], (How){.allows_tf32 = true}) > 0);
}

/* All four ways the operands of a product may lie, with an epilogue on two of them. */
static const char *product_text(Arena *arena, const char *type, int m, int n, int k) {
  Text text = {0};
  text_printf(&text, "graph \"tile\" {\n%%v = param {name=\"v\"} : %s[1,%d]\n", type, n);
  text_printf(&text, "%%w = broadcast %%v : %s[%d,%d]\n", type, m, n);
  for (int way = 0; way < 4; way++) {
    bool ta = way & 1, tb = way & 2;
    text_printf(&text, "%%a%d = param {name=\"a%d\"} : %s[%d,%d]\n", way, way, type, ta ? k : m,
                ta ? m : k);
    text_printf(&text, "%%b%d = param {name=\"b%d\"} : %s[%d,%d]\n", way, way, type, tb ? n : k,
                tb ? k : n);
    text_printf(&text, "%%p%d = dot %%a%d, %%b%d {ta=%s, tb=%s} : %s[%d,%d]\n", way, way, way,
                ta ? "true" : "false", tb ? "true" : "false", type, m, n);
    if (way < 2) text_printf(&text, "%%s%d = add %%p%d, %%w : %s[%d,%d]\n", way, way, type, m, n);
    text_printf(&text, "output \"o%d\" %%%c%d\n", way, way < 2 ? 's' : 'p', way);
  }
  text_printf(&text, "}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* Every tile of every unit, over shapes that it fits and that stick out, with and without splits.
 */
static void every_tile(void **state) {
  (void)state;
  static const struct {
    const char *type;
    bool allows_tf32;
    int tiles;
  } units[] = {{"f32", false, 20},
               {"f64", false, 3},
               {"f32", true, 10},
               {"f16", false, 10},
               {"bf16", false, 2}};
  static const int shapes[][3] = {{72, 48, 80}, {137, 131, 75}, {66, 34, 70}};
  Arena *arena = arena_new();
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (int tile = 1; tile <= units[u].tiles; tile++)
      for (int shape = 0; shape < 3; shape++) {
        const int *size = shapes[shape];
        How how = {units[u].allows_tf32, tile, (tile + shape) % 2 + 1};
        if (!getenv("FT_ALL_TILES") && (shape != tile % 3 || !help_has_its_turn(tile + (int)u))) continue;
        int less = tile > 5 ? 3 : 1; /* tiles are listed from the largest */
        const char *text =
            product_text(arena, units[u].type, size[0] / less, size[1] / less, size[2]);
        assert_int_equal(run_text(text, how), 4);
      }
  arena_free(arena);
}

/* Convolutions of 16-bit types in NHWC: forward with an epilogue, and both gradients. */
static const char *window_text(Arena *arena, const char *type, const int *w) {
  enum { IMAGES, HEIGHT, WIDTH, IN, OUT, TALL, BROAD, STRIDE, TOP, LEFT, BOTTOM, RIGHT, DOWN, ACROSS, GROUPS };
  int high = (w[HEIGHT] + w[TOP] + w[BOTTOM] - (w[TALL] - 1) * w[DOWN] - 1) / w[STRIDE] + 1;
  int wide = (w[WIDTH] + w[LEFT] + w[RIGHT] - (w[BROAD] - 1) * w[ACROSS] - 1) / w[STRIDE] + 1;
  const char *how = arena_printf(arena, "{stride=[%d,%d], padding=[%d,%d,%d,%d], dilation=[%d,%d], groups=%d, layout=\"nhwc\"}",
                                 w[STRIDE], w[STRIDE], w[TOP], w[LEFT], w[BOTTOM], w[RIGHT], w[DOWN], w[ACROSS], w[GROUPS]);
  const char *x = arena_printf(arena, "%s[%d,%d,%d,%d]", type, w[IMAGES], w[HEIGHT], w[WIDTH], w[IN] * w[GROUPS]);
  const char *y = arena_printf(arena, "%s[%d,%d,%d,%d]", type, w[IMAGES], high, wide, w[OUT] * w[GROUPS]);
  const char *weight = arena_printf(arena, "%s[%d,%d,%d,%d]", type, w[OUT] * w[GROUPS], w[TALL], w[BROAD], w[IN]);
  return arena_printf(arena,
                      "graph \"windows\" {\n%%x = param {name=\"x\"} : %s\n%%w = param {name=\"w\"} : %s\n"
                      "%%dy = param {name=\"dy\"} : %s\n%%y = conv %%x, %%w %s : %s\n%%s = mul %%y, %%y : %s\n"
                      "%%dx = conv_grad_input %%dy, %%w %s : %s\n%%dw = conv_grad_weight %%dy, %%x %s : %s\n"
                      "output \"y\" %%s\noutput \"dx\" %%dx\noutput \"dw\" %%dw\n}\n",
                      x, weight, y, how, y, y, how, x, how, weight);
}

static const char *conv_text(Arena *arena, const char *type, int stride, int in, int out) {
  return window_text(arena, type, (int[]){3, 9, 7, in, out, 3, 3, stride, 1, 1, 1, 1, 1, 1, 1});
}

/* Hopper's tensor cores: every tile, both types, all orders of operands, shapes that stick out;
 * each once more by tensor maps, which only products have, and by both kinds of clusters. */
static void every_wgmma(void **state) {
  (void)state;
  enum { FIRST = 11, TILES = 11 }; /* after those of mma.sync */
  static const int shapes[][3] = {{128, 256, 64}, {136, 72, 200}, {72, 264, 136}};
  Arena *arena = arena_new();
  for (int tile = 0; tile < 4 * TILES; tile++) {
    if (!help_has_its_turn(tile + tile / 5)) continue;
    for (int shape = 0; shape < 3; shape++) {
      if (!getenv("FT_ALL_TILES") && shape != tile % 3) continue;
      const int *size = shapes[shape];
      How how = {false, FIRST + tile, (tile + shape) % 2 + 1, "sm_90a"};
      const char *type = (tile + shape) % 3 ? "bf16" : "f16";
      assert_int_equal(run_text(product_text(arena, type, size[0], size[1], size[2]), how), 4);
    }
    if (tile >= TILES || (!getenv("FT_ALL_TILES") && tile % 2)) continue;
    How how = {false, FIRST + tile, tile % 4 / 2 + 1, "sm_90a"};
    const char *convolutions = conv_text(arena, tile % 4 ? "bf16" : "f16", tile % 3 ? 1 : 2,
                                         tile % 4 ? 16 : 24, tile % 3 ? 32 : 72);
    assert_int_equal(run_text(convolutions, how), 3);
  }
  arena_free(arena);
}

/* Convolutions whose weights, or gradient of the result, may come by tensor maps, and with a stride of 1 and 64 channels
 * their images by regions: every tile of wgmma in each of these ways; windows, dilation, groups and paddings of all sides;
 * tiles of several images, and those that stick out. */
static void every_wgmma_of_windows(void **state) {
  (void)state;
  enum { FIRST = 11, TILES = 11, WAYS = 3 };
  static const int windows[][15] = {{3, 9, 7, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},   {2, 11, 10, 128, 64, 3, 3, 1, 2, 2, 2, 2, 2, 2, 1},
                                    {4, 6, 8, 64, 64, 3, 3, 1, 0, 0, 0, 0, 1, 1, 2},   {1, 5, 29, 192, 128, 2, 2, 1, 1, 0, 0, 1, 1, 1, 1},
                                    {7, 4, 3, 64, 128, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},  {1, 18, 13, 64, 72, 5, 1, 1, 2, 0, 1, 0, 1, 3, 1},
                                    {2, 9, 12, 64, 64, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1},  {3, 7, 5, 128, 192, 1, 5, 1, 0, 3, 0, 1, 1, 1, 1},
                                    {30, 2, 2, 256, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 8, 8, 64, 64, 2, 3, 1, 3, 4, 3, 4, 1, 1, 1}};
  Arena *arena = arena_new();
  for (int tile = 0; tile < WAYS * TILES; tile++)
    for (int i = 0; i < 10; i++) {
      if (!getenv("FT_ALL_TILES") && (i % 5 != tile % 5 || !help_has_its_turn(tile + i))) continue;
      How how = {false, FIRST + tile, (tile + i) % 2 + 1, "sm_90a"};
      assert_int_equal(run_text(window_text(arena, (tile + i) % 3 ? "bf16" : "f16", windows[i]), how), 3);
    }
  arena_free(arena);
}

/* Of images, or of weights. */
static const char *image_type(Arena *arena, const char *type, bool nhwc, int count, int channels,
                              const int size[2]) {
  return nhwc ? arena_printf(arena, "%s[%d,%d,%d,%d]", type, count, size[0], size[1], channels)
              : arena_printf(arena, "%s[%d,%d,%d,%d]", type, count, channels, size[0], size[1]);
}

/* The gradient of a strided convolution's input, class by class: strides that share a factor with
 * the dilation or not, windows smaller than the stride, images that the stride does not divide,
 * output places that no window begins at; with splits and without. */
static void strided_inputs(void **state) {
  (void)state;
  static const struct {
    int stride[2], pad[4], dilation[2], kernel[2], size[2];
  } cases[] = {
      {{2, 2}, {1, 1, 1, 1}, {1, 1}, {3, 3}, {9, 8}},
      {{2, 2}, {0, 0, 0, 0}, {1, 1}, {1, 1}, {7, 6}},
      {{2, 3}, {3, 3, 2, 2}, {1, 2}, {7, 3}, {11, 9}},
      {{4, 2}, {2, 5, 0, 1}, {2, 2}, {3, 2}, {13, 10}},
      {{3, 1}, {0, 2, 1, 1}, {1, 1}, {2, 3}, {8, 5}},
      {{6, 5}, {4, 4, 3, 7}, {4, 3}, {5, 4}, {23, 16}},
  };
  static const char *const types[] = {"f32", "bf16", "f16"};
  Arena *arena = arena_new();
  for (int i = 0; i < 18; i++) {
    int one = i % 6, type = i / 6, nhwc = (one + type) % 4 != 0, groups = i % 5 == 3 ? 2 : 1;
    int y[2], in = type ? 16 : 4, out = 8;
    for (int d = 0; d < 2; d++)
      y[d] = (cases[one].size[d] + cases[one].pad[d] + cases[one].pad[d + 2] -
              (cases[one].kernel[d] - 1) * cases[one].dilation[d] - 1) /
                 cases[one].stride[d] +
             1;
    const int *pad = cases[one].pad, *size = cases[one].size;
    const char *dx = image_type(arena, types[type], nhwc, 2, groups * in, size);
    const char *dy = image_type(arena, types[type], nhwc, 2, groups * out, y);
    const char *w = image_type(arena, types[type], nhwc, groups * out, in, cases[one].kernel);
    const char *text = arena_printf(
        arena,
        "graph \"strided\" {\n%%dy = param {name=\"dy\"} : %s\n%%w = param {name=\"w\"} : "
        "%s\n%%dx = conv_grad_input %%dy, %%w {stride=[%d,%d], padding=[%d,%d,%d,%d], "
        "dilation=[%d,%d], groups=%d, layout=\"%s\"} : %s\noutput \"dx\" %%dx\n}\n",
        dy, w, cases[one].stride[0], cases[one].stride[1], pad[0], pad[1], pad[2], pad[3],
        cases[one].dilation[0], cases[one].dilation[1], groups, nhwc ? "nhwc" : "nchw", dx);
    How how = {.only_tile = type && i % 2 ? 11 + i % 11 : i % 4 * 3,
               .only_splits = i % 3 + 1,
               .gpu = type && i % 2 ? "sm_90a" : NULL};
    assert_int_equal(run_text(text, how), 1);
  }
  arena_free(arena);
}

/* A convolution's columns in one kernel with it: mean and spread of a biased result far from zero,
 * the sum of an epilogue, and what is made of them. */
static const char *columns_text(Arena *arena, const char *type, int stride, int groups, int in,
                                int out) {
  int height = 11, width = 9, images = 3;
  int high = (height + 2 - 3) / stride + 1, wide = (width + 2 - 3) / stride + 1;
  const char *y = arena_printf(arena, "[%d,%d,%d,%d]", images, high, wide, groups * out);
  Text text = {0};
  text_printf(
      &text,
      "graph \"columns\" {\n%%x = param {name=\"x\"} : %s[%d,%d,%d,%d]\n"
      "%%w = param {name=\"w\"} : %s[%d,3,3,%d]\n%%b = param {name=\"b\"} : f32[1,1,1,%d]\n",
      type, images, height, width, groups * in, type, groups * out, in, groups * out);
  text_printf(&text,
              "%%y = conv %%x, %%w {stride=[%d,%d], padding=[1,1,1,1], dilation=[1,1], groups=%d, "
              "layout=\"nhwc\"} : %s%s\n",
              stride, stride, groups, type, y);
  const char *wide_y = strcmp(type, "f32") ? "%f" : "%y";
  if (*(wide_y + 1) == 'f') text_printf(&text, "%%f = cast %%y : f32%s\n", y);
  text_printf(&text,
              "%%k = const {value=10000} : f32[1,1,1,%d]\n%%far = mul %%b, %%k : f32[1,1,1,%d]\n"
              "%%bb = broadcast %%far : f32%s\n%%z = add %s, %%bb : f32%s\n"
              "%%m = mean %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%v = spread %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%r = rsqrt %%v : f32[1,1,1,%d]\n%%q = mul %s, %s : f32%s\n"
              "%%s = sum %%q {axes=[0,1,2]} : f32[1,1,1,%d]\n",
              groups * out, groups * out, y, wide_y, y, groups * out, groups * out, groups * out,
              wide_y, wide_y, y, groups * out);
  text_printf(&text, "output \"y\" %%y\noutput \"m\" %%m\noutput \"v\" %%v\n"
                     "output \"r\" %%r\noutput \"s\" %%s\n}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* The gradient of a convolution's input, masked, and its sums, as a batch norm's gradient has them.
 */
static const char *slopes_text(Arena *arena, const char *type, int stride, int groups, int in,
                               int out) {
  int height = 11, width = 9, images = 3, channels = groups * in;
  int high = (height + 2 - 3) / stride + 1, wide = (width + 2 - 3) / stride + 1;
  const char *x = arena_printf(arena, "[%d,%d,%d,%d]", images, height, width, channels);
  Text text = {0};
  text_printf(&text,
              "graph \"slopes\" {\n%%x = param {name=\"x\"} : f32%s\n"
              "%%w = param {name=\"w\"} : %s[%d,3,3,%d]\n"
              "%%dy = param {name=\"dy\"} : %s[%d,%d,%d,%d]\n"
              "%%m = param {name=\"m\"} : f32[1,1,1,%d]\n",
              x, type, groups * out, in, type, images, high, wide, groups * out, channels);
  text_printf(&text,
              "%%dx = conv_grad_input %%dy, %%w {stride=[%d,%d], padding=[1,1,1,1], "
              "dilation=[1,1], groups=%d, layout=\"nhwc\", result=f32} : f32%s\n"
              "%%k = const {value=0} : f32%s\n%%l = le %%x, %%k : bool%s\n"
              "%%z = select %%l, %%k, %%dx : f32%s\n%%mm = broadcast %%m : f32%s\n"
              "%%d = sub %%x, %%mm : f32%s\n%%p = mul %%z, %%d : f32%s\n"
              "%%s = sum %%z {axes=[0,1,2]} : f32[1,1,1,%d]\n"
              "%%t = sum %%p {axes=[0,1,2]} : f32[1,1,1,%d]\n%%u = add %%s, %%m : f32[1,1,1,%d]\n"
              "output \"z\" %%z\noutput \"s\" %%u\noutput \"t\" %%t\n}\n",
              stride, stride, groups, x, x, x, x, x, x, x, channels, channels, channels);
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* With every tile of every unit, tiles cut off at both ends, groups, strides. */
static void column_sums(void **state) {
  (void)state;
  static const struct {
    const char *type;
    bool allows_tf32;
    int tiles;
    const char *gpu;
  } units[] = {{"f32", false, 20, NULL},
               {"f32", true, 10, NULL},
               {"bf16", false, 10, NULL},
               {"f16", false, 21, "sm_90a"}};
  Arena *arena = arena_new();
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (int tile = units[u].gpu ? 11 : 1; tile <= units[u].tiles; tile++) {
      if (!getenv("FT_ALL_TILES") && tile % 3 != (int)u % 3) continue;
      int groups = tile % 4 == 3 ? 2 : 1, stride = tile % 5 == 4 ? 2 : 1;
      How how = {units[u].allows_tf32, tile, tile % 2 + 1, units[u].gpu};
      const char *text = columns_text(arena, units[u].type, stride, groups, tile % 2 ? 8 : 16,
                                      tile % 3 ? 40 : 136);
      assert_int_equal(run_text(text, how), 1);
      if (!getenv("FT_ALL_TILES") && tile % 2) continue;
      text = slopes_text(arena, units[u].type, 2 - tile % 3 / 2, groups, tile % 3 ? 40 : 136,
                         tile % 2 ? 8 : 16);
      assert_int_equal(run_text(text, how), 1);
    }
  arena_free(arena);
}

/* A product's columns in one kernel with it: the gradient of an activation and its sums, as a
 * bias's gradient has them, or the largest sizes, as a scale of 8-bit floats has; a mean and a spread far from zero. */
static const char *product_sums_text(Arena *arena, const char *type, int m, int n, int k, bool tb) {
  Text text = {0};
  const char *y = arena_printf(arena, "[%d,%d]", m, n);
  bool is_narrow = strcmp(type, "f32") != 0;
  text_printf(&text,
              "graph \"sums\" {\n%%a = param {name=\"a\"} : %s[%d,%d]\n"
              "%%b = param {name=\"b\"} : %s[%d,%d]\n%%u = param {name=\"u\"} : %s%s\n"
              "%%p = dot %%a, %%b {tb=%s%s} : f32%s\n",
              type, m, k, type, tb ? n : k, tb ? k : n, type, y, tb ? "true" : "false",
              is_narrow ? ", result=f32" : "", y);
  text_printf(&text, "%%f = %s %%u : f32%s\n", is_narrow ? "cast" : "neg", y);
  text_printf(&text,
              "%%t = tanh %%f : f32%s\n%%g = mul %%p, %%t : f32%s\n%%r = cast %%g : %s%s\n"
              "%%s = sum %%g {axes=[0]} : f32[1,%d]\n%%h = mul %%g, %%f : f32%s\n"
              "%%z = abs %%h : f32%s\n%%q = %s %%z {axes=[0]} : f32[1,%d]\n"
              "%%k = const {value=3000} : f32%s\n%%far = add %%p, %%k : f32%s\n"
              "%%m = mean %%far {axes=[0]} : f32[1,%d]\n"
              "%%v = spread %%far {axes=[0]} : f32[1,%d]\n%%w = add %%s, %%m : f32[1,%d]\n",
              y, y, is_narrow ? type : "f16", y, n, y, y, tb ? "sum" : "rmax", n, y, y, n, n, n);
  text_printf(&text, "output \"r\" %%r\noutput \"s\" %%s\noutput \"q\" %%q\n"
                     "output \"v\" %%v\noutput \"w\" %%w\n}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* With every tile of every unit, by tensor maps too, tiles cut off at both ends; splits of k are
 * asked for and refused. */
static void product_sums(void **state) {
  (void)state;
  static const struct {
    const char *type;
    bool allows_tf32;
    int tiles;
    const char *gpu;
  } units[] = {{"f32", false, 20, NULL},
               {"f32", true, 10, NULL},
               {"f16", false, 10, NULL},
               {"bf16", false, 54, "sm_90a"}};
  static const int shapes[][3] = {{72, 48, 80}, {137, 132, 72}, {270, 264, 40}, {1, 8, 16}};
  Arena *arena = arena_new();
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (int tile = units[u].gpu ? 11 : 1; tile <= units[u].tiles; tile++) {
      if (!getenv("FT_ALL_TILES") && tile % 3 != (int)u % 3) continue;
      int shape = tile % 5 == 4 ? 3 : units[u].gpu ? 1 + tile / 2 % 2 : tile % 2;
      const int *size = shapes[shape];
      How how = {units[u].allows_tf32, tile, tile % 2 + 1, units[u].gpu};
      const char *text =
          product_sums_text(arena, units[u].type, size[0], size[1], size[2], tile % 4 < 2);
      assert_int_equal(run_text(text, how), 1);
    }
  arena_free(arena);
}

/* The gradient of a layer norm with that of a sum behind it, and sums of columns of what it reads
 * and makes. */
static const char *row_sums_text(Arena *arena, const char *type, int rows, int length) {
  Text text = {0};
  const char *y = arena_printf(arena, "[%d,%d]", rows, length);
  text_printf(&text,
              "graph \"rows\" {\n%%x = param {name=\"x\"} : f32%s\n%%d = param {name=\"d\"} : "
              "%s%s\n%%w = param {name=\"w\"} : f32[1,%d]\n%%e = param {name=\"e\"} : %s%s\n",
              y, type, y, length, type, y);
  text_printf(
      &text,
      "%%f = cast %%d : f32%s\n%%h = cast %%e : f32%s\n%%ww = broadcast %%w : f32%s\n"
      "%%g = mul %%f, %%ww : f32%s\n%%p = mul %%g, %%x : f32%s\n"
      "%%a = sum %%p {axes=[1]} : f32[%d,1]\n%%aa = broadcast %%a : f32%s\n"
      "%%q = mul %%aa, %%x : f32%s\n%%b = sum %%q {axes=[1]} : f32[%d,1]\n"
      "%%bb = broadcast %%b : f32%s\n%%u = sub %%g, %%bb : f32%s\n%%z = add %%u, %%h : f32%s\n"
      "%%s = sum %%f {axes=[0]} : f32[1,%d]\n%%v = mul %%f, %%x : f32%s\n"
      "%%t = sum %%v {axes=[0]} : f32[1,%d]\n%%c = sum %%z {axes=[0]} : f32[1,%d]\n",
      y, y, y, y, y, rows, y, y, rows, y, y, y, length, y, length, length);
  text_printf(&text, "output \"z\" %%z\noutput \"a\" %%a\noutput \"s\" %%s\noutput \"t\" %%t\n"
                     "output \"c\" %%c\n}\n");
  const char *result = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return result;
}

/* Teams of one warp and of many, rows and columns that do not fill them, odd rows. */
static void row_sums(void **state) {
  (void)state;
  static const struct {
    const char *type;
    int rows, length;
  } cases[] = {{"bf16", 1029, 256}, {"f32", 2053, 130}, {"f16", 517, 700}, {"f32", 512, 1538}};
  Arena *arena = arena_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(
        run_text(row_sums_text(arena, cases[i].type, cases[i].rows, cases[i].length), (How){0}), 1);
  arena_free(arena);
}

/* Loop kernels that turn tiles: every element size, tiles cut off at both ends, few rows or
 * columns, dimensions in between, two operands turned alike. */
static void transposes(void **state) {
  (void)state;
  static const struct {
    int rank, size[4], perm[4];
  } cases[] = {
      {2, {65, 130}, {1, 0}},
      {2, {64, 64}, {1, 0}},
      {3, {5, 33, 7}, {2, 1, 0}},
      {3, {3, 3, 70}, {0, 2, 1}},
      {4, {2, 9, 11, 16}, {0, 3, 1, 2}},
      {4, {2, 3, 24, 26}, {0, 2, 3, 1}},
      {4, {3, 4, 5, 40}, {3, 0, 2, 1}},
      {3, {1, 40, 72}, {2, 0, 1}},
  };
  static const char *const types[] = {"f32", "bf16", "u8", "f64", "bool", "f16"};
  Arena *arena = arena_new();
  for (int i = 0; i < 24; i++) {
    int one = i % 8, rank = cases[one].rank;
    const int *size = cases[one].size, *perm = cases[one].perm;
    const char *type = types[(i + i / 8) % 6], *in = "", *out = "", *order = "";
    for (int d = 0; d < rank; d++) {
      const char *comma = d ? "," : "";
      in = arena_printf(arena, "%s%s%d", in, comma, size[d]);
      out = arena_printf(arena, "%s%s%d", out, comma, size[perm[d]]);
      order = arena_printf(arena, "%s%s%d", order, comma, perm[d]);
    }
    const char *text = arena_printf(
        arena,
        "graph \"turned\" {\n%%x = input {name=\"x\"} : %s[%s]\n%%y = param {name=\"y\"} : "
        "f32[%s]\n"
        "%%z = param {name=\"z\"} : f32[%s]\n%%a = cast %%x : f32[%s]\n%%b = neg %%a : f32[%s]\n"
        "%%t = transpose %%%s {perm=[%s]} : %s[%s]\n%%u = transpose %%y {perm=[%s]} : f32[%s]\n"
        "%%v = cast %%t : f32[%s]\n%%w = add %%u, %%v : f32[%s]\n%%r = mul %%w, %%z : f32[%s]\n"
        "output \"r\" %%r\noutput \"t\" %%t\n}\n",
        type, in, in, out, in, in, i % 3 ? "b" : "x", order, i % 3 ? "f32" : type, out, order, out,
        out, out, out);
    assert_int_equal(run_text(text, (How){0}), 1);
  }
  arena_free(arena);
}

int main(int count, char **argument) {
  if (count > 1) cmocka_set_test_filter(argument[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_graphs), cmocka_unit_test(written_graphs_tf32),
      cmocka_unit_test(every_tile),     cmocka_unit_test(every_wgmma), cmocka_unit_test(every_wgmma_of_windows),
      cmocka_unit_test(random_steps),   cmocka_unit_test(strided_inputs),
      cmocka_unit_test(column_sums),    cmocka_unit_test(product_sums),
      cmocka_unit_test(row_sums),       cmocka_unit_test(transposes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
