/* keys: which array of a file of named ones goes to which input: keys="x, y" names them in the
 * inputs' order; without it each input takes the one of its own name. */
#ifndef FT_RUNTIME_KEYS_H
#define FT_RUNTIME_KEYS_H
#include "runtime/data/source_array.h"

/* The name for input i, of at most KEY_MOST characters. */
enum { KEY_MOST = 255 };
STATUS_CHECKED Status keys_name(const ArrayFile *file, int i, char out[KEY_MOST + 1]);
/* Has keys= as many names as the model has inputs? */
STATUS_CHECKED Status keys_check(const ArrayFile *file);
/* "has no array 'x'; it has a, b and 3 more". `has` is what was listed. */
STATUS_CHECKED Status keys_none(const char *name, const Text *has);
/* Adds a name to such a list, as long as it stays short. */
void keys_list(Text *has, const char *name, size_t length);
#endif
