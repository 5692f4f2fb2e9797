/* codegen_random: compiled code against the interpreter, on random graphs: forward graphs and whole
 * training steps, for the CPU and, in the simulator, for GPUs. Everything that --disable takes is
 * left out in turn, of graphs in which that changes the code. And: on the CPU the bits do not
 * depend on how work is split over threads. */
#include "codegen_sim.h"
#include "ir/interp.h"
#include "ir/scalar.h"
#include "passes/recompute.h"
#include "test/random/graph.h"
#include "test/random/noise.h"

typedef enum { ON_CPU, ON_AMPERE, ON_HOPPER, MACHINES } Machine;
static const CodegenOptions machines[MACHINES] = {
    {.target = TARGET_CPU}, {.target = TARGET_PTX}, {.target = TARGET_PTX, .gpu = "sm_90a"}};
typedef struct {
  int seed;
  Machine machine;
  const char *without; /* as --disable takes it; NULL: nothing is left out */
} Form;

typedef struct {
  Form form;
  Arena *arena;
  Diag diag;
  PassContext context;
  Program program;
  Graph *reference[2], *planned[2];
  HelpRun run;
  SimHelp sim;
  int seed;
  DType narrow; /* F32: all is f32 */
  bool is_counted; /* of the root at hand, how many values fall on the other side of a rounding */
} Case;

#define FORM_TEXT "seed %d on machine %d without %s"
#define FORM_ARGS(form) (form).seed, (form).machine, (form).without ? (form).without : "nothing"
/* To see it again: FT_SEED=, FT_MACHINE= and FT_WITHOUT= as it says. Then the graphs are printed.
 */
#define fail_case(c, format, ...)                                                                  \
  do {                                                                                             \
    if (getenv("FT_SEED"))                                                                         \
      for (int g = 0; g < 2; g++) graph_print((c)->planned[g], stderr);                            \
    fail_msg(FORM_TEXT ": " format, FORM_ARGS((c)->form), __VA_ARGS__);                            \
  } while (0)

/* In all tests. A sum in another order can fall on the other side of a rounding to bf16 or f16:
 * then a value is off by one place of that type, and so is what follows from it. That must be rare,
 * except behind attention: units that multiply 16 bits round its weights (attention_pairs.h).
 */
static int64_t narrow_elements, narrow_flips, narrow_params;
static int offers; /* of calls in place of launches that were made */

static void compare(Case *c, const char *what, const char *name, const char *have,
                    const Tensor *want) {
  double worst = 0;
  for (int64_t k = 0; k < shape_elements(&want->type.shape); k++) {
    double x = help_load(have, want->type.dtype, k);
    double y = want->f ? want->f[k] : (double)want->i[k];
    double error = x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y) / fmax(1, fabs(y));
    if (isnan(error) || error > worst) worst = error;
    narrow_elements += c->is_counted;
    if (error <= (want->f ? 2e-4 : 0)) continue;
    if (c->narrow != DT_F32 && error <= (c->narrow == DT_BF16 ? 0x1p-5 : 0x1p-8)) {
      narrow_flips += c->is_counted;
      continue;
    }
    fail_case(c, "%s '%s' element %lld is %.9g, the interpreter says %.9g", what, name,
              (long long)k, x, y);
  }
}

/* After a step, what products read of the parameters is these, rounded. */
static void check_narrow(Case *c) {
  const Plan *plan = c->run.code.plan;
  for (int i = 0; plan->places.at[PLACE_NARROW].bytes && i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    const char *wide = c->run.memory[PLACE_PARAMS] + param->offset;
    const char *narrow = c->run.memory[PLACE_NARROW] + param->offset / 2;
    for (int64_t k = 0; k < shape_elements(&param->type.shape); k++) {
      double want = dtype_round(c->narrow, help_load(wide, DT_F32, k));
      double have = help_load(narrow, c->narrow, k);
      if (want != have && !(isnan(want) && isnan(have)))
        fail_case(c, "'%s' element %lld is %.9g for products, not %.9g", param->name, (long long)k,
                  have, want);
    }
    narrow_params++;
  }
}

static const Node *find_pack(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PACK) return graph->nodes.at[i];
  return NULL;
}

/* Leaves as ever, each operation's result moved by what rounding may: noise.h. */
typedef struct {
  Probe probe;
  Noise noise;
} Moved;
static const Tensor *moved_leaf(const Node *leaf, void *context) {
  return probe_leaf(leaf, &((Moved *)context)->probe);
}
static void moved_after(const Node *node, const Tensor *const *inputs, Tensor *value,
                        void *context) {
  noise_after(node, inputs, value, &((Moved *)context)->noise);
}

/* How far arithmetic in the types of the graph may move each gradient: where sums cancel, where it
 * decides on which side of a kink a value lies, and where it rounds to 16 bits. */
static double *find_noise(Case *c, const Node *pack, const double *want, int turns) {
  const Graph *graph = c->reference[0];
  int64_t count = shape_elements(&pack->type.shape);
  double *noise = ARENA_ARRAY(c->arena, double, count);
  for (int turn = 0; turn < turns; turn++) {
    Moved moved = {{c->arena, graph, c->context.settings, (uint64_t)c->seed},
                   {.arena = c->arena, .state = (uint64_t)turn * 7919 + 1, .is_common = turn % 2}};
    Tensor **values = ARENA_ARRAY(c->arena, Tensor *, graph->nodes.count);
    assert_true(graph_interpret_changed(graph, c->arena, moved_leaf, moved_after, &moved, values,
                                        &c->diag));
    for (int64_t k = 0; k < count; k++)
      noise[k] = fmax(noise[k], fabs(values[pack->id]->f[k] - want[k]));
  }
  return noise;
}

/* The param whose gradient is wrong by more than rounding explains; NULL: there is none. */
static const PlanTensor *wrong_gradient(Case *c, const double *want, const double *moved,
                                        double *scale, double *worst) {
  enum { SURE = 8 }; /* how often the noise that was seen the noise that there is may be */
  const Plan *plan = c->run.code.plan;
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    int64_t first = param->offset / 4, end = first + shape_elements(&param->type.shape);
    double noise = 0;
    *scale = *worst = 0;
    for (int64_t k = first; k < end; k++) {
      double error = fabs(help_load(c->run.memory[PLACE_GRADS], DT_F32, k) - want[k]);
      *scale = fmax(*scale, fabs(want[k]));
      noise = fmax(noise, moved[k]); /* in whatever order */
      if (isnan(error) || error > *worst) *worst = error;
    }
    if (!(*worst <= SURE * noise + NOISE_PLAIN * *scale)) return param;
  }
  return NULL;
}

/* Gradients are small, and each parameter's have a scale of their own. */
static void check_gradients(Case *c, Tensor *const *values) {
  enum { TURNS = 4, MORE_TURNS = 40 };
  const Node *pack = find_pack(c->reference[0]);
  if (!pack) return;
  const double *plain = values[pack->id]->f;
  const double *want = probe_as_it_lies(c->planned[0], pack, values[pack->id])->f;
  double scale, worst;
  const PlanTensor *wrong =
      wrong_gradient(c, want, find_noise(c, pack, plain, TURNS), &scale, &worst);
  if (wrong)
    wrong = wrong_gradient(c, want, find_noise(c, pack, plain, MORE_TURNS), &scale, &worst);
  if (wrong)
    fail_case(c, "the gradient of '%s', at most %.3g, is wrong by %.3g", wrong->name, scale, worst);
}

/* What a run leaves behind, and its bytes after the first run. */
typedef struct {
  StandardPlace place;
  int64_t offset, bytes;
  char *first;
} Span;

/* By the number of a node: whether attention is among what it is computed from. */
static bool *find_behind_attention(Arena *arena, const Graph *graph) {
  bool *is_behind = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) { /* operands come first */
    const Node *node = graph->nodes.at[i];
    bool is = node->op == OP_ATTENTION;
    for (int k = 0; k < node->input_count; k++) is |= is_behind[node->input[k]->id];
    is_behind[node->id] = is;
  }
  return is_behind;
}

static void compare_roots(Case *c, int which, Tensor **values) {
  int compared = 0;
  const bool *is_behind = find_behind_attention(c->arena, c->reference[which]);
  for (int i = 0; i < c->reference[which]->roots.count; i++) {
    const Root *root = &c->reference[which]->roots.at[i];
    const char *have = help_root_place(&c->run, which, root);
    if (!have) continue;
    const Tensor *want = values[root->node->id];
    c->is_counted = c->narrow != DT_F32 && !is_behind[root->node->id];
    if (root->kind == ROOT_ASSIGN) /* what is shown is in row-major order, also a param itself */
      want = probe_as_it_lies(c->planned[which], root->node, want);
    compare(c, which ? "eval root" : "train root", root->name, have, want);
    compared++;
  }
  assert_true(compared > 0);
}

static void check_graph(Case *c, int which) {
  Probe probe = {.arena = c->arena,
                 .graph = c->reference[which],
                 .settings = c->context.settings,
                 .seed = (uint64_t)c->seed,
                 .one_batch = true};
  Probe places = probe;
  places.graph = c->planned[which];
  Tensor **values = probe_run(&probe, &c->diag);
  assert_non_null(values);
  help_fill(&c->run, c->planned[which], &places);
  if (c->sim.machine)
    sim_help_execute(&c->sim, &c->run, which, false);
  else
    help_execute(&c->run, which, 1);
  compare_roots(c, which, values);
  if (which == 0) check_gradients(c, values);
  if (which == 0) check_narrow(c);
  if (c->sim.machine) {
    int count = c->run.code.plan->graphs.at[which].insteads.count;
    if (!count) return;
    offers += count;
    help_fill(&c->run, c->planned[which], &places);
    sim_help_execute(&c->sim, &c->run, which, true);
    compare_roots(c, which, values);
    return;
  }
  static const StandardPlace kept[] = {PLACE_PARAMS, PLACE_NARROW, PLACE_GRADS, PLACE_STATE,
                                       PLACE_OUTPUT};
  VEC(Span) spans = {0};
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
    Span whole = {kept[k], 0, c->run.code.plan->places.at[kept[k]].bytes, NULL};
    VEC_PUSH(c->arena, spans, whole);
  }
  const PlanGraph *graph = &c->run.code.plan->graphs.at[which];
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    Span one = {output->place, output->offset, type_bytes(&output->type), NULL};
    if (output->place == PLACE_WORK) VEC_PUSH(c->arena, spans, one);
  }
  for (int k = 0; k < spans.count; k++) {
    Span *span = &spans.at[k];
    span->first = arena_alloc(c->arena, (size_t)span->bytes + 1);
    memcpy(span->first, c->run.memory[span->place] + span->offset, (size_t)span->bytes);
  }
  for (int pieces = 2; pieces <= 7; pieces += 5) {
    help_fill(&c->run, c->planned[which], &places);
    help_execute(&c->run, which, pieces);
    for (int k = 0; k < spans.count; k++) {
      const Span *span = &spans.at[k];
      if (!memcmp(span->first, c->run.memory[span->place] + span->offset, (size_t)span->bytes))
        continue;
      fail_case(c, "%d pieces give other bits in %lld bytes at %lld of the arena %s", pieces,
                (long long)span->bytes, (long long)span->offset, standard_place_text(span->place));
    }
  }
}

/* ── one graph, compiled and checked ────────────────────────────────────────────────────────── */
static void set(Case *c, const char *key, const char *value) {
  const char *why;
  assert_true(setting_set(c->arena, c->context.settings, setting_find(key), value, &why));
}

static void case_open(Case *c, Form form) {
  static const struct {
    const char *text;
    DType dtype;
  } precision[] = {{"f32", DT_F32}, {"bf16", DT_BF16}, {"f32", DT_F32}, {"fp16", DT_F16}};
  static const char *const recompute[] = {"none", "block", "pointwise"};
  static const char *const optimizer[] = {"sgd", "adam", "adamw"};
  *c = (Case){.form = form, .arena = arena_new(), .seed = form.seed};
  c->context = help_context(c->arena, &c->diag, form.seed);
  c->narrow = precision[form.seed / 3 % 4].dtype;
  set(c, "train.precision", precision[form.seed / 3 % 4].text);
  set(c, "train.recompute", recompute[form.seed % 3]);
  set(c, "train.optimizer", optimizer[form.seed / 2 % 3]);
}

static Graph *random_graph(const Case *c) {
  uint64_t seed = (uint64_t)c->seed;
  return graph_random(c->arena, seed, 4 + c->seed % 30);
}

/* After the passes up to this one (NULL: all). */
static Program planned(Case *c, const char *without, const char *stop_after) {
  Program program = {.arena = c->arena,
                     .model_name = "random",
                     .path = "random.ft",
                     .train = random_graph(c),
                     .eval = random_graph(c),
                     .settings = c->context.settings};
  PassOptions options = {.verify = true, .disable = without, .stop_after = stop_after};
  if (!passes_run(&program, &c->diag, &options, c->form.machine != ON_CPU))
    fail_msg(FORM_TEXT ": passes failed", FORM_ARGS(c->form));
  return program;
}

static void refer(Case *c) {
  if (c->narrow == DT_F32) {
    c->reference[0] = help_pass(&c->context, random_graph(c), to_step);
    c->reference[1] = random_graph(c);
  } else { /* where values are rounded may hang on the passes before: the same ones run here */
    Program program = planned(c, c->form.without, "optimizer");
    c->reference[0] = program.train;
    c->reference[1] = program.eval;
  }
}

static void compile(Case *c) {
  CodegenOptions options = machines[c->form.machine];
  options.disable = c->form.without;
  options.check_memory = getenv("FT_CHECK_MEMORY") != NULL && options.target == TARGET_CPU;
  /* of every second LLVM does little, which takes half the time: ft's own work is the same */
  options.is_quick = options.target == TARGET_CPU && c->form.seed % 2;
  c->program = planned(c, c->form.without, NULL);
  c->planned[0] = c->program.train;
  c->planned[1] = c->program.eval;
  FILE *quiet = c->diag.out;
  c->diag.out = stderr;
  if (c->form.machine == ON_CPU)
    help_compile(&c->run, c->arena, &c->diag, &c->program, &options);
  else
    sim_help_compile(&c->sim, &c->run, c->arena, &c->diag, &c->program, &options);
  c->diag.out = quiet;
}

static void check(Case *c) {
  refer(c);
  for (int g = 0; g < 2; g++) check_graph(c, g);
}

static void case_close(Case *c) {
  if (c->form.machine == ON_CPU)
    help_free(&c->run);
  else
    sim_help_free(&c->sim, &c->run);
  arena_free(c->arena);
}

/* ── what is left out ───────────────────────────────────────────────────────────────────────── */
static int recomputed; /* graphs of which backward recomputes something */
static int in_order;   /* params that lie in another order than row-major */

static void run(const Form *form) {
  Case c;
  case_open(&c, *form);
  compile(&c);
  check(&c);
  recomputed += recompute_describe(c.program.train, c.arena) != NULL;
  for (int i = 0; i < c.program.train->nodes.count; i++)
    in_order += node_storage(c.program.train->nodes.at[i]).view.rank != 0;
  case_close(&c);
}

/* Which passes do anything to the graphs of a form that leaves nothing out. */
typedef struct {
  Arena *arena;
  const Program *program;
  const char *text[2]; /* of train and eval, behind the pass before */
  uint64_t changing;   /* a bit for each pass */
} Changes;

static int pass_number(const char *name) {
  int pass = 0;
  while (pass < pass_count && strcmp(pass_info[pass].name, name)) pass++;
  return pass;
}

static void note_change(void *user, const char *name, const Graph *graph) {
  Changes *changes = user;
  int which = graph == changes->program->eval;
  if (graph != changes->program->train && !which) return;
  const char *text = graph_to_text(graph, changes->arena), *before = changes->text[which];
  if (before && strcmp(text, before)) changes->changing |= UINT64_C(1) << pass_number(name);
  changes->text[which] = text;
}

/* Each seed is asked about for many passes: the last answers are kept. */
static uint64_t changing_passes(const Form *form) {
  enum { KEPT = 256 };
  static struct {
    Form of;
    bool is_known;
    uint64_t changing;
  } kept[MACHINES][KEPT];
  int at = form->seed % KEPT;
  if (kept[form->machine][at].is_known && kept[form->machine][at].of.seed == form->seed)
    return kept[form->machine][at].changing;
  Case c;
  case_open(&c, *form);
  Program program = {.arena = c.arena, .model_name = "random", .path = "random.ft"};
  program.settings = c.context.settings;
  program.train = random_graph(&c);
  program.eval = random_graph(&c);
  Changes changes = {.arena = c.arena, .program = &program};
  PassOptions options = {.observe = note_change, .observe_user = &changes}; /* run() verifies */
  if (!passes_run(&program, &c.diag, &options, form->machine != ON_CPU))
    fail_msg("seed %d on machine %d: passes failed", form->seed, form->machine);
  arena_free(c.arena);
  kept[form->machine][at].of = *form;
  kept[form->machine][at].is_known = true;
  return kept[form->machine][at].changing = changes.changing;
}

/* Does the pass that the form leaves out do anything to its graphs? */
static bool is_seen(const Form *form) {
  int pass = pass_number(form->without);
  if (pass == 0 || pass == pass_count) return false; /* decode has graphs of its own */
  return changing_passes(form) >> pass & 1;
}

/* The next form, of those that begin with the given one, of which the pass changes a graph; the
 * given one if it is not to be found. */
static Form next_seen(Form form) {
  enum { TRIES = 40 };
  Form next = form;
  for (int i = 0; i < TRIES; i++, next.seed++)
    if (is_seen(&next)) return next;
  return form;
}

static char *everything(Arena *arena) {
  char *all = arena_strdup(arena, pass_optional(0));
  for (int i = 1; pass_optional(i); i++) all = arena_printf(arena, "%s,%s", all, pass_optional(i));
  return all;
}

/* Nothing, each pass, and everything: so many rounds of it. Returns the number of forms that were run. */
static int leave_out_in_turn(Machine machine, int rounds) {
  Arena *arena = arena_new();
  Form form = {.machine = machine};
  int number = 0, count = 0;
  for (int round = 0; round < rounds; round++) {
    const char *all = everything(arena), *name;
    const char *const whole[] = {NULL, NULL, NULL, all};
    for (int i = 0; i < 4; i++) {
      form.without = whole[i];
      if (help_has_its_turn(number++)) run(&form), count++;
      form.seed++;
    }
    for (int i = 0; (name = pass_optional(i)); i++) {
      form.without = name;
      Form next = next_seen(form);
      if (help_has_its_turn(number++)) run(&next), count++;
      form.seed = next.seed + 1;
    }
  }
  arena_free(arena);
  return count;
}

static void random_graphs(void **state) {
  (void)state;
  int count = leave_out_in_turn(ON_CPU, help_random_count(2));
  print_message("%d of %d recompute values in backward; %d params in another order\n", recomputed,
                count, in_order);
  print_message("bf16 and fp16: %lld of %lld values fell on the other side of a rounding\n",
                (long long)narrow_flips, (long long)narrow_elements);
  assert_true(count > 0 && narrow_flips * 2000 <= narrow_elements);
  if (help_has_turns()) return; /* the rest is about all of them */
  assert_true(recomputed > count / 6);
  assert_true(in_order > count / 20);
  assert_true(narrow_elements > 1000);
  assert_true(narrow_params > 20);
  /* f16 has 2^13 places of f32 to one of its own, so results that are wrong by a place of f32
   * fall otherwise once in 4000 times; truncating instead, 164 of 88208. */
  assert_true(narrow_flips * 2000 < narrow_elements);
}

/* The same as PTX, in the simulator; once more with what the library may do done by it. */
static void random_graphs_on_sim(void **state) {
  (void)state;
  leave_out_in_turn(ON_AMPERE, help_random_count(1));
  print_message("%d calls in place of launches\n", offers);
  assert_true(help_has_turns() || offers > 10);
}

static void one_form(void **state) {
  (void)state;
  const char *machine = getenv("FT_MACHINE");
  run(&(Form){atoi(getenv("FT_SEED")), (Machine)(machine ? atoi(machine) : 0),
              getenv("FT_WITHOUT")});
}

int main(void) {
  const struct CMUnitTest one[] = {cmocka_unit_test(one_form)};
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs),
                                     cmocka_unit_test(random_graphs_on_sim)};
  if (getenv("FT_SEED")) return cmocka_run_group_tests(one, NULL, NULL);
  cmocka_set_test_filter(getenv("FT_TEST"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
