/* plan_programme: see plan_programme.h.
 *
 *   programme "step" run "micro" times 3 run "train"
 *   programme "step" size 64 run "train.64"
 *   programme "step" resting 1 plain run "train.resting1.plain"
 *   programme "evaluate" run "eval"
 *   programme "evaluate_average" run "eval" with @ema for params
 *   programme "generate" run "prefill" positions 64 run "decode" positions 1
 */
#include "plan/plan_programme.h"
#include "plan/plan_writes.h"
#include "plan/step_form.h"
#include <inttypes.h>
#include <string.h>

#define PROGRAMME(ID, name, ...) const char PROGRAMME_##ID[] = name;
#include "plan/programmes.def"
#undef PROGRAMME

double plan_result_bytes(const PlanGraph *graph, const PlanStep *step) {
  double bytes = 0;
  for (int i = step->input_count; i < step->arg_count; i++)
    bytes += (double)type_bytes(&graph->buffers.at[step->args[i]].type);
  return bytes;
}

int plan_find_graph(const Plan *plan, const char *name) {
  for (int i = 0; i < plan->graphs.count; i++)
    if (!strcmp(plan->graphs.at[i].name, name)) return i;
  return -1;
}

const PlanProgramme *plan_find_form(const Plan *plan, const char *name, StepForm form) {
  for (int i = 0; i < plan->programmes.count; i++)
    if (!strcmp(plan->programmes.at[i].name, name) && step_form_equal(plan->programmes.at[i].form, form))
      return &plan->programmes.at[i];
  return NULL;
}

const PlanProgramme *plan_find_programme(const Plan *plan, const char *name) {
  return plan_find_form(plan, name, (StepForm){0});
}

const PlanGraph *plan_result(const Plan *plan, const char *name) {
  const PlanProgramme *found = plan_find_programme(plan, name);
  return found ? &plan->graphs.at[found->runs.at[found->runs.count - 1].graph] : NULL;
}

bool plan_is_step(const Plan *plan, const PlanGraph *graph) {
  for (int i = 0; i < plan->programmes.count; i++) {
    const PlanProgramme *programme = &plan->programmes.at[i];
    for (int k = 0; k < programme->runs.count && !strcmp(programme->name, PROGRAMME_STEP); k++)
      if (&plan->graphs.at[programme->runs.at[k].graph] == graph) return true;
  }
  return false;
}

const PlanRun *plan_run_at(const Plan *plan, int index) {
  for (int i = 0; index >= 0 && i < plan->programmes.count; i++) {
    if (index < plan->programmes.at[i].runs.count) return &plan->programmes.at[i].runs.at[index];
    index -= plan->programmes.at[i].runs.count;
  }
  return NULL;
}

int plan_run_count(const Plan *plan) {
  int count = 0;
  for (int i = 0; i < plan->programmes.count; i++) count += plan->programmes.at[i].runs.count;
  return count;
}

int64_t plan_batches(const PlanProgramme *programme) {
  int64_t batches = 0;
  for (int i = 0; i < programme->runs.count; i++) batches += programme->runs.at[i].times;
  return batches;
}

int64_t plan_parts_at_once(const Plan *plan) {
  const PlanProgramme *step = plan_find_programme(plan, PROGRAMME_STEP);
  bool is_once = step && plan_batches(step) == 1;
  return is_once ? (int64_t)setting_number(plan->settings, "train.accumulate") : 1;
}

void plan_add_formed_run(Plan *plan, const char *name, StepForm form, PlanRun run) {
  PlanProgramme *found = NULL;
  for (int i = 0; i < plan->programmes.count; i++)
    if (!strcmp(plan->programmes.at[i].name, name) && step_form_equal(plan->programmes.at[i].form, form))
      found = &plan->programmes.at[i];
  if (!found) {
    VEC_PUSH(plan->arena, plan->programmes, ((PlanProgramme){.name = name, .form = form}));
    found = &plan->programmes.at[plan->programmes.count - 1];
  }
  if (!run.times) run.times = 1;
  VEC_PUSH(plan->arena, found->runs, run);
}

void plan_add_run(Plan *plan, const char *name, PlanRun run) {
  plan_add_formed_run(plan, name, (StepForm){0}, run);
}

/* ── text ─────────────────────────────────────────────────────────────────────────────────── */
void plan_print_programmes(const Plan *plan, Text *out) {
  for (int i = 0; i < plan->programmes.count; i++) {
    const PlanProgramme *programme = &plan->programmes.at[i];
    text_printf(out, "programme \"%s\"", programme->name);
    if (programme->form.size) text_printf(out, " size %" PRId64, programme->form.size);
    if (programme->form.resting) text_printf(out, " resting %" PRId64, programme->form.resting);
    if (programme->form.is_plain) text_printf(out, " plain");
    for (int k = 0; k < programme->runs.count; k++) {
      const PlanRun *run = &programme->runs.at[k];
      text_printf(out, " run \"%s\"", plan->graphs.at[run->graph].name);
      if (run->times != 1) text_printf(out, " times %" PRId64, run->times);
      if (run->positions) text_printf(out, " positions %" PRId64, run->positions);
      if (run->reads != run->instead_of)
        text_printf(out, " with %s for %s", plan->places.at[run->reads].name,
                    plan->places.at[run->instead_of].name);
    }
    text_printf(out, "\n");
  }
}

/* Element by element the other place has what this one has, so the graph cannot tell them apart. */
static bool read_substitution(Words *words, const Plan *plan, PlanRun *run) {
  if ((run->reads = plan_read_place_name(words, plan)) < 0 || !words_expect(words, "for") ||
      (run->instead_of = plan_read_place_name(words, plan)) < 0)
    return false;
  const PlanPlace *from = &plan->places.at[run->reads], *of = &plan->places.at[run->instead_of];
  bool fits = from->elements == ELEMENTS_LIKE && from->of_elements == run->instead_of &&
              from->dtype == of->dtype && from->bytes >= of->bytes;
  return fits || words_fail(words, "place %s does not hold what %s does", from->name, of->name);
}

static bool read_run(Words *words, const Plan *plan, PlanRun *run) {
  const char *name = words_name(words, "the graph's name");
  if (!name) return false;
  *run = (PlanRun){.graph = plan_find_graph(plan, name), .times = 1};
  if (run->graph < 0) return words_fail(words, "there is no graph \"%s\" before this", name);
  if (words_take(words, "times") && !words_integer(words, "how often", 1, INT32_MAX, &run->times))
    return false;
  if (words_take(words, "positions") &&
      !words_integer(words, "positions of a run", 1, 1 << 20, &run->positions))
    return false;
  return !words_take(words, "with") || read_substitution(words, plan, run);
}

bool plan_read_programme(Words *words, Plan *plan) {
  const char *name = words_name(words, "the programme's name");
  StepForm form = {0};
  if (!name) return false;
  if (words_take(words, "size") && !words_integer(words, "positions of a row", 1, 1 << 24, &form.size))
    return false;
  if (words_take(words, "resting") &&
      !words_integer(words, "groups that rest", 1, PLAN_MOST_RESTS, &form.resting))
    return false;
  form.is_plain = words_take(words, "plain");
  if (plan_find_form(plan, name, form))
    return words_fail(words, "there are two of programme \"%s\"", name);
  if (plan->programmes.count == PLAN_MOST_PROGRAMMES)
    return words_fail(words, "a plan has at most %d programmes", PLAN_MOST_PROGRAMMES);
  if (!words_expect(words, "run")) return false;
  int count = 0;
  do {
    PlanRun run;
    if (count++ == PROGRAMME_RUNS)
      return words_fail(words, "a programme has at most %d runs", PROGRAMME_RUNS);
    if (!read_run(words, plan, &run)) return false;
    plan_add_formed_run(plan, name, form, run);
  } while (words_take(words, "run"));
  return true;
}

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanProgramme *programme;
} Check;

/* What is said of an input's values is said of one part's rows, as each part is looked at by itself. */
static const char *programme_check_parts(const Check *check, int64_t parts) {
  for (int i = 0; i < check->plan->inputs.count; i++) {
    const PlanTensor *input = &check->plan->inputs.at[i];
    int64_t rows = input->type.shape.rank ? input->type.shape.dim[0] : 1;
    bool is_right = rows % parts == 0;
    for (int p = 0; p < input->part_count && is_right; p++) {
      const PlanPart *part = &input->parts[p];
      is_right = part->start[0] + part->step[0] * (part->count[0] - 1) < rows / parts;
    }
    if (!is_right)
      return arena_printf(check->arena, "input \"%s\" has not the rows of %" PRId64 " parts",
                          input->name, parts);
  }
  return NULL;
}

static const char *check_step(const Check *check) {
  if (!step_form_equal(check->programme->form, (StepForm){0}) && setting_pipeline(check->plan->settings) > 1)
    return "a step of several forms is not for distributed.pipeline";
  double parts = setting_number(check->plan->settings, "train.accumulate");
  int64_t batches = plan_batches(check->programme);
  if (parts < 1) parts = 1;
  if ((double)batches == parts) return NULL;
  if (batches == 1 && setting_pipeline(check->plan->settings) > 1)
    return programme_check_parts(check, (int64_t)parts);
  return arena_printf(check->arena,
                      "programme \"step\" takes %" PRId64 " batches and train.accumulate is %g",
                      batches, parts);
}

/* One graph runs, batch by batch. Totals continue from batch to batch by what the runtime writes in
 * these states. */
static const char *check_evaluate(const Check *check) {
  static const LeafRole told[] = {ROLE_KEEP, ROLE_MISSING, ROLE_MORE, ROLE_PASS};
  for (int i = 0; i < 4 && plan_find_role(check->plan, ROLE_TOTAL) >= 0; i++)
    if (plan_find_role(check->plan, told[i]) < 0)
      return arena_printf(check->arena, "an evaluation has totals, and no state has the role %s",
                          role_text(told[i]));
  if (plan_batches(check->programme) == 1) return NULL;
  return arena_printf(check->arena, "programme \"%s\" runs more than one graph",
                      check->programme->name);
}

/* Its graphs read it where they would read the parameters. */
static const char *check_average(const Check *check) {
  const Plan *plan = check->plan;
  int index = plan_find_role(plan, ROLE_AVERAGE);
  if (index < 0) return "the plan keeps no average of the parameters";
  if (plan->states.at[index].place != check->programme->runs.at[0].reads)
    return "programme \"evaluate_average\" does not read the average of the parameters";
  for (int i = 0; i < plan->params.count; i++) { /* both have elements of one type */
    Type held = plan_held(&plan->params.at[i]);
    if (plan->params.at[i].place != check->programme->runs.at[0].instead_of) continue;
    if (plan->params.at[i].offset + type_bytes(&held) > type_bytes(&plan->states.at[index].type))
      return "the average of the parameters is smaller than these";
  }
  return check_evaluate(check);
}

/* The last run gives the scores of a text's last token. */
static const char *check_generate(const Check *check) {
  const PlanProgramme *programme = check->programme;
  return programme->runs.at[programme->runs.count - 1].positions == 1
             ? NULL
             : "programme \"generate\" does not end with a run of one position";
}

enum { NEEDED = 1, LOSS = 2, OTHERS = 4, POSITIONS = 8 };
static const struct {
  const char *name;
  int traits;
  RoleTrait early, last;
  const char *(*check)(const Check *check);
} known[] = {
#define PROGRAMME(ID, name, traits, early, last, check)                                            \
  {PROGRAMME_##ID, traits, (RoleTrait)(early), last, check},
#include "plan/programmes.def"
#undef PROGRAMME
};
enum { KNOWN = sizeof known / sizeof *known };

static int kind_of(const PlanProgramme *programme) {
  for (int i = 0; i < KNOWN; i++)
    if (!strcmp(known[i].name, programme->name)) return i;
  return -1;
}

bool plan_has_loss(const PlanProgramme *programme) {
  int kind = kind_of(programme);
  return kind >= 0 && known[kind].traits & LOSS;
}

static const char *check_runs(const Check *check) {
  const PlanProgramme *programme = check->programme;
  int kind = kind_of(programme);
  bool is_whole = step_form_equal(programme->form, (StepForm){0});
  if (kind < 0 || (!is_whole && strcmp(programme->name, PROGRAMME_STEP) != 0))
    return arena_printf(check->arena, "nothing runs a programme \"%s\"%s", programme->name,
                        kind < 0 ? "" : " of a form");
  for (int i = 0; i < programme->runs.count; i++) {
    const PlanRun *run = &programme->runs.at[i];
    bool others = known[kind].traits & OTHERS, takes_positions = known[kind].traits & POSITIONS;
    if ((run->reads != run->instead_of) != others || (run->positions > 0) != takes_positions ||
        (run->times > 1 && takes_positions))
      return arena_printf(check->arena, "programme \"%s\" cannot run graph \"%s\" like this",
                          programme->name, check->plan->graphs.at[run->graph].name);
  }
  return known[kind].check(check);
}

static const char *check_writes(const Check *check) {
  const PlanProgramme *programme = check->programme;
  int count = programme->runs.count, kind = kind_of(programme);
  for (int i = 0; i < count; i++) {
    RoleTrait by = i + 1 < count ? known[kind].early : known[kind].last;
    const PlanGraph *graph = &check->plan->graphs.at[programme->runs.at[i].graph];
    const char *why = plan_check_writes(check->arena, check->plan, graph, by, programme->form);
    if (!why && count > 1) why = plan_check_sums(check->arena, check->plan, graph, by);
    if (why)
      return arena_printf(check->arena, "programme \"%s\" runs graph \"%s\", which %s",
                          programme->name, graph->name, why);
  }
  return NULL;
}

const char *plan_check_programmes(Arena *arena, const Plan *plan) {
  static const char *(*const checks[])(const Check *check) = {check_runs, check_writes};
  const char *why = NULL;
  for (int i = 0; i < KNOWN; i++)
    if (known[i].traits & NEEDED && !plan_find_programme(plan, known[i].name))
      return arena_printf(arena, "the plan lacks programme \"%s\"", known[i].name);
  for (int c = 0; c < 2; c++)
    for (int i = 0; i < plan->programmes.count && !why; i++)
      why = checks[c](&(Check){arena, plan, &plan->programmes.at[i]});
  return why;
}
