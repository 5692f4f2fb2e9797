/* once: what splits of one process read from the same files with the same options, and keep in memory, is made once:
 * `valid = 0.1 of train` takes the tokens that train has. Who opens such a thing asks by a key for one that is there, and
 * frees it only if nobody else uses it. Any number of threads. */
#ifndef FT_RUNTIME_ONCE_H
#define FT_RUNTIME_ONCE_H
#include "base/text.h"
#include "plan/plan.h"

/* What an array or a set of the files depends on: its kind and options, and which files, as they are now. */
void once_key(const char *what, const DataSource *data, char *const *path, int path_count,
              Text *out);
/* The object of this key, with one more user; NULL: there is none. */
void *once_take(const Text *key);
/* Offers an object, which has one user so far. Without memory for that it stays the caller's alone. */
void once_offer(const Text *key, void *object);
/* One user less. True: it was the last or the only one, and the object is to be freed. */
bool once_leave(const void *object);
/* Has it several users? */
bool once_is_shared(const void *object);
#endif
