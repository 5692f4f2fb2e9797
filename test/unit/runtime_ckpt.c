/* ckpt: weights and checkpoints of a model without kernels: what is written is read back, the
 * newest whole file is taken, old ones go, and what does not fit is refused by name. */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors.h"
#include "test/unit/runtime_ckpt_help.h"
#include <sys/stat.h>

static void weights_round_trip(void **state) {
  (void)state;
  const char *path = data_path("w.safetensors");
  help_randomise(1, 9);
  Values saved = help_values(false);
  assert_int_equal(ckpt_save_weights(exec, NULL, path), 0);
  help_randomise(2, 4);
  Values other = help_values(false);
  assert_memory_not_equal(saved.weight, other.weight, sizeof saved.weight);
  assert_int_equal(ckpt_load_weights(exec, path, NULL), 0);
  Values loaded = help_values(false);
  /* moments and the step are the training's, not the model's */
  memcpy(saved.moment, other.moment, sizeof other.moment);
  saved.step = other.step;
  help_equal(&loaded, &saved);
  Safetensors *file;
  assert_int_equal(safetensors_open(path, &file), 0);
  assert_int_equal(file->tensor_count, 3);
  safetensors_close(file);
}

static void checkpoints_round_trip(void **state) {
  (void)state;
  const char *folder = data_path("deep/er/ck");
  Values saved[7];
  for (int64_t step = 1; step < 7; step++) {
    help_randomise((uint64_t)step, step);
    saved[step] = help_values(false);
    CkptInfo info = {.step = step,
                     .seed = 0xfedcba9876543210u,
                     .batch = 8,
                     .samples = 100,
                     .is_shuffled = true,
                     .has_best = true,
                     .best = 0.1,
                     .stop = {"min(valid.loss)", true, -0.3, 4, "valid.accuracy > 0.5"}};
    assert_int_equal(ckpt_save_step(exec, folder, &info, 3), 0);
  }
  CkptInfo info;
  char *used, path[256];
  help_randomise(99, 0);
  assert_int_equal(ckpt_resume(exec, folder, &info, &used, NULL), 0);
  assert_non_null(strstr(used, "step-00000006.safetensors"));
  free(used);
  Values now = help_values(false);
  help_equal(&now, &saved[6]);
  assert_true(info.step == 6 && info.seed == 0xfedcba9876543210u && info.batch == 8 &&
              info.samples == 100 && info.is_shuffled && info.has_best && info.best == 0.1);
  assert_true(info.stop.has_best && info.stop.best == -0.3 && info.stop.waited == 4);
  assert_string_equal(info.stop.metric, "min(valid.loss)");
  assert_string_equal(info.stop.reached, "valid.accuracy > 0.5");
  for (int step = 1; step < 7; step++) { /* three are kept */
    snprintf(path, sizeof path, "%s/step-%08d.safetensors", folder, step);
    assert_int_equal(access(path, F_OK) == 0, step > 3);
  }
  /* the newest is damaged, a temporary file lies about: the one before is taken */
  snprintf(path, sizeof path, "%s/step-00000006.safetensors", folder);
  assert_int_equal(truncate(path, 300), 0);
  snprintf(path, sizeof path, "%s/step-00000007.safetensors.123.tmp", folder);
  assert_int_equal(text_write_file(path, "x", 1), 0);
  assert_int_equal(ckpt_resume(exec, folder, &info, &used, NULL), 0);
  assert_non_null(strstr(used, "step-00000005"));
  now = help_values(false);
  help_equal(&now, &saved[5]);
  /* a checkpoint's weights can start a new training */
  help_randomise(50, 0);
  Text notes = {0};
  assert_int_equal(ckpt_load_weights(exec, used, &notes), 0);
  assert_string_equal(text_cstr(&notes), "");
  now = help_values(false);
  assert_memory_equal(now.weight, saved[5].weight, sizeof now.weight);
  assert_int_equal(now.step, 0);
  free(used);
}

static void refused(const SafeTensor *tensors, int count, const char *what) {
  const char *path = data_path("bad.safetensors");
  assert_int_equal(safetensors_write(path, tensors, count, NULL, 0, false), 0);
  help_randomise(3, 0);
  Values before = help_values(false);
  assert_int_equal(ckpt_load_weights(exec, path, NULL), STATUS_USER);
  if (!strstr(status_message(), what)) fail_msg("message: %s", status_message());
  Values after = help_values(false);
  help_equal(&before, &after); /* nothing was half loaded */
}

static void wrong_weights(void **state) {
  (void)state;
  float zeros[16] = {0};
  const uint8_t *data = (const uint8_t *)zeros;
  SafeTensor weight = {"fc1.weight", ELEMENT_F32, {2, {3, 4}}, data, 48};
  SafeTensor bias = {"fc1.bias", ELEMENT_F32, {1, {3}}, data, 12};
  SafeTensor typo = {"fc1.wieght", ELEMENT_F32, {2, {3, 4}}, data, 48};
  SafeTensor turned = {"fc1.weight", ELEMENT_F32, {2, {4, 3}}, data, 48};
  SafeTensor whole = {"fc1.weight", ELEMENT_I64, {2, {3, 4}}, data, 0};
  SafeTensor mean = {"bn.running_mean", ELEMENT_F32, {1, {3}}, data, 12};
  int64_t numbers[12] = {0};
  whole.data = (const uint8_t *)numbers, whole.bytes = 96;
  refused(&bias, 1, "lacks 1 of the model's 2 parameters: fc1.weight");
  refused((SafeTensor[]){typo, bias}, 2, "fc1.weight (the file has fc1.wieght); not in the model");
  refused((SafeTensor[]){turned, bias, mean}, 3, "fc1.weight is f32[4,3] but the model's is f32[3,4]");
  refused((SafeTensor[]){whole, bias, mean}, 3, "fc1.weight is i64[3,4] but");
  refused((SafeTensor[]){weight, bias}, 2, "lacks bn.running_mean, which evaluations of the model read");
  /* unexpected tensors alone are told, not refused */
  SafeTensor count = {"bn.num_batches_tracked", ELEMENT_I64, {0, {0}}, (uint8_t *)numbers, 8};
  SafeTensor extra = {"head.weight", ELEMENT_F32, {1, {3}}, data, 12};
  const char *path = data_path("more.safetensors");
  Text notes = {0};
  SafeTensor all[] = {weight, bias, mean, count, extra};
  assert_int_equal(safetensors_write(path, all, 5, NULL, 0, false), 0);
  assert_int_equal(ckpt_load_weights(exec, path, &notes), 0);
  assert_non_null(
      strstr(text_cstr(&notes), "1 tensor is not in the model and ignored: head.weight"));
  text_free(&notes);
}

/* f16, bf16 and f64 weights. */
static void other_types(void **state) {
  (void)state;
  uint16_t halves[12], brains[3];
  for (int i = 0; i < 12; i++) halves[i] = half_from_float((float)i - 5.5f);
  for (int i = 0; i < 3; i++) brains[i] = bfloat_from_float((float)i * 0.5f);
  double means[3] = {1.25, -2, 3};
  SafeTensor tensors[] = {
      {"fc1.weight", ELEMENT_F16, {2, {3, 4}}, (uint8_t *)halves, 24},
      {"fc1.bias", ELEMENT_BF16, {1, {3}}, (uint8_t *)brains, 6},
      {"bn.running_mean", ELEMENT_F64, {1, {3}}, (uint8_t *)means, 24},
  };
  const char *path = data_path("types.safetensors");
  assert_int_equal(safetensors_write(path, tensors, 3, NULL, 0, false), 0);
  assert_int_equal(ckpt_load_weights(exec, path, NULL), 0);
  Values now = help_values(false);
  for (int i = 0; i < 12; i++) assert_true(now.weight[i] == (float)i - 5.5f);
  for (int i = 0; i < 3; i++)
    assert_true(now.bias[i] == (float)i * 0.5f && now.mean[i] == (float)means[i]);
}

static void wrong_checkpoints(void **state) {
  (void)state;
  CkptInfo info;
  char *used;
  assert_int_equal(ckpt_save_weights(exec, NULL, data_path("w.safetensors")), 0);
  assert_int_equal(ckpt_resume(exec, data_path("w.safetensors"), &info, &used, NULL), STATUS_USER);
  assert_non_null(strstr(status_message(), "--init"));
  free(used);
  assert_int_equal(ckpt_resume(exec, data_path("absent"), &info, &used, NULL), STATUS_USER);
  free(used);
  mkdir(data_path("none"), 0777);
  assert_int_equal(ckpt_resume(exec, data_path("none"), &info, &used, NULL), STATUS_USER);
  assert_non_null(strstr(status_message(), "holds no checkpoint"));
  free(used);
  data_write("file", "x", 1);
  info = (CkptInfo){0};
  assert_int_equal(ckpt_save_step(exec, data_path("file"), &info, 1), STATUS_USER);
  assert_int_equal(ckpt_save_step(exec, data_path("file/sub"), &info, 1), STATUS_USER);
}

/* A lock in this process keeps out another, and ends with it; the file goes with it. */
static void locks(void **state) {
  (void)state;
  CkptLock *lock, *other;
  char expected[64], folder[256];
  snprintf(folder, sizeof folder, "%s", data_path("locked/deep"));
  assert_int_equal(ckpt_lock(folder, &lock), 0);
  assert_int_equal(ckpt_lock(folder, &other), STATUS_USER);
  snprintf(expected, sizeof expected, "(process %d on host ", (int)getpid());
  assert_non_null(strstr(status_message(), expected));
  assert_non_null(strstr(status_message(), folder));
  ckpt_unlock(lock);
  assert_int_not_equal(access(data_path("locked/deep/.lock"), F_OK), 0);
  data_write("locked/deep/.lock", "left by a kill", 14);
  assert_int_equal(ckpt_lock(folder, &lock), 0);
  ckpt_unlock(lock);
  data_write("victim", "precious", 8); /* a link is not followed */
  assert_int_equal(symlink(data_path("victim"), data_path("locked/deep/.lock")), 0);
  assert_int_equal(ckpt_lock(folder, &lock), STATUS_USER);
  struct stat info;
  assert_true(stat(data_path("victim"), &info) == 0 && info.st_size == 8);
}

static int setup(void **state) { return help_setup(state, false); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_round_trip), cmocka_unit_test(checkpoints_round_trip),
      cmocka_unit_test(wrong_weights),      cmocka_unit_test(other_types),
      cmocka_unit_test(wrong_checkpoints),  cmocka_unit_test(locks),
  };
  return cmocka_run_group_tests(tests, setup, help_teardown);
}
