/* safetensors: what the writer writes the reader reads, and damage is refused. */
#include "runtime/checkpoint/safetensors_sum.h"
#include "test/unit/runtime_data.h"
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const float weight[6] = {1, 2, 3, 4, 5, 6};
static const int64_t step[1] = {77};
static const uint8_t flags[3] = {1, 0, 1};
static uint8_t sequence[256];
static const SafeTensor tensors[] = {
    {"flags", ELEMENT_BOOL, {1, {3}}, flags, 3},
    {"fc.\"weight\"", ELEMENT_F32, {2, {2, 3}}, (const uint8_t *)weight, 24},
    {"step", ELEMENT_I64, {0, {0}}, (const uint8_t *)step, 8},
    {"nothing", ELEMENT_F32, {2, {0, 5}}, flags, 0},
    {"table", ELEMENT_I8, {1, {256}}, sequence, 256}, /* more than a block of the sum */
};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const SafeText texts[] = {{"format", "x"}, {"a\\b", "line\nend"}};

static void round_trip(void **state) {
  (void)state;
  const char *path = data_path("a.safetensors");
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, false), STATUS_OK);
  Safetensors *file;
  assert_int_equal(safetensors_open(path, &file), STATUS_OK);
  assert_int_equal(file->tensor_count, TENSORS);
  for (int i = 0; i < TENSORS; i++) {
    const SafeTensor *tensor = safetensors_find(file, tensors[i].name);
    assert_non_null(tensor);
    assert_int_equal(tensor->element, tensors[i].element);
    assert_true(shape_equal(&tensor->shape, &tensors[i].shape));
    assert_int_equal(tensor->bytes, tensors[i].bytes);
    assert_memory_equal(tensor->data, tensors[i].data, tensor->bytes);
    if (tensor->bytes)
      assert_int_equal((uintptr_t)tensor->data % element_bytes(tensor->element), 0);
  }
  assert_null(safetensors_find(file, "absent"));
  assert_string_equal(safetensors_text(file, "a\\b"), "line\nend");
  assert_null(safetensors_text(file, "absent"));
  safetensors_close(file);
  Text first = {0}, second = {0};
  assert_int_equal(text_read_file(&first, path), 0);
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, false), STATUS_OK);
  assert_int_equal(text_read_file(&second, path), 0);
  assert_int_equal(first.count, second.count);
  assert_memory_equal(first.at, second.at, first.count);
  text_free(&first);
  text_free(&second);
}

/* Header and data as given. */
static Status parse(const char *json, size_t data_bytes) {
  uint8_t *bytes = calloc(1, 8 + strlen(json) + data_bytes);
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(strlen(json) >> (8 * i));
  memcpy(bytes + 8, json, strlen(json));
  Safetensors *file;
  Status status = safetensors_read(bytes, 8 + strlen(json) + data_bytes, &file);
  safetensors_close(file);
  free(bytes);
  return status;
}

static void refused(const char *json, size_t data_bytes, const char *what) {
  assert_int_equal(parse(json, data_bytes), STATUS_USER);
  if (!strstr(status_message(), what)) fail_msg("%s: message: %s", json, status_message());
}

static void damaged(void **state) {
  (void)state;
  assert_int_equal(parse("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8), 0);
  assert_int_equal(parse("{}   ", 0), STATUS_OK);
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "1 bytes follow");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "f32[3]");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "damaged");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "damaged");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "not valid");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "not valid");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
          "damaged");
  refused("{\"w\":{\"dtype\":\"F8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, "type F8");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "not valid");
  refused("{\"w\":[]}", 0, "not valid");
  refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
          "\"v\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[3,8]}}",
          8, "overlaps");
  refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
          "\"v\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[5,8]}}",
          8, "hole");
  refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
          "\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
          0, "duplicate");
  refused("{\"__metadata__\":{\"a\":1}}", 0, "not a string");
  refused("{\"w\":", 0, "not valid JSON");
  refused("[1,2]", 0, "not a safetensors file");
  uint8_t short_file[12] = {200, 0, 0, 0, 0, 0, 0, 0, '{'};
  Safetensors *file;
  assert_int_equal(safetensors_read(short_file, 12, &file), STATUS_USER);
  assert_non_null(strstr(status_message(), "truncated"));
  memset(short_file, 0xff, 8);
  assert_int_equal(safetensors_read(short_file, 12, &file), STATUS_USER);
  assert_int_equal(safetensors_read(short_file, 7, &file), STATUS_USER);
  assert_null(file);
  assert_int_equal(safetensors_open(data_path("absent"), &file), STATUS_USER);
  assert_int_equal(safetensors_open(data_folder, &file), STATUS_USER);
}

/* Every prefix of a good file is refused. */
static void cut(void **state) {
  (void)state;
  assert_int_equal(safetensors_write(data_path("a"), tensors, 4, texts, 2, false), STATUS_OK);
  Text whole = {0};
  assert_int_equal(text_read_file(&whole, data_path("a")), 0);
  for (size_t count = 0; count < whole.count; count++) {
    Safetensors *file;
    assert_int_equal(safetensors_read((const uint8_t *)whole.at, count, &file), STATUS_USER);
  }
  text_free(&whole);
}

/* One process makes the file, two more write shares of it in pieces of any length and in any order:
 * the same file as of data in memory. Before it is finished, the old file is there. */
static void by_several(void **state) {
  (void)state;
  for (int i = 0; i < 256; i++) sequence[i] = (uint8_t)(i * 37);
  char path[256];
  snprintf(path, sizeof path, "%s", data_path("shares.safetensors"));
  for (int has_sum = 0; has_sum < 2; has_sum++) {
    Text whole = {0};
    SafeLayout layout;
    assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, has_sum), STATUS_OK);
    assert_int_equal(text_read_file(&whole, path), 0);
    assert_int_equal(safetensors_layout(tensors, TENSORS, texts, 2, has_sum, &layout), STATUS_OK);
    for (size_t most = 1; most < 40; most++) {
      Text made = {0}, kept = {0};
      SafeFile *file[3];
      uint64_t sum[3];
      assert_int_equal(safetensors_file_make(path, &layout, &file[0]), STATUS_OK);
      for (int i = 1; i < 3; i++)
        assert_int_equal(safetensors_file_join(path, safetensors_file_temporary(file[0]), &layout,
                                               &file[i]),
                         STATUS_OK);
      for (int t = TENSORS - 1, turn = 0; t >= 0; t--)
        for (size_t at = 0, count; at < tensors[t].bytes; at += count) {
          count = tensors[t].bytes - at < most ? tensors[t].bytes - at : most;
          assert_int_equal(safetensors_file_write(file[turn++ % 3], layout.at[t] + at,
                                                  tensors[t].data + at, count),
                           STATUS_OK);
        }
      for (int i = 0; i < 3; i++)
        assert_int_equal(safetensors_file_sync(file[i], &sum[i]), STATUS_OK);
      assert_int_equal(text_read_file(&kept, path), 0);
      assert_memory_equal(kept.at, whole.at, whole.count);
      if (most % 2) {
        assert_int_equal(safetensors_file_finish(file[0], sum[0] + sum[1] + sum[2]), STATUS_OK);
      } else { /* the maker's end removes it */
        assert_int_equal(access(safetensors_file_temporary(file[0]), F_OK), 0);
      }
      char temporary[300];
      snprintf(temporary, sizeof temporary, "%s", safetensors_file_temporary(file[0]));
      for (int i = 0; i < 3; i++) safetensors_file_free(file[i]);
      assert_int_not_equal(access(temporary, F_OK), 0);
      assert_int_equal(text_read_file(&made, path), 0);
      assert_int_equal(made.count, whole.count);
      assert_memory_equal(made.at, whole.at, whole.count);
      text_free(&made);
      text_free(&kept);
    }
    safetensors_layout_free(&layout);
    text_free(&whole);
  }
}

/* Who joins in has the same file, and the same layout. */
static void joining(void **state) {
  (void)state;
  const char *path = data_path("joined.safetensors");
  SafeLayout layout, other;
  SafeFile *file, *none;
  assert_int_equal(safetensors_layout(tensors, TENSORS, texts, 2, true, &layout), STATUS_OK);
  assert_int_equal(safetensors_layout(tensors, TENSORS, texts, 1, true, &other), STATUS_OK);
  assert_int_equal(safetensors_file_make(path, &layout, &file), STATUS_OK);
  assert_int_equal(safetensors_file_join(path, "/nowhere/x", &layout, &none), STATUS_USER);
  assert_non_null(strstr(status_message(), "cannot open /nowhere/x, which rank 0 has made"));
  assert_null(none);
  assert_int_equal(safetensors_file_join(path, safetensors_file_temporary(file), &other, &none),
                   STATUS_FAULT);
  assert_non_null(strstr(status_message(), "is not the file that rank 0 has made"));
  safetensors_file_free(file);
  safetensors_layout_free(&layout);
  safetensors_layout_free(&other);
}

/* Words that change places, or a page that was never written, change the sum. */
static void sum_of_parts(void **state) {
  (void)state;
  enum { BYTES = 3 * 4096 + 5 };
  uint8_t *bytes = malloc(BYTES);
  uint64_t seed = 1, whole, parts = 0;
  assert_non_null(bytes);
  for (int i = 0; i < BYTES; i++) bytes[i] = (uint8_t)((seed = seed * 6364136223846793005u + 1) >> 56);
  whole = safetensors_sum_part(0, bytes, BYTES);
  for (size_t at = BYTES, count; at; at -= count) { /* backwards, in runs of 1 to 97 bytes */
    count = (seed = seed * 6364136223846793005u + 1) >> 40;
    count = count % 97 + 1 < at ? count % 97 + 1 : at;
    parts += safetensors_sum_part(at - count, bytes + at - count, count);
  }
  assert_true(parts == whole);
  static const size_t places[] = {0, 4, 1020, 4092, 4096, 8192, BYTES - 8};
  for (int a = 0; a < 7; a++)
    for (int b = 0; b < a; b++) {
      uint32_t x, y;
      memcpy(&x, bytes + places[a], 4);
      memcpy(&y, bytes + places[b], 4);
      memcpy(bytes + places[a], &y, 4);
      memcpy(bytes + places[b], &x, 4);
      assert_true(safetensors_sum_part(0, bytes, BYTES) != whole);
      memcpy(bytes + places[a], &x, 4);
      memcpy(bytes + places[b], &y, 4);
    }
  memset(bytes + 4096, 0, 4096);
  assert_true(safetensors_sum_part(0, bytes, BYTES) != whole);
  free(bytes);
}

/* The sum: any byte that is another one is noticed, in head and data alike; so is its absence. */
static void sum(void **state) {
  (void)state;
  const char *path = data_path("sum.safetensors");
  Safetensors *file;
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, false), STATUS_OK);
  assert_int_equal(safetensors_open(path, &file), STATUS_OK);
  assert_false(safetensors_sum_agrees(file));
  safetensors_close(file);
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, true), STATUS_OK);
  assert_int_equal(safetensors_open(path, &file), STATUS_OK);
  assert_true(safetensors_sum_agrees(file));
  assert_int_equal(file->text_count, 3);
  safetensors_close(file);
  Text whole = {0};
  assert_int_equal(text_read_file(&whole, path), 0);
  for (size_t i = 0; i < whole.count; i++) {
    static const char others[] = {0x01, 0x10, 0x20, ' ' ^ '\t', ' ' ^ '\n'};
    for (size_t k = 0; k < sizeof others; k++) {
      whole.at[i] ^= others[k];
      Status status = safetensors_read((const uint8_t *)whole.at, whole.count, &file);
      if (status == STATUS_OK && safetensors_sum_agrees(file))
        fail_msg("byte %zu of %zu may be another one", i, whole.count);
      safetensors_close(status == STATUS_OK ? file : NULL);
      whole.at[i] ^= others[k];
    }
  }
  text_free(&whole);
}

/* What is no regular file stays what it is, and a temporary name is nobody else's: the one that
 * could be guessed leads elsewhere. */
static void targets(void **state) {
  (void)state;
  char link[300], path[256], pipe[256];
  struct stat info;
  snprintf(path, sizeof path, "%s", data_path("t.safetensors"));
  snprintf(pipe, sizeof pipe, "%s", data_path("pipe"));
  assert_int_equal(mkfifo(pipe, 0666), 0);
  assert_int_equal(safetensors_write(pipe, tensors, 4, texts, 2, false), STATUS_USER);
  assert_non_null(strstr(status_message(), "no regular file"));
  assert_true(stat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
  char got[2] = "";
  int end = open(pipe, O_RDONLY | O_NONBLOCK); /* text goes straight into it */
  assert_int_equal(text_write_file(pipe, "x", 1), 0);
  assert_true(read(end, got, 1) == 1 && got[0] == 'x');
  close(end);
  assert_true(stat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
  assert_int_equal(safetensors_write(data_folder, tensors, 4, texts, 2, false), STATUS_USER);
  data_write("victim", "precious", 8);
  snprintf(link, sizeof link, "%s.%d.tmp", path, (int)getpid());
  assert_int_equal(symlink(data_path("victim"), link), 0);
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, false), STATUS_OK);
  assert_int_equal(text_write_file(path, "x", 1), 0);
  assert_true(stat(data_path("victim"), &info) == 0 && info.st_size == 8);
}

/* A write that fails half-way is a fault of the machine and leaves the old file. /dev/full cannot
 * be renamed over, a limit on file size can stand for a full disk. */
static void full_disk(void **state) {
  (void)state;
  const char *path = data_path("full.safetensors");
  assert_int_equal(safetensors_write(path, tensors, TENSORS, texts, 2, false), STATUS_OK);
  Text before = {0}, after = {0};
  assert_int_equal(text_read_file(&before, path), 0);
  struct rlimit old, small;
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 100;
  setrlimit(RLIMIT_FSIZE, &small);
  SafeTensor more = tensors[1];
  more.name = "other";
  Status status = safetensors_write(path, &more, 1, texts, 2, false);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_not_equal(status, STATUS_OK);
  assert_non_null(strstr(status_message(), path));
  assert_int_equal(text_read_file(&after, path), 0);
  assert_int_equal(before.count, after.count);
  assert_memory_equal(before.at, after.at, before.count);
  text_free(&before);
  text_free(&after);
}

/* ── no memory for jansson, which goes on without a letter ──────────────────────────────────── */
static int64_t allocations, fails_at;
static void *failing(size_t bytes) { return ++allocations == fails_at ? NULL : malloc(bytes); }

static void no_memory(void **state) {
  (void)state;
  static const char name[] = "a.name.that.is.longer.than.a.few.letters";
  const char *path = data_path("names.safetensors");
  SafeTensor tensor = tensors[1];
  tensor.name = name;
  assert_int_equal(safetensors_write(path, &tensor, 1, texts, 2, false), STATUS_OK);
  bool is_done = false;
  for (fails_at = 1; !is_done; fails_at++) {
    Safetensors *file;
    allocations = 0;
    Status status = safetensors_open(path, &file);
    is_done = allocations < fails_at;
    if (is_done || status != STATUS_FAULT) {
      assert_int_equal(status, STATUS_OK);
      assert_non_null(safetensors_find(file, name));
    }
    safetensors_close(file);
  }
  assert_true(fails_at > 20);
}

int main(void) {
  json_set_alloc_funcs(failing, free); /* before the first parse, as a program of its own would */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip), cmocka_unit_test(damaged),   cmocka_unit_test(cut),
      cmocka_unit_test(sum),        cmocka_unit_test(by_several), cmocka_unit_test(joining), cmocka_unit_test(sum_of_parts), cmocka_unit_test(targets),
      cmocka_unit_test(full_disk),  cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
