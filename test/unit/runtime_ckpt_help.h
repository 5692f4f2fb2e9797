/* runtime_ckpt_help: the small model (runtime_small.h) that the tests of checkpoints train, and
 * what it holds. */
#ifndef FT_TEST_RUNTIME_CKPT_HELP_H
#define FT_TEST_RUNTIME_CKPT_HELP_H
#include "test/unit/runtime_data.h"
#include "test/unit/runtime_small.h"

static Artifact *artifact;
static Exec *exec;

static inline int help_setup(void **state, bool is_sliced) {
  static const char *const names[SMALL_NAMES] = {"fc1.weight", "fc1.bias", "bn.running_mean",
                                                 "@adam.m"};
  if (data_setup(state)) return -1;
  if (small_open(names, is_sliced, &artifact, &exec) == STATUS_OK) return 0;
  fprintf(stderr, "%s\n", status_message());
  return -1;
}
static inline int help_teardown(void **state) {
  Arena *arena = artifact->plan->arena;
  exec_free(exec);
  artifact_close(artifact);
  arena_free(arena);
  return data_teardown(state);
}

/* is_sliced: of the moment the parts that belong to a parameter, else all. No padding. */
typedef struct {
  float weight[12], bias[3], mean[3], moment[32];
  int64_t step;
} Values;
static inline Values help_values(bool is_sliced) {
  Values v = {0};
  assert_int_equal(exec_read(exec, PLACE_PARAMS, 0, 48, v.weight), 0);
  assert_int_equal(exec_read(exec, PLACE_PARAMS, 64, 12, v.bias), 0);
  assert_int_equal(exec_read(exec, PLACE_STATE, 0, 12, v.mean), 0);
  assert_int_equal(exec_read(exec, PLACE_STATE, 64, is_sliced ? 48 : 128, v.moment), 0);
  if (is_sliced) assert_int_equal(exec_read(exec, PLACE_STATE, 128, 12, v.moment + 16), 0);
  assert_int_equal(exec_step(exec, &v.step), 0);
  return v;
}
static inline void help_equal(const Values *a, const Values *b) {
  assert_memory_equal(a, b, sizeof *a);
}
static inline void help_randomise(uint64_t seed, int64_t step) {
  assert_int_equal(exec_init(exec, seed), 0);
  assert_int_equal(exec_set_step(exec, step), 0);
}
#endif
