/* Places of a plan (plan/plan_place.h): what their lines may say, that nothing of it hangs on names
 * or on how many there are, and where windows lie. */
#include "plan_sample.h"

#include "base/text.h"

static void test_refusals(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"place work 4096 for batch", "place work 4096", "expected 'for'"},
      {"place work 4096 for batch", "place work 4096 for week", "how long place work is kept"},
      {"place work 4096 for batch", "place work -1 for batch", "must lie in"},
      {"place work 4096 for batch", "place work 4096 for batch batch", "unexpected 'batch'"},
      {"place work 4096", "place wo+rk 4096", "size"},
      {"for batch from host", "for batch from", "expected 'host'"},
      {"for batch from host", "for step from host", "neither once nor for each batch"},
      {"for batch to host", "for ever to host", "but not for each batch"},
      {"place work 4096 for batch", "place work 4096 for batch to host", "a second place that the"},
      {"place work 4096 for batch", "place work 4096 for batch from host",
       "a second place that the"},
      {"for ever from host", "for ever from host saved weights", "is the host's"},
      {"for ever from host", "for ever from host elements f32", "is the host's"},
      {"elements f32 saved weights", "elements f33 saved weights", "no type 'f33'"},
      {"elements f32 saved weights", "elements f32 saved twice", "with what place params is saved"},
      {"for ever elements f32 saved weights", "for batch elements f32 saved weights",
       "is saved, but not kept for ever"},
      {"rounded params", "rounded grads", "no place 'grads' before this"},
      {"elements bf16 rounded params", "elements f32 rounded params", "not from f32 to bf16"},
      {"place narrow 128", "place narrow 64", "smaller than params in 16 bits"},
      {"place narrow 128", "place narrow 192", "more elements than params"},
      {"place grads 256 for step elements f32 like params",
       "place grads 256 for step elements f32 like narrow", "have no order of their own"},
      {"like params\nplace state", "like params saved checkpoint\nplace state",
       "but not kept for ever"},
      {"of state+128", "of state+100", "multiple of 64"},
      {"of state+128", "of state+65536", "lies outside of state"},
      {"of state+128", "of state+9223372036854775744", "must lie in"},
      {"of state+128", "of output+0", "a window of what the host"},
      {"of state+128", "of caches+0", "a window of a window"},
      {"of state+128", "of stat+128", "no place 'stat' before this"},
      {"of state+128", "of state 128", "expected '+'"},
      {"checkpoint of state", "weights of state", "saved in another way"},
      {"of work+1024", "of work+4096", "lies outside of work"},
      /* tensors where they may not lie */
      {"u8[4,8] at input+0", "u8[4,8] at work+0", "a input does not lie in place work"},
      {"f32[4] at params+128", "f32[4] at grads+128", "a param does not lie in place grads"},
      {"f32[4] at params+128", "f32[4] at @ema+128", "a param does not lie in place @ema"},
      {"i64[] at state+0", "i64[] at work+0", "a state does not lie in place work"},
      {"i64[] at state+0", "i64[] at output+0", "a state does not lie in place output"},
      {"f64[] at settings+0", "f64[] at input+0", "a scalar does not lie in place input"},
      {"f32[64] at @ema+0", "f32[32] at @ema+128", "and all of its place"},
      {"f32[64] at @ema+0", "f32[64] at state+128", "of role average has the order"},
      {"f32[4] at state+64", "f32[4] at @ema+64", "of role model has not the order"},
      {"of state+128", "of state+64", "\"@ema\" overlaps"},
      {"i64[] at state+384", "i64[] at state+320", "overlaps \"@ema\""},
      {"with @ema for params", "with state for params", "does not hold what params does"},
      {"with @ema for params", "with @ema for narrow", "does not hold what narrow does"},
      {"with @ema for params", "with @ema of params", "expected 'for'"},
      {"with @ema for params", "with @emo for params", "no place '@emo'"},
      {"with @ema for params", "with params for params", "does not hold what params does"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
}

static void replace_all(Text *text, const char *from, const char *to) {
  Text out = {0};
  const char *at = text->at, *found;
  for (; (found = strstr(at, from)) != NULL; at = found + strlen(from)) {
    text_append(&out, at, (size_t)(found - at));
    text_append(&out, to, strlen(to));
  }
  text_append(&out, at, strlen(at));
  text_free(text);
  *text = out;
}

static Plan *parsed(Arena *arena, Text *text) {
  const char *why = NULL;
  char sum[32];
  char *last = strstr(text->at, "checksum ");
  size_t body = last ? (size_t)(last - text->at) : text->count;
  snprintf(sum, sizeof sum, "checksum %016" PRIx64 "\n", plan_checksum(text->at, body));
  char *whole = arena_printf(arena, "%.*s%s", (int)body, text->at, sum);
  Plan *plan = plan_parse(arena, whole, strlen(whole), &why);
  if (!plan) fail_msg("%s", why);
  return plan;
}

/* The sample with all places renamed, and more of them in front, means the same. */
static void test_names_say_nothing(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text text = {0};
  plan_print(sample(arena), &text);
  const Plan *before = parsed(arena, &text);
  for (int i = 0; i < STANDARD_PLACE_COUNT; i++) {
    const char *name = standard_place_text((StandardPlace)i);
    const char *other = standard_place_text((StandardPlace)(STANDARD_PLACE_COUNT - 1 - i));
    static const char *const ways[][2] = {{"place %s ", "place x.%s "},
                                          {" %s+", " x.%s+"},
                                          {"like %s", "like x.%s"},
                                          {"rounded %s", "rounded x.%s"},
                                          {"for %s\n", "for x.%s\n"}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
      char from[64], to[64];
      snprintf(from, sizeof from, ways[k][0], name);
      snprintf(to, sizeof to, ways[k][1], other);
      replace_all(&text, from, to);
    }
  }
  char before_first[64], first[128];
  snprintf(before_first, sizeof before_first, "place x.%s ",
           standard_place_text((StandardPlace)(STANDARD_PLACE_COUNT - 1)));
  snprintf(first, sizeof first, "place first 640 for ever\nplace second 64 for step\n%s",
           before_first);
  replace_all(&text, before_first, first);
  const Plan *after = parsed(arena, &text);
  assert_int_equal(plan_find_place(after, "params"), -1);
  assert_int_equal(after->places.count, before->places.count + 2);
  assert_int_equal(plan_memory(after), plan_memory(before) + 704);
  assert_int_equal(plan_batch_place(after), plan_batch_place(before) + 2);
  assert_int_equal(plan_result_place(after), plan_result_place(before) + 2);
  for (int g = 0; g < before->graphs.count; g++)
    for (int i = 0; i < before->graphs.at[g].buffers.count; i++)
      assert_int_equal(after->graphs.at[g].buffers.at[i].place,
                       before->graphs.at[g].buffers.at[i].place + 2);
  text_free(&text);
  arena_free(arena);
}

/* What a graph says of a window are bytes of the place that it is of, so steps that meet there in
 * two ways are seen to meet. */
static void test_windows(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = sample(arena);
  Text text = {0};
  int64_t offset = 64;
  int average = plan_find_place(plan, "@ema"), whole = plan_whole_place(plan, average, &offset);
  assert_string_equal(plan->places.at[whole].name, "state");
  assert_int_equal(offset, 192);
  assert_int_equal(plan_whole_place(plan, whole, &offset), whole);
  assert_int_equal(offset, 192);
  plan_print(plan, &text);
  replace_all(&text, " state+128 f32[64]\n", " @ema+0 f32[64]\n");
  const Plan *again = parsed(arena, &text);
  for (int g = 0; g < again->graphs.count; g++)
    for (int i = 0; i < again->graphs.at[g].buffers.count; i++) {
      const PlanBuffer *buffer = &again->graphs.at[g].buffers.at[i];
      assert_false(again->places.at[buffer->place].is_window);
      assert_int_equal(buffer->place, plan->graphs.at[g].buffers.at[i].place);
      assert_int_equal(buffer->offset, plan->graphs.at[g].buffers.at[i].offset);
    }
  text_free(&text);
  arena_free(arena);
}

static void test_limit(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text more = {0};
  for (int i = 0; i < PLAN_MOST_PLACES; i++) text_printf(&more, "place p%d 64 for ever\n", i);
  text_printf(&more, "place params");
  expect_refusal(sample, "place params", more.at, "at most");
  text_free(&more);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_names_say_nothing),
      cmocka_unit_test(test_windows),
      cmocka_unit_test(test_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
