/* decode: token by token, by the interpreter, the graphs "decode" and "prefill" give the scores
 * that the evaluation graph gives for the whole window, on models that use every way of positions;
 * models that mix positions are refused with the line that does. */
#include "frontend/program.h"
#include "passes/decode.h"
#include "passes_help.h"

enum { V = 11, MOST_STATES = 32 };

static const char usual[] =
    "data Text { train = bytes(\"t\"); valid = bytes(\"t\") }\n"
    "train { model = M; data = Text; batch = B; optimizer = sgd(lr=0.1) }\n"
    "hyper B: int = 3\nhyper T: int = 7\nhyper V: int = 11\nhyper D: int = 8\n";
#define LOSS "  loss = mean(cross_entropy(logits, next))\n  output logits\n}\n"
#define MODEL "model M(x: i32[B, T], next: i32[B, T]) {\n  param e: [V, D] = normal(1)\n"

typedef struct {
  const char *name, *source;
} Case;
static const Case good[] = {
    {"a table of positions, as GPT-2",
     MODEL "  param p: [200, D] = normal(1)\n  param w: [D, 3 * D] = normal(1)\n"
           "  y = embed(e, x) + p[:T]\n  q, k, v = split(y @ w, 3, axis=-1)\n"
           "  q = rearrange(q, \"b t (h d) -> b h t d\", h=2)\n"
           "  k = rearrange(k, \"b t (h d) -> b h t d\", h=2)\n"
           "  v = rearrange(v, \"b t (h d) -> b h t d\", h=2)\n"
           "  y = y + rearrange(attention(q, k, v, causal=true), \"b h t d -> b t (h d)\")\n"
           "  logits = softmax(y, axis=-1) @ transpose(e)\n" LOSS},
    {"rotary embeddings, keys shared by heads, two layers",
     "block Layer()(y) {\n"
     "  q = rope(rearrange(Linear(D, name=\"q\")(y), \"b t (h d) -> b h t d\", h=4))\n"
     "  k = rope(rearrange(Linear(4, name=\"k\")(y), \"b t (h d) -> b h t d\", h=2), offset=3)\n"
     "  v = rearrange(Linear(4, name=\"v\")(y), \"b t (h d) -> b h t d\", h=2)\n"
     "  return y + rearrange(attention(q, k, v, causal=true), \"b h t d -> b t (h d)\")\n}\n" MODEL
     "  y = embed(e, x)\n  repeat i in 0..2 as h { y = Layer()(RMSNorm()(y)) }\n"
     "  logits = gelu(y) @ transpose(e)\n" LOSS},
    {"a penalty for distance as a mask, and one of bool, by comparing positions",
     MODEL "  y = embed(e, x)\n  q = reshape(y, [B, 1, T, D])\n"
           "  far = f32(iota([1, 1, T, T], axis=2) - iota([1, 1, T, T], axis=3))\n"
           "  near = iota([1, 1, T, T], axis=2) - iota([1, 1, T, T], axis=3) < 3\n"
           "  z = attention(q, q, 2 * q, causal=true, mask=-0.3 * far)\n"
           "  z = attention(z, q, z, causal=true, mask=near, softcap=0.5)\n"
           "  logits = reshape(z, [B, T, D]) @ transpose(e)\n" LOSS},
    {"positions from a table across, a slice from its middle, no attention",
     MODEL "  param p: [D, 200] = normal(1)\n"
           "  y = embed(e, x) * transpose(p)[5:T + 5] + transpose(sin(p))[:T] ** 2\n"
           "  y = concat([y, 2 * y], axis=-1)[:, :, 3:D + 3]\n  logits = y @ transpose(e)\n" LOSS},
    {"a model of one text at a time, of i64", /* B is 1: see the list of settings */
     "model M(x: i64[1, T], next: i32[1, T]) {\n  param e: [V, D] = normal(1)\n  y = embed(e, x)\n"
     "  q = reshape(y, [1, T, 4, 2])\n  q = transpose(q, [0, 2, 1, 3])\n"
     "  z = transpose(attention(q, q, q, causal=true), [0, 2, 1, 3])\n"
     "  logits = reshape(z, [1, T, D]) @ transpose(e)\n" LOSS},
};
static const Case bad[] = {
    {"attention looks at later positions (no causal=true)",
     MODEL "  y = reshape(embed(e, x), [B, 1, T, D])\n"
           "  logits = reshape(attention(y, y, y), [B, T, D]) @ transpose(e)\n" LOSS},
    {"mean goes over positions or samples", MODEL
     "  y = embed(e, x)\n  logits = (y - mean(y, axis=1, keepdims=true)) @ transpose(e)\n" LOSS},
    {"matmul compares positions: use attention(..., causal=true)",
     MODEL "  y = embed(e, x)\n  logits = (y @ transpose(y, [0, 2, 1]) @ y) @ transpose(e)\n" LOSS},
    {"slice takes or adds some positions",
     MODEL "  y = embed(e, x)\n  y = y + concat([0 * y[:, :1], y[:, :T - 1]], axis=1)\n"
           "  logits = y @ transpose(e)\n" LOSS},
    {"attention has a mask made of the tokens",
     MODEL "  y = reshape(embed(e, x), [B, 1, T, D])\n  m = reshape(x != 0, [B, 1, 1, T])\n"
           "  z = attention(y, y, y, causal=true, mask=m)\n"
           "  logits = reshape(z, [B, T, D]) @ transpose(e)\n" LOSS},
    {"it is for models of tokens i32[B,T] with an output of scores f32[B,T,V]",
     MODEL "  logits = embed(e, x) @ transpose(e)\n"
           "  loss = mean(cross_entropy(logits, next))\n}\n"},
};

typedef struct {
  Arena *arena;
  Diag diag;
  Program program;
  Probe probe;
  int64_t window, batch, tokens[256];
  const int64_t *given; /* what the input holds from its start */
  const Tensor *state[MOST_STATES];
  const char *state_name[MOST_STATES];
  int states;
} Bench;

static void compile(Bench *b, const char *source, int64_t batch, int64_t window) {
  const char *defines[] = {arena_printf(b->arena, "T=%lld", (long long)window),
                           arena_printf(b->arena, "B=%lld", (long long)batch)};
  FrontendOptions options = {.defines = defines, .define_count = 2};
  char *text = arena_printf(b->arena, "%s%s", usual, source);
  diag_init(&b->diag, b->arena, stderr);
  assert_true(frontend_compile_text(b->arena, &b->diag, "m.ft", text, &options, &b->program));
  b->window = window;
  b->batch = batch;
  for (int i = 0; i < window; i++) b->tokens[i] = (i * i * 5 + i * 3 + 1) % V;
}

/* Inputs hold the tokens and then what is none; states of decode go on. */
static const Tensor *leaf(const Node *node, void *context) {
  Bench *b = context;
  const char *name = node_str(node, ATTR_NAME);
  if (node->role == ROLE_CACHE || node->role == ROLE_POSITION) {
    for (int i = 0; i < b->states; i++)
      if (strcmp(b->state_name[i], name) == 0) return b->state[i];
    return tensor_new(b->arena, node->type); /* cleared before position 0 */
  }
  if (node->op != OP_INPUT) return probe_leaf(node, &b->probe);
  Tensor *input = tensor_new(b->arena, node->type);
  for (int64_t i = 0; i < b->batch * b->window; i++) input->i[i] = i < b->window ? b->given[i] : 1;
  return input;
}

static Tensor **interpret(Bench *b, const Graph *graph) {
  Tensor **values = ARENA_ARRAY(b->arena, Tensor *, graph->nodes.count);
  b->probe = (Probe){b->arena, graph, NULL, 3, NULL};
  assert_true(graph_interpret(graph, b->arena, leaf, b, false, values, &b->diag));
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    int k = 0;
    if (root->kind != ROOT_ASSIGN) continue;
    while (k < b->states && strcmp(b->state_name[k], root->name) != 0) k++;
    assert_in_range(k, 0, MOST_STATES - 1);
    b->state_name[k] = root->name;
    b->state[k] = values[root->node->id];
    if (k == b->states) b->states++;
  }
  return values;
}

static Graph *make(Bench *b, const char *name, const char **refused) {
  Graph *graph = graph_rewrite(b->program.eval, NULL, NULL);
  PassContext context = {b->arena, &b->diag, .settings = b->program.settings};
  context.of = pass_graph_named(name, PASS_OF_EVAL);
  graph->name = name;
  int pass = 0;
  while (strcmp(pass_info[pass].name, "decode") != 0) pass++;
  graph = passes_run_one(&context, &pass_info[pass], graph, true, NULL);
  *refused = context.refused;
  assert_int_equal(b->diag.errors, 0);
  return graph;
}

static void check_row(Bench *b, const char *name, const double *want, const double *have,
                      int64_t position) {
  (void)b;
  for (int i = 0; i < V; i++)
    if (!(fabs(want[i] - have[i]) <= 1e-12 * fmax(1, fabs(want[i]))))
      fail_msg("%s: score %d behind position %lld is %.15g, not %.15g", name, i,
               (long long)position, have[i], want[i]);
}

/* `prefilled` runs of prefill, the rest one by one. */
static void follows(Bench *b, const char *name, const Graph *prefill, const Graph *decode,
                    int prefilled) {
  int64_t pad[256];
  memcpy(pad, b->tokens, sizeof pad);
  b->given = b->tokens;
  Tensor **values = interpret(b, b->program.eval);
  const double *want = values[graph_find_root(b->program.eval, ROOT_OUTPUT, "logits")->id]->f;
  b->states = 0;
  for (int64_t at = 0; at < b->window;) {
    bool is_many = at < prefilled * PREFILL_WIDTH;
    for (int64_t i = 0; i < b->window; i++)
      pad[i] = i < (is_many ? PREFILL_WIDTH : 1) ? b->tokens[at + i] : V + 5;
    b->given = pad;
    values = interpret(b, is_many ? prefill : decode);
    if (is_many) assert_null(graph_find_root(prefill, ROOT_OUTPUT, NULL));
    at += is_many ? PREFILL_WIDTH : 1;
    if (is_many) continue;
    const Tensor *have = values[graph_find_root(decode, ROOT_OUTPUT, "logits")->id];
    assert_int_equal(shape_elements(&have->type.shape), V);
    check_row(b, name, want + (at - 1) * V, have->f, at - 1);
  }
}

static void same_scores(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    for (int is_long = 0; is_long < 2; is_long++) {
      bool is_single = strstr(good[i].name, "one text") != NULL;
      Bench b = {.arena = arena_new()};
      const char *refused;
      compile(&b, good[i].source, is_single ? 1 : 3, is_long ? 2 * PREFILL_WIDTH + 9 : 7);
      Graph *decode = make(&b, "decode", &refused);
      if (!decode) fail_msg("%s: %s", good[i].name, refused);
      follows(&b, good[i].name, NULL, decode, 0);
      Graph *prefill = make(&b, "prefill", &refused);
      bool remembers = strstr(good[i].source, "attention(") != NULL;
      if (is_long && remembers) {
        assert_non_null(prefill);
        follows(&b, good[i].name, prefill, decode, 1);
        follows(&b, good[i].name, prefill, decode, 2);
      } else {
        assert_null(prefill);
      }
      arena_free(b.arena);
    }
}

static void refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Bench b = {.arena = arena_new()};
    const char *refused;
    compile(&b, bad[i].source, 3, 7);
    assert_null(make(&b, "decode", &refused));
    assert_non_null(refused);
    if (!strstr(refused, bad[i].name)) fail_msg("'%s' instead of '%s'", refused, bad[i].name);
    arena_free(b.arena);
  }
}

/* The comparison would notice a wrong position. */
static void notices(void **state) {
  (void)state;
  Bench b = {.arena = arena_new()};
  const char *refused;
  compile(&b, good[0].source, 3, 7);
  Graph *decode = make(&b, "decode", &refused);
  b.given = b.tokens;
  interpret(&b, decode);
  b.given = b.tokens + 1;
  double first = interpret(&b, decode)[graph_find_root(decode, ROOT_OUTPUT, "logits")->id]->f[0];
  b.states = 0;
  double second = interpret(&b, decode)[graph_find_root(decode, ROOT_OUTPUT, "logits")->id]->f[0];
  assert_true(fabs(first - second) > 1e-6);
  arena_free(b.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_scores), cmocka_unit_test(refusals),
                                     cmocka_unit_test(notices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
