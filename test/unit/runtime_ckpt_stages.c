/* ckpt: files hold the tensors of all stages of a pipeline; a rank takes its own, knows those of the
 * others, and says what no stage has. */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors.h"
#include "test/unit/runtime_ckpt_help.h"

/* As if another stage had the parameter. */
static PlanStages before;
static void add_stage(const char *name) {
  Arena *arena = artifact->plan->arena;
  Plan *other = ARENA_NEW(arena, Plan);
  PlanStages both = {ARENA_ARRAY(arena, Plan *, 2), 2};
  *other = *artifact->plan;
  other->params.at = ARENA_ARRAY(arena, PlanTensor, 2);
  other->params.at[0] = artifact->plan->params.at[SMALL_WEIGHT];
  other->params.at[0].name = name;
  other->params.count = 1;
  both.at[0] = artifact->plan;
  both.at[1] = other;
  before = artifact->stages;
  artifact->stages = both;
}

static void weights(void **state) {
  (void)state;
  float values[12] = {1, 2, 3};
  const uint8_t *data = (const uint8_t *)values;
  SafeTensor all[] = {{"fc1.weight", ELEMENT_F32, {2, {3, 4}}, data, 48},
                      {"fc1.bias", ELEMENT_F32, {1, {3}}, data, 12},
                      {"bn.running_mean", ELEMENT_F32, {1, {3}}, data, 12},
                      {"fc2.weight", ELEMENT_F32, {1, {3}}, data, 12},
                      {"fc3.weight", ELEMENT_F32, {1, {3}}, data, 12}};
  const char *path = data_path("stages.safetensors");
  assert_int_equal(safetensors_write(path, all, 5, NULL, 0, false), 0);
  Text notes = {0};
  assert_int_equal(ckpt_load_weights(exec, path, &notes), 0);
  assert_non_null(strstr(text_cstr(&notes), "2 tensors are not in the model and ignored: "
                                            "fc2.weight, fc3.weight"));
  text_free(&notes);
  add_stage("fc2.weight");
  assert_int_equal(ckpt_load_weights(exec, path, &notes), 0);
  assert_non_null(strstr(text_cstr(&notes), "1 tensor is not in the model and ignored: fc3.weight"));
  text_free(&notes);
  artifact->stages = before;
}

static void checkpoints(void **state) {
  (void)state;
  const char *folder = data_path("ck");
  CkptInfo info = {.step = 5, .batch = 8, .samples = 100};
  char *used = NULL;
  help_randomise(4, 5);
  Values saved = help_values(false);
  assert_int_equal(ckpt_save_step(exec, folder, &info, 1), 0);
  artifact->plan->params.count = 1; /* the bias is no more this rank's */
  assert_int_equal(ckpt_resume(exec, folder, &info, &used, NULL), STATUS_USER);
  assert_non_null(strstr(status_message(), "holds fc1.bias, which this training does not have"));
  free(used);
  used = NULL;
  add_stage("fc1.bias");
  help_randomise(7, 0);
  if (ckpt_resume(exec, folder, &info, &used, NULL) != STATUS_OK) fail_msg("%s", status_message());
  free(used);
  Values now = help_values(false);
  assert_memory_equal(now.weight, saved.weight, sizeof now.weight);
  assert_int_equal(now.step, 5);
  artifact->stages = before;
  artifact->plan->params.count = 2;
}

static int setup(void **state) { return help_setup(state, false); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(weights), cmocka_unit_test(checkpoints)};
  return cmocka_run_group_tests(tests, setup, help_teardown);
}
