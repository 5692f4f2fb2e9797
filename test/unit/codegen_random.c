/* codegen_random: compiled CPU code against the interpreter, on random graphs: forward graphs and
 * whole training steps. And: the bits do not depend on how work is split over threads. */
#include "codegen_sim.h"
#include "ir/interp.h"
#include "passes/recompute.h"

typedef struct {
  Arena *arena;
  Diag diag;
  PassContext context;
  Graph *reference[2], *planned[2];
  HelpRun run;
  SimHelp sim; /* machine NULL: the processor runs it */
  int seed;
  DType narrow; /* F32: all is f32 */
} Case;

/* In all tests. A sum in another order can fall on the other side of a rounding to bf16 or f16:
 * then a value is off by one place of that type, and so is what follows from it. That must be rare.
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
    if (!(error <= worst)) worst = error;
    narrow_elements += c->narrow != DT_F32;
    if (error <= (want->f ? 2e-4 : 0)) continue;
    if (c->narrow != DT_F32 && error <= (c->narrow == DT_BF16 ? 0x1p-5 : 0x1p-8)) {
      narrow_flips++;
      continue;
    }
    if (getenv("FT_SEED")) graph_print(c->planned[what[0] == 'e'], stderr);
    fail_msg(
        "seed %d: %s '%s' element %lld is %.9g, the interpreter says %.9g (FT_SEED=%d shows the "
        "graph)",
        c->seed, what, name, (long long)k, x, y, c->seed);
  }
}

/* Where the value of a root lies when the step has run. */
static const char *root_place(Case *c, int which, const Root *root) {
  const Plan *plan = c->run.code.plan;
  const PlanGraph *graph = &plan->graph[which];
  for (int i = 0; i < graph->outputs.count && root->kind != ROOT_ASSIGN; i++)
    if (!strcmp(graph->outputs.at[i].name, root->name))
      return c->run.arena[graph->outputs.at[i].arena] + graph->outputs.at[i].offset;
  if (root->kind == ROOT_ASSIGN && !strcmp(root->name, "params")) return c->run.arena[ARENA_PARAMS];
  for (int i = 0; i < plan->states.count; i++)
    if (!strcmp(plan->states.at[i].name, root->name))
      return c->run.arena[ARENA_STATE] + plan->states.at[i].offset;
  return NULL;
}

/* After a step, what products read of the parameters is these, rounded. */
static void check_narrow(Case *c) {
  const Plan *plan = c->run.code.plan;
  for (int i = 0; plan->arena_bytes[ARENA_NARROW] && i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    const char *wide = c->run.arena[ARENA_PARAMS] + param->offset;
    const char *narrow = c->run.arena[ARENA_NARROW] + param->offset / 2;
    for (int64_t k = 0; k < shape_elements(&param->type.shape); k++) {
      double want = interp_round(c->narrow, help_load(wide, DT_F32, k));
      double have = help_load(narrow, c->narrow, k);
      if (want != have && !(isnan(want) && isnan(have)))
        fail_msg("seed %d: '%s' element %lld is %.9g for products, not %.9g", c->seed, param->name,
                 (long long)k, have, want);
    }
    narrow_params++;
  }
}

/* What a run leaves behind, and its bytes after the first run. */
typedef struct {
  ArenaId arena;
  int64_t offset, bytes;
  char *first;
} Span;

static void compare_roots(Case *c, int which, Tensor **values) {
  int compared = 0;
  for (int i = 0; i < c->reference[which]->roots.count; i++) {
    const Root *root = &c->reference[which]->roots.at[i];
    const char *have = root_place(c, which, root);
    if (!have) continue;
    const Tensor *want = probe_as_it_lies(c->planned[which], root->node, values[root->node->id]);
    compare(c, which ? "eval root" : "train root", root->name, have, want);
    compared++;
  }
  assert_true(compared > 0);
}

static void check_graph(Case *c, int which) {
  Probe probe = {c->arena, c->reference[which], c->context.settings, (uint64_t)c->seed};
  Probe places = {c->arena, c->planned[which], c->context.settings, (uint64_t)c->seed};
  Tensor **values = probe_run(&probe, &c->diag);
  assert_non_null(values);
  help_fill(&c->run, c->planned[which], &places);
  if (c->sim.machine)
    sim_help_execute(&c->sim, &c->run, which, false);
  else
    help_execute(&c->run, which, 1);
  compare_roots(c, which, values);
  if (which == 0) check_narrow(c);
  if (c->sim.machine) {
    int count = c->run.code.plan->graph[which].insteads.count;
    if (!count) return;
    offers += count;
    help_fill(&c->run, c->planned[which], &places);
    sim_help_execute(&c->sim, &c->run, which, true);
    compare_roots(c, which, values);
    return;
  }
  static const ArenaId kept[] = {ARENA_PARAMS, ARENA_NARROW, ARENA_GRADS, ARENA_STATE,
                                 ARENA_OUTPUT};
  VEC(Span) spans = {0};
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
    Span whole = {kept[k], 0, c->run.code.plan->arena_bytes[kept[k]], NULL};
    VEC_PUSH(c->arena, spans, whole);
  }
  const PlanGraph *graph = &c->run.code.plan->graph[which];
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    Span one = {output->arena, output->offset, type_bytes(&output->type), NULL};
    if (output->arena == ARENA_WORK) VEC_PUSH(c->arena, spans, one);
  }
  for (int k = 0; k < spans.count; k++) {
    Span *span = &spans.at[k];
    span->first = arena_alloc(c->arena, (size_t)span->bytes + 1);
    memcpy(span->first, c->run.arena[span->arena] + span->offset, (size_t)span->bytes);
  }
  for (int pieces = 2; pieces <= 7; pieces += 5) {
    help_fill(&c->run, c->planned[which], &places);
    help_execute(&c->run, which, pieces);
    for (int k = 0; k < spans.count; k++) {
      const Span *span = &spans.at[k];
      if (!memcmp(span->first, c->run.arena[span->arena] + span->offset, (size_t)span->bytes))
        continue;
      if (getenv("FT_SEED")) graph_print(c->planned[which], stderr);
      fail_msg("seed %d: %d pieces give other bits in %lld bytes at %lld of the arena %s", c->seed,
               pieces, (long long)span->bytes, (long long)span->offset, arena_text(span->arena));
    }
  }
}

/* Each pass is left out in turn, or runs in its plain form. */
static const char *const disabled[] = {
    NULL,
    "layout",
    "simplify,simplify2",
    "shapes",
    "cse,cse2",
    "dce,dce2",
    "fuse",
    "schedule",
    "narrow",
    "column_sums",
    "slope_epilogues",
    "memplan",
    "storage",
    "shapes,simplify,cse,dce,simplify2,cse2,dce2,layout,storage,fuse,schedule,memplan"};

static Program random_program(Case *c, int size) {
  return (Program){.arena = c->arena,
                   .model_name = "random",
                   .path = "random.ft",
                   .train = graph_random(c->arena, (uint64_t)c->seed, size),
                   .eval = graph_random(c->arena, (uint64_t)c->seed, size),
                   .settings = c->context.settings};
}

static int recomputed; /* graphs of which backward makes something again */
static int in_order;   /* params that lie in another order than row-major */

static void run_case(int seed, int size, bool on_sim) {
  Case c = {.arena = arena_new(), .seed = seed};
  c.context = help_context(c.arena, &c.diag);
  static const struct {
    const char *text;
    DType dtype;
  } precision[] = {{"f32", DT_F32}, {"bf16", DT_BF16}, {"f32", DT_F32}, {"fp16", DT_F16}};
  const char *why;
  c.narrow = precision[seed / 3 % 4].dtype;
  setting_set(c.arena, c.context.settings, setting_find("train.precision"),
              precision[seed / 3 % 4].text, &why);
  static const char *const recompute[] = {"none", "block", "pointwise"};
  setting_set(c.arena, c.context.settings, setting_find("train.recompute"), recompute[seed % 3],
              &why);
  PassOptions options = {.verify = true,
                         .disable = disabled[seed % (int)(sizeof disabled / sizeof *disabled)]};
  Program program = random_program(&c, size), reference = random_program(&c, size);
  if (c.narrow == DT_F32) {
    c.reference[0] = help_pass(&c.context, reference.train, to_step);
    c.reference[1] = reference.eval;
  } else { /* where values are rounded may hang on the passes before: the same ones run here */
    PassOptions first = options;
    first.stop_after = "optimizer";
    if (!passes_run(&reference, &c.diag, &first, false)) fail_msg("seed %d: passes failed", seed);
    c.reference[0] = reference.train;
    c.reference[1] = reference.eval;
  }
  if (!passes_run(&program, &c.diag, &options, on_sim)) fail_msg("seed %d: passes failed", seed);
  recomputed += recompute_describe(program.train, c.arena) != NULL;
  for (int i = 0; i < program.train->nodes.count; i++)
    in_order += node_storage(program.train->nodes.at[i]).view.rank != 0;
  c.planned[0] = program.train;
  c.planned[1] = program.eval;
  c.diag.out = stderr;
  if (on_sim)
    sim_help_compile(&c.sim, &c.run, c.arena, &c.diag, &program);
  else
    help_compile(&c.run, c.arena, &c.diag, &program);
  for (int g = 0; g < 2; g++) check_graph(&c, g);
  if (on_sim)
    sim_help_free(&c.sim, &c.run);
  else
    help_free(&c.run);
  arena_free(c.arena);
}

static void random_graphs(void **state) {
  (void)state;
  const char *only = getenv("FT_SEED");
  int count = help_random_count(120);
  for (int seed = only ? atoi(only) : 0; seed < (only ? atoi(only) + 1 : count); seed++)
    run_case(seed, 4 + seed % 30, false);
  print_message("%d make values again in backward; %d params in another order\n", recomputed,
                in_order);
  if (!only) {
    print_message("bf16 and fp16: %lld of %lld values fell on the other side of a rounding\n",
                  (long long)narrow_flips, (long long)narrow_elements);
    assert_true(recomputed > count / 6);
    assert_true(in_order > count / 20);
    assert_true(narrow_elements > 1000);
    assert_true(narrow_params > 20);
    /* f16 has 2^13 places of f32 to one of its own, so results that are wrong by a place of f32
     * fall otherwise once in 4000 times: two places, through attention and long sums. One in 3300
     * to 4200 is measured (the graphs are other ones for other compilers); truncating instead, 164
     * of 88208. */
    assert_true(narrow_flips * 2000 < narrow_elements);
  }
}

/* The same graphs as PTX, in the simulator; once more with what the library may do done by it. */
static void random_graphs_on_sim(void **state) {
  (void)state;
  const char *only = getenv("FT_SEED");
  int count = help_random_count(20);
  for (int seed = only ? atoi(only) : 0; seed < (only ? atoi(only) + 1 : count); seed++)
    run_case(seed, 4 + seed % 30, true);
  print_message("%d calls in place of launches\n", offers);
  if (!only) assert_true(offers > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs),
                                     cmocka_unit_test(random_graphs_on_sim)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
