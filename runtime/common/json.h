/* json: a guard around jansson's parser, which may leave letters out of a name where memory runs
 * out. */
#ifndef FT_RUNTIME_JSON_H
#define FT_RUNTIME_JSON_H
#include "runtime/common/status.h"
#include <jansson.h>

/* Keys given twice are refused. NULL with a status: STATUS_USER says what jansson says, as the end
 * of a sentence: "line 3: '}' expected". */
STATUS_CHECKED Status json_parse(const char *bytes, size_t count, json_t **out);
/* The same of a text that may be a number or a string alone. */
STATUS_CHECKED Status json_parse_any(const char *bytes, size_t count, json_t **out);
/* The same of a line by itself. A number is a real, so that one that is too large for an integer is none's
 * concern but the one's who reads it, and texts may hold NUL. The failure begins with the column, counted
 * in characters: "column 12: '}' expected near …". */
STATUS_CHECKED Status json_parse_line(const char *bytes, size_t count, json_t **out);
#endif
