/* ranks_help: trains a program as it is compiled for a form of a mesh, on the interpreter, and on one rank by
 * itself, and compares what both have: losses, metrics, parameters and states of several steps, and an evaluation. */
#ifndef FT_TEST_RANKS_HELP_H
#define FT_TEST_RANKS_HELP_H
#include "test/unit/ir_help.h"
#include "test/unit/turn.h"
#include "frontend/program.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include <math.h>
#include <string.h>

enum { MOST_RANKS = 4, MOST_ALL = 8, MOST_STAGES = 4, STEPS = 3, MOST_STATES = 64 };
static int rows = 3;   /* of a rank's batch */
static int pieces = 1; /* distributed.pieces, where ranks share layers */
static bool is_whole; /* one rank has the batch in one part, the others in several */
static const char *bucket = "distributed.bucket=0.0001"; /* each tensor by itself; 0: all together */

/* Of program_graph. */
enum { TRAIN, EVAL, MICRO };

/* A run: what was compiled, and on each rank what its states hold. */
typedef struct Run {
  Program program, stage[MOST_STAGES]; /* stage 0, and all */
  int ranks, tensor, pipeline; /* ranks that share the batch, each layer's work, the layers */
  int parts, step, part;
  bool is_eval;
  int64_t samples; /* of the evaluation */
  struct Rank {
    struct Run *run;
    int rank, tensor, stage; /* of each of the three */
    const Program *program;
    const Tensor *state[MOST_STATES];
    const char *name[MOST_STATES];
    int states;
  } rank[MOST_ALL];
  double loss[STEPS + 1], metric[STEPS + 1];
} Run;
typedef struct Rank Rank;

static Arena *arena;
static const char *form; /* "2 ranks, 3 parts" */
static Diag diag;
enum { REFUSED = 77 };
static bool is_given; /* a program on standard input: test/random/ranks.py */

typedef struct {
  int ranks, parts, zero, tensor, pipeline, interleave;
} Form;

/* For as many parts of a pipeline. */
static bool has_layers(const Program *program) {
  PassContext context = {.arena = arena,
                         .diag = &diag,
                         .settings = program->settings,
                         .of = PASS_OF_TRAIN,
                         .program = program,
                         .scratch = arena_child(arena)};
  bool has_layers = pass_chunks(&context, program->train) != NULL;
  arena_free(context.scratch);
  return has_layers;
}

/* form.ranks: 1 has the batch by itself, 0: any number. The others: distributed.zero and so on. */
static Program compile_stage(const char *source, int64_t batch, Form of, int stage) {
  int ranks = of.ranks, zero = of.zero, tensor = of.tensor, parts = of.parts;
  bool is_known = zero || tensor > 1 || (ranks > 1 && strstr(source, "muon")); /* not any number */
  const char *sets[] = {arena_printf(arena, "train.batch=%lld", (long long)batch),
                        arena_printf(arena, "train.accumulate=%d", parts),
                        is_known     ? arena_printf(arena, "distributed.data=%d", ranks)
                        : ranks != 1 ? "distributed.data=any"
                                     : "distributed.data=1",
                        bucket,
                        "distributed.sync_batch_norm=true",
                        arena_printf(arena, "distributed.zero=%d", zero),
                        arena_printf(arena, "distributed.tensor=%d", tensor),
                        arena_printf(arena, "distributed.pipeline=%d", of.pipeline),
                        arena_printf(arena, "distributed.interleave=%d", of.interleave),
                        arena_printf(arena, "distributed.pieces=%d", tensor > 1 ? pieces : 1)};
  Program program;
  FrontendOptions frontend = {.sets = sets, .set_count = 10};
  if (!frontend_compile_text(arena, &diag, "m.ft", source, &frontend, &program)) {
    if (is_given) exit(REFUSED);
    fail_msg("the front end refuses:\n%s", source);
  }
  program = frontend_stage(&program, stage);
  if (of.pipeline > 1 && !has_layers(&program)) return (Program){0};
  PassOptions options = {.verify = true, .disable = "layout,storage"};
  if (!passes_run(&program, &diag, &options, false)) {
    if (is_given) exit(REFUSED);
    fail_msg("passes fail:\n%s", source);
  }
  return program;
}

static bool compile(Run *run, const char *source, int64_t batch, Form of) {
  for (int s = 0; s < of.pipeline; s++) run->stage[s] = compile_stage(source, batch, of, s);
  run->program = run->stage[0];
  for (int s = 1; s < of.pipeline; s++)
    if (!run->stage[s].arena != !run->program.arena)
      fail_msg("%s: one stage is refused:\n%s", form, source);
  return run->program.arena != NULL;
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
  bool is_once = run->pipeline > 1 && !run->is_eval; /* the graph takes all parts */
  int64_t its = leaf->type.shape.dim[0] / (is_once ? run->parts : 1);
  int64_t count = shape_elements(&leaf->type.shape) / leaf->type.shape.dim[0];
  int64_t batch = run->step * run->parts + run->part; /* of all ranks */
  Tensor *tensor = tensor_new(arena, leaf->type);
  for (int64_t i = 0; i < shape_elements(&leaf->type.shape); i++) {
    int64_t row = i / count, part = row / its;
    int64_t at = ((batch + part) * run->ranks + rank->rank) * its + row % its;
    double value = made_up(node_str(leaf, ATTR_NAME), at * count + i % count);
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
  const Attr *attr = node_attr(leaf, ATTR_CUT);
  const int64_t *cut = attr->ints, run = cut[1];
  int64_t length = attr->count > 2 ? cut[2] : local.dim[cut[0]] * ranks; /* of the whole */
  for (int d = (int)cut[0] + 1; d < local.rank; d++) inner *= local.dim[d];
  int64_t at = i / inner, outer = at / local.dim[cut[0]], in_dim = at % local.dim[cut[0]];
  int64_t whole = in_dim / run * run * ranks + rank->tensor * run + in_dim % run;
  if (whole >= length) return INT64_MAX; /* behind the end of the last rank's */
  return (outer * length + whole) * inner + i % inner;
}

static int64_t whole_elements(const Node *leaf) {
  Shape whole = node_file_shape(leaf);
  const Attr *cut = node_attr(leaf, ATTR_CUT);
  if (cut) whole.dim[cut->ints[0]] *= node_int(leaf, ATTR_TENSOR, 1);
  if (cut && cut->count > 2) whole.dim[cut->ints[0]] = cut->ints[2];
  return shape_elements(&whole);
}

static const Tensor *part_of_params(const Rank *rank, const Node *leaf) {
  const Tensor *all = node_is_frozen(leaf) ? NULL : kept(rank, OWN_PARAMS);
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
  const Graph *graph = rank->program->train;
  Tensor *tensor = tensor_new(arena, leaf->type);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param)) continue;
    const Tensor *part = part_of_params(rank, param);
    int64_t count = shape_elements(&param->type.shape);
    memcpy(&tensor->f[node_int(param, ATTR_OFFSET, 0)], part->f, sizeof(double) * (size_t)count);
  }
  return tensor;
}

static const Tensor *setting_of(const Rank *rank, const char *key) {
  Tensor *tensor = tensor_new(arena, (Type){DT_F64, shape_scalar()});
  tensor->f[0] = strcmp(key, "distributed.ranks") == 0         ? rank->run->ranks
                 : strcmp(key, "distributed.data_rank") == 0   ? rank->rank
                 : strcmp(key, "distributed.tensor_rank") == 0 ? rank->tensor
                 : strcmp(key, "distributed.pipeline_rank") == 0
                     ? rank->stage
                     : setting_number(rank->run->program.settings, key);
  return tensor;
}

/* What the runtime tells an evaluation of samples that do not fill the last batch. */
static double eval_number(const Rank *rank, LeafRole role, int64_t batch) {
  const Run *run = rank->run;
  int64_t whole = batch * run->ranks, first = run->step * whole + rank->rank * batch;
  int64_t there = run->samples - first;
  if (role == ROLE_KEEP) return run->step > 0;
  if (role == ROLE_MORE) return (double)(run->samples - whole);
  if (role == ROLE_MISSING)
    return (double)(batch - (there < 0 ? 0 : there > batch ? batch : there));
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
    const Graph *eval = rank->program->eval;
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

static const Node *next_agreed(const Graph *graph, int from) {
  for (int i = from; i < graph->nodes.count; i++)
    if (node_is_agreed(graph->nodes.at[i])) return graph->nodes.at[i];
  return NULL;
}

static bool is_counterpart(const Node *a, const Node *b) {
  const Attr *x = a ? node_attr(a, ATTR_MESSAGE) : NULL, *y = b ? node_attr(b, ATTR_MESSAGE) : NULL;
  return x && y && attr_equal(x, y);
}

/* Messages in the order of the graphs, one at a time on each stage, as in a queue of NCCL's: the two ends of
 * each meet, and no stage waits for ever. */
static void check_messages(const Graph *const *stage, int stages) {
  const Node *next[MOST_STAGES];
  for (int s = 0; s < stages; s++) next[s] = next_agreed(stage[s], 0);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int s = 0; s < stages; s++) {
      if (!next[s]) continue;
      bool is_send = next[s]->op == OP_SEND, all = !op_is_message(next[s]->op);
      int to = (int)node_int(next[s], ATTR_TO, 0);
      for (int other = 0; all && other < stages; other++)
        all = is_counterpart(next[s], next[other]);
      if (!all &&
          !(is_send && next[to] && next[to]->op == OP_RECEIVE && is_counterpart(next[s], next[to])))
        continue;
      for (int other = 0; other < stages; other++)
        if (all || other == s || other == to)
          next[other] = next_agreed(stage[other], next[other]->id + 1);
      goes_on = true;
    }
  }
  for (int s = 0; s < stages; s++)
    if (next[s]) fail_msg("%s: stage %d waits for ever at node %d", form, s, next[s]->id);
}

/* A graph of the program, by number: each rank that of its stage. */
static void interpret(Run *run, int number, double *loss, double *metric) {
  Tensor **values[MOST_ALL];
  void *context[MOST_ALL];
  const Graph *stage[MOST_STAGES];
  Mesh mesh = {run->ranks, run->pipeline, run->tensor};
  for (int s = 0; s < run->pipeline; s++) stage[s] = program_graph(&run->stage[s], number);
  if (run->pipeline > 1) check_messages(stage, run->pipeline);
  for (int r = 0; r < mesh_ranks(&mesh); r++) {
    int count = stage[run->rank[r].stage]->nodes.count;
    values[r] = ARENA_ARRAY(arena, Tensor *, count);
    context[r] = &run->rank[r];
  }
  diag.is_quiet = false;
  assert_true(
      run->pipeline > 1
          ? graph_interpret_stages(stage, arena, leaf_value, context, &mesh, values, &diag)
          : graph_interpret_mesh(stage[0], arena, leaf_value, context, &mesh, values, &diag));
  diag.is_quiet = true;
  for (int r = 0; r < mesh_ranks(&mesh); r++) {
    const Graph *graph = stage[run->rank[r].stage];
    for (int i = 0; i < graph->roots.count; i++) {
      const Root *root = &graph->roots.at[i];
      const Tensor *value = values[r][root->node->id];
      if (root->kind == ROOT_ASSIGN) keep(&run->rank[r], root->name, value);
      double *to = root->kind == ROOT_LOSS ? loss : root->kind == ROOT_METRIC ? metric : NULL;
      if (!to || number == MICRO) continue;
      if (r && *to != value->f[0] && !isnan(*to))
        fail_msg("ranks disagree: %.17g, %.17g", *to, value->f[0]);
      *to = value->f[0];
    }
  }
}

/* As the runtime does when the update is made (codegen/lower.c). */
static void clear_sums(Rank *rank) {
  for (int i = 0; i < rank->states; i++)
    if (!strncmp(rank->name[i], OWN_ACCUMULATE "grads.", strlen(OWN_ACCUMULATE "grads.")))
      rank->state[i] = tensor_new(arena, rank->state[i]->type);
}

static void train(Run *run, int64_t samples) {
  Mesh mesh = {run->ranks, run->pipeline, run->tensor};
  int all = mesh_ranks(&mesh);
  for (int r = 0; r < all; r++) {
    int stage = mesh_index(&mesh, MESH_PIPELINE, r);
    run->rank[r] = (Rank){.run = run,
                          .rank = mesh_index(&mesh, MESH_DATA, r),
                          .tensor = mesh_index(&mesh, MESH_TENSOR, r),
                          .stage = stage,
                          .program = &run->stage[stage]};
  }
  for (run->step = 0; run->step < STEPS; run->step++) {
    for (int r = 0; r < all; r++) clear_sums(&run->rank[r]);
    for (run->part = 0; run->part < (run->pipeline > 1 ? 1 : run->parts); run->part++)
      interpret(run, run->part + 1 < run->parts && run->pipeline == 1 ? MICRO : TRAIN,
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
    interpret(run, EVAL, &run->loss[STEPS], &run->metric[STEPS]);
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
  const Graph *whole = one->program.train, *shared = rank->program->train;
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
      double its = have->f[node_int(param, ATTR_OFFSET, 0) + k];
      if (!is_there && isnan(its)) continue;                                     /* all are */
      if (!is_there && its == 1 && strcmp(name, OWN_MARK "prune.mask") == 0) continue; /* zeros of a param are alive or not */
      check_near(
          arena_printf(arena, "%s of rank %d, %s", name, rank->rank, node_str(param, ATTR_NAME)), k,
          have->f[node_int(param, ATTR_OFFSET, 0) + k],
          is_there ? want->f[node_int(all, ATTR_OFFSET, 0) + at] : 0, source);
    }
  }
}

/* What one rank by itself has after the same training, with the batch in so many parts. The same is asked for
 * with many forms of the mesh: those of a source are kept, in an arena of their own. */
static const Run *run_of_one(const char *source, int64_t batch, int parts, int64_t samples) {
  enum { KEPT = 64 };
  static struct {
    int64_t batch, samples;
    Run *run;
  } had[KEPT];
  static int count;
  static const char *of_source;
  static Arena *own;
  if (source != of_source || count == KEPT) {
    if (own) arena_free(own);
    own = arena_new();
    of_source = source, count = 0;
  }
  for (int i = 0; i < count; i++)
    if (had[i].batch == batch && had[i].samples == samples && had[i].run->parts == parts)
      return had[i].run;
  Arena *outer = arena;
  arena = own;
  diag_init(&diag, arena, stderr);
  diag.is_quiet = true;
  Run *run = ARENA_NEW(arena, Run);
  *run = (Run){.ranks = 1, .tensor = 1, .pipeline = 1, .parts = parts};
  compile(run, source, batch, (Form){1, parts, 0, 1, 1, 1});
  train(run, samples);
  had[count].batch = batch, had[count].samples = samples, had[count++].run = run;
  arena = outer;
  return run;
}

static bool check_form(const char *source, Form of) {
  int ranks = of.ranks, parts = of.parts, zero = of.zero, tensor = of.tensor;
  arena = arena_new();
  form =
      arena_printf(arena, "%d ranks, %d parts, zero %d, tensor %d in %d pieces, pipeline %d x %d",
                   ranks, parts, zero, tensor, pieces, of.pipeline, of.interleave);
  Run *many = ARENA_NEW(arena, Run);
  bool is_alone = ranks == 1 && tensor == 1;
  if (is_alone) of.ranks = 0; /* compiled for any number, run by one */
  int joined = is_whole ? parts : 1;
  int64_t samples = 2 * rows * ranks + 4;
  const Run *one = run_of_one(source, rows * ranks * joined, parts / joined, samples);
  diag_init(&diag, arena, stderr);
  diag.is_quiet = true;
  *many = (Run){.ranks = ranks, .tensor = tensor, .pipeline = of.pipeline, .parts = parts};
  if (!compile(many, source, rows, of)) {
    arena_free(arena);
    return false;
  }
  train(many, samples);
  bool is_mean = parts > 1 && strstr(source, "spread = std"); /* of the parts' */
  for (int i = 0; i <= STEPS; i++) {
    check_near(i < STEPS ? "loss of step" : "loss of the evaluation", i, many->loss[i],
               one->loss[i], source);
    if (is_mean && i < STEPS) continue;
    check_near(i < STEPS ? "metric of step" : "metric of the evaluation", i, many->metric[i],
               one->metric[i], source);
  }
  for (int r = 0; r < ranks * tensor * of.pipeline; r++)
    for (int s = 0; s < one->rank[0].states; s++) {
      const char *name = one->rank[0].name[s];
      const Tensor *want = one->rank[0].state[s], *have = kept(&many->rank[r], name);
      if (!strncmp(name, OWN_EVAL, strlen(OWN_EVAL)) ||
          !strncmp(name, OWN_ACCUMULATE, strlen(OWN_ACCUMULATE)))
        continue; /* of one rank's part */
      if (!strcmp(name, OWN_NARROW)) continue; /* a copy, which zero does without */
      if (of.pipeline > 1 && !graph_find_state(many->rank[r].program->train, name)) continue;
      assert_non_null(have);
      const Node *leaf = graph_find_state(one->program.train, name);
      if ((zero || tensor > 1 || of.pipeline > 1) && leaf &&
          (leaf->role == ROLE_PARAMS || role_has(leaf->role, ROLE_SLICED))) {
        check_parts(name, one, &many->rank[r], source);
        continue;
      }
      for (int64_t i = 0; want->f && i < shape_elements(&want->type.shape); i++)
        check_near(arena_printf(arena, "%s of rank %d", name, r), i, have->f[i], want->f[i],
                   source);
    }
  arena_free(arena);
  return true;
}
#endif
