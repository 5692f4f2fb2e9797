/* npy: headers as NumPy writes them, damage, conversions, and the writer. */
#include "runtime/data/npy.h"
#include "test/unit/runtime_data.h"
#include <math.h>

/* A .npy file of `version` with this header dictionary and data. */
static const char *npy(const char *name, int version, const char *header, const void *data,
                       size_t bytes) {
  Text file = {0};
  size_t length = strlen(header);
  text_append(&file, "\x93NUMPY", 6);
  char start[6] = {(char)version, 0, (char)length, (char)(length >> 8), 0, 0};
  text_append(&file, start, version == 1 ? 4 : 6);
  text_append(&file, header, length);
  text_append(&file, data, bytes);
  const char *path = data_write(name, file.at, file.count);
  text_free(&file);
  return path;
}

static const float numbers[6] = {1, -2, 3.5f, 0, 1e30f, -0.25f};

static void reads_versions(void **state) {
  (void)state;
  for (int version = 1; version <= 3; version++) {
    const char *path =
        npy("v.npy", version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
            numbers, sizeof numbers);
    DataArray *array;
    assert_int_equal(data_open("npy", NULL, path, &array), STATUS_OK);
    char text[TYPE_TEXT];
    assert_string_equal(array_header_text(&array->header, text), "f32[2,3]");
    assert_memory_equal(array_at(array), numbers, sizeof numbers);
    array_close(array);
  }
}

static void refuses(void **state) {
  (void)state;
  const char *good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  data_refused("npy", data_write("x.npy", "PK\3\4 this is a zip", 18), "not a NumPy");
  data_refused("npy", npy("x.npy", 4, good, numbers, 24), "version 4");
  data_refused("npy", npy("x.npy", 1, good, numbers, 23), "truncated");
  data_refused("npy", npy("x.npy", 1, good, numbers, 20), "truncated");
  data_refused(
      "npy", npy("x.npy", 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (6,)}", numbers, 24),
      "Fortran order");
  data_refused(
      "npy",
      npy("x.npy", 1, "{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", numbers, 24),
      "'<c8'");
  data_refused("npy",
               npy("x.npy", 1,
                   "{'descr': [('a', '<f4')], 'fortran_order': False, "
                   "'shape': (6,)}",
                   numbers, 24),
               "structured");
  static const char *const damaged[] = {
      "",
      "{",
      "{}",
      "{'descr': '<f4'}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
  };
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
    data_refused("npy", npy("x.npy", 1, damaged[i], numbers, 24), "damaged");
  data_refused("npy",
               npy("x.npy", 1,
                   "{'descr': '<f8', 'fortran_order': False, "
                   "'shape': (4611686018427387904, 4)}",
                   numbers, 24),
               "no file can hold");
  uint8_t promise[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0xff, 0xff};
  data_refused("npy", data_write("x.npy", promise, 12), "promises 65535");
}

static void check_conversion(const char *descr, const void *bytes, size_t count, DType dtype,
                             const void *expected, size_t expected_bytes) {
  char header[128];
  size_t size = (size_t)(descr[2] - '0');
  snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }",
           descr, count);
  DataArray *array;
  assert_int_equal(data_open("npy", NULL, npy("c.npy", 1, header, bytes, count * size), &array),
                   STATUS_OK);
  assert_true(element_converts(array->header.element, dtype));
  uint8_t result[64];
  assert_int_equal(element_convert(array_at(array), array->header.element,
                                   array->header.is_big_endian, (int64_t)count, dtype, result),
                   (int64_t)count);
  assert_memory_equal(result, expected, expected_bytes);
  array_close(array);
}

static void converts(void **state) {
  (void)state;
  check_conversion("<i8", (int64_t[]){7, -3}, 2, DT_I32, (int32_t[]){7, -3}, 8);
  check_conversion("|u1", (uint8_t[]){7, 255}, 2, DT_I32, (int32_t[]){7, 255}, 8);
  check_conversion("|u1", (uint8_t[]){7, 255}, 2, DT_F32, (float[]){7, 255}, 8);
  check_conversion("|b1", (uint8_t[]){0, 2}, 2, DT_F32, (float[]){0, 1}, 8);
  check_conversion("|i1", (int8_t[]){-1, 5}, 2, DT_I64, (int64_t[]){-1, 5}, 16);
  check_conversion("<u2", (uint16_t[]){65535}, 1, DT_F32, (float[]){65535}, 4);
  check_conversion(">i2", (uint8_t[]){0x01, 0x02}, 1, DT_I32, (int32_t[]){258}, 4);
  check_conversion("<f8", (double[]){0.1, -2}, 2, DT_F32, (float[]){0.1f, -2}, 8);
  check_conversion("<f2", (uint16_t[]){0x3c00, 0xc500, 0x0001, 0x7c00}, 4, DT_F32,
                   (float[]){1, -5, 0x1p-24f, INFINITY}, 16);
  check_conversion("<f4", numbers, 6, DT_F64, (double[]){1, -2, 3.5, 0, (double)1e30f, -0.25}, 48);
  /* once: f32 would have the middle of two for each of them */
  check_conversion("<f8",
                   (double[]){1 + 0x1p-8 + 0x1p-48, -1 - 3 * 0x1p-8 + 0x1p-48, 0x1p-134 + 0x1p-180}, 3,
                   DT_BF16, (uint16_t[]){0x3f81, 0xbf81, 0x0001}, 6);
  check_conversion("<f8", (double[]){1 + 0x1p-11 + 0x1p-50, 65520 - 0x1p-36, INFINITY}, 3, DT_F16,
                   (uint16_t[]){0x3c01, 0x7bff, 0x7c00}, 6);
  assert_false(element_converts(ELEMENT_I32, DT_F32)); /* 2^24 + 1 would be rounded */
  assert_false(element_converts(ELEMENT_F32, DT_I32));
  int32_t narrow[3];
  assert_int_equal(
      element_convert((int64_t[]){1, 1ll << 40, 2}, ELEMENT_I64, false, 3, DT_I32, narrow), 1);
  uint8_t byte;
  assert_int_equal(element_convert((int32_t[]){-1}, ELEMENT_I32, false, 1, DT_U8, &byte), 0);
}

/* What is finite in the file and not in the type is no number that it holds; the others are converted. */
static void too_large(void **state) {
  (void)state;
  const double numbers[] = {1, -1e39, NAN, -INFINITY, 0x1.fffffep127};
  float f32[5];
  uint16_t half[5];
  assert_int_equal(element_convert(numbers, ELEMENT_F64, false, 5, DT_F32, f32), 1);
  assert_true(isinf(f32[1]) && isnan(f32[2]) && f32[4] == 0x1.fffffep127f);
  assert_int_equal(element_convert(numbers + 2, ELEMENT_F64, false, 3, DT_F32, f32), 3);
  assert_int_equal(element_convert(numbers + 3, ELEMENT_F64, false, 2, DT_BF16, half), 1);
  assert_int_equal(element_convert((float[]){65504, 65520}, ELEMENT_F32, false, 2, DT_F16, half), 1);
  assert_int_equal(half[0], 0x7bff);
}

/* Every half there and back; rounding to nearest even. */
static void halves(void **state) {
  (void)state;
  for (int bits = 0; bits < 65536; bits++) {
    float value = half_to_float((uint16_t)bits);
    if (isnan(value))
      assert_true(isnan(half_to_float(half_from_float(value))));
    else
      assert_int_equal(half_from_float(value), bits);
  }
  assert_int_equal(half_from_float(1 + 0x1p-11f), 0x3c00);
  assert_int_equal(half_from_float(1 + 3 * 0x1p-11f), 0x3c02);
  assert_int_equal(half_from_float(65519.99f), 0x7bff);
  assert_int_equal(half_from_float(65520), 0x7c00);
  assert_int_equal(bfloat_from_float(1 + 0x1p-8f), 0x3f80);
  assert_int_equal(bfloat_from_float(1 + 3 * 0x1p-8f), 0x3f82);
}

static void writes(void **state) {
  (void)state;
  static const Type types[] = {{DT_F32, {2, {2, 3}}}, {DT_F32, {1, {6}}}, {DT_F32, {3, {6, 1, 1}}}};
  for (int i = 0; i < 3; i++) {
    const char *path = data_path("w.npy");
    NpyWriter *writer;
    assert_int_equal(npy_writer_open(path, &types[i], &writer), STATUS_OK);
    assert_int_equal(npy_writer_append(writer, numbers, 8), STATUS_OK);
    assert_int_not_equal(access(path, F_OK), 0); /* not there before it is whole */
    assert_int_equal(npy_writer_append(writer, numbers + 2, 16), STATUS_OK);
    assert_int_equal(npy_writer_commit(writer), STATUS_OK);
    npy_writer_free(writer);
    DataArray *array;
    assert_int_equal(array_open(NULL, path, &array), STATUS_OK);
    assert_true(shape_equal(&array->header.shape, &types[i].shape));
    assert_int_equal(array->header.offset % 64, 0);
    assert_memory_equal(array_at(array), numbers, sizeof numbers);
    array_close(array);
    unlink(path);
  }
  NpyWriter *writer;
  assert_int_equal(npy_writer_open("/nowhere/x.npy", &types[0], &writer), STATUS_USER);
  assert_int_equal(npy_writer_open(data_path("w.npy"), &types[0], &writer), STATUS_OK);
  npy_writer_free(writer);
  assert_int_not_equal(access(data_path("w.npy"), F_OK), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_versions), cmocka_unit_test(refuses), cmocka_unit_test(converts),
      cmocka_unit_test(too_large), cmocka_unit_test(halves),         cmocka_unit_test(writes),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
