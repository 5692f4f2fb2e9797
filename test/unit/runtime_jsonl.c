/* jsonl: documents of JSON lines become tokens and labels; a line that is none is refused in one sentence
 * with its line and column. */
#include "runtime/data/jsonl.h"
#include "test/unit/runtime_data.h"

static void reads(void **state) {
  (void)state;
  static const char text[] = "\xef\xbb\xbf{\"text\": \"ab\"}\r\n \t\r\n{\"id\": 123456789012345678901, "
                             "\"text\": \"\\u00e9\\u0000\\n\"}\n{\"text\": \"\"}\n{\"text\": \"z\"}";
  DataArray *array;
  const char *path = data_write("data", text, sizeof text - 1);
  assert_int_equal(data_open("jsonl", NULL, path, &array), STATUS_OK);
  assert_int_equal(array->header.shape.dim[0], 7);
  assert_memory_equal(array_at(array), "ab\xc3\xa9\0\nz", 7);
  assert_int_equal(array_memory(array), 7);
  array_close(array);
  assert_int_equal(data_open("jsonl", "end=124", path, &array), STATUS_OK);
  assert_int_equal(array->header.shape.dim[0], 11);
  assert_memory_equal(array_at(array), "ab|\xc3\xa9\0\n||z|", 11);
  array_close(array);
  path = data_write_gzip("packed", "{\"body\": \"x\", \"text\": 3}\n", 25, 6);
  assert_int_equal(data_open("jsonl", "text=body end=none", path, &array), STATUS_OK);
  assert_memory_equal(array_at(array), "x", 1);
  array_close(array);
}

static void refuses(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{\"text\": \"abc}\n", "line 1, column 14: premature end of input"},
      {"{\"text\": \"a\"}\n{\"text\": \"b\",}", "line 2, column 14: string or '}' expected near"},
      {"{\n\"text\": \"a\"\n}\n", "line 1, column 1: string or '}' expected near end of file"},
      {"{\n", "(each line is JSON of its own, as jq -c . writes it)"},
      {"\n\n[{\"text\": \"a\"}]\n", "line 3: is an array; each line is to be an object"},
      {"7\n", "line 1: is a number"},
      {"{\"body\": \"a\", \"id\": 1}", "line 1: has no member 'text'; it has 'body', 'id': text= says"},
      {"{}", "line 1: has no member 'text': text= says which"},
      {"{\"text\": null}", "line 1: member 'text' is null, not a text"},
      {"{\"text\": \"a\"} {}\n", "column 15: end of file expected near '{'"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate object key"},
      {"{\"text\": \"\\ud800\"}", "invalid Unicode"},
      {"{\"text\": \"\xff\"}", "line 1, column 10: unable to decode byte 0xff"},
      {"\n \n\t", "has no line with an object"},
      {"{\"text\": \"\"}", "has no token: its documents are empty"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    data_refused("jsonl", data_write("data", cases[i][0], strlen(cases[i][0])), cases[i][1]);
  data_refused("jsonl", data_write("zero", "{\"text\": \"a\0\"}", 14), "control character 0x0");
  char deep[4096];
  memset(deep, '[', sizeof deep);
  data_refused("jsonl", data_write("deep", deep, sizeof deep), "maximum parsing depth reached");
  DataArray *array;
  const char *path = data_write("data", "{\"text\": \"a\"}", 13);
  assert_int_equal(data_open("jsonl", "end=256", path, &array), STATUS_USER);
  assert_non_null(strstr(status_message(), "end=256 is no token, these are 0 to 255"));
  assert_int_equal(data_open("jsonl", "tokenizer=none", path, &array), STATUS_FAULT);
}

static Arena *arena;
static Status add(const char *list, const char *text, JsonlTexts *out) {
  JsonlForm form = {.text = "text", .label = "label", .end = -1, .element = ELEMENT_U8};
  *out = (JsonlTexts){.classes = {.arena = arena}};
  Status status = list ? jsonl_list_classes(out, list) : STATUS_OK;
  if (status == STATUS_OK) status = jsonl_add(&form, (const uint8_t *)text, strlen(text), out);
  if (status == STATUS_OK) status = jsonl_finish(&form, out);
  return status;
}

static void labels(void **state) {
  (void)state;
  static const char named[] = "{\"text\": \"a\", \"label\": \"pos\"}\n{\"text\": \"bc\", \"label\": \"neg\"}\n"
                              "{\"text\": \"\", \"label\": \"pos\"}\n{\"text\": \"d\", \"label\": \"ne\"}\n";
  static const struct {
    const char *list;
    int64_t label[4];
  } orders[] = {{NULL, {2, 1, 2, 0}}, {" pos,neg , other,ne", {0, 1, 0, 3}}};
  JsonlTexts texts;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(add(orders[i].list, named, &texts), STATUS_OK);
    assert_int_equal(texts.documents, 4);
    assert_memory_equal(texts.label, orders[i].label, sizeof orders[i].label);
    assert_memory_equal(texts.behind, ((int64_t[]){1, 3, 3, 4}), 4 * sizeof(int64_t));
    assert_int_equal(texts.classes.entries.count, i ? 4 : 3);
    jsonl_free(&texts);
  }
  assert_int_equal(add(NULL, "{\"text\": \"a\", \"label\": 7.0}\n{\"text\": \"a\", \"label\": true}", &texts),
                   STATUS_OK);
  assert_memory_equal(texts.label, ((int64_t[]){7, 1}), 2 * sizeof(int64_t));
  jsonl_free(&texts);
  static const char *const wrong[][3] = {
      {NULL, "{\"text\": \"a\"}", "has no member 'label'; it has 'text': label= says"},
      {NULL, "{\"text\": \"a\", \"label\": 0.5}", "member 'label' is no whole number"},
      {NULL, "{\"text\": \"a\", \"label\": 1e300}", "member 'label' is no whole number"},
      {NULL, "{\"text\": \"a\", \"label\": [1]}", "member 'label' is an array, but a label is"},
      {NULL, "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": \"b\"}",
       "line 2: member 'label' is a text, but in the lines before it is a number"},
      {NULL, "{\"text\": \"a\", \"label\": \"b\"}\n{\"text\": \"a\", \"label\": 1}",
       "line 2: member 'label' is a number, but in the lines before it is a text"},
      {"b", "{\"text\": \"a\", \"label\": 1}", "is a number, but classes= lists texts"},
      {"b", "{\"text\": \"a\", \"label\": \"c\"}", "label 'c' is none of those that classes= lists"},
      {"b,b", "", "classes= has 'b' twice"},
      {"b,,c", "", "classes= has an empty name"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(add(wrong[i][0], wrong[i][1], &texts), STATUS_USER);
    if (!strstr(status_message(), wrong[i][2])) fail_msg("message: %s", status_message());
    jsonl_free(&texts);
  }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(refuses),
                                     cmocka_unit_test(labels)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
