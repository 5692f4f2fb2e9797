/* frontend_program: what frontend_compile_text hands on beside the graphs, whose form the lit tests
 * check: settings, data sources, hypers, layers; and bytes that are no program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/program.h"

#define MODEL                                                                                      \
  "model M(x: f32[B, 8], label: i32[B]) {\n"                                                       \
  "  loss = mean(cross_entropy(Linear(10, name=\"fc\")(x), label))\n"                              \
  "}\n"

typedef struct {
  Arena *arena;
  Diag diag;
  Program program;
  char *said; /* everything reported */
  size_t length;
  bool fine;
} Compiled;

static Compiled *compile_bytes(const char *text, size_t length, const FrontendOptions *options) {
  Compiled *c = calloc(1, sizeof *c);
  c->arena = arena_new();
  FILE *out = open_memstream(&c->said, &c->length);
  diag_init(&c->diag, c->arena, out);
  c->fine = frontend_compile_bytes(c->arena, &c->diag, "/nowhere/test.ft", text, length, options,
                                   &c->program);
  fclose(out);
  assert_int_equal(c->fine, c->diag.errors == 0);
  return c;
}

static Compiled *compile(const char *text) { return compile_bytes(text, strlen(text), NULL); }

static void done(Compiled *c) {
  arena_free(c->arena);
  free(c->said);
  free(c);
}

static double number(const Compiled *c, const char *key) {
  return setting_number(c->program.settings, key);
}
static const char *text(const Compiled *c, const char *key) {
  return setting_text(c->program.settings, key);
}

static void expect_error(const char *source, const char *message) {
  Compiled *c = compile(source);
  assert_false(c->fine);
  if (!strstr(c->said, message)) fail_msg("expected \"%s\" in:\n%s", message, c->said);
  done(c);
}

static void test_recipe(void **state) {
  (void)state;
  Compiled *c =
      compile("hyper rate: float = 2 ** -3\n" MODEL "data D {\n"
              "  train = idx(\"a.gz\", \"b.gz\", limit=100); valid = npy(\"x.npy\", \"y.npy\")\n"
              "  shuffle = false; workers = 3; prefetch = 7\n"
              "}\n"
              "train {\n"
              "  model = M; data = D; batch = 64; epochs = 5; seed = 42; steps = 900 steps\n"
              "  optimizer = adamw(lr=rate, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.5)\n"
              "  schedule = cosine(warmup=200 steps, final=0.1)\n"
              "  precision = f32; accumulate = 1; clip = norm(2.5)\n"
              "  eval every 500 steps\n"
              "  checkpoint { dir=\"runs\"; every=2 epochs; keep=5; best=max(valid.loss) }\n"
              "  log { console = false; jsonl; every=50 steps }\n"
              "}\n");
  assert_true(c->fine);
  assert_int_equal(number(c, "train.batch"), 64);
  assert_int_equal(number(c, "train.epochs"), 5);
  assert_int_equal(number(c, "train.steps"), 900);
  assert_int_equal(number(c, "train.seed"), 42);
  assert_string_equal(text(c, "train.optimizer"), "adamw");
  assert_true(number(c, "train.lr") == 0.125);
  assert_true(number(c, "train.beta1") == 0.8 && number(c, "train.beta2") == 0.9);
  assert_true(number(c, "train.eps") == 1e-6 && number(c, "train.weight_decay") == 0.5);
  assert_string_equal(text(c, "train.schedule"), "cosine");
  assert_int_equal(number(c, "train.schedule.warmup"), 200);
  assert_true(number(c, "train.schedule.final") == 0.1 && number(c, "train.clip") == 2.5);
  assert_int_equal(number(c, "train.eval.every"), 500);
  assert_string_equal(text(c, "train.eval.unit"), "step");
  assert_string_equal(text(c, "train.checkpoint.dir"), "runs");
  assert_int_equal(number(c, "train.checkpoint.every"), 2);
  assert_string_equal(text(c, "train.checkpoint.unit"), "epoch");
  assert_int_equal(number(c, "train.checkpoint.keep"), 5);
  assert_string_equal(text(c, "train.checkpoint.best"), "max(valid.loss)");
  assert_false(number(c, "train.log.console"));
  assert_string_equal(text(c, "train.log.jsonl"), "log.jsonl");
  assert_int_equal(number(c, "train.log.every"), 50);
  assert_false(number(c, "data.shuffle"));
  assert_int_equal(number(c, "data.workers"), 3);
  assert_int_equal(number(c, "data.prefetch"), 7);
  assert_int_equal(c->program.sources.count, 2);
  const DataSource *train = &c->program.sources.at[0], *valid = &c->program.sources.at[1];
  assert_string_equal(train->split, "train");
  assert_string_equal(train->kind, "idx");
  assert_int_equal(train->file_count, 2);
  assert_string_equal(train->files[1], "b.gz");
  assert_int_equal(train->option_count, 1);
  assert_string_equal(train->options[0].name, "limit");
  assert_true(train->options[0].number == 100);
  assert_string_equal(valid->split, "valid");
  assert_string_equal(valid->kind, "npy");
  done(c);
}

static void test_defaults(void **state) {
  (void)state;
  Compiled *c = compile(MODEL "train { optimizer = adamw(lr=1) ; eval = none }\n");
  assert_true(c->fine);
  assert_true(number(c, "train.weight_decay") == 0.01); /* PyTorch's, for adamw only */
  assert_int_equal(number(c, "train.eval.every"), 0);
  assert_int_equal(number(c, "train.batch"), 32);
  assert_string_equal(c->program.model_name, "M");
  done(c);
  c = compile(MODEL "train { optimizer = adam }\n");
  assert_true(number(c, "train.weight_decay") == 0);
  done(c);
}

static void test_command_line(void **state) {
  (void)state;
  const char *const defines[] = {"n=3", "n=12", "name=tall", "wide=true", "rate=2"};
  const char *const sets[] = {"train.batch=7", "train.lr=0.25"};
  FrontendOptions options = {
      .defines = defines, .define_count = 5, .sets = sets, .set_count = 2, .preset = "big"};
  const char *source =
      "hyper n: int = 4 // how many\n"
      "hyper twice = 2 * n\n"
      "hyper name = \"low\"\n"
      "hyper wide: bool = false\n"
      "hyper rate: float = 1\n"
      "preset big { n = 5; twice = 100 }\n" MODEL "train { batch = 9; lr = 0.5 }\n";
  Compiled *c = compile_bytes(source, strlen(source), &options);
  assert_true(c->fine);
  assert_int_equal(c->program.hypers.count, 5);
  const Hyper *h = c->program.hypers.at;
  assert_string_equal(h[0].name, "n");
  assert_string_equal(h[0].value, "12"); /* -D wins over the preset, the last one over the others */
  assert_string_equal(h[0].type, "int");
  assert_string_equal(h[0].doc, "how many");
  assert_string_equal(h[1].value, "100");
  assert_string_equal(h[2].value, "tall");
  assert_string_equal(h[3].value, "true");
  assert_string_equal(h[4].type, "float");
  assert_int_equal(number(c, "train.batch"), 7);
  assert_true(number(c, "train.lr") == 0.25);
  done(c);
}

static void test_layers(void **state) {
  (void)state;
  Compiled *c = compile("block Two()(x: [B, D]) { return Linear(3)(Linear(5, name=\"in\")(x)) }\n"
                        "model M(x: f32[B, 8]) {\n"
                        "  two = Two()\n"
                        "  loss = mean(two(x)) + mean(two(x))\n"
                        "}\n");
  assert_true(c->fine);
  const Layer *layer = c->program.layers.at;
  assert_int_equal(c->program.layers.count, 7); /* the model, and twice three */
  assert_string_equal(layer[0].path, "");
  assert_string_equal(layer[1].path, "two");
  assert_string_equal(layer[1].block, "Two");
  assert_int_equal(layer[1].depth, 1);
  assert_int_equal(layer[1].parameters, 0);
  assert_string_equal(layer[2].path, "two.in");
  assert_int_equal(layer[2].parameters, 8 * 5 + 5);
  assert_int_equal(layer[2].flops, 2 * 32 * 8 * 5 + 32 * 5);
  assert_int_equal(layer[2].output.shape.dim[1], 5);
  assert_int_equal(layer[5].parameters, 0); /* shared: counted once */
  done(c);
}

/* The inputs come first, in the order of the arguments, in both graphs. */
static void test_inputs(void **state) {
  (void)state;
  Compiled *c = compile("model M(x: u8[B, H=4, W=H * 2], w: f32[B, H], label: i32[B]) {\n"
                        "  loss = mean(f32(label))\n"
                        "}\n");
  assert_true(c->fine);
  Graph *graphs[] = {c->program.train, c->program.eval};
  for (int g = 0; g < 2; g++) {
    Node **nodes = graphs[g]->nodes.at;
    assert_int_equal(nodes[0]->op, OP_INPUT);
    assert_string_equal(node_str(nodes[0], ATTR_NAME), "x");
    assert_int_equal(nodes[0]->type.dtype, DT_U8);
    assert_int_equal(nodes[0]->type.shape.dim[2], 8);
    assert_string_equal(node_str(nodes[1], ATTR_NAME), "w");
    assert_string_equal(node_str(nodes[2], ATTR_NAME), "label");
    assert_true(graph_verify(graphs[g], STAGE_FORWARD, &c->diag));
  }
  assert_string_equal(c->program.train->name, "train");
  assert_string_equal(c->program.eval->name, "eval");
  done(c);
}

static void test_bad_bytes(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
    const char *message;
  } cases[] = {
      {"hyper a\0b", 9, "test.ft:1:8: error: NUL byte"},
      {"// \xff\n", 5, "test.ft:1:4: error: byte 0xff is not UTF-8"},
      {"// \xc0\x80\n", 6, "byte 0xc0 is not UTF-8"},     /* overlong */
      {"// \xed\xa0\x80\n", 7, "byte 0xed is not UTF-8"}, /* a surrogate */
      {"// \xe2\x82", 5, "byte 0xe2 is not UTF-8"},       /* cut short */
      {"\n\n  \x01", 5, "test.ft:3:3: error: stray byte 0x01"},
      {"", 0, "there is no model in this file"},
      {"\"", 1, "this string is never closed"},
      {"/*", 2, "this comment is never closed"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Compiled *c = compile_bytes(cases[i].bytes, cases[i].length, NULL);
    assert_false(c->fine);
    if (!strstr(c->said, cases[i].message)) fail_msg("%s", c->said);
    done(c);
  }
}

/* Carriage returns and a byte order mark are no part of the program; UTF-8 in comments is fine. */
static void test_harmless_bytes(void **state) {
  (void)state;
  Compiled *c =
      compile("\xEF\xBB\xBF// größer\r\n\tmodel M(x: f32[B, 8]) {\r\n  loss = mean(x) // meant\r\n}\r\n");
  assert_true(c->fine);
  assert_string_equal(c->said, "");
  done(c);
}

static char *repeated(const char *before, const char *middle, int times, const char *after) {
  size_t size = strlen(before) + strlen(middle) * (size_t)times + strlen(after) + 1;
  char *text = malloc(size), *to = text;
  to += sprintf(to, "%s", before);
  for (int i = 0; i < times; i++) to += sprintf(to, "%s", middle);
  sprintf(to, "%s", after);
  return text;
}

/* What is large or deep without end is refused in words, and soon. */
static void test_limits(void **state) {
  (void)state;
  static const struct {
    const char *before, *middle, *after;
    int times;
    const char *message;
  } cases[] = {
      {"hyper a: int = ", "(", "", 100000, "brackets are open here"},
      {"hyper a: int = ", "-", "1\n", 100000, "nests too deep"},
      {"hyper a: int = ", "-", "1\n", 1000, "nested more than"},
      {"hyper a: int = 1", " + 1", "\n", 100000, "nested more than"},
      {"hyper a: int = 1", " ** 1", "\n", 100000, "nests too deep"},
      {"model M(x: f32[B]) {\n", "if true {", "", 100000, "brackets are open here"},
      {"model M(x: f32[B]) {\nloss = mean(x)\nrepeat i in 0..10000 {\n", "x = x + 1\n", "}\n}\n",
       900, "more than 400000 operations"},
      {"model M(x: f32[B]) {\nloss = mean(x)\nrepeat i in 0..10000 {\n", "repeat k in 0..10000 {\n",
       "}\n}\n}\n}\n}\n", 3, "takes too many steps"},
      {"hyper a = [1]", " * 9", "\n", 30, "more than 10000 items"},
      {"hyper a: int = ", "9", "\n", 40, "does not fit 64 bits"},
      {"hyper a: int = 2 ** 62 + 2 ** 62", "", "\n", 1, "does not fit 64 bits"},
      {"model M(x: f32[B]) {\ny = zeros([", "9999, ", "1])\nloss = mean(x)\n}\n", 7, "too large"},
      {"model M(x: f32[B]) {\ny = zeros([", "1, ", "1])\nloss = mean(x)\n}\n", 8,
       "at most 8 dimensions"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *source = repeated(cases[i].before, cases[i].middle, cases[i].times, cases[i].after);
    Compiled *c = compile(source);
    if (c->fine || !strstr(c->said, cases[i].message))
      fail_msg("case %zu: expected \"%s\" in:\n%.600s", i, cases[i].message, c->said);
    done(c);
    free(source);
  }
}

/* A mistake in the recipe or a hyper stops before the graphs: no follow-up messages. */
static void test_one_cause_one_error(void **state) {
  (void)state;
  Compiled *c = compile("model M(x: f32[B, 8]) {\n  y = rleu(x)\n  z = y + 1\n  w = softmax(z)\n"
                        "  a, b = split(w, 2, axis=1)\n  loss = mean(a @ b)\n}\n");
  assert_int_equal(c->diag.errors, 1);
  done(c);
  expect_error("hyper a: int = b\n" MODEL, "unknown name 'b'");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recipe),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_command_line),
      cmocka_unit_test(test_layers),
      cmocka_unit_test(test_inputs),
      cmocka_unit_test(test_bad_bytes),
      cmocka_unit_test(test_harmless_bytes),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_one_cause_one_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
