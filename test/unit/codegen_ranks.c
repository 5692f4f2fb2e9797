/* codegen_ranks: what ranks do together, compiled and run on the CPU device, against the interpreter
 * of several ranks (graph_interpret_ranks). Random training steps in which values are exchanged by
 * collectives, forward and so backward. Ranks are threads of this process over an engine of the
 * test's; `unit_codegen_ranks DATA PIPELINE TENSOR`, started by mpirun, is one of the ranks of this
 * mesh, over MPI (test/e2e/ranks.py). */
#include "codegen_help.h"
#include "plan/plan_beside.h"
#include "runtime/communicate/comm_private.h"
#include "runtime/device/dev.h"
#include "test/random/graph.h"
#include <pthread.h>

enum { MOST_RANKS = 4 };

/* ── graphs ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  uint64_t state;
  const Mesh *mesh;
  int count[OP_COUNT]; /* collectives that were put in */
} Exchange;

static int draw(Exchange *e, int below) {
  e->state = e->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((e->state >> 33) % (uint64_t)below);
}

static int64_t all_elements(const Type *type) { return shape_elements(&type->shape); }

static MeshAxis draw_axis(Exchange *e) { return (MeshAxis)draw(e, MESH_TENSOR + 1); }

static Node *collective(Exchange *e, Graph *graph, Op op, Op by, Node *x, MeshAxis axis) {
  Attr attrs[] = {attr_str(ATTR_OVER, mesh_axis_text(axis)),
                  attr_int(ATTR_RANKS, mesh_size(e->mesh, axis)),
                  attr_int(ATTR_ROOT, draw(e, mesh_size(e->mesh, axis))),
                  attr_str(ATTR_REDUCTION, op_info[by].text)};
  Attr used[4];
  int count = 0;
  for (int i = 0; i < 4; i++)
    if (op_info[op].attrs >> attrs[i].id & 1) used[count++] = attrs[i];
  e->count[op]++;
  return graph_node(graph, op, &x, 1, used, count, NULL);
}

/* x of one of the ranks. */
static Node *of_one_rank(Exchange *e, Graph *graph, Node *x) {
  MeshAxis axis = draw_axis(e);
  int64_t start[MAX_RANK] = {draw(e, mesh_size(e->mesh, axis)) * x->type.shape.dim[0]};
  Node *all = collective(e, graph, OP_ALL_GATHER, OP_SUM, x, axis);
  return make_slice(graph, all, start, x->type.shape);
}

/* The extreme of all ranks' x, of each element; rank r gets that of part r. */
static Node *extreme(Exchange *e, Graph *graph, Node *x, Op op) {
  Node *parts[MOST_RANKS];
  MeshAxis axis = draw_axis(e);
  Attr first = attr_int(ATTR_AXIS, 0);
  int size = mesh_size(e->mesh, axis);
  for (int r = 0; r < size; r++) parts[r] = r % 2 ? make_unary(graph, OP_NEG, x) : x;
  Node *whole = graph_node(graph, OP_CONCAT, parts, size, &first, 1, NULL);
  return collective(e, graph, OP_REDUCE_SCATTER, op, whole, axis);
}

/* x of one of the ranks, the same one for all or in each part another one. */
static Node *swapped(Exchange *e, Graph *graph, Node *x) {
  MeshAxis axis = draw_axis(e);
  int64_t rows = x->type.shape.rank ? x->type.shape.dim[0] : 1, size = mesh_size(e->mesh, axis);
  bool is_cut = x->type.shape.rank && rows % size == 0 && draw(e, 2);
  return collective(e, graph, is_cut ? OP_ALL_TO_ALL : OP_BROADCAST_FROM, OP_SUM, x, axis);
}

/* x of the rank before; of the first one its own. */
static Node *passed_on(Exchange *e, Graph *graph, Node *x) {
  MeshAxis axis = draw_axis(e);
  int size = mesh_size(e->mesh, axis);
  Node *rank = make_rank(graph, axis);
  for (int to = 1; to < size; to++) {
    Attr attrs[] = {attr_int(ATTR_FROM, to - 1), attr_int(ATTR_TO, to),
                    attr_str(ATTR_OVER, mesh_axis_text(axis))};
    Node *made = graph_node(graph, OP_TRANSFER, &x, 1, attrs, 3, NULL);
    Node *is_there = make_binary(graph, OP_EQ, rank, make_like(graph, rank, to));
    e->count[OP_TRANSFER]++;
    x = make_select(graph, is_there, made, x);
  }
  return x;
}

/* What a node's readers see in its place, of the same type: elements of one of the ranks each, so
 * that the random graph's promises of its values hold. */
static Node *exchanged(Exchange *e, Graph *graph, Node *x) {
  bool has_parts = x->type.shape.rank && all_elements(&x->type);
  Op op = draw(e, 2) ? OP_RMAX : OP_RMIN;
  switch (draw(e, 5)) {
  case 3:
    return passed_on(e, graph, x);
  case 2:
    return swapped(e, graph, x);
  case 0:
    if (has_parts) return of_one_rank(e, graph, x);
    break;
  case 1:
    if (has_parts && dtype_is_float(x->type.dtype)) return extreme(e, graph, x, op);
    break;
  }
  if (x->type.dtype == DT_BOOL) return x;
  return make_result(graph, collective(e, graph, OP_ALL_REDUCE, op, x, draw_axis(e)), 0);
}

static Node *exchange_some(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Exchange *e = context;
  if (old->op == OP_ASSIGN || node_has_results(old) || draw(e, 4)) return NULL;
  return exchanged(e, fresh, graph_copy_node(fresh, old, inputs));
}

static int exchanges[OP_COUNT];

static Graph *ranks_graph(Arena *arena, int seed, const Mesh *mesh) {
  Exchange e = {.state = (uint64_t)seed * 31 + 7, .mesh = mesh};
  Graph *graph =
      graph_rewrite(graph_random(arena, (uint64_t)seed, 4 + seed % 30), exchange_some, &e);
  for (int op = 0; op < OP_COUNT; op++) exchanges[op] += e.count[op];
  return graph;
}

/* ── a rank ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  CommPlace place;
  Mesh mesh;
  Comm *comm; /* NULL: it opens its own, over the test's engine */
  HelpRun run;
  const Artifact *artifact;
  Status status;
  char message[1024];
} Rank;

static Status run_graph(Rank *rank, Comm *comm) {
  DeviceOptions options = {.threads = 1 + rank->place.rank % 2, .comm = comm};
  char *base[HELP_PLACES];
  Device *device;
  DeviceGraph *graph;
  memcpy(base, rank->run.memory, sizeof base);
  base[plan_batch_place(rank->artifact->plan)] = NULL;
  STATUS_TRY(dev_cpu.open(rank->artifact, &options, &device));
  Status status = dev_cpu.bind(device, rank->artifact, 0, base, &graph);
  if (status == STATUS_OK) {
    status = dev_cpu.run(graph, rank->run.memory[plan_batch_place(rank->artifact->plan)]);
    if (status == STATUS_OK) status = dev_cpu.sync(device);
    dev_cpu.unbind(graph);
  }
  dev_cpu.close(device);
  return status;
}

static void *rank_main(void *argument) {
  Rank *rank = argument;
  CommOptions options = {.timeout = 60, .library = FT_FAKE_ENGINE, .mesh = rank->mesh};
  Comm *comm = rank->comm;
  rank->status =
      comm || rank->place.ranks == 1 ? STATUS_OK : comm_open_at(&rank->place, &options, &comm);
  if (rank->status == STATUS_OK) rank->status = run_graph(rank, comm);
  if (rank->status != STATUS_OK)
    snprintf(rank->message, sizeof rank->message, "%s", status_message());
  if (!rank->comm) comm_close(comm, rank->status);
  return NULL;
}

/* ── a case ───────────────────────────────────────────────────────────────────────────────── */
static Comm *world; /* over MPI; NULL: ranks are threads */
static Mesh world_mesh;

typedef struct {
  int seed, ranks;
  Mesh mesh;
  bool is_narrow; /* bf16 */
  Arena *arena;
  Diag diag;
  PassContext context;
  Graph *reference, *planned;
  Probe probe[MOST_RANKS];
  Tensor **values[MOST_RANKS];
  Rank rank[MOST_RANKS];
} Case;

static void set(Case *c, const char *key, const char *value) {
  const char *why;
  assert_true(setting_set(c->arena, c->context.settings, setting_find(key), value, &why));
}

/* Those of the case, and which of each group the rank is. */
static SettingValue *settings_of(const Case *c, int rank) {
  size_t bytes = sizeof(SettingValue) * (size_t)setting_count;
  SettingValue *own = memcpy(arena_alloc(c->arena, bytes), c->context.settings, bytes);
  for (MeshAxis axis = MESH_ALL; axis <= MESH_TENSOR; axis++) {
    const char *key = axis ? arena_printf(c->arena, "distributed.%s_rank", mesh_axis_text(axis))
                           : "distributed.rank";
    own[setting_find(key)].number = mesh_index(&c->mesh, axis, rank);
  }
  return own;
}

static void interpret(Case *c) {
  void *context[MOST_RANKS];
  for (int r = 0; r < c->ranks; r++) {
    c->probe[r] = (Probe){.arena = c->arena,
                          .graph = c->reference,
                          .settings = settings_of(c, r),
                          .seed = (uint64_t)(c->seed * MOST_RANKS + r)};
    c->values[r] = ARENA_ARRAY(c->arena, Tensor *, c->reference->nodes.count);
    context[r] = &c->probe[r];
  }
  assert_true(graph_interpret_mesh(c->reference, c->arena, probe_leaf, context, &c->mesh, c->values,
                                   &c->diag));
}

static void compare(const Case *c, const Rank *rank) {
  for (int i = 0; i < c->reference->roots.count; i++) {
    const Root *root = &c->reference->roots.at[i];
    const char *have = help_root_place(&rank->run, 0, root);
    if (!have) continue;
    const Tensor *want = c->values[rank->place.rank][root->node->id];
    if (root->kind == ROOT_ASSIGN) want = probe_as_it_lies(c->planned, root->node, want);
    for (int64_t k = 0; k < all_elements(&want->type); k++) {
      double x = help_load(have, want->type.dtype, k),
             y = want->f ? want->f[k] : (double)want->i[k];
      double error = x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y) / fmax(1, fabs(y));
      if (error <= (!want->f ? 0 : c->is_narrow ? 0x1p-5 : 2e-4)) continue;
      if (getenv("FT_SEED")) graph_print(c->planned, stderr);
      fail_msg("seed %d, rank %d of %d: '%s' element %lld is %.9g, the interpreter says %.9g",
               c->seed, rank->place.rank, c->ranks, root->name, (long long)k, x, y);
    }
  }
}

static void open_rank(Case *c, Rank *rank, int r, const HelpRun *compiled) {
  const Plan *plan = compiled->code.plan;
  Probe places = c->probe[r];
  places.graph = c->planned;
  *rank = (Rank){.place = {r, c->ranks, r, c->ranks, "a test"},
                 .mesh = c->mesh,
                 .comm = world,
                 .run = *compiled};
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
    rank->run.memory[a] = aligned_alloc(64, ((size_t)plan->places.at[a].bytes + 127) / 64 * 64);
  help_place_windows(&rank->run);
  help_fill(&rank->run, c->planned, &places);
}

/* What the plan begins is what its reader takes. */
static void check_begins(const Case *c, const Plan *plan) {
  const PlanGraph *graph = &plan->graphs.at[0];
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    const char *why = "", *keys = "";
    if (step->kind != STEP_BEGIN) continue;
    for (int k = 0; k < step->int_count; k++)
      keys = arena_printf(c->arena, "%s%s%s", keys, k ? " " : "", step->ints[k].key);
    assert_string_equal(keys, beside_attributes(step->name));
    if (!beside_check(c->arena, step, graph->buffers.at, &why))
      fail_msg("seed %d: %s", c->seed, why);
  }
}

/* All of them; over MPI the one that this process is. */
static void run_ranks(Case *c, const HelpRun *compiled) {
  int first = world ? comm_rank(world) : 0, end = world ? first + 1 : c->ranks;
  pthread_t thread[MOST_RANKS];
  Artifact *artifact;
  check_begins(c, compiled->code.plan);
  assert_int_equal(artifact_from_plan(compiled->code.plan, compiled->library, &artifact),
                   STATUS_OK);
  for (int r = first; r < end; r++) {
    open_rank(c, &c->rank[r], r, compiled);
    c->rank[r].artifact = artifact;
    assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &c->rank[r]), 0);
  }
  for (int r = first; r < end; r++) pthread_join(thread[r], NULL);
  for (int r = first; r < end; r++) {
    if (c->rank[r].status != STATUS_OK)
      fail_msg("seed %d, rank %d of %d: %s", c->seed, r, c->ranks, c->rank[r].message);
    compare(c, &c->rank[r]);
    for (int a = 0; a < STANDARD_PLACE_COUNT; a++) free(c->rank[r].run.memory[a]);
  }
  artifact_close(artifact);
}

/* After the passes up to this one (NULL: all). */
static Program planned(Case *c, const char *stop_after) {
  Program program = {.arena = c->arena,
                     .model_name = "random",
                     .path = "random.ft",
                     .train = ranks_graph(c->arena, c->seed, &c->mesh),
                     .eval = ranks_graph(c->arena, c->seed, &c->mesh),
                     .settings = c->context.settings};
  PassOptions options = {.verify = true, .disable = getenv("FT_WITHOUT"), .stop_after = stop_after};
  if (!passes_run(&program, &c->diag, &options, false)) fail_msg("seed %d: passes failed", c->seed);
  return program;
}

static void check(int seed, Mesh mesh) {
  static const char *const recompute[] = {"none", "block", "pointwise"};
  Case c = {.seed = seed, .ranks = mesh_ranks(&mesh), .mesh = mesh, .arena = arena_new()};
  c.is_narrow = world && seed % 2; /* the test's engine has no 16 bits */
  c.context = help_context(c.arena, &c.diag, seed);
  set(&c, "train.optimizer", "sgd");
  set(&c, "train.schedule", "constant");
  set(&c, "train.lr", "1");
  set(&c, "train.recompute", recompute[seed % 3]);
  set(&c, "train.precision", c.is_narrow ? "bf16" : "f32");
  c.reference = c.is_narrow
                    ? planned(&c, "optimizer").train /* where values are rounded hangs on these */
                    : help_pass(&c.context, ranks_graph(c.arena, seed, &mesh), to_step);
  interpret(&c);
  Program program = planned(&c, NULL);
  c.planned = program.train;
  HelpRun compiled = {0};
  help_compile(&compiled, c.arena, &c.diag, &program, &(CodegenOptions){.target = TARGET_CPU});
  run_ranks(&c, &compiled);
  help_free(&compiled);
  arena_free(c.arena);
}

static void random_steps(void **state) {
  (void)state;
  const char *one = getenv("FT_SEED");
  static const Mesh meshes[] = {{2, 1, 2}, {2, 1, 1}, {1, 2, 2}, {1, 1, 3}, {1, 1, 1}, {4, 1, 1}};
  int count = help_random_count(world ? 6 : 16);
  for (int seed = one ? atoi(one) : 0; seed < (one ? atoi(one) + 1 : count); seed++)
    check(seed, world ? world_mesh : meshes[seed % 6]);
  for (int op = 0; op < OP_COUNT && !one; op++)
    if (op_has((Op)op, TRAIT_RANKS) && !op_is_message((Op)op)) { /* of stages: passes_ranks */
      print_message("%d %s\n", exchanges[op], op_info[op].text);
      assert_true(exchanges[op] > 10);
    }
}

/* What does not read what a collective gives, and stands before the first that does, runs while it
 * goes on: its operand keeps its bytes so long. */
static void goes_on_beside(void **state) {
  static const char source[] = "graph \"train\" {\n"
                               "  %x = input {name=\"x\"} : f32[64,64]\n"
                               "  %w = param {name=\"w\", init=\"zeros\"} : f32[64,64]\n"
                               "  %a = exp %x : f32[64,64]\n"
                               "  %g = all_gather %a {ranks=2} : f32[128,64]\n"
                               "  %z = input {name=\"z\"} : f32[64,64]\n"
                               "  %p = dot %z, %w : f32[64,64]\n"
                               "  %t = tanh %p : f32[64,64]\n"
                               "  %q = dot %t, %w : f32[64,64]\n"
                               "  %u = mul %q, %q : f32[64,64]\n"
                               "  %h = slice %g {start=[32,0]} : f32[64,64]\n"
                               "  %m = mul %u, %h : f32[64,64]\n"
                               "  %s = sum %m {axes=[0,1]} : f32[1,1]\n"
                               "  %l = reshape %s : f32[]\n"
                               "  loss \"loss\" %l\n}\n";
  (void)state;
  Case c = {.arena = arena_new()};
  c.context = help_context(c.arena, &c.diag, 0);
  Program program = {.arena = c.arena,
                     .model_name = "gathers",
                     .path = "gathers.ft",
                     .settings = c.context.settings};
  program.train = help_parse(c.arena, source);
  program.eval = help_parse(c.arena, source);
  assert_true(passes_run(&program, &c.diag, &(PassOptions){.verify = true}, false));
  Code code;
  CodegenOptions options = {.target = TARGET_CPU};
  assert_true(codegen_run(c.arena, &c.diag, &program, &options, &code));
  const PlanGraph *graph = &code.plan->graphs.at[0];
  int begin = 0, launches = 0;
  while (graph->steps.at[begin].kind != STEP_BEGIN) begin++;
  for (int i = begin; i < graph->steps.at[begin].partner; i++)
    launches += graph->steps.at[i].kind == STEP_LAUNCH;
  assert_int_equal(launches, 2);
  code_free(&code);
  arena_free(c.arena);
}

int main(int count, char **mesh) {
  if (count == 4) world_mesh = (Mesh){atoi(mesh[1]), atoi(mesh[2]), atoi(mesh[3])};
  CommOptions options = {.timeout = 60, .library = FT_MPI_ENGINE, .mesh = world_mesh};
  if (count == 4 && comm_open(&options, &world) != STATUS_OK) {
    fprintf(stderr, "%s\n", status_message());
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps),
                                     cmocka_unit_test(goes_on_beside)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  comm_close(world, failed ? status_fail(STATUS_FAULT, "a case has failed") : STATUS_OK);
  return failed;
}
