/* random_program: compiles a program of the language in this process, runs some training steps of
 * it and its evaluation, on the CPU or (PTX) in the simulator, and compares every result with the
 * interpreter: losses, metrics, outputs, gradients, parameters and states after the last step. With
 * train.accumulate each step takes its batch in parts, as the plan's programme says.
 *
 * What may differ is not guessed: noise.h finds out how far rounding moves each result. And on the
 * CPU the bits must not depend on how the work of a kernel is split, nor anywhere on which of the
 * orders that the plan allows the steps run in; and the device that users train on, with several
 * threads, must leave the bits that it leaves when it waits after each step.
 *
 *   random_program                        requests on standard input: a line each, fields by tabs
 *   random_program PROGRAM.ft VALUES [cpu|x86-64-v3|gpu|sm_90a[:TILE[/SPLITS]] [WITHOUT [DUMP]]]
 *
 * VALUES has a line for each leaf, "name count numbers"; WITHOUT is as --disable takes it ("-":
 * nothing); DUMP is a file for all that the interpreter says of the first step, for PyTorch. TILE
 * is the only one that products may take, from 1, and SPLITS the number of blocks that share each
 * sum. A machine behind "passes:" or "code:" is only compiled for, to fused kernels or to code: of
 * that nothing depends on this machine. Behind "quick:" LLVM optimises little, which takes half the
 * time: what ft does is the same. Small products and attention would not take most tiles, nor
 * wgmma, by themselves. An answer is one line: ok (the largest error as a share of what is allowed,
 * what was seen in the code, and what met in one kernel), refused (by ftc, with its message) or
 * fail (with what is wrong). */
#include "passes/sparse.h"
#include "test/random/random_case.h"
#include "plan/plan_prepare.h"
#include "test/random/random_device.h"
#include "test/random/random_dump.h"
#include "test/random/random_pairs.h"

/* ── leaves of the compiled program ─────────────────────────────────────────────────────────── */
static void put(char *arena, const PlanTensor *leaf, const Tensor *value) {
  bool is_stored = leaf->storage.view.rank != 0;
  Tensor one = {.type = {value->type.dtype, shape_scalar()}};
  int64_t size = dtype_bytes(leaf->type.dtype);
  for (int64_t i = 0; i < shape_elements(&leaf->type.shape); i++) {
    int64_t element = is_stored ? storage_element(&leaf->storage, i) : i;
    one.f = value->f ? value->f + element : NULL;
    one.i = value->i ? value->i + element : NULL;
    help_store(arena + leaf->offset + i * size, leaf->type.dtype, 0, &one);
  }
}

static void fill(Case *c) {
  const Plan *plan = c->code.code.plan;
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
    memset(c->code.memory[a], a == PLACE_GRADS ? 0 : 0x7f, (size_t)plan->places.at[a].bytes);
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *leaf = &plan->params.at[i];
    const Tensor *value = first_value(c, leaf->type, leaf->name, 0);
    bool is_frozen = leaf->place == PLACE_FROZEN;
    StandardPlace rounded = is_frozen ? PLACE_FROZEN_NARROW : PLACE_NARROW;
    put(c->code.memory[leaf->place], leaf, value);
    if (!plan->places.at[rounded].bytes) continue;
    PlanTensor narrow = *leaf;
    narrow.offset = leaf->offset / 2;
    narrow.type.dtype = plan->places.at[rounded].dtype;
    for (int64_t k = 0; k < shape_elements(&leaf->type.shape); k++)
      value->f[k] = dtype_round(narrow.type.dtype, value->f[k]);
    put(c->code.memory[rounded], &narrow, value);
  }
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *leaf = &plan->states.at[i];
    double initial =
        !strcmp(leaf->init.text, "const") ? leaf->init.arg[0] : !strcmp(leaf->init.text, "ones");
    put(c->code.memory[leaf->place], leaf, first_value(c, leaf->type, leaf->name, initial));
  }
  for (int i = 0; i < plan->scalars.count; i++) {
    double value = setting_of(c, plan->scalars.at[i].name);
    memcpy(c->code.memory[PLACE_SETTINGS] + plan->scalars.at[i].offset, &value, sizeof value);
  }
}

static void put_inputs(Case *c, int part) {
  const Plan *plan = c->code.code.plan;
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    put(c->code.memory[PLACE_INPUT], input, input_value(c, input->type, input->name, part));
  }
}

static void execute_graph(Case *c, int which, int pieces) {
  const Plan *plan = c->code.code.plan;
  memset(c->code.memory[PLACE_WORK], 0x7f, (size_t)plan->places.at[PLACE_WORK].bytes);
  memset(c->code.memory[PLACE_WORKSPACE], 0x7f, (size_t)plan->places.at[PLACE_WORKSPACE].bytes);
  if (c->way != RUN_HELPERS)
    execute_on_device(c, which, c->way == RUN_ONE_BY_ONE);
  else if (c->sim.machine)
    sim_help_execute(&c->sim, &c->code, which, pieces > 1);
  else
    help_execute(&c->code, which, pieces);
}

/* A step of the training, or the evaluation of one batch: which of the plan's graphs, and how
 * often, its programme says. */
static void execute(Case *c, bool is_evaluation, int pieces) {
  const Plan *plan = c->code.code.plan;
  const PlanProgramme *programme =
      plan_find_programme(plan, is_evaluation ? PROGRAMME_EVALUATE : PROGRAMME_STEP);
  assert_non_null(programme);
  if (plan_batches(programme) != (is_evaluation ? 1 : c->parts))
    reject("the step takes %lld parts", (long long)plan_batches(programme));
  int part = 0;
  for (int i = 0; i < programme->runs.count; i++) {
    const PlanRun *run = &programme->runs.at[i];
    int prepare = plan_prepare_of(plan, &plan->graphs.at[run->graph]);
    if (prepare >= 0) execute_graph(c, prepare, pieces);
    for (int64_t k = 0; k < run->times; k++) {
      put_inputs(c, part++);
      execute_graph(c, run->graph, pieces);
    }
  }
}

static Program read_program(Case *c) {
  FrontendOptions options = {0};
  Program program = {0};
  if (!frontend_compile(c->arena, &c->diag, c->request.program, &options, &program) ||
      c->diag.errors)
    refuse(c);
  return program;
}

static Float8Unit float8_unit(const Case *c) { /* codegen_multiplies_float8 */
  bool has_wgmma = !strncmp(c->request.gpu, "sm_90a", 6) && !text_has_word(c->request.without, "wgmma");
  return has_wgmma ? FLOAT8_ALONG_K : !strncmp(c->request.gpu, "sm_89", 5) ? FLOAT8_ANY_ORDER : FLOAT8_NONE;
}

static bool is_for_gpu(const Case *c) {
  return strcmp(c->request.gpu, "cpu") != 0 && strncmp(c->request.gpu, "x86-64", 6) != 0;
}

/* A rule of algebra may take away what cancels exactly as the program is written, and leave what
 * cancels only to rounding. How far rounding moves that, the simplified graph says of itself: a
 * wrong rule is no noise. */
static void add_noisy_simplified(Case *c, int turns) {
  PassOptions options = {.verify = true, .multiplies_float8 = float8_unit(c), .stop_after = "dce2", .disable = c->request.without};
  c->simplified = read_program(c);
  if (!passes_run(&c->simplified, &c->diag, &options, is_for_gpu(c))) refuse(c);
  c->exact_simplified = interpret_all(c, &c->simplified, NULL, NULL);
  for (int i = 0; i < turns; i++) {
    Run run = noisy_run(c, &c->simplified, &c->exact_simplified, i);
    VEC_PUSH(c->arena, c->noisy_simplified, run);
  }
}

/* ── comparison ─────────────────────────────────────────────────────────────────────────────── */
/* Elements [first, first + count) of a value of the interpreter, as it lies in memory. */
typedef struct {
  const char *what, *name;
  int step; /* -1: evaluation */
  int node; /* in the reference graph */
  int64_t first, count;
  const char *have;
  DType dtype;
  const Storage *storage; /* NULL: row-major */
} Span;

static Tensor *of_run(const Run *run, const Span *span) {
  return (span->step < 0 ? run->eval : run->of_step[span->step])[span->node];
}

/* How far any element of the span is in these runs from the exact one. */
static double largest_move(const Run *from, const Run *moved, int runs, const Span *span) {
  if (!runs) return 0;
  const Tensor *exact = of_run(from, span);
  double most = 0;
  for (int t = 0; exact && t < runs; t++) { /* not every value is a root of the simplified graph */
    const Tensor *other = of_run(&moved[t], span);
    for (int64_t k = span->first; k < span->first + span->count; k++) {
      double x = element_of(exact, k), y = element_of(other, k), move = x == y ? 0 : fabs(x - y);
      if (isnan(x) && isnan(y)) continue;
      if (isnan(move)) return NAN; /* the elements behind it must not hide it */
      most = fmax(most, move);
    }
  }
  return most;
}

/* How far rounding moves any element of the span, in the program as it stands and simplified. */
static double noise_of(const Case *c, const Span *span) {
  double plain = largest_move(&c->exact, c->noisy.at, c->noisy.count, span);
  double simplified =
      largest_move(&c->exact_simplified, c->noisy_simplified.at, c->noisy_simplified.count, span);
  return isnan(plain) || isnan(simplified) ? NAN : fmax(plain, simplified);
}

static double scale_of(const Tensor *exact, const Span *span) {
  double most = 0;
  for (int64_t k = span->first; k < span->first + span->count; k++)
    if (isfinite(element_of(exact, k))) most = fmax(most, fabs(element_of(exact, k)));
  return most;
}

/* The element that is wrong by most, and by how much. */
static double worst_of(const Tensor *exact, const Span *span, int64_t *at) {
  double worst = 0;
  *at = 0;
  for (int64_t k = 0; k < span->count; k++) {
    int64_t element = span->storage ? storage_element(span->storage, k) : k;
    double want = element_of(exact, span->first + element);
    double have = help_load(span->have, span->dtype, k);
    double error = have == want || (isnan(have) && isnan(want)) ? 0 : fabs(have - want);
    if (error <= worst) continue;
    worst = isnan(error) ? INFINITY : error;
    *at = k;
  }
  return worst;
}

static double allowed(const Case *c, const Span *span, const Tensor *exact) {
  enum { SURE = 8 }; /* how often the noise that was seen the noise that there is may be */
  double noise = noise_of(c, span);
  if (isnan(noise)) return INFINITY;
  if (!exact->f) return noise;
  if (noise > scale_of(exact, span)) noise *= SURE; /* nothing but rounding, perhaps its square */
  return SURE * noise + NOISE_PLAIN * scale_of(exact, span) + 1e-30;
}

static void compare(Case *c, const Span *span) {
  const Tensor *exact = of_run(&c->exact, span);
  int64_t at;
  double worst = worst_of(exact, span, &at), limit = allowed(c, span, exact);
  if (worst > limit && c->noisy.count < MORE_TURNS) {
    add_noisy(c, MORE_TURNS);
    add_noisy_simplified(c, MORE_TURNS);
    limit = allowed(c, span, exact);
  }
  if (worst > 0 && isfinite(limit)) c->worst = fmax(c->worst, worst / limit);
  if (worst <= limit) return;
  int64_t element = span->storage ? storage_element(span->storage, at) : at;
  reject(
      "%s '%s' of step %d, element %lld, is %.9g, the interpreter says %.9g (rounding moves it by "
      "%.2g, largest %.3g)",
      span->what, span->name, span->step, (long long)element,
      help_load(span->have, span->dtype, at), element_of(exact, span->first + element), limit,
      scale_of(exact, span));
}

static void compare_outputs(Case *c, int which, int step) {
  const PlanGraph *graph = &c->code.code.plan->graphs.at[which];
  const Graph *reference = which ? c->reference.eval : c->reference.train;
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    static const RootKind of[OUTPUT_KINDS] = {[OUTPUT_LOSS] = ROOT_LOSS,
                                              [OUTPUT_METRIC] = ROOT_METRIC,
                                              [OUTPUT_RESULT] = ROOT_OUTPUT,
                                              [OUTPUT_AUC] = ROOT_AUC,
                                              [OUTPUT_PASSES] = ROOT_PASSES,
                                              [OUTPUT_RATE] = ROOT_RATE,
                                              [OUTPUT_LOSS_SCALE] = ROOT_LOSS_SCALE,
                                              [OUTPUT_SKIPPED] = ROOT_SKIPPED,
                                              [OUTPUT_GRAD_NORM] = ROOT_GRAD_NORM,
                                              [OUTPUT_GRAD_FACTOR] = ROOT_GRAD_FACTOR};
    const Node *root = graph_find_root(reference, of[output->kind], output->name);
    if (!root) continue;
    Span span = {output_kind_text(output->kind),
                 output->name,
                 step,
                 root->id,
                 0,
                 shape_elements(&output->type.shape),
                 c->code.memory[output->place] + output->offset,
                 output->type.dtype,
                 NULL};
    compare(c, &span);
  }
}

static const Node *find_param(const Graph *graph, const char *name) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM &&
        !strcmp(node_str(graph->nodes.at[i], ATTR_NAME), name))
      return graph->nodes.at[i];
  return NULL;
}

/* A flat value, param by param: `at` is where it lies. */
static void compare_flat(Case *c, const char *what, int step, const Node *flat, const char *at,
                         DType dtype) {
  const Plan *plan = c->code.code.plan;
  for (int i = 0; flat && i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    const Node *node = find_param(c->reference.train, param->name);
    int64_t count = shape_elements(&param->type.shape), first = node_int(node, ATTR_OFFSET, 0);
    if (first + count > shape_elements(&flat->type.shape)) continue;
    int64_t place = param->offset / dtype_bytes(param->type.dtype) * dtype_bytes(dtype);
    Span span = {what,       param->name, step,
                 flat->id,   first,       count,
                 at + place, dtype,       param->storage.view.rank ? &param->storage : NULL};
    compare(c, &span);
  }
}

static void compare_states(Case *c, int step) {
  const Plan *plan = c->code.code.plan;
  const Graph *graph = c->reference.train;
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    const Node *node = graph_find_root(graph, ROOT_ASSIGN, state->name);
    const char *at = c->code.memory[state->place] + state->offset;
    if (!node || role_has(state->role, ROLE_SCRATCH)) continue;
    Span span = {"state", state->name,       step, node->id, 0, shape_elements(&state->type.shape),
                 at,      state->type.dtype, NULL};
    if (role_has(state->role, ROLE_SLICED))
      compare_flat(c, state->name, step, node, at, state->type.dtype);
    else
      compare(c, &span);
  }
}

/* With parts, gradients are the sums that the step clears at its end. */
static void compare_training(Case *c, int pieces) {
  fill(c);
  for (int step = 0; step < STEPS; step++) {
    const Graph *graph = c->reference.train;
    execute(c, 0, pieces);
    compare_outputs(c, 0, step);
    compare_flat(c, "gradient", step, find_gradients(c, graph),
                 c->code.cleared ? c->code.cleared : c->code.memory[PLACE_GRADS], DT_F32);
    compare_flat(c, "param", step, graph_find_root(graph, ROOT_ASSIGN, OWN_PARAMS),
                 c->code.memory[PLACE_PARAMS],
                 c->code.code.plan->params.count ? c->code.code.plan->params.at[0].type.dtype
                                                 : DT_F32);
    compare_states(c, step);
  }
}

static uint64_t hash_of(uint64_t hash, const void *bytes, int64_t count) {
  for (int64_t i = 0; i < count; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
  return hash;
}

/* Of all that a run leaves behind. */
static uint64_t bits_of(Case *c, int pieces) {
  static const StandardPlace kept[] = {PLACE_PARAMS, PLACE_NARROW, PLACE_GRADS, PLACE_STATE,
                                       PLACE_OUTPUT};
  const Plan *plan = c->code.code.plan;
  uint64_t hash = 0;
  fill(c);
  for (int which = 1; which >= 0; which--) {
    execute(c, which, pieces);
    const PlanGraph *graph = &plan->graphs.at[which];
    for (int i = 0; i < graph->outputs.count; i++) {
      const PlanOutput *output = &graph->outputs.at[i];
      hash =
          hash_of(hash, c->code.memory[output->place] + output->offset, type_bytes(&output->type));
    }
  }
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
    hash = hash_of(hash, c->code.memory[kept[k]], plan->places.at[kept[k]].bytes);
  return hash;
}

/* ── one program ────────────────────────────────────────────────────────────────────────────── */
/* Does the program itself round to 16 bits? */
static bool has_narrow(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++) {
    DType dtype = graph->nodes.at[i]->type.dtype;
    if (dtype == DT_BF16 || dtype == DT_F16) return true;
  }
  return false;
}

/* Does a product round its operands to 8 bits, as the recipe or a layer says? */
static bool has_float8_products(const Case *c) {
  const Graph *graph = c->reference.train;
  bool has_some = !strcmp(setting_text(c->program.settings, "train.precision"), "fp8");
  for (int i = 0; i < graph->nodes.count && !has_some; i++) {
    const char *own = node_str(graph->nodes.at[i], ATTR_PRECISION);
    has_some = own && !strcmp(own, "fp8");
  }
  return has_some;
}

/* What the values mean: forward as it stands, its gradient, the update. Where values are rounded to
 * 16 bits hangs on the passes before: then the same ones run here. (Seed 6526: of f16 values that
 * are put together, all are rounded at once; the gradient's parts are rounded before they are
 * added then, and not their sum.) */
static void refer(Case *c, bool is_gpu) {
  bool is_narrow;
  const char *precision = setting_text(c->program.settings, "train.precision");
  c->reference = read_program(c);
  c->has_float8 = has_float8_products(c);
  is_narrow = c->has_float8 || !strcmp(precision, "bf16") || !strcmp(precision, "fp16") || has_narrow(c->reference.train);
  PassOptions options = {.verify = true, .multiplies_float8 = float8_unit(c),
                         .stop_after = "optimizer",
                         .disable = is_narrow
                                        ? c->request.without
                                        : "decode,simplify,cse,dce,attention,heads,recompute"};
  if (!passes_run(&c->reference, &c->diag, &options, is_gpu)) refuse(c);
}

/* "gpu": the least that the kernels need. */
static CodegenOptions machine_of(Case *c) {
  CodegenOptions options = {.target = TARGET_CPU, .is_quick = c->is_quick};
  if (!is_for_gpu(c)) {
    options.cpu = strcmp(c->request.gpu, "cpu") ? c->request.gpu : NULL;
    options.check_memory = getenv("FT_CHECK_MEMORY") != NULL;
    return options;
  }
  char *name = arena_strdup(c->arena, c->request.gpu), *tile = strchr(name, ':');
  if (tile) *tile++ = 0, options.only_tile = atoi(tile);
  char *splits = tile ? strchr(tile, '/') : NULL;
  if (splits) options.only_splits = atoi(splits + 1);
  options.target = TARGET_PTX;
  options.gpu = strcmp(name, "gpu") ? name : NULL;
  return options;
}

/* Does what is left out change the code? */
static bool is_changed(Case *c) {
  PassOptions passes = {.verify = true, .multiplies_float8 = float8_unit(c)};
  CodegenOptions options = machine_of(c);
  Program program = read_program(c);
  Code whole = {0}, *code = &c->code.code;
  if (!passes_run(&program, &c->diag, &passes, options.target == TARGET_PTX) ||
      !codegen_run(c->arena, &c->diag, &program, &options, &whole))
    refuse(c);
  bool is_same = !strcmp(text_cstr(&whole.assembly), text_cstr(&code->assembly));
  for (int i = 0; i < CODEGEN_OBJECTS; i++)
    is_same &=
        whole.object[i].count == code->object[i].count &&
        !memcmp(text_cstr(&whole.object[i]), text_cstr(&code->object[i]), whole.object[i].count);
  code_free(&whole);
  return !is_same;
}

/* Does the word stand between the two? */
static bool stands(const char *from, const char *end, const char *word) {
  const char *at = strstr(from, word);
  return at && at < end;
}

/* The units that products and attention took: of each kernel of the PTX, by its instructions. */
static const char *units_in_code(Case *c) {
  static const char *const marks[][2] = {
      {"wgmma.mma_async", "wgmma"}, {"cp.async.bulk.tensor", "tma"}, {"multicast::cluster", "clusters"}, {"mma.sync", "mma"},
      {"m16n8k32.row.col.f32.e", "mma8"},   {"k32.f32.e", "wgmma8"} /* of 8-bit floats */, {"m16n8k32.row.col.s32", "mma_whole"}};
  enum { MARKS = sizeof marks / sizeof *marks };
  bool is_there[2][MARKS] = {0};
  const char *entry = strstr(text_cstr(&c->code.code.assembly), ".entry "), *seen = "";
  for (const char *next; entry; entry = next) {
    next = strstr(entry + 1, ".entry ");
    const char *end = next ? next : entry + strlen(entry);
    bool is_attention = stands(entry, entry + strcspn(entry, "("), "attention");
    for (int i = 0; i < MARKS; i++) is_there[is_attention][i] |= stands(entry, end, marks[i][0]);
  }
  for (int a = 0; a < 2; a++)
    for (int i = 0; i < MARKS; i++)
      if (is_there[a][i])
        seen = arena_printf(c->arena, "%s %s%s", seen, a ? "attention_" : "", marks[i][1]);
  return seen;
}

/* Words for the campaign's table. */
static const char *seen_in_code(Case *c) {
  const char *seen = is_for_gpu(c) ? units_in_code(c) : "";
  if (c->request.without)
    seen = arena_printf(c->arena, "%s %s:%s", seen, c->request.without,
                        is_changed(c) ? "other" : "same");
  Meetings meetings = {0};
  meet_in(&meetings, c->program.train);
  meet_in(&meetings, c->program.eval);
  return arena_printf(c->arena, "%s%s", seen, meet_words(&meetings, c->arena));
}

static void compile(Case *c, bool is_gpu) {
  PassOptions options = {.verify = true, .multiplies_float8 = float8_unit(c), .disable = c->request.without};
  CodegenOptions codegen = machine_of(c);
  codegen.disable = c->request.without;
  c->program = read_program(c);
  c->parts = (int)setting_number(c->program.settings, "train.accumulate");
  refer(c, is_gpu);
  if (!passes_run(&c->program, &c->diag, &options, is_gpu)) refuse(c);
  if (is_gpu)
    sim_help_compile(&c->sim, &c->code, c->arena, &c->diag, &c->program, &codegen);
  else
    help_compile(&c->code, c->arena, &c->diag, &c->program, &codegen);
  if (c->parts > 1)
    c->code.cleared = ARENA_ARRAY(c->arena, char, c->code.code.plan->places.at[PLACE_GRADS].bytes);
}

/* To kernels, or to code (quick: to what LLVM would read, which is all that ft itself does); the weights of a layer `two` are taken for sparse. */
static void only_compile(Case *c, bool is_to_code) {
  PassOptions options = {.verify = true, .multiplies_float8 = float8_unit(c), .disable = c->request.without};
  CodegenOptions codegen = machine_of(c);
  codegen.disable = c->request.without;
  codegen.only_plan = c->is_quick;
  c->program = read_program(c);
  if (!sparse_unknown(&c->program, "two.weight", c->arena)) options.sparse = "two.weight";
  if (!passes_run(&c->program, &c->diag, &options, is_for_gpu(c)) ||
      (is_to_code && !codegen_run(c->arena, &c->diag, &c->program, &codegen, &c->code.code)))
    refuse(c);
}

/* The device's own products round otherwise than the helpers' do: it is compared with itself. */
static void check_device(Case *c) {
  bind_device(c);
  c->way = RUN_ONE_BY_ONE;
  uint64_t bits = bits_of(c, 1);
  c->way = RUN_DEVICE;
  for (int i = 0; i < DEVICE_TURNS; i++)
    if (bits_of(c, 1) != bits)
      reject("the cpu device with %d threads leaves other bits than step by step", DEVICE_THREADS);
}

static void check(Case *c) {
  static const char *const only[] = {"passes:", "code:"}, quick[] = "quick:";
  if (!strncmp(c->request.gpu, quick, strlen(quick))) {
    c->request.gpu += strlen(quick);
    c->is_quick = true;
  }
  for (int i = 0; i < 2; i++)
    if (!strncmp(c->request.gpu, only[i], strlen(only[i]))) {
      c->request.gpu += strlen(only[i]);
      only_compile(c, i);
      return;
    }
  bool is_gpu = is_for_gpu(c);
  read_values(c);
  compile(c, is_gpu);
  c->exact = interpret_all(c, &c->reference, NULL, NULL);
  add_noisy(c, TURNS);
  if (c->request.dump) dump(c);
  compare_training(c, 1);
  fill(c);
  execute(c, 1, 1);
  compare_outputs(c, 1, -1);
  uint64_t bits = bits_of(c, 1);
  for (int i = 1; i <= (is_gpu ? 1 : 3); i++) {
    c->code.order = (uint64_t)i;
    if (bits_of(c, 1) != bits) reject("another order of the steps gives other bits");
  }
  c->code.order = 0;
  if (is_gpu && c->code.code.plan->graphs.at[0].insteads.count) compare_training(c, 2);
  for (int pieces = 2; pieces <= 7 && !is_gpu; pieces += 5)
    if (bits_of(c, pieces) != bits)
      reject("%d pieces of each kernel's work give other bits", pieces);
  if (!is_gpu) check_device(c);
}

static void case_close(Case *c) {
  unbind_device(c);
  if (c->sim.machine)
    sim_help_free(&c->sim, &c->code);
  else if (c->code.library)
    help_free(&c->code);
  else
    code_free(&c->code.code);
  if (c->diag.out) fclose(c->diag.out);
  free(c->messages);
  arena_free(c->arena);
}

static void answer(const Request *request) {
  static Case c;
  memset(&c, 0, sizeof c);
  c.request = *request;
  c.arena = arena_new();
  diag_init(&c.diag, c.arena, open_memstream(&c.messages, &c.message_size));
  if (!setjmp(give_up)) {
    check(&c);
    snprintf(verdict, sizeof verdict, "ok\t%.3g%s", c.worst, seen_in_code(&c));
  }
  case_close(&c);
  printf("%s\n", verdict);
  fflush(stdout);
}

static const char *field(char **rest) {
  char *word = strsep(rest, "\t\n");
  return word && *word && strcmp(word, "-") ? word : NULL;
}

int main(int argc, char **argv) {
  static char line[8192];
  if (argc > 2) {
    answer(&(Request){argv[1], argv[2], argc > 3 ? argv[3] : "cpu",
                      argc > 4 && strcmp(argv[4], "-") ? argv[4] : NULL,
                      argc > 5 ? argv[5] : NULL});
    return strncmp(verdict, "ok", 2) != 0;
  }
  while (fgets(line, sizeof line, stdin)) {
    char *rest = line;
    Request request = {0};
    request.program = field(&rest);
    request.values = field(&rest);
    request.gpu = field(&rest);
    request.without = field(&rest);
    request.dump = field(&rest);
    if (!request.gpu) request.gpu = "cpu";
    answer(&request);
  }
  return 0;
}
