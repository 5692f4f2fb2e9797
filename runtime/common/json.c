/* json: see json.h. Jansson's allocations are noted as they fail: it looks at some only. */
#include "runtime/common/json.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static json_malloc_t before; /* the program's own, should it have set one */
static _Thread_local bool has_failed;

static void *allocate(size_t bytes) {
  void *memory = before(bytes);
  has_failed |= !memory;
  return memory;
}

static void install(void) {
  json_free_t release;
  json_get_alloc_funcs(&before, &release);
  json_set_alloc_funcs(allocate, release);
}

static Status parse_with(const char *bytes, size_t count, size_t flags, json_error_t *error,
                         json_t **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  has_failed = false;
  *out = json_loadb(bytes, count, JSON_REJECT_DUPLICATES | flags, error);
  if (has_failed) {
    json_decref(*out);
    *out = NULL;
    return status_errno(ENOMEM, "cannot be read");
  }
  if (*out) return STATUS_OK;
  return status_fail(STATUS_USER, "line %d: %.80s", error->line, error->text);
}

Status json_parse(const char *bytes, size_t count, json_t **out) {
  json_error_t error;
  return parse_with(bytes, count, 0, &error, out);
}

Status json_parse_any(const char *bytes, size_t count, json_t **out) {
  json_error_t error;
  return parse_with(bytes, count, JSON_DECODE_ANY, &error, out);
}

Status json_parse_line(const char *bytes, size_t count, json_t **out) {
  const size_t flags = JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
  json_error_t error;
  Status status = parse_with(bytes, count, flags, &error, out);
  if (status != STATUS_USER) return status;
  return status_fail(status, "column %d: %.80s (each line is JSON of its own, as jq -c . writes it)",
                     error.column, error.text);
}
