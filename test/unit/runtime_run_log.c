/* run_log, run_series: curves that keep spikes in bounded memory, resumed runs, hostile lines. */
#include "runtime/command/report_data.h"
#include "runtime/command/run_file.h"
#include "test/unit/runtime_data.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static RunLog *open_run(void) {
  RunLog *log;
  assert_int_equal(run_log_new("x.jsonl", &log), STATUS_OK);
  return log;
}

static void feed(RunLog *log, const char *text) {
  assert_int_equal(run_log_feed(log, text, strlen(text), NULL, NULL), STATUS_OK);
}

/* The page's data as jansson reads it. */
static json_t *data_of(RunLog *log, Text *text) {
  json_error_t error;
  report_append_runs(text, &log, 1);
  json_t *runs = json_loads(text_cstr(text), 0, &error);
  if (!runs) fail_msg("%s in %s", error.text, text_cstr(text));
  return runs;
}

/* Of a million points the least, the greatest, the first and the last are there, and each fault is
 * counted. */
static void spikes_stay(void **state) {
  (void)state;
  RunSeries series = {0};
  Text text = {0};
  const int64_t steps = 1000000;
  for (int64_t i = 1; i <= steps; i++) {
    double value = i == 777777 ? 1e6 : i == 33333 ? -1e6 : sin((double)i);
    if (i % 100000 == 0) value = i % 200000 ? NAN : INFINITY;
    assert_int_equal(run_series_add(&series, (RunPoint){(double)i, (double)i / 10, value}),
                     STATUS_OK);
  }
  assert_true(series.used <= RUN_BUCKETS);
  for (int most = RUN_BUCKETS; most >= 8; most /= 8) {
    text.count = 0;
    text_printf(&text, "{");
    run_series_append_json(&text, &series, most);
    text_printf(&text, "}");
    assert_true(text.count < (size_t)most * 200 + 100);
    json_t *json = json_loads(text.at, 0, NULL), *point;
    assert_non_null(json);
    size_t i;
    double least = 0, greatest = 0, faults = 0, before = 0;
    json_array_foreach(json_object_get(json, "points"), i, point) {
      double step = json_number_value(json_array_get(point, 0));
      double value = json_number_value(json_array_get(point, 2));
      assert_true(step > before);
      before = step;
      if (value < least) least = value;
      if (value > greatest) greatest = value;
      if (value == 1e6) assert_true(step == 777777);
    }
    json_array_foreach(json_object_get(json, "faults"), i, point) faults +=
        json_number_value(json_array_get(point, 2));
    assert_true(least == -1e6 && greatest == 1e6 && faults == 10);
    assert_true(before == (double)steps - 1); /* the last finite one */
    json_decref(json);
  }
  text_free(&text);
  run_series_free(&series);
}

static void resumed_runs_have_no_step_twice(void **state) {
  (void)state;
  RunLog *log = open_run();
  feed(log, "{\"ft\": \"1\", \"time\": 1000, \"first_step\": 0}\n");
  for (int i = 1; i <= 20; i++) {
    Text line = {0};
    text_printf(&line, "{\"step\": %d, \"loss\": %d, \"split\": \"train\", \"time\": %d}\n", i, i,
                1000 + i);
    feed(log, text_cstr(&line));
    text_free(&line);
  }
  feed(log, "{\"step\": 15, \"checkpoint\": \"ck\"}\n{\"step\": 20, \"end\": \"killed\"}\n");
  assert_true(log->is_over && !log->has_failed && log->time == 20);
  /* a day later, from step 15 */
  feed(log, "{\"ft\": \"1\", \"time\": 90000, \"first_step\": 15}\n");
  assert_true(!log->is_over && log->resumed_count == 1 && log->checkpoint_count == 1);
  feed(log, "{\"step\": 16, \"loss\": 99, \"split\": \"train\", \"time\": 90001}\n");
  const RunCurve *curve = run_log_find(log, RUN_STEP, "train", "loss");
  assert_non_null(curve);
  assert_int_equal(curve->series.used, 16);
  assert_true(curve->series.bucket[15].last.value == 99 &&
              curve->series.bucket[15].last.time == 21);
  assert_true(curve->series.bucket[14].last.step == 15);
  feed(log, "{\"step\": 17, \"error\": \"the loss is NaN\"}\n");
  assert_true(log->has_failed);
  assert_string_equal(log->end, "the loss is NaN");
  run_log_free(log);
}

static void hostile_lines_are_passed_over(void **state) {
  (void)state;
  static const char *const lines[] = {
      "",
      "x",
      "[1, 2]",
      "{\"step\": -1}",
      "{\"step\": 1e400, \"loss\": 1}",
      "{\"step\": NaN}",
      "{\"step\": \"7\", \"loss\": 1}",
      "{\"step\": 3, \"loss\": 1",
      "\xff\xfe{}",
      "{}",
      "null",
      "{\"step\": 99999999999999999999999, \"loss\": 1}",
      "{\"step\": 2, \"step\": 3}",
      "{\"step\": 1, \"loss\": \"</script><script>alert(1)</script>\"}",
      "{\"step\": 2, \"</script><img src=x onerror=alert(1)>\": 3, \"split\": \"<b>&\"}",
      "{\"step\": 3, \"loss\": 1e308, \"lr\": null, \"split\": 7, \"means\": [1], \"t\": [[1], 2]}",
      "{\"ft\": \"</script>\", \"settings\": {\"<\": {\"a\": [\"</script>\"]}}, \"data\": 3}",
      "{\"step\": 4, \"error\": \"\\u2028</script>\"}"};
  RunLog *log = open_run();
  Text text = {0};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    feed(log, lines[i]);
    feed(log, "\n");
  }
  feed(log, "{\"step\": 5, \"loss\": 1"); /* no end */
  assert_true(log->unreadable == 12 && log->first_unreadable == 2);
  json_t *runs = data_of(log, &text);
  assert_null(strpbrk(text_cstr(&text), "<>&"));
  json_decref(runs);
  text_free(&text);
  run_log_free(log);
}

static void long_lines_and_many_curves(void **state) {
  (void)state;
  RunLog *log = open_run();
  Text text = {0};
  char *filler = malloc(1 << 20);
  assert_non_null(filler);
  memset(filler, 'x', 1 << 20);
  feed(log, "{\"step\": 1, \"loss\": 1}\n{\"a\": \"");
  for (int i = 0; i < 12; i++)
    assert_int_equal(run_log_feed(log, filler, 1 << 20, NULL, NULL), STATUS_OK);
  assert_true(log->rest.capacity <= 2 * RUN_MOST_LINE);
  feed(log, "\"}\n{\"step\": 2, \"loss\": 2}\n");
  assert_true(log->unreadable == 1 && log->first_unreadable == 2 && log->step == 2);
  text_printf(&text, "{\"step\": 3");
  for (int i = 0; i < 1000; i++) text_printf(&text, ", \"metric%d\": %d", i, i);
  text_printf(&text, "}\n");
  feed(log, text_cstr(&text));
  assert_true(log->curve_count == RUN_MOST_SERIES && log->has_left_out);
  free(filler);
  text_free(&text);
  run_log_free(log);
}

/* A table that is too large comes as sums of blocks. */
static void large_tables(void **state) {
  (void)state;
  RunLog *log = open_run();
  Text line = {0}, text = {0};
  text_printf(&line, "{\"step\": 1, \"eval\": true, \"loss\": 1, \"split\": \"valid\", \"c\": [");
  for (int i = 0; i < 300; i++)
    for (int j = 0; j < 300; j++)
      text_printf(&line, "%s1%s", j ? "," : i ? ",[" : "[", j == 299 ? "]" : "");
  text_printf(&line, "]}\n");
  feed(log, text_cstr(&line));
  json_t *runs = data_of(log, &text);
  json_t *table = json_array_get(json_object_get(json_array_get(runs, 0), "tables"), 0);
  assert_int_equal(json_integer_value(json_object_get(table, "rows")), 300);
  assert_int_equal(json_integer_value(json_object_get(table, "block")), 3);
  json_t *values = json_object_get(table, "values");
  assert_int_equal(json_array_size(values), 100 * 100);
  assert_true(json_number_value(json_array_get(values, 0)) == 9);
  json_decref(runs);
  text_free(&line);
  text_free(&text);
  run_log_free(log);
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */

static void append_file(const char *text, const char *mode) {
  FILE *out = fopen(data_path("run.jsonl"), mode);
  assert_non_null(out);
  fputs(text, out);
  assert_int_equal(fclose(out), 0);
}

static bool read_file(RunFile *file) {
  bool more, has_changed;
  assert_int_equal(run_file_read(file, NULL, NULL, &more, &has_changed), STATUS_OK);
  assert_false(more);
  return has_changed;
}

static double last_loss(RunFile *file) { return run_number(run_file_log(file)->last, "loss", NAN); }

static void files_that_change(void **state) {
  (void)state;
  RunFile *file;
  unlink(data_path("run.jsonl"));
  assert_int_equal(run_file_new(data_path("run.jsonl"), &file), STATUS_OK);
  assert_false(read_file(file));
  assert_false(run_file_is_there(file));
  append_file("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"lo", "w");
  assert_true(read_file(file));
  assert_true(last_loss(file) == 1);
  append_file("ss\": 2}\n", "a");
  assert_true(read_file(file));
  assert_true(last_loss(file) == 2 && run_file_restarts(file) == 0);
  assert_false(read_file(file));
  /* cut and gone on with, beyond where it was, in between two looks */
  append_file(
      "{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 7}\n{\"step\": 3, \"loss\": 8}\n", "w");
  assert_true(read_file(file));
  assert_true(last_loss(file) == 8 && run_file_restarts(file) == 1);
  assert_int_equal(run_log_find(run_file_log(file), RUN_STEP, "", "loss")->series.used, 3);
  /* cut to nothing */
  assert_int_equal(truncate(data_path("run.jsonl"), 0), 0);
  assert_true(read_file(file));
  assert_int_equal(run_file_log(file)->curve_count, 0);
  /* away, and another one there */
  char other[300];
  snprintf(other, sizeof other, "%s", data_path("other"));
  assert_int_equal(rename(data_path("run.jsonl"), other), 0);
  assert_false(read_file(file));
  append_file("{\"step\": 5, \"loss\": 5}\n", "w");
  assert_true(read_file(file));
  assert_true(last_loss(file) == 5);
  run_file_free(file);
  unlink(other);
  /* no file at all */
  bool more, has_changed;
  assert_int_equal(run_file_new("/dev/zero", &file), STATUS_OK);
  assert_int_equal(run_file_read(file, NULL, NULL, &more, &has_changed), STATUS_USER);
  run_file_free(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spikes_stay),
      cmocka_unit_test(resumed_runs_have_no_step_twice),
      cmocka_unit_test(hostile_lines_are_passed_over),
      cmocka_unit_test(long_lines_and_many_curves),
      cmocka_unit_test(large_tables),
      cmocka_unit_test(files_that_change),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
