/* npz, safetensors and CIFAR: what each input gets of a file that holds all, and every damaged one
 * refused in one sentence. The zip files are made here; test/e2e/sources.py reads NumPy's. */
#include "test/unit/runtime_data.h"

enum { ROWS = 3 };
static const PlanTensor inputs[] = {
    {.name = "x", .type = {DT_F32, {2, {4, 2}}}},
    {.name = "y", .type = {DT_I32, {1, {4}}}},
};
static const float x[ROWS][2] = {{1, 2}, {3, 4}, {5, 6}};
static const int64_t y[ROWS] = {7, 8, 9};

static Status open_both(const char *kind, const char *given, const void *bytes, size_t count,
                        DataArray **out) {
  char room[256];
  DataOption options[8];
  DataSource data = {.kind = kind, .options = options};
  data.option_count = data_options(given, room, options);
  return array_open_records(&data, data_write("d", bytes, count), inputs, 2, out);
}

static void close_two(DataArray **out) {
  array_close(out[1]);
  array_close(out[0]);
}

static void refused_both(const char *kind, const char *given, const void *bytes, size_t count,
                         const char *what) {
  DataArray *out[2];
  assert_int_equal(open_both(kind, given, bytes, count, out), STATUS_USER);
  if (!strstr(status_message(), what) || !strstr(status_message(), data_folder))
    fail_msg("%s: %s", what, status_message());
  assert_null(strchr(status_message(), '\n'));
}

/* ── npz ──────────────────────────────────────────────────────────────────────────────────── */
static void number(Text *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++, value >>= 8) text_append(out, &(char){(char)value}, 1);
}

static Text npy_of(const char *descr, const char *shape, const void *data, size_t bytes) {
  Text out = {0};
  char dictionary[119];
  memset(dictionary, ' ', sizeof dictionary);
  int length = snprintf(dictionary, sizeof dictionary,
                        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
  dictionary[length] = ' ';
  dictionary[117] = '\n';
  text_append(&out, "\x93NUMPY\1\0", 8);
  number(&out, 118, 2);
  text_append(&out, dictionary, 118);
  text_append(&out, data, bytes);
  return out;
}

typedef struct {
  bool is_deflated, is_wide;
  unsigned flags, method; /* 0: as is_deflated says */
} Form;

/* A member behind the others, and its line for the list. */
static void add_member(Text *zip, Text *list, const char *name, Text content, Form form) {
  uint8_t packed[1024];
  size_t count = content.count, at = zip->count;
  memcpy(packed, content.at, count);
  if (form.is_deflated) {
    z_stream z = {.next_in = (Bytef *)content.at, .avail_in = (uInt)content.count};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = packed, z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    count = z.total_out;
    deflateEnd(&z);
  }
  unsigned method = form.method ? form.method : form.is_deflated ? 8 : 0;
  uint32_t sum = (uint32_t)crc32(0, (const Bytef *)content.at, (uInt)content.count);
  for (int i = 0; i < 2; i++) {
    Text *out = i ? list : zip;
    bool is_wide = i && form.is_wide;
    text_append(out, i ? "PK\1\2\55\0\55\0" : "PK\3\4\55\0", i ? 8 : 6);
    number(out, form.flags, 2), number(out, method, 2), number(out, 0, 4), number(out, sum, 4);
    number(out, is_wide ? UINT32_MAX : count, 4);
    number(out, is_wide ? UINT32_MAX : content.count, 4);
    number(out, strlen(name), 2), number(out, is_wide ? 28 : i ? 0 : 5, 2);
    if (i) number(out, 0, 10), number(out, is_wide ? UINT32_MAX : at, 4);
    text_append(out, name, strlen(name));
    if (!i) number(out, 0, 5);
    if (is_wide) {
      number(out, 1, 2), number(out, 24, 2);
      number(out, content.count, 8), number(out, count, 8), number(out, at, 8);
    }
  }
  text_append(zip, (const char *)packed, count);
}

static void end_zip(Text *zip, Text *list, int members, bool is_wide) {
  size_t at = zip->count, bytes = list->count;
  text_append(zip, list->at, bytes);
  text_free(list);
  if (is_wide) {
    size_t end = zip->count;
    text_append(zip, "PK\6\6", 4);
    number(zip, 44, 8), number(zip, 45, 4), number(zip, 0, 8);
    number(zip, (uint64_t)members, 8), number(zip, (uint64_t)members, 8);
    number(zip, bytes, 8), number(zip, at, 8);
    text_append(zip, "PK\6\7", 4);
    number(zip, 0, 4), number(zip, end, 8), number(zip, 1, 4);
  }
  text_append(zip, "PK\5\6", 4);
  number(zip, 0, 4);
  number(zip, is_wide ? 0xffff : (uint64_t)members, 2);
  number(zip, is_wide ? 0xffff : (uint64_t)members, 2);
  number(zip, is_wide ? UINT32_MAX : bytes, 4), number(zip, is_wide ? UINT32_MAX : at, 4);
  number(zip, 0, 2);
}

static Text zip_of(const char *first, const char *second, Form form) {
  Text zip = {0}, list = {0};
  Text ys = npy_of("<i8", "(3,)", y, sizeof y), xs = npy_of("<f4", "(3, 2)", x, sizeof x);
  add_member(&zip, &list, second, ys, form);
  add_member(&zip, &list, first, xs, form);
  end_zip(&zip, &list, 2, form.is_wide);
  text_free(&ys);
  text_free(&xs);
  return zip;
}

static void holds_both(DataArray **out) {
  char text[TYPE_TEXT];
  assert_string_equal(array_header_text(&out[0]->header, text), "f32[3,2]");
  assert_string_equal(array_header_text(&out[1]->header, text), "i64[3]");
  assert_memory_equal(array_at(out[0]), x, sizeof x);
  assert_memory_equal(array_at(out[1]), y, sizeof y);
}

static void npz_reads(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) {
    Form form = {.is_deflated = i & 1, .is_wide = i & 2};
    Text zip = i & 4 ? zip_of("x.npy", "y.npy", form) : zip_of("arr_0.npy", "label", form);
    DataArray *out[2];
    const char *given = i & 4 ? "" : "keys=arr_0,label";
    if (open_both("npz", given, zip.at, zip.count, out) != STATUS_OK)
      fail_msg("%s", status_message());
    holds_both(out);
    assert_int_equal(array_memory(out[0]), form.is_deflated ? sizeof x : 0);
    close_two(out);
    text_free(&zip);
  }
}

/* A file that is cut anywhere is refused; one with a wrong byte is, or holds the same. */
static void npz_damaged(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    Form form = {.is_deflated = i & 1, .is_wide = i & 2};
    Text zip = zip_of("x.npy", "y.npy", form);
    DataArray *out[2];
    for (size_t count = 1; count < zip.count; count++)
      assert_int_equal(open_both("npz", "", zip.at, count, out), STATUS_USER);
    for (size_t at = 0; at < zip.count; at++)
      for (int bit = 1; bit < 256; bit *= 16) {
        zip.at[at] ^= (char)bit;
        Status status = open_both("npz", "", zip.at, zip.count, out);
        zip.at[at] ^= (char)bit;
        if (status == STATUS_OK) {
          holds_both(out);
          close_two(out);
        } else {
          assert_null(strchr(status_message(), '\n'));
        }
      }
    text_free(&zip);
  }
}

static void npz_refuses(void **state) {
  (void)state;
  Text zip = zip_of("x.npy", "lab\nel.npy", (Form){0});
  refused_both("npz", "", zip.at, zip.count,
               "has no array 'y': keys= can say which are meant; it has lab?el, x");
  refused_both("npz", "keys=x", zip.at, zip.count, "keys= has 1 name, but the model 2 inputs");
  refused_both("npz", "keys=x,,y", zip.at, zip.count, "keys= has 3 names");
  refused_both("npz", "keys=x,", zip.at, zip.count, "keys= has no name for input y");
  text_free(&zip);
  zip = zip_of("x.npy", "y.npy", (Form){.flags = 1});
  refused_both("npz", "", zip.at, zip.count, "array 'x': is encrypted");
  text_free(&zip);
  zip = zip_of("x.npy", "y.npy", (Form){.method = 14});
  refused_both("npz", "", zip.at, zip.count, "is compressed by method 14");
  text_free(&zip);
  refused_both("npz", "", "\x93NUMPY\1\0 and more than 22 bytes", 32, "is not a NumPy .npz file");
  Text list = {0}, content = npy_of("<f4", "(9999999,)", x, sizeof x);
  zip = (Text){0};
  add_member(&zip, &list, "x.npy", content, (Form){0});
  end_zip(&zip, &list, 1, false);
  refused_both("npz", "", zip.at, zip.count,
               "does not hold as many elements as its header promises");
  text_free(&zip);
  text_free(&content);
}

/* ── safetensors ──────────────────────────────────────────────────────────────────────────── */
static Text safe_of(const char *json, size_t data) {
  Text out = {0};
  number(&out, strlen(json), 8);
  text_append(&out, json, strlen(json));
  text_append(&out, (const char *)x, sizeof x);
  text_append(&out, (const char *)y, sizeof y);
  out.count -= sizeof x + sizeof y - data;
  return out;
}

static void safetensors_source(void **state) {
  (void)state;
  static const char json[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                             "\"y\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[24,48]}}";
  DataArray *out[2];
  Text file = safe_of(json, 48);
  if (open_both("safetensors", "keys=x,y", file.at, file.count, out) != STATUS_OK)
    fail_msg("%s", status_message());
  holds_both(out);
  assert_int_equal(array_memory(out[0]) + array_memory(out[1]), 0);
  close_two(out);
  refused_both("safetensors", "keys=x,z", file.at, file.count,
               "has no array 'z': keys= can say which are meant; it has x, y");
  text_free(&file);
  file = safe_of(json, 40);
  refused_both("safetensors", "", file.at, file.count,
               "is truncated or damaged: 'y' lies at bytes 24 to 48 of 40");
  text_free(&file);
  refused_both("safetensors", "", "12345678{}", 10, "is not a safetensors file");
}

/* ── CIFAR ────────────────────────────────────────────────────────────────────────────────── */
static void cifar(void **state) {
  (void)state;
  enum { IMAGE = 3072 };
  static uint8_t file[2 * (IMAGE + 2)];
  PlanTensor both[] = {{.name = "label", .type = {DT_I32, {1, {4}}}},
                       {.name = "image", .type = {DT_U8, {4, {4, 3, 32, 32}}}}};
  for (int labels = 1; labels <= 2; labels++) {
    const char *kind = labels == 1 ? "cifar10" : "cifar100";
    size_t record = IMAGE + (size_t)labels;
    for (size_t i = 0; i < 2 * record; i++) file[i] = (uint8_t)(i % 251);
    for (int turn = 0; turn < 2; turn++) {
      DataArray *out[2];
      char text[TYPE_TEXT];
      DataOption coarse = {.name = "labels", .text = "coarse"};
      DataSource data = {.kind = kind, .options = &coarse, .option_count = turn && labels == 2};
      if (turn) both[1].type.shape = (Shape){2, {4, IMAGE}};
      const char *path = data_write("d", file, 2 * record);
      if (array_open_records(&data, path, both, 2, out) != STATUS_OK)
        fail_msg("%s", status_message());
      assert_string_equal(array_header_text(&out[0]->header, text), "u8[2]");
      assert_string_equal(array_header_text(&out[1]->header, text),
                          turn ? "u8[2,3072]" : "u8[2,3,32,32]");
      for (int i = 0; i < 2; i++) assert_int_equal(array_header_pitch(&out[i]->header), record);
      assert_int_equal(*array_at(out[0]), labels == 2 && !turn);
      assert_int_equal(*array_at(out[1]), labels);
      close_two(out);
      both[1].type.shape = (Shape){4, {4, 3, 32, 32}};
    }
    refused_both(kind, "", file, 2 * record - 1, "is not of the binary version of CIFAR-10");
    refused_both(kind, "", "", 0, "is empty");
    const char *path = data_write_gzip("d", file, 2 * record, 6);
    DataArray *out[2];
    assert_int_equal(array_open_records(&(DataSource){.kind = kind}, path, both, 2, out),
                     STATUS_OK);
    assert_memory_equal(source_bytes_at(out[0]->bytes), file, 2 * record);
    close_two(out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(npz_reads),   cmocka_unit_test(npz_damaged),
      cmocka_unit_test(npz_refuses), cmocka_unit_test(safetensors_source),
      cmocka_unit_test(cifar),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
