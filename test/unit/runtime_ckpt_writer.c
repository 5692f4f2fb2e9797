/* ckpt_writer: a checkpoint is written by a thread of its own while the training goes on: it holds
 * what was there when it was asked for, a second one waits for the first, a failure is told once;
 * and whatever the size of the pieces and the order in memory, the file is the same. */
#include <stdatomic.h>
static void may_be_delayed(void);
#define CKPT_WRITER_MAY_BE_DELAYED() may_be_delayed()
#include "runtime/checkpoint/ckpt_writer.c"

#include "test/unit/runtime_ckpt_help.h"
#include <sys/stat.h>
#include <time.h>

static atomic_bool is_shut; /* the writer waits until it is opened */

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }
static void may_be_delayed(void) {
  while (atomic_load(&is_shut)) rest();
}
static void *open_later(void *unused) {
  for (int i = 0; i < 30; i++) rest();
  atomic_store(&is_shut, false);
  return unused;
}

static void holds(const char *path, const Values *expected) {
  CkptInfo info;
  bool is_damaged;
  help_randomise(99, 99);
  if (ckpt_resume_file(exec, path, &info, &is_damaged)) fail_msg("%s", status_message());
  Values now = help_values(true);
  help_equal(&now, expected);
}

static void goes_on(void **state) {
  (void)state;
  CkptWriter *writer = NULL;
  char folder[200], best[256], step[256];
  snprintf(folder, sizeof folder, "%s", data_path("on"));
  snprintf(best, sizeof best, "%s/best.safetensors", folder);
  snprintf(step, sizeof step, "%s/step-00000007.safetensors", folder);
  assert_int_equal(ckpt_writer_new(exec, NULL, &writer), 0);
  help_randomise(7, 7);
  Values before = help_values(true);
  CkptInfo info = {.step = 7};
  atomic_store(&is_shut, true);
  assert_int_equal(ckpt_writer_add(writer, folder, &info, 0), 0);
  assert_int_equal(ckpt_writer_add(writer, folder, &info, 2), 0);
  assert_int_equal(ckpt_writer_start(writer, true), 0);
  assert_false(ckpt_writer_is_waited_for(writer));
  help_randomise(8, 8); /* the training goes on */
  assert_int_equal(ckpt_writer_result(writer, false), 0);
  assert_int_equal(ckpt_writer_saved_step(writer), -1);
  assert_int_not_equal(access(step, F_OK), 0);
  pthread_t other;
  assert_int_equal(pthread_create(&other, NULL, open_later, NULL), 0);
  info.step = 8; /* waits for the one under way */
  assert_int_equal(ckpt_writer_add(writer, folder, &info, 2), 0);
  assert_int_equal(access(step, F_OK), 0);
  assert_int_equal(access(best, F_OK), 0);
  assert_int_equal(ckpt_writer_result(writer, false), 0);
  assert_int_equal(ckpt_writer_saved_step(writer), 7);
  Values later = help_values(true);
  assert_int_equal(ckpt_writer_start(writer, false), 0); /* the last one: written at once */
  assert_int_equal(ckpt_writer_result(writer, false), 0);
  assert_int_equal(ckpt_writer_saved_step(writer), 8);
  pthread_join(other, NULL);
  ckpt_writer_free(writer);
  holds(step, &before);
  holds(best, &before);
  step[strlen(folder) + 13] = '8';
  holds(step, &later);
}

static void failures(void **state) {
  (void)state;
  CkptWriter *writer = NULL;
  char folder[200];
  CkptInfo info = {.step = 3};
  data_write("file", "x", 1);
  snprintf(folder, sizeof folder, "%s", data_path("file"));
  assert_int_equal(ckpt_writer_new(exec, NULL, &writer), 0);
  for (int goes_on = 0; goes_on < 2; goes_on++) {
    assert_int_equal(ckpt_writer_add(writer, folder, &info, 1), 0);
    assert_int_equal(ckpt_writer_start(writer, goes_on), STATUS_USER);
    assert_non_null(strstr(status_message(), "cannot make the folder"));
    assert_int_equal(ckpt_writer_result(writer, true), STATUS_OK); /* told once */
    assert_int_equal(ckpt_writer_saved_step(writer), -1);
  }
  for (int by_next = 0; by_next < 2; by_next++) { /* what its thread fails with */
    char name[240];
    snprintf(name, sizeof name, "%s/step-00000003.safetensors", data_path("taken"));
    assert_int_equal(ckpt_writer_add(writer, data_path("taken"), &info, 1), 0);
    atomic_store(&is_shut, true);
    assert_int_equal(ckpt_writer_start(writer, true), 0);
    assert_int_equal(mkdir(name, 0777), 0); /* a file cannot take a folder's place */
    atomic_store(&is_shut, false);
    assert_int_equal(by_next ? ckpt_writer_add(writer, data_path("good"), &info, 1)
                             : ckpt_writer_result(writer, true),
                     STATUS_USER);
    assert_non_null(strstr(status_message(), "cannot write"));
    assert_int_equal(ckpt_writer_result(writer, true), STATUS_OK); /* told once */
    assert_int_equal(rmdir(name), 0);
    assert_int_equal(rmdir(data_path("taken")), 0); /* no temporary file is left */
  }
  assert_int_equal(ckpt_writer_add(writer, data_path("good"), &info, 1), 0);
  assert_int_equal(ckpt_writer_start(writer, true), 0);
  ckpt_writer_free(writer); /* waits */
  assert_int_equal(access(data_path("good/step-00000003.safetensors"), F_OK), 0);
}

/* One that is never started, and an Exec that ends while one is written. */
static void left_alone(void **state) {
  (void)state;
  CkptWriter *writer = NULL;
  CkptInfo info = {.step = 1};
  assert_int_equal(ckpt_writer_new(exec, NULL, &writer), 0);
  assert_int_equal(ckpt_writer_start(writer, true), 0);
  assert_int_equal(ckpt_writer_add(writer, data_path("alone"), &info, 1), 0);
  ckpt_writer_free(writer);
  ckpt_writer_free(NULL);
  assert_int_not_equal(access(data_path("alone"), F_OK), 0);
}

static void pieces(void **state) {
  (void)state;
  static const Storage orders[] = {{{0}, {0}}, {{2, {3, 4}}, {1, 0}}, {{3, {3, 2, 2}}, {2, 0, 1}}};
  const char *path = data_path("pieces.safetensors");
  CkptInfo info = {.step = 5};
  PlanTensor *weight = &artifact->plan->params.at[SMALL_WEIGHT];
  Storage kept = weight->storage;
  for (int order = 0; order < 3; order++) {
    Text whole = {0};
    weight->storage = orders[order];
    help_randomise(5, 5);
    Values before = help_values(true);
    ExecSnapshot *snapshot, *none;
    CkptFile *file;
    assert_int_equal(ckpt_begin(exec, NULL, NULL, path, &info, &file), 0);
    CkptRanges ranges = ckpt_file_ranges(file);
    assert_int_equal(exec_snapshot_new(exec, ranges.at, ranges.count, SNAPSHOT_ANYWHERE, &snapshot),
                     0);
    assert_non_null(snapshot);
    assert_false(exec_snapshot_is_on_device(snapshot)); /* the cpu's memory is the host's */
    assert_int_equal(exec_snapshot_new(exec, ranges.at, ranges.count, SNAPSHOT_ON_DEVICE, &none),
                     0);
    assert_null(none);
    ckpt_file_free(file);
    char byte;
    assert_int_equal(exec_snapshot_read(snapshot, PLACE_PARAMS, SMALL_PARAM_BYTES, 1, &byte),
                     STATUS_FAULT);
    help_randomise(6, 6);
    for (int64_t piece = 0; piece < 64; piece += 4) {
      Text made = {0};
      assert_int_equal(ckpt_begin(exec, NULL, NULL, path, &info, &file), 0);
      assert_int_equal(
          ckpt_file_end(file, ckpt_file_write(file, snapshot, piece ? piece + 4 : 0)), 0);
      assert_int_equal(text_read_file(piece ? &made : &whole, path), 0);
      if (!piece) continue;
      assert_int_equal(made.count, whole.count);
      assert_memory_equal(made.at, whole.at, whole.count);
      text_free(&made);
    }
    exec_snapshot_free(snapshot);
    holds(path, &before);
    text_free(&whole);
  }
  weight->storage = kept;
}

static int setup(void **state) { return help_setup(state, true); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on), cmocka_unit_test(failures),
                                     cmocka_unit_test(left_alone), cmocka_unit_test(pieces)};
  return cmocka_run_group_tests(tests, setup, help_teardown);
}
