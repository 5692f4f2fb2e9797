/* log: JSON lines are valid and exact, console lines are means, NaN is told once. */
#include "runtime/command/log.h"
#include "test/unit/runtime_data.h"
#include <jansson.h>
#include <math.h>

static FILE *console;
static Log *open_log(bool with_console, int64_t every) {
  console = tmpfile();
  char jsonl[256];
  snprintf(jsonl, sizeof jsonl, "%s", data_path("log.jsonl"));
  LogOptions options = {.console = with_console,
                        .out = console,
                        .jsonl = jsonl,
                        .every = every,
                        .steps_per_epoch = 10,
                        .total_steps = 30,
                        .batch = 4};
  /* the path is read again only for messages */
  static char kept[256];
  strcpy(kept, jsonl);
  options.jsonl = kept;
  Log *log;
  assert_int_equal(log_open(&options, &log), STATUS_OK);
  log_start_clock(log, 0);
  return log;
}

static char *console_text(void) {
  static char text[8192];
  rewind(console);
  text[fread(text, 1, sizeof text - 1, console)] = 0;
  fclose(console);
  return text;
}

/* Line `index` of the file as an object; checks that each line is one. */
static json_t *json_line(int index, int *count) {
  Text text = {0};
  assert_int_equal(text_read_file(&text, data_path("log.jsonl")), 0);
  json_t *result = NULL;
  *count = 0;
  for (char *line = strtok(text.at, "\n"); line; line = strtok(NULL, "\n")) {
    json_error_t error;
    json_t *object = json_loads(line, 0, &error);
    if (!json_is_object(object)) fail_msg("%s: %s", line, error.text);
    if ((*count)++ == index)
      result = object;
    else
      json_decref(object);
  }
  text_free(&text);
  return result;
}

static double get(json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number %s", key);
  return json_number_value(value);
}

static LogStep step_of(int64_t step, double loss) {
  return (LogStep){.step = step,
                   .loss = loss,
                   .has_lr = true,
                   .lr = 0.1f,
                   .metric = {{"accuracy", loss / 2, OUTPUT_METRIC}},
                   .metric_count = 1};
}

static void json_is_exact(void **state) {
  (void)state;
  Log *log = open_log(false, 5);
  for (int64_t i = 1; i <= 30; i++) {
    LogStep step = step_of(i, (float)i / 3);
    assert_int_equal(log_step(log, &step, i == 30), STATUS_OK);
  }
  LogStep result = {
      .step = 30, .loss = 0.25, .metric = {{"accuracy", 0.5, OUTPUT_METRIC}}, .metric_count = 1};
  assert_int_equal(log_eval(log, "valid", &result, 7, 0.1), STATUS_OK);
  assert_int_equal(log_close(log), STATUS_OK);
  assert_string_equal(console_text(), "");
  int count;
  json_t *line = json_line(2, &count);
  assert_int_equal(count, 7);
  assert_true(get(line, "step") == 15);
  assert_true(get(line, "epoch") == 2);
  assert_true((float)get(line, "loss") == 15.0f / 3);
  assert_true((float)get(line, "lr") == 0.1f);
  assert_true(get(line, "samples_per_s") > 0);
  assert_true(get(line, "accuracy") > 0);
  assert_null(json_object_get(line, "eval"));
  json_decref(line);
  line = json_line(6, &count);
  assert_true(json_is_true(json_object_get(line, "eval")));
  assert_true(get(line, "step") == 30 && get(line, "loss") == 0.25 && get(line, "accuracy") == 0.5);
  assert_null(json_object_get(line, "lr"));
  json_decref(line);
}

static void console_shows_means(void **state) {
  (void)state;
  Log *log = open_log(true, 5);
  for (int64_t i = 1; i <= 12; i++) {
    LogStep step = step_of(i, (double)i);
    assert_int_equal(log_step(log, &step, i == 12), STATUS_OK);
  }
  assert_int_equal(log_close(log), STATUS_OK);
  const char *text = console_text();
  assert_non_null(strstr(text, "epoch 1/3  step 5/30  loss 3.0000  accuracy 1.5000  lr 0.1  "));
  assert_non_null(strstr(text, "epoch 1/3  step 10/30  loss 8.0000  accuracy 4.0000"));
  assert_non_null(strstr(text, "epoch 2/3  step 12/30  loss 11.5000"));
  assert_null(strchr(text, '\r'));
}

static void nonfinite(void **state) {
  (void)state;
  Log *log = open_log(false, 1);
  static const double losses[] = {1, NAN, INFINITY, -INFINITY};
  for (int64_t i = 1; i <= 4; i++) {
    LogStep step = step_of(i, losses[i - 1]);
    assert_int_equal(log_step(log, &step, false), STATUS_OK);
  }
  assert_int_equal(log_close(log), STATUS_OK);
  fclose(console);
  for (int i = 0; i < 4; i++) {
    int count;
    json_t *line = json_line(i, &count);
    assert_int_equal(count, 4);
    assert_int_equal(json_is_null(json_object_get(line, "loss")), i > 0);
    assert_int_equal(json_is_true(json_object_get(line, "nonfinite")), i > 0);
    json_decref(line);
  }
}

static void unwritable(void **state) {
  (void)state;
  Log *log;
  LogOptions options = {.jsonl = "/nowhere/x.jsonl", .every = 1};
  assert_int_equal(log_open(&options, &log), STATUS_USER);
  assert_non_null(strstr(status_message(), "/nowhere/x.jsonl"));
  options.jsonl = "/dev/full";
  options.steps_per_epoch = options.total_steps = options.batch = 1;
  assert_int_equal(log_open(&options, &log), STATUS_OK);
  LogStep step = step_of(1, 1);
  Status status = log_step(log, &step, false);
  Status closed = log_close(log);
  assert_true(status == STATUS_FAULT || closed == STATUS_FAULT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_is_exact),
      cmocka_unit_test(console_shows_means),
      cmocka_unit_test(nonfinite),
      cmocka_unit_test(unwritable),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
