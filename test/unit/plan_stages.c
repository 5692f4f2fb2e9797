/* plan_stages: the plans of a pipeline's stages stand one behind the other and are read together;
 * what does not go together is refused. */
#include "plan/plan_stages.h"
#include "plan_sample.h"

enum { STAGES = 3 };

static void set(Plan *plan, const char *key, const char *value) {
  const char *why;
  assert_true(setting_set(plan->arena, plan->settings, setting_find(key), value, &why));
}

static Plan *stage_of(Arena *arena, int stage) {
  Plan *plan = sample(arena);
  set(plan, "distributed.pipeline", "3");
  plan->stage = stage;
  return plan;
}

static bool read_stages(Arena *arena, Plan *const *plan, int count, PlanStages *out,
                        const char **why) {
  Text text = {0};
  for (int i = 0; i < count; i++) plan_print(plan[i], &text);
  bool is_good = plan_parse_stages(arena, text_cstr(&text), text.count, out, why);
  text_free(&text);
  return is_good;
}

static void test_stages(void **state) {
  (void)state;
  Arena *arena = arena_new();
  PlanStages stages;
  const char *why = NULL;
  Plan *plan[] = {stage_of(arena, 0), stage_of(arena, 1), stage_of(arena, 2)};
  if (!read_stages(arena, plan, STAGES, &stages, &why)) fail_msg("%s", why);
  assert_int_equal(stages.count, STAGES);
  for (int i = 0; i < STAGES; i++) {
    assert_int_equal(stages.at[i]->stage, i);
    assert_ptr_equal(stages.at[i]->settings, stages.at[0]->settings);
  }
  Plan *one[] = {sample(arena)};
  assert_true(read_stages(arena, one, 1, &stages, &why));
  assert_int_equal(stages.count, 1);
  arena_free(arena);
}

static void check_refused(Arena *arena, Plan *const *plan, int count, const char *expected) {
  PlanStages stages;
  const char *why = NULL;
  if (read_stages(arena, plan, count, &stages, &why)) fail_msg("accepted: %s", expected);
  if (!strstr(why, expected)) fail_msg("%s; expected %s", why, expected);
}

/* Each of these changes one of three stages that go together. */
static void other_place(Plan *plan) { plan->stage = 2; }
static void other_model(Plan *plan) { plan->model = "Other"; }
static void other_target(Plan *plan) { plan->target_cpu = "other"; }
static void other_number(Plan *plan) { set(plan, "train.eps", "0.5"); }
static void other_text(Plan *plan) { set(plan, "train.precision", "bf16"); }
static void other_shape(Plan *plan) {
  plan->params.at[0].type.shape.dim[0] = 2;
  plan->params.at[0].storage = (Storage){0};
}
static void other_init(Plan *plan) { plan->params.at[1].init = (Init){"const", {1}, 1}; }
static void other_stream(Plan *plan) { plan->params.at[1].stream = 7; }
static void other_state(Plan *plan) { plan->states.at[1].init.arg[0] = 0.25; }
static void no_pipeline(Plan *plan) { set(plan, "distributed.pipeline", "1"); }

static void test_differences(void **state) {
  (void)state;
  static const struct {
    void (*change)(Plan *plan);
    const char *expected;
  } cases[] = {{other_place, "stage 2 stands in the place of stage 1"},
               {other_model, "stage 1: the model is not that of stage 0"},
               {other_target, "stage 1: the target is not that of stage 0"},
               {other_number, "stage 1: train.eps is not that of stage 0"},
               {other_text, "stage 1: train.precision is not that of stage 0"},
               {other_shape, "\"fc1.weight\" is not the same in all stages that have it"},
               {other_init, "\"fc1.bias\" is not the same in all stages that have it"},
               {other_stream, "\"fc1.bias\" is not the same in all stages that have it"},
               {other_state, "is not the same in all stages that have it"},
               {no_pipeline, "stage 1: distributed.pipeline is not that of stage 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    Plan *plan[] = {stage_of(arena, 0), stage_of(arena, 1), stage_of(arena, 2)};
    cases[i].change(plan[1]);
    check_refused(arena, plan, STAGES, cases[i].expected);
    arena_free(arena);
  }
}

static void test_number(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan[] = {stage_of(arena, 0), stage_of(arena, 1), stage_of(arena, 2), stage_of(arena, 2)};
  check_refused(arena, plan, 2, "stage 2: line 1: this is not a plan");
  check_refused(arena, plan, 4, "there is something behind the last plan");
  check_refused(arena, &plan[1], 2, "stage 1 stands in the place of stage 0");
  Plan *alone[] = {sample(arena), sample(arena)};
  check_refused(arena, alone, 2, "there is something behind the last plan");
  arena_free(arena);
}

/* The line that says which stage it is. */
static void test_line(void **state) {
  (void)state;
  static const struct {
    const char *old, *fresh, *expected;
  } cases[] = {{"stage 0 of 3\n", "", "the stage line is missing"},
               {"stage 0 of 3\n", "stage 3 of 3\n", "the stage"},
               {"stage 0 of 3\n", "stage 0 of 4\n", "distributed.pipeline"},
               {"stage 0 of 3\n", "stage 0 of 3\nstage 0 of 3\n", "a second stage line"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    Text text = {0}, changed = {0};
    plan_print(stage_of(arena, 0), &text);
    const char *at = strstr(text_cstr(&text), cases[i].old), *why = NULL;
    const char *end = strstr(text_cstr(&text), "checksum ");
    assert_true(at && end);
    text_append(&changed, text.at, (size_t)(at - text.at));
    text_printf(&changed, "%s", cases[i].fresh);
    at += strlen(cases[i].old);
    text_append(&changed, at, (size_t)(end - at));
    uint64_t sum = plan_checksum(changed.at, changed.count);
    text_printf(&changed, "checksum %016" PRIx64 "\n", sum);
    PlanStages stages;
    assert_false(plan_parse_stages(arena, changed.at, changed.count, &stages, &why));
    if (!strstr(why, cases[i].expected)) fail_msg("%s; expected %s", why, cases[i].expected);
    text_free(&text);
    text_free(&changed);
    arena_free(arena);
  }
}

/* A stage may take the rows of all parts of a batch in one run; what is said of an input's values is
 * then of the rows of one part. */
static void test_parts_at_once(void **state) {
  (void)state;
  static const PlanPart of_one = {.count = {1, 8}, .step = {1, 1}, .below = 5};
  static const PlanPart of_two = {.count = {2, 8}, .step = {1, 1}, .below = 5};
  static const struct {
    const char *parts;
    const PlanPart *box;
    const char *expected;
  } cases[] = {{"4", NULL, NULL},
               {"4", &of_one, NULL},
               {"4", &of_two, "input \"image\" has not the rows of 4 parts"},
               {"2", &of_two, NULL},
               {"3", NULL, "input \"image\" has not the rows of 3 parts"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    Plan *plan[] = {stage_of(arena, 0), stage_of(arena, 1), stage_of(arena, 2)};
    for (int s = 0; s < STAGES; s++) {
      PlanProgramme *step = (PlanProgramme *)(uintptr_t)plan_find_programme(plan[s], PROGRAMME_STEP);
      step->runs.at[0] = step->runs.at[1];
      step->runs.count = 1;
      set(plan[s], "train.accumulate", cases[i].parts);
      plan[s]->inputs.at[0].parts = (PlanPart *)(uintptr_t)cases[i].box;
      plan[s]->inputs.at[0].part_count = cases[i].box != NULL;
    }
    PlanStages stages;
    const char *why = NULL;
    if (cases[i].expected) {
      check_refused(arena, plan, STAGES, cases[i].expected);
    } else {
      if (!read_stages(arena, plan, STAGES, &stages, &why)) fail_msg("case %zu: %s", i, why);
      assert_int_equal(plan_parts_at_once(stages.at[1]), atoi(cases[i].parts));
    }
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stages), cmocka_unit_test(test_differences),
      cmocka_unit_test(test_number), cmocka_unit_test(test_line),
      cmocka_unit_test(test_parts_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
