/* loader: the same batches whatever the number of workers and wherever it starts; errors arrive;
 * it ends while batches are pending. Run under ThreadSanitizer too. */
#include "runtime/data/loader.h"
#include "runtime/common/order.h"
#include "test/unit/runtime_data.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SAMPLES = 103, BATCH = 8, ROW = 5, PER_EPOCH = SAMPLES / BATCH };

static Arena *arena;
static Plan plan;
static Source *source;

static void write_idx(const char *name, int rank, const uint32_t *dim, uint8_t (*value)(int)) {
  uint8_t file[4096] = {0, 0, 8, (uint8_t)rank};
  int count = 1, at = 4;
  for (int i = 0; i < rank; i++, at += 4) {
    file[at + 2] = (uint8_t)(dim[i] >> 8), file[at + 3] = (uint8_t)dim[i];
    count *= (int)dim[i];
  }
  for (int i = 0; i < count; i++) file[at + i] = value(i);
  data_write_gzip(name, file, (size_t)(at + count), 6);
}
static uint8_t pixel(int i) { return (uint8_t)(i / ROW * 2 + i % ROW); }
static uint8_t label(int i) { return (uint8_t)i; }

static int setup(void **state) {
  if (data_setup(state)) return -1;
  arena = arena_new();
  plan.arena = arena;
  plan.source = "test.ft";
  plan.settings = settings_new(arena);
  const char *why;
  setting_set(arena, plan.settings, setting_find("train.batch"), "8", &why);
  PlanTensor image = {.name = "image", .type = {DT_U8, {2, {BATCH, ROW}}}};
  PlanTensor target = {.name = "label", .type = {DT_I32, {1, {BATCH}}}, .offset = 64};
  VEC_PUSH(arena, plan.inputs, image);
  VEC_PUSH(arena, plan.inputs, target);
  static const char *files[] = {"images", "labels"};
  DataSource data = {.split = "train", .kind = "idx", .files = files, .file_count = 2};
  VEC_PUSH(arena, plan.sources, data);
  write_idx("images", 2, (uint32_t[]){SAMPLES, ROW}, pixel);
  write_idx("labels", 1, (uint32_t[]){SAMPLES}, label);
  return source_open(&plan, "train", &(SourcePlaces){.data_dir = data_folder}, &source);
}
static int teardown(void **state) {
  source_close(source);
  arena_free(arena);
  return data_teardown(state);
}

static void check_batch(const uint8_t *batch, int64_t step, bool shuffle) {
  Order order = order_new(SAMPLES, shuffle, 5, (uint64_t)(step / PER_EPOCH));
  for (int i = 0; i < BATCH; i++) {
    int64_t sample = order_sample(&order, step % PER_EPOCH * BATCH + i);
    assert_int_equal(((const int32_t *)(batch + 64))[i], sample);
    for (int j = 0; j < ROW; j++) assert_int_equal(batch[i * ROW + j], (uint8_t)(sample * 2 + j));
  }
}

static void run(int workers, int slots, int64_t first, int64_t end, int64_t stop, bool shuffle) {
  _Alignas(64) static uint8_t memory[9][128];
  void *slot[9];
  for (int i = 0; i < 9; i++) slot[i] = memory[i];
  LoaderOptions options = {.source = source,
                           .batch = BATCH,
                           .shuffle = shuffle,
                           .seed = 5,
                           .first_step = first,
                           .end_step = end,
                           .workers = workers,
                           .slots = slot,
                           .slot_count = slots};
  Loader *loader;
  assert_int_equal(loader_new(&options, &loader), STATUS_OK);
  for (int64_t step = first; step < stop; step++) {
    const void *batch;
    assert_int_equal(loader_next(loader, &batch), STATUS_OK);
    check_batch(batch, step, shuffle);
  }
  loader_free(loader);
}

static void any_number_of_workers(void **state) {
  (void)state;
  for (int workers = 0; workers <= 4; workers++)
    for (int slots = workers ? 2 : 1; slots <= 9; slots += 1 + slots / 3)
      run(workers, slots, 0, 60, 60, true);
  run(2, 5, 0, 40, 40, false);
}

/* The ranks' batches, one behind the other, are those of one loader with a batch of all of them;
 * epochs are whole groups of these. */
static void ranks_share_a_batch(void **state) {
  (void)state;
  _Alignas(64) uint8_t memory[1][128];
  void *slot[1] = {memory[0]};
  for (int64_t ranks = 1; ranks <= 4; ranks++)
    for (int64_t group = 1; group <= 3; group++)
      for (int64_t rank = 0; rank < ranks; rank++) {
        int64_t whole = ranks * BATCH, epoch = SAMPLES / (whole * group) * group;
        LoaderOptions options = {.source = source, .batch = BATCH, .rank = rank, .ranks = ranks,
                                 .group = group, .shuffle = true, .seed = 5, .end_step = 40,
                                 .slots = slot, .slot_count = 1};
        Loader *loader;
        assert_int_equal(loader_new(&options, &loader), STATUS_OK);
        for (int64_t step = 0; step < 40; step++) {
          const void *batch;
          Order order = order_new(SAMPLES, true, 5, (uint64_t)(step / epoch));
          assert_int_equal(loader_next(loader, &batch), STATUS_OK);
          for (int64_t i = 0; i < BATCH; i++)
            assert_int_equal(((const int32_t *)((const uint8_t *)batch + 64))[i],
                             order_sample(&order, step % epoch * whole + rank * BATCH + i));
        }
        loader_free(loader);
      }
}

/* A stage of a pipeline takes all parts of a batch at once: the samples that its ranks would have in
 * runs of one part each. */
static void parts_at_once(void **state) {
  (void)state;
  enum { PARTS = 3 };
  _Alignas(64) uint8_t memory[1][256];
  void *slot[1] = {memory[0]};
  const char *why;
  Plan wide = plan;
  Source *all;
  wide.settings = settings_new(arena);
  setting_set(arena, wide.settings, setting_find("train.batch"), "8", &why);
  setting_set(arena, wide.settings, setting_find("train.accumulate"), "3", &why);
  PlanTensor input[] = {plan.inputs.at[0], plan.inputs.at[1]};
  for (int i = 0; i < 2; i++) input[i].type.shape.dim[0] *= PARTS;
  input[1].offset = 128;
  wide.inputs.at = input;
  plan_add_run(&wide, PROGRAMME_STEP, (PlanRun){.graph = 0});
  assert_int_equal(plan_parts_at_once(&wide), PARTS);
  assert_int_equal(source_open(&wide, "train", &(SourcePlaces){.data_dir = data_folder}, &all),
                   STATUS_OK);
  for (int64_t ranks = 1; ranks <= 3; ranks++)
    for (int64_t rank = 0; rank < ranks; rank++) {
      int64_t whole = ranks * BATCH, epoch = SAMPLES / (whole * PARTS);
      LoaderOptions options = {.source = all, .batch = BATCH, .rank = rank, .ranks = ranks,
                               .parts = PARTS, .shuffle = true, .seed = 5, .end_step = 20,
                               .slots = slot, .slot_count = 1};
      Loader *loader;
      assert_int_equal(loader_new(&options, &loader), STATUS_OK);
      for (int64_t step = 0; step < 20; step++) {
        const void *batch;
        Order order = order_new(SAMPLES, true, 5, (uint64_t)(step / epoch));
        assert_int_equal(loader_next(loader, &batch), STATUS_OK);
        for (int64_t i = 0; i < PARTS * BATCH; i++) {
          int64_t part = step % epoch * PARTS + i / BATCH;
          int64_t sample = order_sample(&order, part * whole + rank * BATCH + i % BATCH);
          assert_int_equal(((const int32_t *)((const uint8_t *)batch + 128))[i], sample);
          assert_int_equal(((const uint8_t *)batch)[i * ROW + 1], (uint8_t)(sample * 2 + 1));
        }
      }
      loader_free(loader);
    }
  source_close(all);
}

static void starts_and_stops_anywhere(void **state) {
  (void)state;
  run(2, 4, 17, 40, 40, true);
  run(1, 4, 1000000007, 1000000030, 1000000030, true);
  run(3, 9, 0, 1000, 0, true);
  run(3, 9, 0, 1000, 5, true);
  run(1, 2, 3, 3, 3, true);
}

/* Without workers, while other threads make the next batch whenever they like. */
static Loader *ahead;
static atomic_bool is_over;
static void *fill_ahead(void *unused) {
  while (!atomic_load(&is_over)) {
    loader_fill_ahead(ahead);
    sched_yield();
  }
  return unused;
}
static void filled_aside(void **state) {
  (void)state;
  enum { STEPS = 4000 };
  _Alignas(64) static uint8_t memory[2][128];
  void *slot[2] = {memory[0], memory[1]};
  LoaderOptions options = {.source = source, .batch = BATCH, .shuffle = true, .seed = 5};
  options.end_step = STEPS, options.slots = slot, options.slot_count = 2, options.aside = true;
  assert_int_equal(loader_new(&options, &ahead), STATUS_OK);
  atomic_store(&is_over, false);
  pthread_t thread[2];
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, fill_ahead, NULL), 0);
  const void *batch, *before = NULL;
  for (int64_t step = 0; step < STEPS; step++) {
    if (step % 3 == 0) sched_yield();
    assert_int_equal(loader_next(ahead, &batch), STATUS_OK);
    assert_ptr_not_equal(batch, before); /* the one in use is never written */
    check_batch(batch, step, true);
    before = batch;
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  loader_free(ahead);
}

static void repeats_the_first(void **state) {
  (void)state;
  _Alignas(64) uint8_t memory[3][128];
  void *slots[] = {memory[0], memory[1], memory[2]};
  LoaderOptions options = {.source = source,
                           .batch = BATCH,
                           .shuffle = true,
                           .seed = 5,
                           .end_step = 30,
                           .workers = 1,
                           .slots = slots,
                           .slot_count = 3,
                           .repeat_first = true};
  Loader *loader;
  assert_int_equal(loader_new(&options, &loader), STATUS_OK);
  for (int i = 0; i < 30; i++) {
    const void *batch;
    assert_int_equal(loader_next(loader, &batch), STATUS_OK);
    check_batch(batch, 0, true);
  }
  loader_free(loader);
}

/* Sample 50 of this split does not fit the label's type: the steps before it are handed out. */
static void error_arrives(void **state) {
  (void)state;
  Text file = {0};
  text_append(&file, "\x93NUMPY\1\0\x50\0", 10);
  text_printf(&file, "%-79s\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (103,)}");
  for (int64_t i = 0; i < SAMPLES; i++) {
    int64_t value = i == 50 ? 1ll << 35 : i;
    text_append(&file, (const char *)&value, 8);
  }
  data_write("big.npy", file.at, file.count);
  text_free(&file);
  const char *files[] = {"images.npy", "big.npy"};
  Text images = {0};
  text_append(&images, "\x93NUMPY\1\0\x50\0", 10);
  text_printf(&images, "%-79s\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (103, 5)}");
  for (int i = 0; i < SAMPLES * ROW; i++) text_append(&images, (char[]){(char)pixel(i)}, 1);
  data_write("images.npy", images.at, images.count);
  text_free(&images);
  DataSource good = plan.sources.at[0];
  plan.sources.at[0] =
      (DataSource){.split = "train", .kind = "npy", .files = files, .file_count = 2};
  Source *bad;
  assert_int_equal(source_open(&plan, "train", &(SourcePlaces){.data_dir = data_folder}, &bad), 0);
  for (int workers = 0; workers <= 3; workers++) {
    _Alignas(64) uint8_t memory[5][128];
    void *slots[] = {memory[0], memory[1], memory[2], memory[3], memory[4]};
    LoaderOptions options = {.source = bad,
                             .batch = BATCH,
                             .end_step = 12,
                             .workers = workers,
                             .slots = slots,
                             .slot_count = 5};
    Loader *loader;
    const void *batch;
    assert_int_equal(loader_new(&options, &loader), STATUS_OK);
    for (int step = 0; step < 50 / BATCH; step++) {
      assert_int_equal(loader_next(loader, &batch), STATUS_OK);
      check_batch(batch, step, false);
    }
    assert_int_equal(loader_next(loader, &batch), STATUS_USER);
    assert_non_null(strstr(status_message(), "sample 50 of big.npy"));
    loader_free(loader);
  }
  source_close(bad);
  plan.sources.at[0] = good;
}

static void mismatch(const char *kind, const char *a, const char *b, const char *what) {
  const char *files[] = {a, b};
  DataSource good = plan.sources.at[0];
  plan.sources.at[0] =
      (DataSource){.split = "train", .kind = kind, .files = files, .file_count = b ? 2 : 1};
  Source *bad;
  assert_int_equal(source_open(&plan, "train", &(SourcePlaces){.data_dir = data_folder}, &bad),
                   STATUS_USER);
  if (!strstr(status_message(), what)) fail_msg("message: %s", status_message());
  plan.sources.at[0] = good;
}

static void wrong_data(void **state) {
  (void)state;
  write_idx("wide", 2, (uint32_t[]){SAMPLES, ROW + 1}, pixel);
  write_idx("few", 1, (uint32_t[]){SAMPLES - 1}, label);
  mismatch("idx", "wide", "labels",
           "train: samples are u8[6] in wide but the model's input image wants u8[5]");
  mismatch("idx", "labels", "labels", "samples are u8[] in labels");
  mismatch("idx", "images", "few", "images holds 103 samples but few holds 102");
  mismatch("idx", "images", NULL, "names 1 file but the model has 2 inputs (image, label)");
  mismatch("idx", "images", "absent.gz", "with --data no other folder is searched");
  mismatch("idx", "train-images-idx3-ubyte.xz", "labels", "apt install dataset-fashion-mnist");
  mismatch("pictures", "images", "labels", "'pictures' is not known: there are idx, npy");
  Source *none;
  assert_int_equal(source_open(&plan, "valid", &(SourcePlaces){0}, &none), STATUS_USER);
  assert_non_null(strstr(status_message(), "no valid data"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_workers), cmocka_unit_test(starts_and_stops_anywhere),
      cmocka_unit_test(ranks_share_a_batch),   cmocka_unit_test(filled_aside),
      cmocka_unit_test(parts_at_once),
      cmocka_unit_test(repeats_the_first),     cmocka_unit_test(error_arrives),
      cmocka_unit_test(wrong_data),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
