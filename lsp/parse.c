/* parse: see parse.h. The limit is for reading alone: answers are made of what has been read. Jansson looks at
 * some of its allocations only, so one that fails is noted here. */
#include "lsp/parse.h"
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

static size_t allocated;
static bool is_reading, has_failed;

static void *parse_allocate(size_t bytes) {
  bool is_too_much = is_reading && allocated + bytes > PARSE_MOST_BYTES;
  void *memory = is_too_much ? NULL : malloc(bytes);
  has_failed |= !memory;
  allocated += memory ? malloc_usable_size(memory) : 0;
  return memory;
}

static void parse_release(void *memory) {
  allocated -= memory ? malloc_usable_size(memory) : 0;
  free(memory);
}

json_t *parse_message(const char *bytes, size_t count, const char **why) {
  static bool is_installed;
  static json_error_t error;
  if (!is_installed) json_set_alloc_funcs(parse_allocate, parse_release);
  is_installed = is_reading = true;
  has_failed = false;
  json_t *message = json_loadb(bytes, count, JSON_ALLOW_NUL, &error);
  is_reading = false;
  *why = error.text;
  if (!has_failed) return message;
  json_decref(message);
  *why = "this message needs more memory than there is for messages";
  return NULL;
}
