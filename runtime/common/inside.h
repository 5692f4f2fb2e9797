/* inside: which paths a file from someone else may name. A model's settings come with its artifact,
 * so a path in them is its author's choice, not the user's: it may only lead below the current
 * folder, unless --allow-paths says otherwise. Paths of the command line are not checked. */
#ifndef FT_RUNTIME_INSIDE_H
#define FT_RUNTIME_INSIDE_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* The setting `key`, a path that is about to be written: relative, without ".." and names that
 * begin with a dot, and with all links resolved, as far as it exists, below the current folder. */
STATUS_CHECKED Status inside_check_setting(const SettingValue *settings, const char *key,
                                           bool allow_paths);
/* Is it relative and without ".."? */
bool inside_is_plain(const char *path);
#endif
