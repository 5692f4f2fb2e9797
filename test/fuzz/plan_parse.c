/* plan_parse: any bytes as a plan: as they are, as the head of a .ptx, and as the lines of a plan
 * whose checksum is right, so that the fuzzer gets past it. What is accepted must print and parse
 * again to the same text. */
#include "plan/plan_stages.h"
#include "plan/plan_cubin.h"
#include "plan/plan_text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parse(const char *text, size_t length) {
  Arena *arena = arena_new();
  const char *why = NULL;
  Plan *plan = plan_parse(arena, text, length, &why);
  if (!plan && (!why || strncmp(why, "line ", 5) != 0)) abort();
  if (plan) {
    Text first = {0}, second = {0};
    plan_print(plan, &first);
    Plan *again = plan_parse(arena, first.at, first.count, &why);
    if (!again) abort();
    plan_print(again, &second);
    if (strcmp(first.at, second.at) != 0) abort();
    text_free(&first);
    text_free(&second);
  }
  arena_free(arena);
}

/* Plans of several stages, whose checksums are set right. */
static void parse_stages(const char *bytes, size_t size) {
  static const char last[] = "checksum ";
  Text whole = {0};
  size_t start = 0;
  for (const char *at = bytes, *stop = bytes + size; at < stop;) {
    const char *end = memchr(at, '\n', (size_t)(stop - at));
    end = end ? end + 1 : stop;
    bool is_sum = (size_t)(end - at) > sizeof last && !memcmp(at, last, sizeof last - 1);
    if (!is_sum) text_append(&whole, at, (size_t)(end - at));
    at = end;
    if (!is_sum) continue;
    uint64_t sum = plan_checksum(text_cstr(&whole) + start, whole.count - start);
    text_printf(&whole, "checksum %016" PRIx64 "\n", sum);
    start = whole.count;
  }
  Arena *arena = arena_new();
  PlanStages stages;
  const char *why = NULL;
  bool is_good = plan_parse_stages(arena, text_cstr(&whole), whole.count, &stages, &why);
  if (is_good ? stages.count != setting_pipeline(stages.at[0]->settings) : !why) abort();
  arena_free(arena);
  text_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *bytes = (const char *)data;
  parse(bytes, size);
  parse_stages(bytes, size);
  Text whole = {0};
  text_append(&whole, bytes, size);
  text_printf(&whole, "\nchecksum ");
  size_t body = whole.count - strlen("checksum ");
  text_printf(&whole, "%016" PRIx64 "\n", plan_checksum(whole.at, body));
  parse(whole.at, whole.count);
  Arena *arena = arena_new();
  char *head = plan_from_ptx(arena, bytes, size);
  if (head) parse(head, strlen(head));
  plan_read_cubin(arena, bytes, size);
  arena_free(arena);
  text_free(&whole);
  return 0;
}
