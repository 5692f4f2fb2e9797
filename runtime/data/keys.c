/* keys: see keys.h. */
#include "runtime/data/keys.h"
#include <string.h>

/* The n-th name of the list, without blanks around it; NULL: there are fewer. */
static const char *nth_key(const char *list, int n, size_t *length) {
  for (; list && n > 0; n--) {
    list = strchr(list, ',');
    if (list) list++;
  }
  if (!list) return NULL;
  list += strspn(list, " \t\n");
  *length = strcspn(list, ",");
  while (*length && strchr(" \t\n", list[*length - 1])) --*length;
  return list;
}

Status keys_check(const ArrayFile *file) {
  const char *list = source_kind_text(file->options, "keys", NULL);
  int count = 1;
  for (const char *at = list; at && (at = strchr(at, ',')); at++) count++;
  if (!list || count == file->input_count) return STATUS_OK;
  return status_fail(STATUS_USER, "cannot be read: keys= has %d name%s, but the model %d input%s",
                     count, count == 1 ? "" : "s", file->input_count,
                     file->input_count == 1 ? "" : "s");
}

Status keys_name(const ArrayFile *file, int i, char out[KEY_MOST + 1]) {
  const char *list = source_kind_text(file->options, "keys", NULL);
  const char *name = file->inputs[i].name;
  size_t length = list ? 0 : strlen(name);
  if (list) name = nth_key(list, i, &length);
  if (!name || !length || length > KEY_MOST)
    return status_fail(STATUS_USER,
                       "cannot be read: keys= has no name for input %s, or too long a one",
                       file->inputs[i].name);
  memcpy(out, name, length);
  out[length] = 0;
  return STATUS_OK;
}

void keys_list(Text *has, const char *name, size_t length) {
  enum { ENOUGH = 120 };
  if (has->count > ENOUGH) return;
  size_t from = has->count;
  text_printf(has, "%s%.*s", has->count ? ", " : "", (int)(length < 60 ? length : 60), name);
  for (; from < has->count; from++)
    if (has->at[from] == '\n') has->at[from] = '?';
  if (has->count > ENOUGH) text_printf(has, ", ...");
}

Status keys_none(const char *name, const Text *has) {
  return status_fail(STATUS_USER, "has no array '%.80s': keys= can say which are meant; it has %s",
                     name, has->count ? text_cstr(has) : "none");
}
