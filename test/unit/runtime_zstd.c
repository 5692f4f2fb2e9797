/* Compressed by zstd: read like gzip, whatever frames it has, and refused wherever it is damaged. */
#include "test/unit/runtime_data.h"
#include <zstd.h>

enum { COUNT = 150000, HEADER = 128 };
static uint8_t npy[HEADER + COUNT];

static void make_npy(void) {
  char head[HEADER];
  memset(head, ' ', sizeof head);
  memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
  int length = snprintf(head + 10, sizeof head - 10,
                        "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", COUNT);
  head[10 + length] = ' ';
  head[HEADER - 1] = '\n';
  memcpy(npy, head, HEADER);
  uint32_t seed = 1;
  for (int i = 0; i < COUNT; i++) {
    seed = seed * 1664525 + 1013904223;
    npy[HEADER + i] = (uint8_t)(seed >> 24 & seed >> 16);
  }
}

/* One more frame. */
static void add_frame(Text *out, const void *bytes, size_t count, bool has_size, bool has_sum) {
  ZSTD_CCtx *context = ZSTD_createCCtx();
  size_t room = ZSTD_compressBound(count);
  char *packed = malloc(room);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, has_size);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, has_sum);
  size_t length = ZSTD_compress2(context, packed, room, bytes, count);
  assert_false(ZSTD_isError(length));
  text_append(out, packed, length);
  free(packed);
  ZSTD_freeCCtx(context);
}

static void holds(Text file) {
  DataArray *array;
  if (data_open("npy", NULL, data_write("a.npy.zst", file.at, file.count), &array) != STATUS_OK ||
      source_bytes_check(array->bytes) != STATUS_OK)
    fail_msg("%s", status_message());
  assert_memory_equal(array_at(array), npy + HEADER, COUNT);
  assert_true(array_memory(array) > COUNT);
  array_close(array);
}

static void frames(void **state) {
  (void)state;
  make_npy();
  for (int i = 0; i < 4; i++) {
    Text file = {0};
    text_append(&file, "\x57\x2a\x4d\x18\3\0\0\0abc", 11); /* a frame to be skipped */
    add_frame(&file, npy, 1000, i & 1, i & 2);
    add_frame(&file, npy, 0, i & 1, i & 2);
    text_append(&file, "\x50\x2a\x4d\x18\0\0\0\0", 8);
    add_frame(&file, npy + 1000, sizeof npy - 1000, i & 1, i & 2);
    holds(file);
    text_free(&file);
  }
}

static void zstd_refused(Text file, const char *what) {
  data_refused("npy", data_write("a.npy.zst", file.at, file.count), what);
}

static void zstd_damaged(void **state) {
  (void)state;
  Text file = {0};
  make_npy();
  add_frame(&file, npy, sizeof npy, true, true);
  size_t whole = file.count;
  for (size_t count = 4; count < whole; count += count < 300 || count > whole - 300 ? 1 : 997) {
    file.count = count;
    const char *path = data_write("a.npy.zst", file.at, count);
    assert_int_equal(data_read("npy", path), STATUS_USER);
  }
  file.count = whole;
  for (size_t at = 0; at < whole; at += at < 300 || at > whole - 300 ? 1 : 997) {
    file.at[at] ^= 0x10;
    DataArray *array; /* a bit that says nothing may be wrong */
    Status status = data_open("npy", NULL, data_write("a.npy.zst", file.at, whole), &array);
    if (status == STATUS_OK && source_bytes_check(array->bytes) == STATUS_OK)
      assert_memory_equal(array_at(array), npy + HEADER, COUNT);
    array_close(array);
    file.at[at] ^= 0x10;
  }
  file.at[whole - 1] ^= 1;
  zstd_refused(file, "is damaged: its zstd checksum is wrong");
  file.at[whole - 1] ^= 1;
  file.count = whole - 1;
  zstd_refused(file, "is truncated: the zstd data ends too early");
  file.count = whole;
  text_append(&file, "junk", 4);
  zstd_refused(file, "is damaged: the zstd data is not valid");
  file.count = whole;
  add_frame(&file, "x", 1, true, true);
  zstd_refused(file, "is damaged: it holds more bytes than its header promises");
  file.count = 0;
  add_frame(&file, npy, sizeof npy - 1, true, true);
  zstd_refused(file, "is truncated: it holds fewer bytes than its header promises");
  file.count = 0;
  text_append(&file, "\x28\xb5\x2f\xfd\0\0\0\0", 8);
  zstd_refused(file, "is not a NumPy .npy file");
  DataArray *array;
  assert_int_equal(data_open("bytes", NULL, data_path("a.npy.zst"), &array), STATUS_USER);
  assert_non_null(strstr(status_message(), "is truncated: the zstd data ends too early"));
  text_free(&file);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(frames), cmocka_unit_test(zstd_damaged)};
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
