/* passes_ranks: ranks that share a batch train as one rank with the whole of it. The graphs that all
 * passes make are interpreted, on 1 to 4 ranks at a time with the rows of each, and on one rank by
 * itself compiled for the whole batch: losses, metrics, outputs' rows, parameters and states of
 * several steps and of an evaluation are the same but for the order of sums. So they are where the
 * ranks share parameters out (distributed.zero) or each layer's work (distributed.tensor), each rank's
 * part of them. */
#include "test/unit/ir_help.h"
#include "frontend/program.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include <math.h>
#include <string.h>

enum { MOST_RANKS = 4, STEPS = 3, MOST_STATES = 64, ROWS = 3 }; /* ROWS: of a rank's batch */

/* A run: what was compiled, and on each rank what its states hold. */
typedef struct Run {
  Program program;
  int ranks, tensor, parts, step, part; /* ranks that share the batch, and each layer's work */
  bool is_eval;
  int64_t samples; /* of the evaluation */
  struct Rank {
    struct Run *run;
    int rank, tensor; /* of each of the two */
    const Tensor *state[MOST_STATES];
    const char *name[MOST_STATES];
    int states;
  } rank[MOST_RANKS];
  double loss[STEPS + 1], metric[STEPS + 1];
} Run;
typedef struct Rank Rank;

static Arena *arena;
static const char *form; /* "2 ranks, 3 parts" */
static Diag diag;
enum { REFUSED = 77 };
static bool is_given; /* a program on standard input: test/random/ranks.py */

/* ranks: 1 has the batch by itself, 0: any number. zero, tensor: distributed.zero, distributed.tensor */
static Program compile(const char *source, int64_t batch, int parts, int ranks, int zero,
                       int tensor) {
  bool is_known = zero || tensor > 1 || (ranks > 1 && strstr(source, "muon")); /* not any number */
  const char *sets[] = {arena_printf(arena, "train.batch=%lld", (long long)batch),
                        arena_printf(arena, "train.accumulate=%d", parts),
                        is_known     ? arena_printf(arena, "distributed.data=%d", ranks)
                        : ranks != 1 ? "distributed.data=any"
                                     : "distributed.data=1",
                        "distributed.bucket=0.0001",
                        "distributed.sync_batch_norm=true",
                        arena_printf(arena, "distributed.zero=%d", zero),
                        arena_printf(arena, "distributed.tensor=%d", tensor)};
  Program program;
  FrontendOptions frontend = {.sets = sets, .set_count = 7};
  if (!frontend_compile_text(arena, &diag, "m.ft", source, &frontend, &program)) {
    if (is_given) exit(REFUSED);
    fail_msg("the front end refuses:\n%s", source);
  }
  PassOptions options = {.verify = true, .disable = "layout,storage"};
  if (!passes_run(&program, &diag, &options, false)) {
    if (is_given) exit(REFUSED);
    fail_msg("passes fail:\n%s", source);
  }
  return program;
}

static const Tensor *kept(const Rank *rank, const char *name) {
  for (int i = 0; i < rank->states; i++)
    if (strcmp(rank->name[i], name) == 0) return rank->state[i];
  return NULL;
}

static void keep(Rank *rank, const char *name, const Tensor *value) {
  int i = 0;
  while (i < rank->states && strcmp(rank->name[i], name) != 0) i++;
  assert_in_range(i, 0, MOST_STATES - 1);
  rank->name[i] = name;
  rank->state[i] = value;
  if (i == rank->states) rank->states++;
}

/* Made up of the name and the sample's number in the whole of the data. */
static double made_up(const char *name, int64_t k) {
  uint64_t hash = 1469598103934665603u + (uint64_t)k * 0x9E3779B97F4A7C15u;
  for (; *name; name++) hash = (hash ^ (uint64_t)*name) * 1099511628211u;
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9u;
  return (double)(hash >> 11) * 0x1p-53;
}

static const Tensor *input_rows(const Rank *rank, const Node *leaf) {
  const Run *run = rank->run;
  int64_t rows = leaf->type.shape.dim[0], count = shape_elements(&leaf->type.shape) / rows;
  int64_t batch = run->step * run->parts + run->part; /* of all ranks */
  int64_t first = (batch * run->ranks + rank->rank) * rows;
  Tensor *tensor = tensor_new(arena, leaf->type);
  for (int64_t i = 0; i < rows * count; i++) {
    double value = made_up(node_str(leaf, ATTR_NAME), first * count + i);
    if (tensor->f)
      tensor->f[i] = 2 * value - 1;
    else
      tensor->i[i] = (int64_t)(value * (double)node_int(leaf, ATTR_BELOW, 3));
  }
  return tensor;
}

/* The element of the whole param that is element i of a rank's part of it; at least as many as the
 * param has: none. */
static int64_t whole_index(const Rank *rank, const Node *leaf, int64_t i) {
  Shape local = node_file_shape(leaf);
  int64_t inner = 1, ranks = node_int(leaf, ATTR_TENSOR, 1);
  if (node_attr(leaf, ATTR_RANKS)) i += rank->rank * shape_elements(&leaf->type.shape);
  if (ranks == 1 || i >= shape_elements(&local)) return i * ranks;
  const int64_t *cut = node_attr(leaf, ATTR_CUT)->ints, run = cut[1];
  for (int d = (int)cut[0] + 1; d < local.rank; d++) inner *= local.dim[d];
  int64_t at = i / inner, outer = at / local.dim[cut[0]], in_dim = at % local.dim[cut[0]];
  int64_t whole = in_dim / run * run * ranks + rank->tensor * run + in_dim % run;
  return (outer * local.dim[cut[0]] * ranks + whole) * inner + i % inner;
}

static int64_t whole_elements(const Node *leaf) {
  Shape local = node_file_shape(leaf);
  return shape_elements(&local) * node_int(leaf, ATTR_TENSOR, 1);
}

static const Tensor *part_of_params(const Rank *rank, const Node *leaf) {
  const Tensor *all = kept(rank, OWN_PARAMS);
  Tensor *tensor = tensor_new(arena, leaf->type);
  int64_t first = node_int(leaf, ATTR_OFFSET, 0), count = shape_elements(&leaf->type.shape);
  for (int64_t i = 0; i < count; i++) {
    int64_t whole = whole_index(rank, leaf, i);
    tensor->f[i] = all                            ? all->f[first + i]
                   : whole < whole_elements(leaf) ? made_up(node_str(leaf, ATTR_NAME), whole) - 0.5
                                                  : 0;
  }
  return tensor;
}

static const Tensor *all_params(const Rank *rank, const Node *leaf) {
  const Graph *graph = rank->run->program.train;
  Tensor *tensor = tensor_new(arena, leaf->type);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i];
    if (param->op != OP_PARAM) continue;
    const Tensor *part = part_of_params(rank, param);
    int64_t count = shape_elements(&param->type.shape);
    memcpy(&tensor->f[node_int(param, ATTR_OFFSET, 0)], part->f, sizeof(double) * (size_t)count);
  }
  return tensor;
}

static const Tensor *setting_of(const Rank *rank, const char *key) {
  Tensor *tensor = tensor_new(arena, (Type){DT_F64, shape_scalar()});
  tensor->f[0] = strcmp(key, "distributed.ranks") == 0       ? rank->run->ranks
                 : strcmp(key, "distributed.data_rank") == 0 ? rank->rank
                 : strcmp(key, "distributed.tensor_rank") == 0
                     ? rank->tensor
                     : setting_number(rank->run->program.settings, key);
  return tensor;
}

/* What the runtime tells an evaluation of samples that do not fill the last batch. */
static double eval_number(const Rank *rank, LeafRole role, int64_t rows) {
  const Run *run = rank->run;
  int64_t whole = rows * run->ranks, first = run->step * whole + rank->rank * rows;
  int64_t there = run->samples - first;
  if (role == ROLE_KEEP) return run->step > 0;
  if (role == ROLE_MORE) return (double)(run->samples - whole);
  if (role == ROLE_MISSING) return (double)(rows - (there < 0 ? 0 : there > rows ? rows : there));
  return 0;
}

static const Tensor *leaf_value(const Node *leaf, void *context) {
  const Rank *rank = context;
  const char *name = node_str(leaf, ATTR_NAME);
  if (leaf->op == OP_SETTING) return setting_of(rank, name);
  if (leaf->op == OP_INPUT) return input_rows(rank, leaf);
  if (leaf->op == OP_PARAM) return part_of_params(rank, leaf);
  if (leaf->role == ROLE_PARAMS) return all_params(rank, leaf);
  const Tensor *state = kept(rank, name);
  if (state && !role_has(leaf->role, ROLE_NUMBER)) return state;
  Tensor *tensor = tensor_new(arena, leaf->type);
  if (role_has(leaf->role, ROLE_NUMBER)) {
    const Graph *eval = rank->run->program.eval;
    const Node *input = NULL;
    for (int i = 0; i < eval->nodes.count && !input; i++)
      if (eval->nodes.at[i]->op == OP_INPUT) input = eval->nodes.at[i];
    tensor->f[0] = eval_number(rank, leaf->role, input->type.shape.dim[0]);
  }
  for (int64_t i = 0;
       node_str(leaf, ATTR_INIT) && tensor->f && i < shape_elements(&leaf->type.shape); i++)
    if (strcmp(node_str(leaf, ATTR_INIT), "const") == 0)
      tensor->f[i] = node_attr(leaf, ATTR_INIT_ARGS)->floats[0];
  return tensor;
}

static void interpret(Run *run, const Graph *graph, double *loss, double *metric) {
  Tensor **values[MOST_RANKS];
  void *context[MOST_RANKS];
  Mesh mesh = {run->ranks, 1, run->tensor};
  for (int r = 0; r < mesh_ranks(&mesh); r++) {
    values[r] = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
    context[r] = &run->rank[r];
  }
  assert_true(graph_interpret_mesh(graph, arena, leaf_value, context, &mesh, values, &diag));
  for (int r = 0; r < mesh_ranks(&mesh); r++)
    for (int i = 0; i < graph->roots.count; i++) {
      const Root *root = &graph->roots.at[i];
      const Tensor *value = values[r][root->node->id];
      if (root->kind == ROOT_ASSIGN) keep(&run->rank[r], root->name, value);
      double *to = root->kind == ROOT_LOSS ? loss : root->kind == ROOT_METRIC ? metric : NULL;
      if (!to || graph == run->program.micro) continue;
      if (r && *to != value->f[0] && !isnan(*to))
        fail_msg("ranks disagree: %.17g, %.17g", *to, value->f[0]);
      *to = value->f[0];
    }
}

/* As the runtime does when the update is made (codegen/lower.c). */
static void clear_sums(Rank *rank) {
  for (int i = 0; i < rank->states; i++)
    if (!strncmp(rank->name[i], OWN_ACCUMULATE "grads.", strlen(OWN_ACCUMULATE "grads.")))
      rank->state[i] = tensor_new(arena, rank->state[i]->type);
}

static void train(Run *run, int64_t samples) {
  int all = run->ranks * run->tensor;
  for (int r = 0; r < all; r++)
    run->rank[r] = (Rank){.run = run, .rank = r / run->tensor, .tensor = r % run->tensor};
  for (run->step = 0; run->step < STEPS; run->step++) {
    for (int r = 0; r < all; r++) clear_sums(&run->rank[r]);
    for (run->part = 0; run->part < run->parts; run->part++)
      interpret(run, run->part + 1 < run->parts ? run->program.micro : run->program.train,
                &run->loss[run->step], &run->metric[run->step]);
  }
  int64_t whole = run->program.eval->nodes.count ? run->ranks : 1;
  int parts = run->parts;
  run->part = 0, run->parts = 1, run->is_eval = true, run->samples = samples;
  for (int i = 0; i < run->program.eval->nodes.count; i++)
    if (run->program.eval->nodes.at[i]->op == OP_INPUT) {
      whole = run->ranks * run->program.eval->nodes.at[i]->type.shape.dim[0];
      break;
    }
  for (run->step = 0; run->step * whole < samples; run->step++)
    interpret(run, run->program.eval, &run->loss[STEPS], &run->metric[STEPS]);
  run->parts = parts;
}

static void check_near(const char *what, int64_t at, double have, double want, const char *source) {
  if (have == want || (isnan(have) && isnan(want))) return;
  if (fabs(have - want) <= 1e-9 * fmax(1, fabs(want))) return;
  fail_msg("%s %lld on %s is %.15g, and on one %.15g:\n%s", what, (long long)at, form, have, want,
           source);
}

/* Of what is kept of each parameter: on one rank, and the part of it that a rank has. */
static void check_parts(const char *name, const Run *one, const Rank *rank, const char *source) {
  const Graph *whole = one->program.train, *shared = rank->run->program.train;
  const Tensor *want = kept(&one->rank[0], name), *have = kept(rank, name);
  for (int i = 0; i < shared->nodes.count; i++) {
    const Node *param = shared->nodes.at[i];
    if (param->op != OP_PARAM) continue;
    const Node *all = graph_find_leaf(whole, OP_PARAM, node_str(param, ATTR_NAME));
    int64_t kept_of = shape_elements(&have->type.shape); /* muon's v is of those in front */
    if (node_int(param, ATTR_OFFSET, 0) >= kept_of) continue;
    for (int64_t k = 0; k < shape_elements(&param->type.shape); k++) {
      int64_t at = whole_index(rank, param, k);
      bool is_there = at < shape_elements(&all->type.shape);
      if (!is_there && isnan(have->f[node_int(param, ATTR_OFFSET, 0) + k])) continue; /* all are */
      check_near(
          arena_printf(arena, "%s of rank %d, %s", name, rank->rank, node_str(param, ATTR_NAME)), k,
          have->f[node_int(param, ATTR_OFFSET, 0) + k],
          is_there ? want->f[node_int(all, ATTR_OFFSET, 0) + at] : 0, source);
    }
  }
}

static void check(const char *source, int ranks, int parts, int zero, int tensor) {
  arena = arena_new();
  diag_init(&diag, arena, stderr);
  diag.is_quiet = getenv("FT_LOUD") == NULL;
  form = arena_printf(arena, "%d ranks, %d parts, zero %d, tensor %d", ranks, parts, zero, tensor);
  Run *one = ARENA_NEW(arena, Run), *many = ARENA_NEW(arena, Run);
  bool is_alone = ranks == 1 && tensor == 1;
  int many_ranks = is_alone ? 0 : ranks; /* compiled for any number, run by one */
  *one = (Run){.program = compile(source, ROWS * ranks, parts, 1, 0, 1),
               .ranks = 1,
               .tensor = 1,
               .parts = parts};
  *many = (Run){.program = compile(source, ROWS, parts, many_ranks, zero, tensor),
                .ranks = ranks,
                .tensor = tensor,
                .parts = parts};
  int64_t samples = 2 * ROWS * ranks + 4;
  train(one, samples);
  train(many, samples);
  bool is_mean = parts > 1 && strstr(source, "spread = std"); /* of the parts' */
  for (int i = 0; i <= STEPS; i++) {
    check_near(i < STEPS ? "loss of step" : "loss of the evaluation", i, many->loss[i],
               one->loss[i], source);
    if (is_mean && i < STEPS) continue;
    check_near(i < STEPS ? "metric of step" : "metric of the evaluation", i, many->metric[i],
               one->metric[i], source);
  }
  for (int r = 0; r < ranks * tensor; r++)
    for (int s = 0; s < one->rank[0].states; s++) {
      const char *name = one->rank[0].name[s];
      const Tensor *want = one->rank[0].state[s], *have = kept(&many->rank[r], name);
      if (!strncmp(name, OWN_EVAL, strlen(OWN_EVAL)) ||
          !strncmp(name, OWN_ACCUMULATE, strlen(OWN_ACCUMULATE)))
        continue; /* of one rank's part */
      assert_non_null(have);
      const Node *leaf = graph_find_state(one->program.train, name);
      if ((zero || tensor > 1) && leaf &&
          (leaf->role == ROLE_PARAMS || role_has(leaf->role, ROLE_SLICED))) {
        check_parts(name, one, &many->rank[r], source);
        continue;
      }
      for (int64_t i = 0; want->f && i < shape_elements(&want->type.shape); i++)
        check_near(arena_printf(arena, "%s of rank %d", name, r), i, have->f[i], want->f[i],
                   source);
    }
  arena_free(arena);
}

static const char *const models[] = {
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  h = relu(Linear(7, name=\"a\")(x))\n  s = Linear(4, name=\"b\")(dropout(h, 0.3))\n"
    "  loss = mean(cross_entropy(s, y, ignore=1))\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01); clip = 0.5; ema = 0.9 }\n",
    /* a sum, and a penalty that no sample influences */
    "model M(x: f32[B, 5]) {\n"
    "  param w: [5, 2] = normal(0.3)\n"
    "  loss = sum((x @ w) ** 2) + 0.1 * sum(w * w)\n  metric largest = max(x @ w)\n}\n"
    "train { model = M; optimizer = sgd(lr=0.01, momentum=0.9) }\n",
    /* the penalty weighed against a mean over what counts */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  s = Linear(3, name=\"a\")(x)\n  param w: [3] = normal(0.3)\n"
    "  loss = mean(cross_entropy(s + w, y, ignore=0)) + 0.5 * sum(w * w)\n"
    "  metric spread = max(s) - min(s)\n}\n"
    "train { model = M; optimizer = adam(lr=0.02) }\n",
    /* a mean over rows of several positions each, random numbers of samples and of parameters */
    "model M(x: f32[B, 4, 6]) {\n"
    "  h = tanh(Linear(6, name=\"a\")(x))\n  h = dropout(rearrange(h, \"b t c -> (b t) c\"), 0.5)\n"
    "  param w: [6] = normal(0.3)\n"
    "  loss = mean(h * dropout(w, 0.4))\n  metric size = mean(abs(h))\n}\n"
    "train { model = M; optimizer = rmsprop(lr=0.01) }\n",
    /* a metric whose totals need others first; parts of a rank cannot be gone through again */
    "model M(x: f32[B, 5]) {\n"
    "  s = tanh(Linear(3, name=\"a\")(x))\n  loss = mean(s ** 2)\n  metric spread = std(s) + "
    "max(abs(s - mean(s)))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1) }\n",
    /* a state that follows the batch, and is read by the next part of it */
    "model M(x: f32[B, 5]) {\n"
    "  state s: f32[1, 5]\n  v = Linear(5, name=\"a\")(x) - s\n"
    "  update s = 0.5 * s + 0.5 * mean(x, axis=0, keepdims=true)\n  loss = mean(v ** 2) + "
    "sum(s)\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1) }\n",
    /* batches in which nothing counts: no loss, and no gradient */
    "model M(x: f32[B, 5], w: f32[B]) {\n"
    "  v = sum(Linear(3, name=\"a\")(x) ** 2, axis=-1)\n  u = f32(w > 0.9)\n"
    "  loss = mean(weighted(v * u, u))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.01) }\n",
    /* rates and decays of their own, a frozen parameter, one that is read twice */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  param w: [5, 5] = normal(0.3)\n  h = tanh(x @ w) @ transpose(w)\n"
    "  s = Linear(3, name=\"b\")(Linear(40, name=\"a\")(h))\n"
    "  loss = mean(cross_entropy(s, y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2)\n"
    "  lr = 0.1x on \"b.*\"; lr = 0x on \"a.bias\"; clip = norm(0.3) }\n",
    /* products that are cut: a gated layer, heads of attention side by side, a table of words whose
     * rows score them, an index of the largest */
    "model M(x: i32[B, T=4], y: i32[B, T]) {\n"
    "  param wte: [12, 12] = normal(0.3)\n  h = embed(wte, x)\n"
    "  q, k, v = split(Linear(36, name=\"qkv\")(h), 3, axis=-1)\n"
    "  q = rearrange(q, \"b t (h d) -> b h t d\", h=4)\n"
    "  k = rearrange(k, \"b t (h d) -> b h t d\", h=4)\n"
    "  v = rearrange(v, \"b t (h d) -> b h t d\", h=4)\n"
    "  a = rearrange(attention(q, k, v, causal=true), \"b h t d -> b t (h d)\")\n"
    "  h = h + dropout(Linear(12, name=\"out\")(a), 0.2)\n"
    "  g = dropout(silu(Linear(24, name=\"gate\")(h)) * Linear(24, name=\"up\")(h), 0.3)\n"
    "  h = h + Linear(12, bias=false, name=\"down\")(g)\n"
    "  s = RMSNorm(name=\"n\")(h) @ transpose(wte)\n"
    "  loss = mean(cross_entropy(s, y, ignore=2))\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2); clip = 0.2 }\n",
    /* one gradient of two parameters, of which one is cut */
    "model M(x: f32[B, 5]) {\n"
    "  param a: [1] = normal(0.3)\n  param b: [2] = normal(0.3)\n"
    "  loss = mean(Linear(2, bias=false, name=\"l\")(x) * (b + a))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9); clip = 0.2 }\n",
    /* channels, and their statistics */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  h = relu(BatchNorm(name=\"n\")(Conv2d(12, 3, padding=1, name=\"c\")(x)))\n"
    "  h = relu(Conv2d(5, 3, name=\"d\")(h))\n"
    "  loss = mean(cross_entropy(Linear(12, name=\"b\")(flatten(h, from=1)), y, ignore=2))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* statistics of all samples, and an unbiased variance of them */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  h = relu(BatchNorm(name=\"n\")(Conv2d(3, 3, padding=1, name=\"c\")(x)))\n"
    "  s = Linear(3, name=\"b\")(mean(h, axis=[2, 3]))\n"
    "  loss = mean(cross_entropy(BatchNorm(name=\"m\")(s), y, ignore=2))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* matrices that ranks share out: three of a shape, two, one; behind others, which adamw trains */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  h = Linear(9, name=\"a\")(x)\n  repeat i in 0..3 as h { h = h + tanh(Linear(9, "
    "name=\"w\")(h)) }\n"
    "  repeat i in 0..2 as g { h = h + Linear(9, name=\"d\", bias=false)(relu(Linear(4, "
    "name=\"u\")(h))) }\n"
    "  loss = mean(cross_entropy(Linear(4, name=\"head\")(h), y))\n}\n"
    "train { model = M; optimizer = muon(lr=0.02) on rank == 2 and not (\"head.*\"); clip = 0.5; "
    "ema = 0.9 }\n",
    /* bf16 parameters that are rounded by random numbers */
    "model M(x: f32[B, 5]) {\n"
    "  h = tanh(Linear(40, name=\"a\")(x))\n"
    "  loss = mean(tanh(Linear(7, name=\"b\")(Linear(9, name=\"c\")(h))) ** 2)\n}\n"
    "train { model = M; optimizer = adamw(lr=0.001); lr = 0.1x on \"a.*\"\n"
    "  precision = bf16(parameters=bf16) }\n",
    /* nothing but matrices */
    "model M(x: f32[B, 8]) {\n"
    "  param w: [8, 8] = normal(0.3)\n  param v: [8, 8] = normal(0.3)\n  param u: [8, 40] = "
    "normal(0.3)\n"
    "  loss = mean(tanh(tanh(x @ w) @ v @ u) ** 2)\n}\n"
    "train { model = M; optimizer = muon(lr=0.02, nesterov=false, adjust=original) }\n",
};

static void test_as_one_rank(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
      for (int parts = 1; parts <= 3; parts += 2)
        for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
          if (zero != 1 || parts > 1) check(models[i], ranks, parts, zero, 1);
}

/* Muon and stochastic rounding are refused. */
static bool can_share_layers(const char *source) {
  return !strstr(source, "muon") && !strstr(source, "parameters=bf16");
}

static void test_tensor(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int tensor = 2; tensor <= MOST_RANKS && can_share_layers(models[i]); tensor++)
      for (int ranks = 1; ranks * tensor <= MOST_RANKS; ranks++)
        for (int parts = 1; parts <= 3; parts += 2)
          for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
            if (zero != 1 || parts > 1) check(models[i], ranks, parts, zero, tensor);
}

static char given[1 << 16];
static void test_given(void **unused) {
  (void)unused;
  for (int ranks = 2; ranks <= 3; ranks++)
    for (int parts = 1; parts <= 2; parts++) check(given, ranks, parts, 0, 1);
  check(given, 2, 1, 3, 1);
  check(given, 2, 2, 1, 1);
  check(given, 3, 2, 2, 1);
  check(given, 1, 1, 0, 2);
  check(given, 2, 2, 0, 2);
  check(given, 1, 1, 0, 3);
  check(given, 2, 1, 3, 2);
}

int main(int argc, char **argv) {
  is_given = argc > 1 && strcmp(argv[1], "-") == 0;
  if (is_given) {
    given[fread(given, 1, sizeof given - 1, stdin)] = 0;
    const struct CMUnitTest one[] = {cmocka_unit_test(test_given)};
    return cmocka_run_group_tests(one, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_one_rank),
                                     cmocka_unit_test(test_tensor)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
