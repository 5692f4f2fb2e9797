/* random_case: one request of random_program.c: its values of leaves, and what the interpreter
 * says, exactly and with each operation's result moved by what rounding may. */
#ifndef FT_TEST_RANDOM_CASE_H
#define FT_TEST_RANDOM_CASE_H
#include "test/unit/ir_help.h"
/* A check of the helpers that fails is an answer here, and the next request follows. */
static void reject(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#undef fail_msg
#define fail_msg reject
#undef assert_true
#define assert_true(truth) ((truth) ? (void)0 : reject("not true: %s", #truth))
#undef assert_non_null
#define assert_non_null(place) assert_true((place) != NULL)
#include "noise.h"
#include "test/unit/codegen_sim.h"
#include "runtime/device/dev.h"

enum { STEPS = 3, TURNS = 4, MORE_TURNS = 40, MOST_STATES = 64 };

typedef struct {
  const char *program, *values, *gpu, *without, *dump;
} Request;

typedef struct {
  const char *name;
  int64_t count;
  double *element;
} Given;

/* One interpreted run: what it left of each step, and all values of each graph that it went through. */
typedef struct {
  Tensor **of_step[STEPS], **eval;
  VEC(Tensor **) trace;
} Run;

typedef struct {
  Request request;
  Arena *arena;
  Diag diag;
  char *messages;
  size_t message_size;
  VEC(Given) given;
  bool is_quick;                          /* LLVM does little */
  Program program, reference, simplified; /* reference, behind the rules of algebra too */
  int parts;                              /* of a step's batch: train.accumulate */
  bool has_float8;                        /* products of 8-bit floats: noise_exact.h */
  HelpRun code;
  SimHelp sim;
  Artifact *artifact; /* of the code, with its graphs, on the device that users train on */
  DeviceGraph *bound[PROGRAM_GRAPHS];
  enum { RUN_HELPERS, RUN_ONE_BY_ONE, RUN_DEVICE } way;
  Run exact, exact_simplified;
  VEC(Run) noisy, noisy_simplified;
  double worst; /* largest error as a share of what is allowed */
} Case;

static jmp_buf give_up;
static char verdict[1 << 15];

static void reject(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int at = snprintf(verdict, sizeof verdict, "fail\t");
  vsnprintf(verdict + at, sizeof verdict - (size_t)at, format, args);
  va_end(args);
  for (char *c = verdict; *c; c++)
    if (*c == '\n') *c = ' ';
  longjmp(give_up, 1);
}

static void refuse(Case *c) {
  fflush(c->diag.out);
  snprintf(verdict, sizeof verdict, "refused\t%s", c->messages ? c->messages : "");
  for (char *at = verdict; *at; at++)
    if (*at == '\n') *at = ' ';
  longjmp(give_up, 1);
}

/* ── values of leaves ───────────────────────────────────────────────────────────────────────── */
static void read_values(Case *c) {
  FILE *file = fopen(c->request.values, "r");
  char name[256];
  long long count;
  if (!file) reject("cannot read %s", c->request.values);
  while (fscanf(file, "%255s %lld", name, &count) == 2) {
    Given given = {arena_strdup(c->arena, name), count, ARENA_ARRAY(c->arena, double, count)};
    for (int64_t i = 0; i < count; i++)
      if (fscanf(file, "%lf", &given.element[i]) != 1) reject("%s: '%s'", c->request.values, name);
    VEC_PUSH(c->arena, c->given, given);
  }
  fclose(file);
}

static double initial_of(const Node *state) {
  const Attr *init = node_attr(state, ATTR_INIT), *args = node_attr(state, ATTR_INIT_ARGS);
  if (init && !strcmp(init->s, "ones")) return 1;
  return init && !strcmp(init->s, "const") && args && args->count ? args->floats[0] : 0;
}

/* The part of what is given of the leaf; `initial` where nothing is. */
static Tensor *given_value(Case *c, Type type, const char *name, double initial, int part,
                           int parts) {
  Tensor *value = tensor_new(c->arena, type);
  const Given *given = NULL;
  for (int i = 0; i < c->given.count; i++)
    if (!strcmp(c->given.at[i].name, name)) given = &c->given.at[i];
  int64_t count = shape_elements(&type.shape);
  if (given && given->count != count * parts) refuse(c); /* the values of another program */
  for (int64_t i = 0; i < count; i++) {
    double x = given ? given->element[part * count + i] : initial;
    if (value->f)
      value->f[i] = dtype_round(type.dtype, x);
    else
      value->i[i] = (int64_t)x;
  }
  return value;
}

/* A leaf that no step has written yet. */
static Tensor *first_value(Case *c, Type type, const char *name, double initial) {
  return given_value(c, type, name, initial, 0, 1);
}

/* Of a step's batch an input holds one part after the other. */
static Tensor *input_value(Case *c, Type type, const char *name, int part) {
  return given_value(c, type, name, 0, part, c->parts);
}

static double setting_of(const Case *c, const char *name) {
  double value = setting_number(c->program.settings, name);
  if (!strcmp(name, "train.total_steps") && value == 0) return 100;
  if (!strcmp(name, "train.steps_per_epoch") && value == 0) return 10;
  return value;
}

/* ── the interpreter ────────────────────────────────────────────────────────────────────────── */
/* What runs of graphs have left in the states; one that is not here has its first value. */
typedef struct {
  const char *name;
  const Tensor *value;
} Left;
typedef VEC(Left) Memory;

static const Tensor *recall(const Memory *memory, const char *name) {
  for (int i = 0; i < memory->count; i++)
    if (!strcmp(memory->at[i].name, name)) return memory->at[i].value;
  return NULL;
}

static void forget(Memory *memory, const char *name) {
  for (int i = 0; i < memory->count; i++)
    if (!strcmp(memory->at[i].name, name)) memory->at[i--] = memory->at[--memory->count];
}

static void remember(Case *c, Memory *memory, const Graph *graph, Tensor **values) {
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind != ROOT_ASSIGN) continue;
    forget(memory, root->name);
    VEC_PUSH(c->arena, *memory, ((Left){root->name, values[root->node->id]}));
  }
}

/* The plan ends a step with that (codegen/lower.c). */
static void clear_sums(Memory *memory, const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->role == ROLE_GRADIENT_SUM)
      forget(memory, node_str(graph->nodes.at[i], ATTR_NAME));
}

typedef struct {
  Case *c;
  const Graph *graph;
  const Memory *memory;
  int part;     /* of the batch */
  Noise *noise; /* NULL: exact */
} Walk;

/* Runs of graphs, one after the other. */
typedef struct {
  Noise *noise;     /* NULL: exact */
  const Run *exact; /* the run without noise; NULL: noise does not ask */
  Run *run;
} Turn;

static const Tensor *slice_of(Walk *walk, const Tensor *flat, const Node *param) {
  Tensor *slice = tensor_new(walk->c->arena, param->type);
  int64_t at = node_int(param, ATTR_OFFSET, 0);
  for (int64_t i = 0; i < shape_elements(&param->type.shape); i++)
    slice->f[i] = dtype_round(param->type.dtype, flat->f[at + i]);
  return slice;
}

static const Tensor *leaf_value(const Node *leaf, void *context) {
  Walk *walk = context;
  Case *c = walk->c;
  const char *name = node_str(leaf, ATTR_NAME);
  bool is_params = leaf->role == ROLE_PARAMS;
  if (leaf->op == OP_SETTING) {
    Tensor *value = tensor_new(c->arena, leaf->type);
    if (value->f) value->f[0] = setting_of(c, name);
    if (value->i) value->i[0] = (int64_t)setting_of(c, name);
    return value;
  }
  if (leaf->op == OP_INPUT) return input_value(c, leaf->type, name, walk->part);
  const Tensor *written =
      node_is_frozen(leaf) ? NULL : recall(walk->memory, is_params ? OWN_PARAMS : name);
  if (written && leaf->op == OP_PARAM) return slice_of(walk, written, leaf);
  if (written) return written;
  if (leaf->op == OP_PARAM || !is_params) return first_value(c, leaf->type, name, initial_of(leaf));
  Tensor *flat = tensor_new(c->arena, leaf->type);
  for (int i = 0; i < walk->graph->nodes.count; i++) {
    const Node *param = walk->graph->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param)) continue;
    const Tensor *value = first_value(c, param->type, node_str(param, ATTR_NAME), 0);
    memcpy(flat->f + node_int(param, ATTR_OFFSET, 0), value->f,
           sizeof(double) * (size_t)shape_elements(&param->type.shape));
  }
  return flat;
}

static void walk_after(const Node *node, const Tensor *const *inputs, Tensor *value,
                       void *context) {
  Walk *walk = context;
  if (walk->noise) noise_after(node, inputs, value, walk->noise);
}

static Tensor **interpret(Case *c, const Graph *graph, Memory *memory, int part, Turn *turn) {
  Walk walk = {c, graph, memory, part, turn->noise};
  Tensor **values = ARENA_ARRAY(c->arena, Tensor *, graph->nodes.count);
  if (turn->exact) turn->noise->exact = turn->exact->trace.at[turn->run->trace.count];
  VEC_PUSH(c->arena, turn->run->trace, values);
  if (!graph_interpret_changed(graph, c->arena, leaf_value, walk_after, &walk, values, &c->diag))
    reject("the interpreter refuses it");
  remember(c, memory, graph, values);
  return values;
}

/* The values of the graph that ends the step. */
static Tensor **interpret_step(Case *c, const Program *program, Memory *memory, Turn *turn) {
  for (int part = 0; part + 1 < c->parts; part++)
    interpret(c, program->micro, memory, part, turn);
  Tensor **values = interpret(c, program->train, memory, c->parts - 1, turn);
  clear_sums(memory, program->train);
  return values;
}

/* With parts: their sums. Those of the last part, which they are made of, may be packed too. */
static const Node *find_gradients(const Case *c, const Graph *graph) {
  if (c->parts == 1) return graph_find_gradients(graph);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *pack = graph->nodes.at[i], *sum = pack->op == OP_PACK ? pack->input[0] : pack;
    for (int k = 0; pack->op == OP_PACK && k < sum->input_count; k++)
      if (sum->input[k]->role == ROLE_GRADIENT_SUM) return pack;
  }
  return NULL;
}

/* The values of the roots, where the reference's graph has them. */
static Tensor **of_reference(Case *c, const Graph *from, Tensor **values, const Graph *reference) {
  Tensor **found = ARENA_ARRAY(c->arena, Tensor *, reference->nodes.count);
  for (int i = 0; i < reference->roots.count; i++) {
    const Root *root = &reference->roots.at[i];
    const Node *node = graph_find_root(from, root->kind, root->name);
    if (node) found[root->node->id] = values[node->id];
  }
  const Node *gradients = find_gradients(c, reference), *same = find_gradients(c, from);
  if (gradients && same) found[gradients->id] = values[same->id];
  return found;
}

/* exact: the same without noise, where that asks. */
static Run interpret_all(Case *c, const Program *program, Noise *noise, const Run *exact) {
  Run run = {0};
  Turn turn = {noise, exact, &run};
  Memory memory = {0}, fresh = {0};
  for (int s = 0; s < STEPS; s++) {
    Tensor **values = interpret_step(c, program, &memory, &turn);
    run.of_step[s] = of_reference(c, program->train, values, c->reference.train);
  }
  Tensor **values = interpret(c, program->eval, &fresh, 0, &turn);
  run.eval = of_reference(c, program->eval, values, c->reference.eval);
  return run;
}

static Run noisy_run(Case *c, const Program *program, const Run *exact, int turn) {
  const char *precision = setting_text(c->program.settings, "train.precision");
  Noise noise = {c->arena, (uint64_t)turn * 7919 + 1,
                 !strcmp(precision, "tf32") && strcmp(c->request.gpu, "cpu"), turn % 2, 0, NULL};
  return interpret_all(c, program, &noise, c->has_float8 ? exact : NULL);
}

static void add_noisy(Case *c, int turns) {
  for (int i = 0; i < turns; i++) {
    Run run = noisy_run(c, &c->reference, &c->exact, c->noisy.count);
    VEC_PUSH(c->arena, c->noisy, run);
  }
}
#endif
