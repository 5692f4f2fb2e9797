/* source_early: see source_early.h. */
#include "runtime/data/source_early.h"
#include "runtime/data/spool.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };
static struct {
  DataArray *array;
  const SourceKind *kind;
  char *path;
} early[MOST];
static int early_count;

static const char *early_skip_space(const char *at) {
  while (isspace((unsigned char)*at)) at++;
  return at;
}

/* The text after `train = idx(` and the kind, or NULL: a kind whose files may be
 * compressed, since inflating takes time. */
static const char *early_find_call(const char *text, const SourceKind **kind) {
  for (const char *at = text; (at = strstr(at, "train")); at++) {
    const char *next = early_skip_space(at + 5);
    if (*next != '=') continue;
    next = early_skip_space(next + 1);
    for (int i = 0; i < source_kind_count; i++) {
      *kind = &source_kinds[i];
      size_t length = strlen((*kind)->name);
      bool is_early = (*kind)->reads == SOURCE_HEAD && !source_kind_has_options(*kind);
      if (!is_early || strncmp(next, (*kind)->name, length) != 0) continue;
      const char *open = early_skip_space(next + length);
      if (*open == '(') return open + 1;
    }
  }
  return NULL;
}

static void open_early(const Plan *plan, const SourcePlaces *places, const SourceKind *kind,
                       const char *file) {
  char *path;
  if (source_find_file(plan, places, file, &path) != STATUS_OK) return;
  DataArray *array;
  if (array_open(&(DataSource){.kind = kind->name}, path, &array) != STATUS_OK) {
    free(path); /* told when the training opens it */
    return;
  }
  source_bytes_start(array->bytes);
  early[early_count].array = array;
  early[early_count].kind = kind;
  early[early_count++].path = path;
}

void source_early_start(const char *ft_path, const SourcePlaces *places) {
  Text text = {0};
  Plan plan = {.source = ft_path};
  const SourceKind *kind;
  const char *at =
      text_read_file(&text, ft_path) == 0 ? early_find_call(text_cstr(&text), &kind) : NULL;
  while (at && early_count < MOST) {
    at = early_skip_space(at);
    const char *end = *at == '"' ? strpbrk(at + 1, "\"\n") : NULL;
    if (!end || *end != '"') break;
    char *file = strndup(at + 1, (size_t)(end - at) - 1);
    if (file && !spool_is_command(file)) open_early(&plan, places, kind, file);
    free(file);
    at = early_skip_space(end + 1);
    at = *at == ',' ? at + 1 : NULL;
  }
  text_free(&text);
}

DataArray *source_early_take(const char *kind, const char *path) {
  for (int i = 0; i < early_count; i++) {
    if (!early[i].array || strcmp(early[i].kind->name, kind) || strcmp(early[i].path, path))
      continue;
    DataArray *array = early[i].array;
    early[i].array = NULL;
    return array;
  }
  return NULL;
}

void source_early_end(void) {
  for (int i = 0; i < early_count; i++) {
    array_close(early[i].array);
    free(early[i].path);
  }
  early_count = 0;
}
