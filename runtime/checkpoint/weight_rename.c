/* weight_rename: see weight_rename.h. */
#include "runtime/checkpoint/weight_rename.h"
#include "base/text.h"
#include <stdbool.h>
#include <string.h>

typedef struct {
  const char *at;
  size_t length;
} Taken;

static int count_stars(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '*';
  return count;
}

Status rename_parse(Arena *arena, const char *text, Rename *out) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text)
    return status_fail(STATUS_USER,
                       "--init-rename %s: expected OLD=NEW, for example \"encoder.*=backbone.*\"",
                       text);
  out->from = arena_strndup(arena, text, (size_t)(equals - text));
  out->to = arena_strdup(arena, equals + 1);
  int from = count_stars(out->from), to = count_stars(out->to);
  if (from > RENAME_STARS)
    return status_fail(STATUS_USER, "--init-rename %s: at most %d stars", text, RENAME_STARS);
  if (*out->to && from != to)
    return status_fail(STATUS_USER,
                       "--init-rename %s: each * on the right takes what one on the left stands "
                       "for, but there are %d and %d",
                       text, from, to);
  return STATUS_OK;
}

/* What each star takes: the shortest from the left. When what follows the last star does not fit,
 * only that star grows: those before have taken the least already, so no other way would match. */
static bool rename_match(const char *pattern, const char *name, Taken taken[RENAME_STARS]) {
  int star = -1;
  const char *behind = NULL; /* the last star, in the pattern */
  while (*name || *pattern) {
    if (*pattern == '*') {
      taken[++star] = (Taken){name, 0};
      behind = ++pattern;
    } else if (*name && *pattern == *name) {
      pattern++, name++;
    } else if (star >= 0 && taken[star].at[taken[star].length]) {
      taken[star].length++;
      name = taken[star].at + taken[star].length;
      pattern = behind;
    } else {
      return false;
    }
  }
  return true;
}

const char *rename_apply(Arena *arena, const Rename *rename, const char *name) {
  Taken taken[RENAME_STARS] = {0};
  if (!rename_match(rename->from, name, taken)) return NULL;
  Text made = {0};
  int star = 0;
  for (const char *c = rename->to; *c; c++) {
    if (*c == '*') {
      text_append(&made, taken[star].at, taken[star].length);
      star++;
    } else {
      text_append(&made, c, 1);
    }
  }
  const char *copy = arena_strdup(arena, text_cstr(&made));
  text_free(&made);
  return copy;
}
