/* Images in folders and transforms: the same bytes whatever the workers and wherever the loader
 * starts, the order of files and classes, arrays of images, and what is refused. What the pixels are
 * is held against Pillow by test/e2e/images.py. */
#include "runtime/data/loader.h"
#include "test/unit/runtime_data.h"
#include <sys/stat.h>

enum { BATCH = 4, SIDE = 6, PIXELS = SIDE * SIDE, BYTES = BATCH * PIXELS * 3, TARGET = 448 };
enum { CLASSES = 3, EACH = 7, SAMPLES = CLASSES * EACH, PER_EPOCH = SAMPLES / BATCH };
static const char *const class_names[CLASSES] = {"ant", "bee", "cat"};

static Arena *arena;
static Plan plan;

static void put32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static size_t put_chunk(uint8_t *at, const char *type, const uint8_t *bytes, size_t count) {
  put32(at, (uint32_t)count);
  memcpy(at + 4, type, 4);
  if (count) memcpy(at + 8, bytes, count);
  put32(at + 8 + count, (uint32_t)crc32(0, at + 4, (uInt)count + 4));
  return count + 12;
}

/* An RGB image whose pixels follow from its number and their place. */
static size_t make_png(int number, int height, int width, uint8_t *out) {
  uint8_t head[13] = {0}, rows[4096], packed[8192];
  uLongf size = sizeof packed;
  int count = 0;
  for (int y = 0; y < height; y++) {
    rows[count++] = 0;
    for (int x = 0; x < width * 3; x++) rows[count++] = (uint8_t)(number * 31 + y * 17 + x * 5);
  }
  assert_int_equal(compress(packed, &size, rows, (uLong)count), Z_OK);
  put32(head, (uint32_t)width), put32(head + 4, (uint32_t)height);
  head[8] = 8, head[9] = 2;
  memcpy(out, "\x89PNG\r\n\x1a\n", 8);
  size_t at = 8;
  at += put_chunk(out + at, "IHDR", head, sizeof head);
  at += put_chunk(out + at, "IDAT", packed, size);
  return at + put_chunk(out + at, "IEND", NULL, 0);
}

static void write_png(const char *name, int number, int height, int width) {
  uint8_t png[16384];
  data_write(name, png, make_png(number, height, width, png));
}

static void make_folder(const char *name) { assert_int_equal(mkdir(data_path(name), 0777), 0); }

/* The arguments of the row of transforms.def that it has by itself, but for the first. */
static Transform transform_of(const char *name, TransformArgument first) {
  Transform out = {.kind = transform_find(name)};
  for (int i = 0; i < transform_parameter_count(out.kind); i++)
    out.argument[i] = out.kind->parameter[i].otherwise;
  out.argument[0] = first;
  return out;
}

static int setup(void **state) {
  if (data_setup(state)) return -1;
  arena = arena_new();
  plan.arena = arena;
  plan.source = "test.ft";
  plan.settings = settings_new(arena);
  const char *why;
  setting_set(arena, plan.settings, setting_find("train.batch"), "4", &why);
  PlanTensor image = {.name = "image", .type = {DT_U8, {4, {BATCH, 3, SIDE, SIDE}}}};
  PlanTensor label = {.name = "label", .type = {DT_I32, {1, {BATCH}}}, .offset = TARGET};
  label.below = CLASSES;
  VEC_PUSH(arena, plan.inputs, image);
  VEC_PUSH(arena, plan.inputs, label);
  static const char *files[] = {"photos"};
  static Transform chain[3];
  chain[0] = transform_of("random_resized_crop", (TransformArgument){1, {SIDE}});
  chain[1] = transform_of("hflip", (TransformArgument){1, {0.5}});
  chain[2] = transform_of("vflip", (TransformArgument){1, {0.5}});
  DataSource data = {.split = "train",
                     .kind = "folder",
                     .files = files,
                     .file_count = 1,
                     .transforms = chain,
                     .transform_count = 3};
  VEC_PUSH(arena, plan.sources, data);
  make_folder("photos");
  for (int c = CLASSES; c-- > 0;) { /* the folder lists them in any order */
    char name[64];
    snprintf(name, sizeof name, "photos/%s", class_names[c]);
    make_folder(name);
    for (int i = EACH; i-- > 0;) {
      snprintf(name, sizeof name, "photos/%s/%c.png", class_names[c], 'a' + i);
      write_png(name, c * EACH + i, 7 + i, 9 + c);
    }
  }
  data_write("photos/ant/notes.txt", "no image", 8);
  return 0;
}

static int teardown(void **state) {
  arena_free(arena);
  return data_teardown(state);
}

static Source *open_source(void) {
  Source *source;
  if (source_open(&plan, "train", &(SourcePlaces){.data_dir = data_folder}, &source) != STATUS_OK)
    fail_msg("%s", status_message());
  return source;
}

static void refuses_source(const char *what) {
  Source *source;
  assert_int_equal(source_open(&plan, "train", &(SourcePlaces){.data_dir = data_folder}, &source),
                   STATUS_USER);
  assert_null(source);
  if (!strstr(status_message(), what)) fail_msg("message: %s", status_message());
}

/* Steps [first, end) into `out`, a batch behind the other. */
static void run_loader(const Source *source, int workers, int slots, int64_t first, int64_t end,
                       uint8_t *out) {
  _Alignas(64) static uint8_t memory[9][512];
  void *slot[9];
  for (int i = 0; i < 9; i++) slot[i] = memory[i];
  LoaderOptions options = {.source = source,
                           .batch = BATCH,
                           .shuffle = true,
                           .seed = 5,
                           .first_step = first,
                           .end_step = end,
                           .workers = workers,
                           .slots = slot,
                           .slot_count = slots};
  Loader *loader;
  assert_int_equal(loader_new(&options, &loader), STATUS_OK);
  for (int64_t step = first; step < end; step++) {
    const void *batch;
    if (loader_next(loader, &batch) != STATUS_OK) fail_msg("%s", status_message());
    memcpy(out + (step - first) * 512, batch, 512);
  }
  loader_free(loader);
}

enum { STEPS = 3 * PER_EPOCH };

static void workers_change_nothing(void **state) {
  (void)state;
  static uint8_t expected[STEPS * 512], bytes[STEPS * 512];
  static const int workers[] = {0, 1, 2, 4, 16};
  Source *source = open_source();
  assert_true(source_is_single(source) && source_is_random(source) && !source_is_cheap(source));
  run_loader(source, 0, 1, 0, STEPS, expected);
  for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
    for (int slots = workers[i] ? 2 : 1; slots <= 9; slots += 3) {
      run_loader(source, workers[i], slots, 0, STEPS, bytes);
      assert_memory_equal(bytes, expected, sizeof bytes);
      for (int64_t first = 1; first < STEPS; first += 4) { /* as a resumed run does */
        run_loader(source, workers[i], slots, first, STEPS, bytes);
        assert_memory_equal(bytes, expected + first * 512, (size_t)(STEPS - first) * 512);
      }
    }
  assert_memory_not_equal(expected, expected + PER_EPOCH * 512, BYTES); /* another epoch */
  source_close(source);
}

/* What is kept is what would be read: all of it, a part, and where it is kept behind a resize. */
static void kept_images(void **state) {
  (void)state;
  static uint8_t expected[STEPS * 512], bytes[STEPS * 512];
  static Transform chain[3];
  const char *why;
  DataSource before = plan.sources.at[0];
  chain[0] = transform_of("resize", (TransformArgument){1, {8}});
  chain[1] = transform_of("random_crop", (TransformArgument){1, {SIDE}});
  chain[2] = before.transforms[1];
  plan.sources.at[0].transforms = chain;
  Source *source = open_source();
  run_loader(source, 0, 1, 0, STEPS, expected);
  source_close(source);
  static const char *const budgets[] = {"1000000", "2500", "100"};
  for (int i = 0; i < 3; i++) {
    setting_set(arena, plan.settings, setting_find("data.cache"), budgets[i], &why);
    for (int workers = 0; workers <= 4; workers += 2) {
      source = open_source();
      for (int again = 0; again < 2; again++) {
        run_loader(source, workers, workers ? 5 : 1, 0, STEPS, bytes);
        assert_memory_equal(bytes, expected, sizeof bytes);
      }
      source_close(source);
    }
  }
  setting_set(arena, plan.settings, setting_find("data.cache"), "1000000", &why);
  source = open_source();
  run_loader(source, 0, 1, 0, PER_EPOCH, bytes);
  assert_int_equal(rename(data_path("photos"), data_path("gone")), 0);
  SourceWorker *worker;
  uint8_t batch[512];
  int64_t sample[BATCH];
  assert_int_equal(source_worker_new(source, 5, &worker), STATUS_OK);
  int found = 0; /* an epoch leaves out what fills no batch */
  for (int i = 0; i < SAMPLES; i++) {
    for (int k = 0; k < BATCH; k++) sample[k] = i;
    found += source_fill(source, worker, sample, batch) == STATUS_OK;
  }
  assert_int_equal(found, PER_EPOCH * BATCH);
  source_worker_free(worker);
  source_close(source);
  assert_int_equal(rename(data_path("gone"), data_path("photos")), 0);
  setting_set(arena, plan.settings, setting_find("data.cache"), "0", &why);
  plan.sources.at[0] = before;
}

/* Ranks have the rows of the whole batch, and a step that takes two parts those of both. */
static void ranks_and_parts(void **state) {
  (void)state;
  static uint8_t alone[STEPS * 512];
  _Alignas(64) static uint8_t memory[2][1024];
  void *slot[2] = {memory[0], memory[1]};
  Source *source = open_source();
  run_loader(source, 0, 1, 0, STEPS, alone);
  for (int workers = 0; workers <= 3; workers += 3)
    for (int64_t rank = 0; rank < 2; rank++) {
      LoaderOptions options = {.source = source,
                               .batch = BATCH,
                               .shuffle = true,
                               .seed = 5,
                               .rank = rank,
                               .ranks = 2,
                               .end_step = 4,
                               .workers = workers,
                               .slots = slot,
                               .slot_count = 2};
      Loader *loader;
      const void *batch;
      assert_int_equal(loader_new(&options, &loader), STATUS_OK);
      for (int64_t step = 0; step < 2; step++) { /* of the first epoch */
        assert_int_equal(loader_next(loader, &batch), STATUS_OK);
        assert_memory_equal(batch, alone + (2 * step + rank) * 512, BYTES);
      }
      loader_free(loader);
    }
  source_close(source);
  PlanTensor before[2] = {plan.inputs.at[0], plan.inputs.at[1]};
  for (int i = 0; i < 2; i++) plan.inputs.at[i].type.shape.dim[0] = 2 * BATCH;
  plan.inputs.at[1].offset = 2 * TARGET;
  source = open_source();
  for (int workers = 0; workers <= 3; workers += 3) {
    LoaderOptions options = {.source = source,
                             .batch = BATCH,
                             .shuffle = true,
                             .seed = 5,
                             .parts = 2,
                             .end_step = 4,
                             .workers = workers,
                             .slots = slot,
                             .slot_count = 2};
    Loader *loader;
    const void *batch;
    assert_int_equal(loader_new(&options, &loader), STATUS_OK);
    for (int64_t step = 0; step < 2; step++) {
      assert_int_equal(loader_next(loader, &batch), STATUS_OK);
      for (int part = 0; part < 2; part++)
        assert_memory_equal((const uint8_t *)batch + part * BYTES, alone + (2 * step + part) * 512,
                            BYTES);
    }
    loader_free(loader);
  }
  source_close(source);
  plan.inputs.at[0] = before[0], plan.inputs.at[1] = before[1];
}

static void files_in_order(void **state) {
  (void)state;
  _Alignas(64) uint8_t batch[512];
  Transform crop = transform_of("center_crop", (TransformArgument){1, {SIDE}});
  DataSource before = plan.sources.at[0];
  plan.sources.at[0].transforms = &crop;
  plan.sources.at[0].transform_count = 1;
  Source *source = open_source();
  assert_false(source_is_random(source));
  assert_int_equal(source_samples(source), SAMPLES);
  SourceWorker *worker;
  assert_int_equal(source_worker_new(source, 0, &worker), STATUS_OK);
  for (int i = 0; i < SAMPLES; i++) {
    int64_t sample[BATCH] = {i, i, i, i};
    assert_int_equal(source_fill(source, worker, sample, batch), STATUS_OK);
    int height = 7 + i % EACH, width = 9 + i / EACH; /* Python's round of the half */
    int y = (height - SIDE) / 2, x = (width - SIDE) / 2;
    if ((height - SIDE) % 2) y += y & 1;
    if ((width - SIDE) % 2) x += x & 1;
    assert_int_equal(((const int32_t *)(batch + TARGET))[3], i / EACH);
    for (int c = 0; c < 3; c++)
      for (int k = 0; k < PIXELS; k++)
        assert_int_equal(batch[c * PIXELS + k],
                         (uint8_t)(i * 31 + (y + k / SIDE) * 17 + ((x + k % SIDE) * 3 + c) * 5));
  }
  Text text = {0};
  assert_int_equal(source_describe(source, 2, &text), STATUS_OK);
  assert_non_null(strstr(text_cstr(&text), "21 files of 3 classes"));
  assert_non_null(strstr(text_cstr(&text), "in each of 2 workers"));
  text_free(&text);
  source_worker_free(worker);
  source_close(source);
  plan.sources.at[0] = before;
}

/* One damaged file: the loader names it, in any number of workers, and only when its batch is due. */
static void names_what_is_damaged(void **state) {
  (void)state;
  uint8_t png[16384];
  size_t count = make_png(9, 9, 10, png);
  data_write("photos/bee/c.png", png, count / 2);
  Source *source = open_source();
  for (int workers = 0; workers <= 4; workers += 2) {
    _Alignas(64) static uint8_t memory[3][512];
    void *slot[3] = {memory[0], memory[1], memory[2]};
    LoaderOptions options = {.source = source,
                             .batch = BATCH,
                             .end_step = 100,
                             .workers = workers,
                             .slots = slot,
                             .slot_count = 3};
    Loader *loader;
    const void *batch;
    assert_int_equal(loader_new(&options, &loader), STATUS_OK);
    for (int step = 0; step < 2; step++) assert_int_equal(loader_next(loader, &batch), STATUS_OK);
    assert_int_equal(loader_next(loader, &batch), STATUS_USER); /* sample 9 is in batch 2 */
    if (!strstr(status_message(), "train: sample 9, ") ||
        !strstr(status_message(), "/photos/bee/c.png "))
      fail_msg("message: %s", status_message());
    loader_free(loader);
  }
  data_write("photos/bee/c.png", "", 0);
  SourceWorker *worker;
  uint8_t batch[512];
  int64_t sample[BATCH] = {9, 9, 9, 9};
  assert_int_equal(source_worker_new(source, 0, &worker), STATUS_OK);
  assert_int_equal(source_fill(source, worker, sample, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "photos/bee/c.png is empty"));
  unlink(data_path("photos/bee/c.png"));
  assert_int_equal(source_fill(source, worker, sample, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "photos/bee/c.png: No such file"));
  source_worker_free(worker);
  source_close(source);
  write_png("photos/bee/c.png", 9, 9, 10);
}

static void refuses_folders(void **state) {
  (void)state;
  DataSource before = plan.sources.at[0];
  make_folder("photos/dog");
  refuses_source("photos/dog holds no image (.jpg, .jpeg, .png)");
  write_png("photos/dog/1.png", 1, 8, 8);
  refuses_source("folders for 4 classes, but input label takes 0 to 2");
  unlink(data_path("photos/dog/1.png"));
  rmdir(data_path("photos/dog"));
  data_write("photos/bee/x.bmp", "BM", 2);
  refuses_source("photos/bee/x.bmp: folder() reads .jpg, .jpeg and .png");
  unlink(data_path("photos/bee/x.bmp"));
  assert_int_equal(symlink("..", data_path("photos/bee/up")), 0);
  refuses_source("more than 32 folders deep");
  unlink(data_path("photos/bee/up"));
  plan.sources.at[0].files = (const char *[]){"photos/ant"};
  refuses_source("photos/ant has no folders: each class is one");
  plan.sources.at[0].files = (const char *[]){"photos/ant/a.png"};
  refuses_source("photos/ant/a.png is no folder");
  plan.sources.at[0].files = (const char *[]){"nothing"};
  refuses_source("nothing not found in");
  plan.sources.at[0] = before;
  plan.sources.at[0].transform_count = 0;
  refuses_source("no transform makes the images of folder(...) of one size");
  plan.sources.at[0] = before;
  plan.inputs.at[0].type.dtype = DT_F32;
  refuses_source("but image is f32[4,3,6,6]");
  plan.inputs.at[0].type = (Type){DT_U8, {4, {BATCH, 2, SIDE, SIDE}}};
  refuses_source("but image is u8[4,2,6,6]");
  plan.inputs.at[0].type = (Type){DT_U8, {4, {BATCH, 3, SIDE, SIDE}}};
  plan.inputs.at[1].type.dtype = DT_F32;
  refuses_source("classes are for an input of i32[B], but label is f32[4]");
  plan.inputs.at[1].type.dtype = DT_I32;
}

/* What a plan may say and the compiler never does: the chain does not make the input's size. */
static void sizes_that_differ(void **state) {
  (void)state;
  Transform crop = transform_of("random_crop", (TransformArgument){1, {SIDE + 1}});
  DataSource before = plan.sources.at[0];
  plan.sources.at[0].transforms = &crop;
  plan.sources.at[0].transform_count = 1;
  Source *source = open_source();
  SourceWorker *worker;
  uint8_t batch[512];
  int64_t sample[BATCH] = {0};
  assert_int_equal(source_worker_new(source, 0, &worker), STATUS_OK);
  assert_int_equal(source_fill(source, worker, sample, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "is 7 x 7 (height x width) of 3 channels behind its"));
  crop.argument[0].number[0] = 8; /* sample 0 is 7 x 9 */
  assert_int_equal(source_fill(source, worker, sample, batch), STATUS_USER);
  assert_non_null(strstr(status_message(), "is 7 x 9 (height x width), too small for random_crop"));
  source_worker_free(worker);
  source_close(source);
  plan.sources.at[0] = before;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_change_nothing), cmocka_unit_test(kept_images),
      cmocka_unit_test(ranks_and_parts),        cmocka_unit_test(files_in_order),
      cmocka_unit_test(names_what_is_damaged),  cmocka_unit_test(refuses_folders),
      cmocka_unit_test(sizes_that_differ)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
