/* plan_ptx: the plan as //@ft comment lines at the head of a .ptx file, and back. */
#include "plan/plan.h"
#include <string.h>

static const char mark[] = "//@ft";
const char plan_ptx_inference[] = "//@inference\n";

void plan_to_ptx(const Plan *plan, Text *out) {
  Text plain = {0};
  plan_print(plan, &plain);
  for (const char *at = text_cstr(&plain); *at;) {
    size_t length = strcspn(at, "\n");
    text_printf(out, "%s ", mark);
    text_append(out, at, length);
    text_append(out, "\n", 1);
    at += length + (at[length] == '\n');
  }
  text_free(&plain);
}

/* One marked line's content: without the mark, one space, and a carriage return. */
static void append_line(Text *out, const char *at, const char *end) {
  at += sizeof mark - 1;
  if (at < end && *at == ' ') at++;
  if (at < end && end[-1] == '\r') end--;
  text_append(out, at, (size_t)(end - at));
  text_append(out, "\n", 1);
}

char *plan_from_ptx(Arena *arena, const char *bytes, size_t length) {
  Text plain = {0};
  const char *at = bytes, *stop = bytes + length;
  while (at < stop) {
    const char *end = memchr(at, '\n', (size_t)(stop - at));
    if (!end) end = stop;
    if ((size_t)(end - at) >= sizeof mark - 1 && !memcmp(at, mark, sizeof mark - 1))
      append_line(&plain, at, end);
    at = end + 1;
  }
  char *result = plain.count ? arena_strndup(arena, plain.at, plain.count) : NULL;
  text_free(&plain);
  return result;
}
