/* tar_keys: see tar_keys.h. */
#include "runtime/data/tar_keys.h"
#include <ctype.h>
#include <string.h>

static Status bad_keys(const char *what, const char *word, size_t length) {
  return status_fail(STATUS_USER, "keys= has '%.*s': %s", (int)(length < 60 ? length : 60), word,
                     what);
}

/* By what follows the ending's last dot. */
static bool content_of(const char *ending, TarContent *out) {
  static const char *const wholes[] = {"cls", "cls2", "class", "count", "index", "inx", "id", NULL};
  static const char *const images[] = {"jpg", "jpeg", "png", NULL};
  static const char *const jsons[] = {"json", "jsn", NULL};
  const char *dot = strrchr(ending, '.'), *last = dot ? dot + 1 : ending;
  *out = text_is_one_of(last, images)   ? TAR_IMAGE
         : text_is_one_of(last, wholes) ? TAR_WHOLE
         : text_is_one_of(last, jsons)  ? TAR_JSON
                                        : TAR_NPY;
  return *out != TAR_NPY || !strcmp(last, "npy");
}

static void trim(const char **word, size_t *length) {
  while (*length && isspace((unsigned char)**word)) ++*word, --*length;
  while (*length && isspace((unsigned char)(*word)[*length - 1])) --*length;
  if (*length && **word == '.') ++*word, --*length; /* ".jpg" is "jpg" */
}

static Status read_way(const char *word, size_t length, bool is_first, TarKey *key) {
  trim(&word, &length);
  const char *colon = memchr(word, ':', length);
  size_t ending = colon ? (size_t)(colon - word) : length;
  if (key->count == TAR_WAYS)
    return bad_keys("one input has at most 4 kinds of files", word, length);
  if (!ending || ending > TAR_KEY_MOST || length - ending > TAR_KEY_MOST)
    return bad_keys("it is no ending of a file's name", word, length);
  TarWay *way = &key->way[key->count];
  *way = (TarWay){0};
  for (size_t i = 0; i < ending; i++) way->ending[i] = (char)tolower((unsigned char)word[i]);
  if (!content_of(way->ending, &way->content))
    return bad_keys("it is none of jpg, jpeg, png, cls, id, index, count, json and npy", word,
                    length);
  if (colon && (way->content != TAR_JSON || length - ending < 2))
    return bad_keys("behind a colon stands the name of a number in a .json", word, length);
  if (colon) memcpy(way->field, colon + 1, length - ending - 1);
  if (way->content == TAR_IMAGE && !is_first)
    return bad_keys("images are for the first input only", word, length);
  if (key->count && (way->content == TAR_IMAGE) != (key->way[0].content == TAR_IMAGE))
    return bad_keys("an input gets images or numbers, not both", word, length);
  key->count++;
  return STATUS_OK;
}

Status tar_keys_read(const DataSource *data, const PlanTensor *inputs, int input_count,
                     TarKey *keys) {
  const char *list = source_kind_text(data, "keys", NULL);
  int count = 1;
  for (const char *at = list; at && (at = strchr(at, ',')); at++) count++;
  if (!list && input_count > 2)
    return status_fail(STATUS_USER,
                       "which of a sample's files is for which of the %d inputs? keys=\"jpg;png, "
                       "cls, mask.npy\" says it",
                       input_count);
  if (list && count != input_count)
    return status_fail(STATUS_USER, "keys= is for %d input%s, but the model has %d", count,
                       count == 1 ? "" : "s", input_count);
  if (!list) list = input_count == 1 ? "jpg;jpeg;png" : "jpg;jpeg;png, cls";
  for (int i = 0; i < input_count; i++, list++) {
    size_t rest = strcspn(list, ",");
    keys[i].count = 0;
    for (;;) {
      size_t length = strcspn(list, ";,");
      STATUS_TRY(
          status_prefix(read_way(list, length, i == 0, &keys[i]), "input %s", inputs[i].name));
      list += length;
      if (length == rest) break;
      rest -= length + 1;
      list++;
    }
  }
  return STATUS_OK;
}

bool tar_keys_split(const char *name, size_t *key, const char **ending) {
  const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
  const char *dot = strchr(last, '.');
  if (!dot) return false;
  *key = (size_t)(dot - name);
  *ending = dot + 1;
  if (dot > last) return true;
  if (!slash) return false; /* ".x"; of "a/.x" the key is "a/" */
  for (const char *at = slash; at-- > name && *at != '/';)
    if (*at == '.') return false;
  return true;
}
