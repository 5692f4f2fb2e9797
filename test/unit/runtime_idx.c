/* idx: what is read, and that damage of every kind is refused with a sentence. */
#include "test/unit/runtime_data.h"

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void check_images(const char *path) {
  DataArray *array;
  assert_int_equal(data_open("idx", NULL, path, &array), STATUS_OK);
  assert_int_equal(source_bytes_check(array->bytes), STATUS_OK);
  char text[TYPE_TEXT];
  assert_string_equal(array_header_text(&array->header, text), "u8[2,2,3]");
  assert_memory_equal(array_at(array), images + 16, 12);
  array_close(array);
}

static void plain_and_gzip(void **state) {
  (void)state;
  check_images(data_write("plain.gz", images, sizeof images)); /* the name says nothing */
  check_images(data_write_gzip("packed", images, sizeof images, 9));
}

/* Two gzip members one after the other are one content. */
static void gzip_members(void **state) {
  (void)state;
  Text both = {0};
  assert_int_equal(text_read_file(&both, data_write_gzip("a", images, 10, 6)), 0);
  assert_int_equal(text_read_file(&both, data_write_gzip("b", images + 10, 18, 6)), 0);
  check_images(data_write("both", both.at, both.count));
  text_free(&both);
}

static void every_type(void **state) {
  (void)state;
  static const struct {
    uint8_t code, bytes[8];
    int size;
    double value;
  } cases[] = {
      {0x08, {200}, 1, 200},
      {0x09, {0xfe}, 1, -2},
      {0x0b, {0xff, 0x00}, 2, -256},
      {0x0c, {0, 1, 0, 2}, 4, 65538},
      {0x0d, {0x3f, 0xc0, 0, 0}, 4, 1.5},
      {0x0e, {0xc0, 0x04, 0, 0, 0, 0, 0, 0}, 8, -2.5},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t file[16] = {0, 0, cases[i].code, 1, 0, 0, 0, 1};
    memcpy(file + 8, cases[i].bytes, 8);
    DataArray *array;
    assert_int_equal(
        data_open("idx", NULL, data_write("type", file, 8 + (size_t)cases[i].size), &array),
        STATUS_OK);
    double value = 0;
    assert_int_equal(element_convert(array_at(array), array->header.element,
                                     array->header.is_big_endian, 1, DT_F64, &value),
                     1);
    assert_float_equal(value, cases[i].value, 0);
    array_close(array);
  }
}

static void damaged(void **state) {
  (void)state;
  uint8_t bytes[64];
  memcpy(bytes, images, sizeof images);
  DataArray *array;
  assert_int_equal(array_open(NULL, data_write("other", "\0other", 6), &array), STATUS_USER);
  assert_non_null(strstr(status_message(), "other is neither idx nor npy"));
  data_refused("idx", data_path("absent"), "No such file");
  data_refused("idx", data_write("empty", "", 0), "is empty");
  data_refused("idx", data_write("three", images, 3), "3 bytes");
  data_refused("idx", data_write("header", images, 11), "within the IDX header");
  data_refused("idx", data_write("short", images, sizeof images - 1), "truncated");
  data_refused("idx", data_write("long", bytes, sizeof images + 1), "promises 28");
  bytes[0] = 1;
  data_refused("idx", data_write("magic", bytes, sizeof images), "not an IDX file");
  bytes[0] = 0, bytes[2] = 7;
  data_refused("idx", data_write("type", bytes, sizeof images), "element type 0x07");
  bytes[2] = 8, bytes[3] = 5;
  data_refused("idx", data_write("rank", bytes, sizeof images), "rank 5");
  bytes[3] = 0;
  data_refused("idx", data_write("scalar", bytes, sizeof images), "rank 0");
  /* 2^32 - 1 cubed does not fit 64 bits */
  bytes[3] = 3;
  memset(bytes + 4, 0xff, 12);
  data_refused("idx", data_write("huge", bytes, sizeof images), "which no file can hold");
  data_refused("idx", data_folder, "a folder");
}

static void damaged_gzip(void **state) {
  (void)state;
  uint8_t many[5000] = {0, 0, 8, 1, 0, 0, 0x13, 0x80}; /* 4992 elements */
  for (int i = 8; i < 5000; i++) many[i] = (uint8_t)(i * i >> 3);
  Text whole = {0};
  assert_int_equal(text_read_file(&whole, data_write_gzip("ok.gz", many, sizeof many, 6)), 0);
  assert_int_equal(data_read("idx", data_path("ok.gz")), STATUS_OK);
  for (size_t cut = 20; cut < whole.count; cut += 97)
    data_refused("idx", data_write("cut.gz", whole.at, cut), "");
  whole.at[whole.count - 6] ^= 1; /* the checksum */
  data_refused("idx", data_write("sum.gz", whole.at, whole.count), "damaged");
  whole.at[whole.count - 6] ^= 1;
  for (size_t i = 10; i < whole.count - 8; i += 61) {
    whole.at[i] ^= 0x55;
    data_refused("idx", data_write("flip.gz", whole.at, whole.count), "");
    whole.at[i] ^= 0x55;
  }
  text_append(&whole, "junk after the end", 18);
  data_refused("idx", data_write("junk.gz", whole.at, whole.count), "damaged");
  data_refused("idx", data_write_gzip("short.gz", many, 4999, 6), "truncated");
  many[7] = 0x7f;
  data_refused("idx", data_write_gzip("long.gz", many, 5000, 6), "more bytes");
  many[4] = 0x7f; /* 2 GB from a file of a few kB: refused before memory is taken */
  data_refused("idx", data_write_gzip("bomb.gz", many, 5000, 6), "can hold");
  text_free(&whole);
}

/* A large file, read while it is still being inflated. */
static void streams(void **state) {
  (void)state;
  enum { COUNT = 3000000 };
  uint8_t *bytes = calloc(1, 8 + COUNT);
  bytes[2] = 8, bytes[3] = 1;
  for (int i = 0; i < 4; i++) bytes[4 + i] = (uint8_t)(COUNT >> (24 - 8 * i));
  uint32_t noise = 1;
  for (int i = 0; i < COUNT; i++) {
    noise = noise * 1664525 + 1013904223;
    bytes[8 + i] = i & 64 ? (uint8_t)(noise >> 24) : (uint8_t)(noise >> 30);
  }
  static const int levels[] = {0, 1, 6, 9}; /* stored, fixed-ish and dynamic blocks */
  for (int l = 0; l < 4; l++) {
    DataArray *array;
    const char *path = data_write_gzip("large.gz", bytes, 8 + COUNT, levels[l]);
    assert_int_equal(data_open("idx", NULL, path, &array), STATUS_OK);
    for (size_t upto = 1000; upto < COUNT; upto += 100003) {
      assert_int_equal(source_bytes_wait(array->bytes, 8 + upto), STATUS_OK);
      assert_memory_equal(array_at(array) + upto - 1000, bytes + 8 + upto - 1000, 1000);
    }
    assert_int_equal(source_bytes_check(array->bytes), STATUS_OK);
    assert_memory_equal(array_at(array), bytes + 8, COUNT);
    array_close(array);
    /* and one closed long before its end */
    assert_int_equal(data_open("idx", NULL, path, &array), STATUS_OK);
    source_bytes_start(array->bytes);
    array_close(array);
  }
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_and_gzip), cmocka_unit_test(gzip_members),
      cmocka_unit_test(every_type),     cmocka_unit_test(damaged),
      cmocka_unit_test(damaged_gzip),   cmocka_unit_test(streams),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
