/* csv: what each input gets of a table, and every damaged or doubtful one refused in one sentence
 * that says where. */
#include "test/unit/runtime_data.h"
#include <math.h>
#include <unistd.h>

enum { X = 2 };
static const PlanTensor inputs[] = {
    {.name = "x", .type = {DT_F32, {2, {4, X}}}},
    {.name = "label", .type = {DT_I32, {1, {4}}}, .below = 3},
};

static Status open_csv(const char *options, const char *text, size_t count, int input_count,
                       DataArray **out) {
  char room[256];
  DataOption given[8];
  DataSource data = {.kind = "csv", .options = given};
  data.option_count = data_options(options, room, given);
  Text why = {0};
  if (!source_kind_check(source_kind_find("csv"), &data, &why)) fail_msg("%s", text_cstr(&why));
  return array_open_records(&data, data_write("t.csv", text, count), inputs, input_count, out);
}

static void close_both(DataArray **out) {
  array_close(out[1]);
  array_close(out[0]);
}

/* Rows of x0, x1, label. */
static void gives(const char *options, const char *text, int rows, const double *want) {
  DataArray *out[2];
  char have[TYPE_TEXT];
  if (open_csv(options, text, strlen(text), 2, out) != STATUS_OK)
    fail_msg("%s: %s", text, status_message());
  assert_string_equal(array_header_text(&out[1]->header, have), rows == 2 ? "i64[2]" : "i64[3]");
  assert_string_equal(array_header_text(&out[0]->header, have),
                      rows == 2 ? "f64[2,2]" : "f64[3,2]");
  assert_int_equal(array_memory(out[0]) + array_memory(out[1]), rows * 24);
  for (int i = 0; i < rows; i++) {
    double x[X];
    int64_t label;
    memcpy(x, array_at(out[0]) + sizeof x * (size_t)i, sizeof x);
    memcpy(&label, array_at(out[1]) + sizeof label * (size_t)i, sizeof label);
    for (int k = 0; k < X; k++)
      if (x[k] != want[3 * i + k] && !(isnan(x[k]) && isnan(want[3 * i + k])))
        fail_msg("%s: row %d, x%d is %g", text, i, k, x[k]);
    if ((double)label != want[3 * i + 2])
      fail_msg("%s: row %d has label %lld", text, i, (long long)label);
  }
  close_both(out);
}
#define GIVES(options, text, rows, ...) gives(options, text, rows, (const double[]){__VA_ARGS__})

static void reads(void **state) {
  (void)state;
  GIVES("", "1.5,2,0\n-3e1,4,2\n", 2, 1.5, 2, 0, -30, 4, 2);
  GIVES("", "1.5,2,0\r\n-3e1,4,2", 2, 1.5, 2, 0, -30, 4, 2);
  GIVES("", "\xef\xbb\xbfheight,width,class\n1.5, 2 ,0\n\n-3e1,4,2.0\n\n\n", 2, 1.5, 2, 0, -30, 4,
        2);
  GIVES("header=true", "\"a\",\"b \"\"x\"\"\",\"c\nd\"\n\"1\",\"2\",\"0\"\n3,4,2\n", 2, 1, 2, 0, 3,
        4, 2);
  GIVES("columns=c,a;b", "a,b,c,d\n1,2,3,x\n4,0,6,y\n", 2, 3, 1, 2, 6, 4, 0);
  GIVES("columns=3,1;2", "1,2,3,4\n4,0,6,5\n", 2, 3, 1, 2, 6, 4, 0);
  GIVES("columns=2-3;1", "0,2,3,4\n1,5,6,5\n", 2, 2, 3, 0, 5, 6, 1);
  GIVES("columns=1,1;1", "1\n0\n", 2, 1, 1, 1, 0, 0, 0);
  GIVES("separator=tab", "1\t2\t0\n3\t-4 \t1\n", 2, 1, 2, 0, 3, -4, 1);
  GIVES("separator=; header=false", "1;2;0\n3;-4;1\n", 2, 1, 2, 0, 3, -4, 1);
  GIVES("missing=nan", "1,,0\nNA,\"5\",1\n", 2, 1, NAN, 0, NAN, 5, 1);
  GIVES("missing=7.5", "1,?,0\nnull,5,1\n", 2, 1, 7.5, 0, 7.5, 5, 1);
  GIVES("missing=2", "1,,\nN/A,5,1\n", 2, 1, 2, 2, 2, 5, 1);
}

/* Sorted, or in the order of classes=. */
static void classes(void **state) {
  (void)state;
  GIVES("", "a,b,c\n1,2,rose\n3,4,aster\n5,6,lily\n", 3, 1, 2, 2, 3, 4, 0, 5, 6, 1);
  GIVES("classes=rose,aster,lily", "a,b,c\n1,2,rose\n3,4,aster\n5,6,lily\n", 3, 1, 2, 0, 3, 4, 1, 5,
        6, 2);
  GIVES("classes=c=lily,rose", "a,b,c\n1,2,rose\n3,4, lily\n", 2, 1, 2, 1, 3, 4, 0);
  GIVES("classes=3=7,9,NA", "1,2,NA\n3,4,9\n", 2, 1, 2, 2, 3, 4, 1);
  GIVES("", "1,2,\"b,\"\"\"\n3,4,\"a\nb\"\n5,6,c\n", 3, 1, 2, 1, 3, 4, 0, 5, 6, 2);
}

static void refused_text(const char *options, const char *text, size_t count, const char *what) {
  DataArray *out[2];
  Status status = open_csv(options, text, count, 2, out);
  if (status != STATUS_USER) fail_msg("%s: is read", text);
  if (!strstr(status_message(), what) || !strstr(status_message(), "t.csv"))
    fail_msg("%s: %s", text, status_message());
  assert_null(strchr(status_message(), '\n'));
  assert_null(out[0]);
}

static void refuses(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"", "1,2,0\n3,4\n", "line 2 has 2 columns, the first one has 3"},
      {"", "1,2,0\n3,4,1,5\n", "line 2 has 4 columns"},
      {"", "1,2,0\n3,x,1\n", "line 2, column 2: 'x' is not a finite number"},
      {"", "a,b,c\n1,2,0\n3,inf,1\n", "line 3, column 2 (b): 'inf' is not a finite number"},
      {"", "1,2,0\n3,1e999,1\n", "'1e999' is not a finite number"},
      {"", "1,2,0\n3,0x10,1\n", "'0x10' is not a finite number"},
      {"", "1,2,0\n3,4,1.5\n", "'1.5' is not a whole number"},
      {"", "1,2,0\n3,4,99999999999999999999\n", "is not a whole number"},
      {"", "1,2,0\n3,4,red\n", "'red' is not a whole number"},
      {"", "1,2,0\n3,,1\n", "line 2, column 2: '' is a missing value: missing=0"},
      {"missing=nan", "1,2,0\n3,4,\n", "for which missing= has no whole number"},
      {"missing=0", "1,2,\n3,4,red\n", "'red' is a class, in a column with missing values"},
      {"missing=0", "1,2,red\n3,4,\n", "is a missing value in a column of classes"},
      {"", "a,b,c\n1,2,red\n3,4,blue\n", "column 3 (c) has 2 classes, but input label has 3"},
      {"", "1,2,a\n3,4,b\n3,4,c\n3,4,d\n", "'d' is one class more than the 3 of input label"},
      {"classes=a,b,c,d", "1,2,a\n", "classes= has 4, but input label has 3 classes"},
      {"classes=a,b,a", "1,2,a\n", "classes= has 'a' twice"},
      {"classes=a,b", "1,2,a\n1,2,c\n",
       "line 2, column 3: 'c' is none of those that classes= lists"},
      {"classes=2=a,b", "1,2,a\n", "classes= is for a column that an input of integers takes"},
      {"classes=3=a,b;3=a,c", "1,2,a\n", "classes= lists those of column 3 twice"},
      {"classes=d=a,b", "a,b,c\n1,2,0\n", "has no column 'd'"},
      {"", "a,b,c\nd,e,f\n1,2,0\n", "write header=true or header=false"},
      {"header=true", "1,2,0\n", "has no line of values"},
      {"", "a,b,c\n", "has no line of values"},
      {"", "\n1,2,0\n", "begins with an empty line"},
      {"", "\n\n", "has no lines"},
      {"", "\xef\xbb\xbf", "has no lines"},
      {"", "1,2,0,5\n", "has 4 columns, but a sample of the model's inputs has 3 numbers"},
      {"", "1;2;0\n", "has 1 column, but"},
      {"columns=1,2", "1,2,0\n", "tells columns for 1 input, but the model has 2"},
      {"columns=1,2;3;1", "1,2,0\n", "tells columns for more inputs than the model's 2"},
      {"columns=1-3;3", "1,2,0\n", "chooses 3 for input x, a sample of which has 2 numbers"},
      {"columns=1;3", "1,2,0\n", "chooses 1 for input x"},
      {"columns=1,4;3", "1,2,0\n", "has columns 1 to 3, not '4'"},
      {"columns=1,0;3", "1,2,0\n", "has columns 1 to 3, not '0'"},
      {"columns=2-1;3", "1,2,0\n", "has columns 1 to 3, not '2-1'"},
      {"columns=1,99999999999999999999;3", "1,2,0\n", "has columns 1 to 3"},
      {"columns=1,;3", "1,2,0\n", "has no column ''"},
      {"columns=a,width;c", "a,with,c\n1,2,0\n", "no column 'width'; did you mean 'with'?"},
      {"columns=a,b;c header=false", "1,2,0\n", "has no header"},
      {"columns=a,a;c", "a,a,c\n1,2,0\n", "has 2 columns called 'a'"},
      {"", "1,\"2,0\n3,4,1\n", "line 1: a quoted field is not closed"},
      {"", "1,\"2\"x,0\n", "line 1: a quoted field goes on behind its closing quote"},
      {"", "1,2,0\r3,4,1\n", "line 1: a carriage return stands in the middle"},
      {"", "1,\"2\n\",0\n3,4\n", "line 1, column 2"},
      {"header=false", "1,2,\"0\"\n3,4,\"\n1\"\n5,,1\n", "line 2, column 3: '?1' is not a whole"},
      {"separator=ab", "1,2,0\n", "separator=\"ab\": it is one character, or tab"},
      {"separator=\"", "1,2,0\n", "is one character, or tab"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    refused_text(cases[i][0], cases[i][1], strlen(cases[i][1]), cases[i][2]);
  refused_text("", "1,2\0,0\n", 8, "line 1: a field holds a zero byte");
  refused_text("", "", 0, "is empty");
  DataArray *out[2];
  DataSource data = {.kind = "csv"};
  const char *path = data_write_gzip("t.csv", "1,2,0\n", 6, 6);
  assert_int_equal(array_open_records(&data, path, inputs, 2, out), STATUS_OK);
  assert_int_equal(out[0]->header.shape.dim[0], 1);
  for (int i = 2; i-- > 0;) array_close(out[i]);
  data_write("t.csv", "\x1f\x8b\b\0\0\0\0\0\0\3\3\0\0\0\0\0\0\0\0\0", 20);
  assert_int_equal(array_open_records(&data, path, inputs, 2, out), STATUS_USER);
  assert_non_null(strstr(status_message(), "is empty when unpacked"));
  path = data_write_gzip("t.csv", "1,2,0\n3,4,1\n", 12, 6);
  assert_int_equal(truncate(path, 27), 0);
  assert_int_equal(array_open_records(&data, path, inputs, 2, out), STATUS_USER);
  assert_non_null(strstr(status_message(), "is truncated: the gzip data ends too early"));
}

/* An input of integers that does not say how many classes it has; boxes of one that do. */
static void bounds(void **state) {
  (void)state;
  PlanPart part = {.start = {0, 1}, .step = {1, 1}, .count = {4, 1}, .below = 2};
  PlanTensor whole = {.name = "w", .type = {DT_I64, {2, {4, 2}}}, .parts = &part, .part_count = 1};
  DataArray *out;
  DataSource data = {.kind = "csv"};
  const char text[] = "1,no\n2,yes\n3,no\n", two[] = "no,1\nyes,1\n";
  assert_int_equal(
      array_open_records(&data, data_write("t.csv", text, sizeof text - 1), &whole, 1, &out),
      STATUS_OK);
  const int64_t want[] = {1, 0, 2, 1, 3, 0};
  assert_memory_equal(array_at(out), want, sizeof want);
  array_close(out);
  assert_int_equal(
      array_open_records(&data, data_write("t.csv", two, sizeof two - 1), &whole, 1, &out),
      STATUS_USER);
  assert_non_null(
      strstr(status_message(), "'no' is not a whole number; if it is a class, list all"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(classes),
                                     cmocka_unit_test(refuses), cmocka_unit_test(bounds)};
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
