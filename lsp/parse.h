/* parse: jansson's reader for what anybody may send: all that is kept of messages at a time takes 256 MiB at most. */
#ifndef FT_LSP_PARSE_H
#define FT_LSP_PARSE_H
#include <jansson.h>

#define PARSE_MOST_BYTES ((size_t)256 << 20)

/* NULL, and *why, a sentence's end: it is no JSON, or there is no room for it. */
json_t *parse_message(const char *bytes, size_t count, const char **why);
#endif
