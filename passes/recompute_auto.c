/* recompute_auto: finds how much to recompute so that training fits a budget. Every group has a
 * few levels (recompute_plan.h). Going up one is a step: so many operations more, so many bytes
 * less. Steps are sorted by operations for the byte saved, the early regions first, whose values
 * live longest; a plan is the first k of them. What a plan needs is not guessed: the rest of the
 * pipeline runs on a copy of the graph, and memory_report counts. The k that fits is found by
 * halving, always at the same places, so that a smaller budget never gives a smaller k. */
#include "passes/memory_report.h"
#include "passes/recompute_plan.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  int group, level;
  double price; /* operations for a byte; never less than that of the step before */
} Step;

typedef struct {
  PassContext *context;
  RecomputePlan *plan;
  Arena *scratch;
  Program others; /* the graphs that are not in question, planned */
  VEC(Step) steps;
  int64_t fixed; /* bytes of what no plan changes */
} Search;

/* ── steps ──────────────────────────────────────────────────────────────────────────────────── */
static double added_work(const RecomputePlan *plan, const RecomputeGroup *group) {
  double work = 0;
  for (int i = 0; i < group->members.count; i++)
    if (plan->is_recomputed[group->members.at[i]])
      work += recompute_work(plan->graph->nodes.at[group->members.at[i]]);
  return work;
}

/* Of what backward reads, itself or through recomputed values. */
static int64_t kept_bytes(const RecomputePlan *plan, const RecomputeGroup *group) {
  bool *is_used = ARENA_ARRAY(plan->arena, bool, plan->count);
  int64_t bytes = 0;
  for (int i = group->members.count - 1; i >= 0; i--) {
    int id = group->members.at[i];
    const Node *node = plan->graph->nodes.at[id];
    bool is_used_here = is_used[id] || plan->is_read[id];
    if (is_used_here && !plan->is_recomputed[id] && !plan->is_fixed[id])
      bytes += type_bytes(&node->type);
    for (int k = 0; is_used_here && plan->is_recomputed[id] && k < node->input_count; k++)
      is_used[node->input[k]->id] = true;
  }
  return bytes;
}

static void find_group_steps(Search *search, int index) {
  RecomputePlan *plan = search->plan;
  RecomputeGroup *group = &plan->groups.at[index];
  int most = LEVEL_SMALL + group->products.count;
  if (most > group->most) most = group->most;
  recompute_choose(plan, group, LEVEL_NONE);
  double work = 0, price = 0;
  int64_t bytes = kept_bytes(plan, group);
  for (int level = LEVEL_POINTWISE; level <= most; level++) {
    recompute_choose(plan, group, level);
    int64_t now = kept_bytes(plan, group);
    if (now >= bytes) continue; /* saves nothing */
    double added = added_work(plan, group), own = (added - work) / (double)(bytes - now);
    if (own > price) price = own;
    VEC_PUSH(search->scratch, search->steps, ((Step){index, level, price}));
    work = added;
    bytes = now;
  }
}

static int compare_prices(const void *left, const void *right) {
  const Step *a = left, *b = right;
  if (a->price != b->price) return a->price < b->price ? -1 : 1;
  if (a->group != b->group) return a->group - b->group;
  return a->level - b->level;
}

static void take_steps(Search *search, int count) {
  RecomputePlan *plan = search->plan;
  int *level = ARENA_ARRAY(search->scratch, int, plan->groups.count);
  for (int i = 0; i < count; i++) level[search->steps.at[i].group] = search->steps.at[i].level;
  for (int i = 0; i < plan->groups.count; i++)
    if (!plan->groups.at[i].is_settled) recompute_choose(plan, &plan->groups.at[i], level[i]);
}

/* ── what a plan needs ──────────────────────────────────────────────────────────────────────── */
static Graph *copy_graph(const Graph *old, Arena *arena) {
  Graph given = *old;
  given.arena = arena;
  return graph_rewrite(&given, NULL, NULL);
}

/* Runs the passes behind this one, as the pipeline will, on the graph in *slot of `program`; false
 * if one failed. */
static bool recompute_plan_rest(const PassContext *like, Program *program, Graph **slot,
                                Arena *arena) {
  PassContext context = *like;
  context.arena = arena;
  context.program = program;
  context.of = slot == &program->train     ? PASS_OF_TRAIN
               : slot == &program->micro   ? PASS_OF_MICRO
               : slot == &program->prefill ? PASS_OF_PREFILL
               : slot == &program->decode  ? PASS_OF_DECODE
                                           : PASS_OF_EVAL;
  bool is_behind = false;
  for (int i = 0; i < pass_count && *slot; i++) {
    if (is_behind && pass_is_run(&context, i)) *slot = pass_apply(&context, &pass_info[i], *slot);
    is_behind |= pass_info[i].run == pass_recompute;
  }
  return *slot != NULL;
}

/* The bytes of all of training with the first `count` steps; -1 after an error. */
static int64_t bytes_with(Search *search, int count) {
  Arena *arena = arena_new();
  Program program = search->others;
  Graph **slot = search->context->of == PASS_OF_MICRO ? &program.micro : &program.train;
  take_steps(search, count);
  *slot = recompute_apply(search->plan, arena);
  int64_t total = -1;
  if (recompute_plan_rest(search->context, &program, slot, arena)) {
    MemoryReport report = memory_report(&program, arena);
    total = report.total;
    search->fixed = report.bytes[MEMORY_PARAMS] + report.bytes[MEMORY_NARROW] +
                    report.bytes[MEMORY_GRADS] + report.bytes[MEMORY_OPTIMIZER] +
                    report.bytes[MEMORY_STATE];
  }
  arena_free(arena);
  return total;
}

/* The graphs beside this one, as they will be: those that do not train, and, for a part of a batch,
 * the step. */
static bool plan_others(Search *search) {
  const Program *program = search->context->program;
  Program *others = &search->others;
  *others = program ? *program : (Program){.settings = search->context->settings};
  others->arena = search->scratch;
  others->variant_count = 0; /* this one, or less than the step */
  memset(others->variants, 0, sizeof others->variants);
  Graph **slots[] = {&others->eval, &others->prefill, &others->decode, &others->train};
  int count = search->context->of == PASS_OF_MICRO ? 4 : 3;
  for (int i = 0; i < count; i++)
    if (*slots[i]) *slots[i] = copy_graph(*slots[i], search->scratch);
  for (int i = 0; i < count; i++)
    if (*slots[i] && !recompute_plan_rest(search->context, others, slots[i], search->scratch))
      return false;
  return true;
}

/* ── the search ─────────────────────────────────────────────────────────────────────────────── */
static bool recompute_fail(Search *search, int64_t budget, int64_t least) {
  char text[3][32];
  diag_error(
      search->context->diag, (Loc){0},
      "recompute = auto(budget=%s): the least that training can do with is %s, of which "
      "parameters, gradients and states take %s; a smaller batch needs less (accumulate makes "
      "up for it)",
      memory_human(budget, text[0]), memory_human(least, text[1]),
      memory_human(search->fixed, text[2]));
  return false;
}

/* More recomputation may need more memory, where much is recomputed at once: so before giving up,
 * some plans in between are tried. */
static int look_between(Search *search, int64_t budget, int64_t *least) {
  enum { PLACES = 8 };
  for (int i = 1, before = 0; i < PLACES; i++) {
    int count = (int)((int64_t)search->steps.count * i / PLACES);
    if (count == before) continue;
    int64_t bytes = bytes_with(search, count);
    if (bytes >= 0 && bytes < *least) *least = bytes;
    if (bytes >= 0 && bytes <= budget) return count;
    before = count;
  }
  return -1;
}

static bool search_steps(Search *search, int64_t budget) {
  int low = 0, high = search->steps.count; /* too few; enough */
  int64_t none = bytes_with(search, 0);
  if (none < 0) return false;
  if (none <= budget) high = 0;
  if (high > 0) {
    int64_t least = bytes_with(search, high);
    if (least < 0) return false;
    if (least > budget) {
      if (least > none) least = none;
      low = high = look_between(search, budget, &least);
      if (high < 0) return recompute_fail(search, budget, least);
    }
  } else if (none > budget) {
    return recompute_fail(search, budget, none);
  }
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    int64_t bytes = bytes_with(search, middle);
    if (bytes < 0) return false;
    if (bytes <= budget)
      high = middle;
    else
      low = middle;
  }
  take_steps(search, high);
  return true;
}

bool recompute_search(PassContext *context, RecomputePlan *plan, int64_t budget) {
  Arena *scratch = arena_new();
  Search search = {.context = context, .plan = plan, .scratch = scratch};
  for (int i = 0; i < plan->groups.count; i++)
    if (!plan->groups.at[i].is_settled) find_group_steps(&search, i);
  if (search.steps.count > 0)
    qsort(search.steps.at, (size_t)search.steps.count, sizeof(Step), compare_prices);
  bool ok = plan_others(&search) && search_steps(&search, budget);
  arena_free(scratch);
  return ok;
}
