/* tokens: texts and token files cut into windows: what each input gets, moved windows, the last
 * one, headers; and every damaged file refused in one sentence. */
#include "runtime/data/tokens.h"
#include "runtime/data/source.h"
#include "test/unit/runtime_data.h"
#include <math.h>

enum { BATCH = 2, T = 4 };
static Arena *arena;

/* A plan with inputs of i32[BATCH,T], `inputs` of them, and one split. */
static Plan *plan_of(int inputs, const char *kind, int bits) {
  static const char *names[] = {"text", "next", "third"}, *files[] = {"data"};
  static DataOption options[1];
  Plan *plan = ARENA_NEW(arena, Plan);
  const char *why;
  plan->arena = arena;
  plan->source = "test.ft";
  plan->settings = settings_new(arena);
  setting_set(arena, plan->settings, setting_find("train.batch"), "2", &why);
  for (int i = 0; i < inputs; i++) {
    PlanTensor input = {.name = names[i], .type = {DT_I32, {2, {BATCH, T}}}, .offset = 64 * i};
    VEC_PUSH(arena, plan->inputs, input);
  }
  options[0] = (DataOption){.name = "dtype", .text = bits == 32 ? "u32" : "u16"};
  DataSource data = {.split = "train",
                     .kind = kind,
                     .files = files,
                     .file_count = 1,
                     .options = options,
                     .option_count = bits > 0};
  VEC_PUSH(arena, plan->sources, data);
  return plan;
}

static Status open_it(const Plan *plan, Source **out) {
  return source_open(plan, "train", &(SourcePlaces){.data_dir = data_folder}, out);
}

static void check_window(const Source *source, int64_t index, int32_t first, bool has_next) {
  int32_t batch[64];
  int64_t sample[BATCH] = {index, index};
  assert_int_equal(source_fill(source, NULL, sample, batch), STATUS_OK);
  for (int row = 0; row < BATCH; row++)
    for (int i = 0; i < T; i++) {
      assert_int_equal(batch[row * T + i], first + i);
      if (has_next) assert_int_equal(batch[16 + row * T + i], first + i + 1);
    }
}

static void windows(void **state) {
  (void)state;
  uint8_t bytes[16];
  uint16_t half[16];
  uint32_t word[16];
  for (int i = 0; i < 16; i++) word[i] = half[i] = bytes[i] = (uint8_t)(100 + i);
  for (int form = 0; form < 6; form++) {
    static const size_t each[] = {1, 2, 4};
    const void *data[] = {bytes, half, word};
    int kind = form % 3, inputs = form < 3 ? 2 : 1, count = form < 3 ? 15 : 16;
    data_write("data", data[kind], each[kind] * (size_t)count);
    Source *source;
    const Plan *plan = plan_of(inputs, kind ? "tokens" : "bytes", kind == 2 ? 32 : 0);
    assert_int_equal(open_it(plan, &source), STATUS_OK);
    assert_true(source_is_text(source));
    assert_int_equal(source_samples(source), inputs == 2 ? 3 : 4); /* 15 = 3 * 4 + 1 + 2 left */
    check_window(source, 0, 100, inputs == 2);
    check_window(source, 2, 108, inputs == 2);
    check_window(source, 1 + 2 * source_samples(source), 106, inputs == 2); /* moved by two */
    int64_t last = source_samples(source) - 1; /* moved beyond the end: the last that fits */
    check_window(source, last + 3 * source_samples(source), inputs == 2 ? 110 : 112, inputs == 2);
    source_close(source);
  }
}

static void moves(void **state) {
  (void)state;
  data_write("data", "abcdefghijklmnopqrstuvwxyz", 26);
  Source *source;
  assert_int_equal(open_it(plan_of(2, "bytes", 0), &source), STATUS_OK);
  bool seen[T] = {false};
  for (uint64_t epoch = 0; epoch < 60; epoch++) {
    int64_t moved = source_moved(source, 7, epoch);
    assert_int_equal(moved, source_moved(source, 7, epoch));
    assert_int_equal(moved % source_samples(source), 0);
    assert_in_range(moved / source_samples(source), 0, T - 1);
    seen[moved / source_samples(source)] = true;
  }
  for (int i = 0; i < T; i++) assert_true(seen[i]);
  source_close(source);
}

static size_t with_header(uint8_t *file, uint32_t magic, uint32_t version, uint32_t count,
                          size_t each) {
  uint32_t head[3] = {magic, version, count};
  memset(file, 0, 1024);
  memcpy(file, head, sizeof head);
  for (uint32_t i = 0; i < count; i++) {
    memset(file + 1024 + i * each, 0, each);
    file[1024 + i * each] = (uint8_t)(i + 1);
  }
  return 1024 + count * each;
}

static void headers(void **state) {
  (void)state;
  uint8_t file[2048];
  Source *source;
  data_write("data", file, with_header(file, 20240520, 1, 9, 2));
  assert_int_equal(open_it(plan_of(2, "tokens", 16), &source), STATUS_OK);
  assert_int_equal(source_samples(source), 2);
  check_window(source, 1, 5, true);
  source_close(source);
  data_write("data", file, with_header(file, 20240801, 7, 9, 4));
  assert_int_equal(open_it(plan_of(2, "tokens", 32), &source), STATUS_OK);
  check_window(source, 0, 1, true);
  source_close(source);
}

static void refuse(const Plan *plan, const char *what) {
  Source *source;
  assert_int_equal(open_it(plan, &source), STATUS_USER);
  assert_null(source);
  if (!strstr(status_message(), what)) fail_msg("'%s' does not say '%s'", status_message(), what);
  assert_null(strchr(status_message(), '\n'));
}

static void refused(void **state) {
  (void)state;
  uint8_t file[2048];
  size_t size = with_header(file, 20240520, 1, 9, 2);
  data_write("data", file, size - 1);
  refuse(plan_of(2, "tokens", 16), "is truncated: it holds 1041 bytes but its header promises 9");
  data_write("data", file, size + 1);
  refuse(plan_of(2, "tokens", 16), "is damaged: it holds 1043 bytes");
  data_write("data", file, size);
  refuse(plan_of(2, "tokens", 32), "holds u16 tokens, as its header says: write dtype=u16");
  data_write("data", file, with_header(file, 20240520, 2, 9, 2));
  refuse(plan_of(2, "tokens", 16),
         "is a token file of version 2; the version that can be read is 1");
  data_write("data", file, with_header(file, 20240520, 1, 0xffffffff, 0));
  refuse(plan_of(2, "tokens", 16), "is truncated");
  data_write("data", "abcde", 5);
  refuse(plan_of(2, "tokens", 16), "its 5 bytes are no multiple of 2");
  data_write("data", "abcd", 4);
  refuse(plan_of(2, "bytes", 0), "holds 4 tokens, but one sample takes 5");
  data_write("data", "", 0);
  refuse(plan_of(2, "bytes", 0), "is empty");
  data_write_gzip("data", "abcd", 4, 6);
  refuse(plan_of(2, "bytes", 0), "holds 4 tokens, but one sample takes 5");
  data_write("data", "abcdefghijkl", 12);
  refuse(plan_of(3, "bytes", 0), "a text is for one input (tokens) or two (tokens and the ones that follow), not 3");
  Plan *remote = plan_of(2, "bytes", 0);
  remote->sources.at[0].files = (const char *[]){"https://example.org/data"};
  refuse(remote, "is not on this machine, and no other files are read: copy it here first (curl");
  Plan *plan = plan_of(2, "bytes", 0);
  plan->inputs.at[1].type.shape.dim[1] = T + 1;
  refuse(plan, "tokens are for inputs of i32[B,T], but next is i32[2,5]");
  plan = plan_of(2, "bytes", 0);
  plan->inputs.at[0].type.dtype = DT_F32;
  refuse(plan, "but text is f32[2,4]");
  refuse(plan_of(2, "bytes", 16), "bytes has no option 'dtype'; it has limit");
  plan = plan_of(2, "tokens", 16);
  DataOption *option = plan->sources.at[0].options;
  option->text = NULL, option->number = 16.5;
  refuse(plan, "dtype=16.5: it must be u16 or u32");
  option->text = "u64";
  refuse(plan, "dtype=\"u64\": it must be u16 or u32");
  option->name = "limit";
  refuse(plan, "limit=\"u64\": it must be a positive integer");
  option->text = NULL, option->number = 0;
  refuse(plan, "limit=0: it must be a positive integer");
  option->number = NAN;
  refuse(plan, "limit=nan: it must be a positive integer");
}

/* A token that the input's type cannot hold. */
static void too_large(void **state) {
  (void)state;
  uint32_t word[9] = {1, 2, 3, 4, 5, 6, 0x80000000u, 8, 9};
  data_write("data", word, sizeof word);
  Source *source;
  assert_int_equal(open_it(plan_of(2, "tokens", 32), &source), STATUS_OK);
  int64_t sample[BATCH] = {0, 1};
  int32_t batch[64];
  assert_int_equal(source_fill(source, NULL, sample, batch), STATUS_USER);
  assert_non_null(
      strstr(status_message(), "sample 1 of data holds a number that does not fit i32"));
  source_close(source);
}

static int setup(void **state) {
  arena = arena_new();
  return data_setup(state);
}
static int teardown(void **state) {
  arena_free(arena);
  return data_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(windows), cmocka_unit_test(moves),
                                     cmocka_unit_test(headers), cmocka_unit_test(refused),
                                     cmocka_unit_test(too_large)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
